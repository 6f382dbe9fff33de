/* cope.c -- CoPE (Golovneva et al. 2024, section 4):   s_ij += scale ((1 - f) q_i . e[w] + f q_i . e[w + 1]),
 *
 *      w + f = position_ij = min(sum of gate_it over visible keys t >= j with rel <= 0, P - 1),
 *      gate_it = sigmoid(scale q_i . k_t)
 *
 * Positions are counted from the last key: in the forward tiles descend, and c->passed is the sum of the gates of the
 * tiles so far. The gradient ascends, after a pass that sums all gates; each tile then takes its own away. Several CoPE
 * operators on one call share the gates.
 */
#include "base/elementary.h"
#include "relative/lookup.h"

enum { TABLE, D_TABLE };

/* Buffers of c->weight: 1 - f and f of each pair of the panel */
static real *fractions(const pe_content *c) { return c->weight; }
static real *complements(const pe_content *c) { return c->weight + BLOCK_N * PANEL_LANES; }

/* Gates of a panel; 0 if the pair is masked or the key comes after the query */
static void gates(const pe_content *c, const pe_view *v, real *gate)
{
    const pe_panel *p = v->panel;
    const pe_panel_bias *visible = v->visible;
    const int width = p->width, n = visible->to - visible->from;
    const pe_matrix keys = {v->k + visible->from * v->k_step, v->k_step};
    FN(multiply_rows)(&keys, 0, n, c->d, c->q + p->first * c->d, width, gate);
    SIMD
    for (int i = 0; i < n * width; i++)
        gate[i] = R(0.5) + R(0.5) * tanh_(R(0.5) * c->gate_scale * gate[i]);
    for (int j = 0; j < n; j++) {
        const double key = v->keys->position.at[visible->from + j];
        for (int l = 0; l < width; l++) {
            const int masked = visible->add && visible->add[j * visible->step + l] == MASKED;
            if (masked || !(key <= v->queries->position.at[p->first + l]))
                gate[j * width + l] = 0;
        }
    }
}

static void count(pe_content *c, const pe_view *v)
{
    const pe_panel *p = v->panel;
    real *gate = c->weight;
    gates(c, v, gate);
    for (int j = 0; j < v->visible->to - v->visible->from; j++) {
        for (int l = 0; l < p->width; l++)
            c->passed[p->first + l] += (double)gate[j * p->width + l];
    }
}

/* Whole part of each position to c->index, f and 1 - f to c->weight. The sum is in double: P may be thousands, a gate
 * is below 1. A sum that is NaN takes row 0. */
static void positions(pe_content *c, const pe_view *v, int last)
{
    const int width = v->panel->width, n = v->visible->to - v->visible->from;
    real *f = fractions(c), *complement = complements(c);
    double sum[PANEL_LANES];
    c->index_map = NULL; /* c->index is overwritten */
    gates(c, v, f);
    for (int l = 0; l < width; l++)
        sum[l] = c->passed[v->panel->first + l];
    if (c->ascending) {
        for (int l = 0; l < width; l++) {
            for (int j = 0; j < n; j++)
                sum[l] -= (double)f[j * width + l];
        }
    }
    for (int j = n - 1; j >= 0; j--) {
        for (int l = 0; l < width; l++) {
            sum[l] += (double)f[j * width + l];
            const double at = sum[l] < last ? sum[l] > 0 ? sum[l] : 0 : sum[l] >= last ? last : 0;
            const int whole = (int)at;
            c->index[j * width + l] = whole;
            f[j * width + l] = (real)(at - whole);
            complement[j * width + l] = (real)(1 - (at - whole));
        }
    }
    memcpy(c->left, sum, (size_t)width * sizeof *sum);
}

/* From row w of each pair to row w + 1, if there is one */
static void next_rows(pe_content *c, int size, int last)
{
    for (int i = 0; i < size; i++)
        c->index[i] += c->index[i] < last;
}

static int last_row(const pe_view *v) { return (int)v->queries->call->term[v->term].D(P) - 1; }

static void scan(pe_content *c, const pe_view *v, real *add)
{
    const pe_panel *p = v->panel;
    const int last = last_row(v), n = v->visible->to - v->visible->from;
    const pe_matrix table = matrix_of(v, TABLE);
    const pe_row_map r = {c->index, p->width};
    const real *q = c->q + p->first * c->d;
    positions(c, v, last);
    FN(add_lookup)(c, &table, &r, 0, n, c->d, q, p, complements(c), add);
    next_rows(c, n * p->width, last);
    FN(add_lookup)(c, &table, &r, 0, n, c->d, q, p, fractions(c), add);
}

static void scan_done(pe_content *c, const pe_view *v)
{
    if (!c->ascending)
        memcpy(c->passed + v->panel->first, c->left, (size_t)v->panel->width * sizeof *c->left);
}

/* ---- gradient ---- */

/* d e[w] += (1 - f) dx scale q_i,   d e[w + 1] += f dx scale q_i,   d q_i from both rows; TILE_RELS rows at a time */
static void table_vjp(pe_content_vjp *b, const pe_view *v, const real *dx)
{
    const pe_panel *p = v->panel;
    pe_content *c = b->content;
    const int width = p->width, n = v->visible->to - v->visible->from, last = last_row(v);
    const pe_matrix table = matrix_of(v, TABLE);
    const pe_row_map r = {c->index, width};
    const idx step = gradient_step(v, D_TABLE);
    real *d_table = gradient_of(b, v, D_TABLE);
    int low, high;
    FN(row_range)(&r, 0, n, width, &low, &high);
    high = (int)min_(high + 1, last);
    for (; low <= high; low += TILE_RELS) {
        const int rows = (int)min_(TILE_RELS, high - low + 1);
        FN(sum_by_row)(c, &r, 0, n, low, rows, width, dx, complements(c), 1, c->products);
        next_rows(c, n * width, last);
        FN(sum_by_row)(c, &r, 0, n, low, rows, width, dx, fractions(c), 0, c->products);
        FN(add_rows)(&table, low, rows, c->d, width, c->products, b->dq + p->first * c->d);
        if (d_table) {
            real *to = d_table + low * step;
            FN(add_outer_of_lanes)(p->first, p->lanes, width, c->products, b->q_rows, BLOCK_M, c->d, rows, to, step);
            FN(add_nonfinite_queries)(b, p, c->products, rows, to, step);
        }
        positions(c, v, last); /* the next rows begin at w again */
    }
}

/* d s / d position = q_i . (e[w + 1] - e[w]), summed over the operators in b->d_gates */
static void scan_vjp(pe_content_vjp *b, const pe_view *v, const real *dx)
{
    const pe_panel *p = v->panel;
    pe_content *c = b->content;
    const int n = v->visible->to - v->visible->from, size = n * p->width, last = last_row(v);
    const pe_matrix table = matrix_of(v, TABLE);
    const pe_row_map r = {c->index, p->width};
    const real *q = c->q + p->first * c->d;
    real *d_position = b->d_gates + p->first * BLOCK_N + v->visible->from * p->width;
    real *sign = fractions(c), *slope = complements(c);
    positions(c, v, last);
    table_vjp(b, v, dx);
    memset(slope, 0, (size_t)size * sizeof *slope);
    for (int i = 0; i < size; i++)
        sign[i] = -1;
    FN(add_lookup)(c, &table, &r, 0, n, c->d, q, p, sign, slope);
    next_rows(c, size, last);
    for (int i = 0; i < size; i++)
        sign[i] = 1;
    FN(add_lookup)(c, &table, &r, 0, n, c->d, q, p, sign, slope);
    add_reals(d_position, slope, size);
}

/* d gate_it = sum over j <= t of dx_ij d s_ij / d position, and gate' = gate (1 - gate): b->d_gates becomes the
 * gradient of scale q_i . k_t. */
static void gates_vjp(pe_content_vjp *b, const pe_view *v, const real *dx)
{
    const pe_panel *p = v->panel;
    pe_content *c = b->content;
    const int width = p->width, n = v->visible->to - v->visible->from;
    real *d_gate = b->d_gates + p->first * BLOCK_N + v->visible->from * width, *gate = c->weight;
    double *sum = b->d_passed + p->first;
    gates(c, v, gate);
    for (int j = 0; j < n; j++) {
        for (int l = 0; l < width; l++) {
            const int i = j * width + l;
            sum[l] += dx[i] == 0 ? 0 : (double)(dx[i] * d_gate[i]);
            c->passed[p->first + l] -= (double)gate[i]; /* the sum after the next tile */
            d_gate[i] = gate[i] == 0 ? 0 : (real)sum[l] * (gate[i] * (1 - gate[i]));
        }
    }
}

const pe_content_op FN(cope_op) = {
    .scan = scan, .scan_done = scan_done, .count = count, .scan_vjp = scan_vjp, .gates_vjp = gates_vjp};
