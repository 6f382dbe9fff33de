/* cope.c -- CoPE (Golovneva et al. 2024, section 4):   s_ij += scale ((1 - f) q_i . e[w] + f q_i . e[w + 1]),
 *
 *      w + f = position_ij = min(sum of gate_it over visible keys t >= j with rel <= 0, P - 1)
 *
 *     for each query i, with sum = 0:
 *         for (j = last visible key with rel <= 0; j >= 0; j--) {
 *             sum += sigmoid(scale * dot(q[i], k[j]));    w = floor(min(sum, P - 1));    f = min(sum, P - 1) - w;
 *             s[i][j] += scale * ((1 - f) * dot(q[i], e[w]) + f * dot(q[i], e[w + 1]));
 *         }
 *
 * scan.c computes the gates. Each table row is multiplied at most twice per panel and tile, as e[w] and as e[w + 1],
 * and each pair gathers two numbers from the products.
 */
#include "relative/lookup.h"

enum { TABLE, D_TABLE };

/* Buffers of c->scratch: 1 - f and f of each pair of the panel */
static real *fractions(const pe_content *c) { return c->scratch; }
static real *complements(const pe_content *c) { return c->scratch + BLOCK_N * PANEL_LANES; }

/* Store w of each pair in c->index, f and 1 - f in c->scratch. The sum is in double, because it may be thousands while
 * a gate is below 1. If the sum is NaN, w = f = 0. */
static void set_positions(pe_content *c, const pe_view *view, int last)
{
    const int width = view->panel->width, n = view->bias->to - view->bias->from;
    real *f = fractions(c), *complement = complements(c);
    double sum[PANEL_LANES];
    memcpy(sum, c->passed + view->panel->first, (size_t)width * sizeof *sum);
    for (int j = n - 1; j >= 0; j--) {
        for (int l = 0; l < width; l++) {
            sum[l] += (double)c->gates[j * width + l];
            const double at = sum[l] < last ? sum[l] > 0 ? sum[l] : 0 : sum[l] >= last ? last : 0;
            const int whole = (int)at;
            c->index[j * width + l] = whole;
            f[j * width + l] = (real)(at - whole);
            complement[j * width + l] = (real)(1 - (at - whole));
        }
    }
}

/* Replace row w of each pair by row w + 1, unless w is the last row. */
static void next_rows(pe_content *c, int size, int last)
{
    for (int i = 0; i < size; i++)
        c->index[i] += c->index[i] < last;
}

/* The rows that set_positions and next_rows store */
static pe_row_map rows_in_index(const pe_content *c, const pe_view *view)
{
    const pe_panel *p = view->panel;
    return (pe_row_map){c->index, p->width, view->bias->to - view->bias->from, p->width, p->first};
}

static int last_row(const pe_view *view) { return (int)operator_of(view)->D(P) - 1; }

static void scan(pe_content *c, const pe_view *view, real *add)
{
    const pe_panel *p = view->panel;
    const int last = last_row(view), n = view->bias->to - view->bias->from;
    const pe_lines table = matrix_of(view, TABLE);
    const pe_row_map r = rows_in_index(c, view);
    const real *q = c->q + p->first * c->d;
    set_positions(c, view, last);
    FN(add_lookup)(c, table, &r, c->d, q, complements(c), add);
    next_rows(c, n * p->width, last);
    FN(add_lookup)(c, table, &r, c->d, q, fractions(c), add);
}

/* ---- gradient ---- */

/* d e[w] += (1 - f) dx scale q_i,   d e[w + 1] += f dx scale q_i,   d q_i += dx ((1 - f) e[w] + f e[w + 1]).
 * TILE_RELS rows per pass. */
static void table_vjp(pe_content_vjp *vjp, const pe_view *view, const real *dx)
{
    const pe_panel *p = view->panel;
    pe_content *c = vjp->content;
    const int width = p->width, n = view->bias->to - view->bias->from, last = last_row(view);
    const pe_lines table = matrix_of(view, TABLE);
    const pe_row_map r = rows_in_index(c, view);
    const pe_strips strips = {vjp->q_rows, BLOCK_M, c->d};
    const pe_sums d_table = table_gradient(vjp, view, D_TABLE);
    int low, high;
    FN(row_range)(&r, &low, &high);
    high = (int)min_(high + 1, last);
    for (; low <= high; low += TILE_RELS) {
        const int rows = (int)min_(TILE_RELS, high - low + 1);
        const pe_span span = {c->products, p->first, p->lanes, width, 0, rows};
        zero_reals(c->products, rows * width);
        FN(add_by_row)(&r, low, rows, dx, complements(c), c->products);
        next_rows(c, n * width, last);
        FN(add_by_row)(&r, low, rows, dx, fractions(c), c->products);
        FN(add_rows)(table, low, rows, c->d, width, c->products, vjp->dq + p->first * c->d);
        if (d_table.row)
            add_outer_of_span(&span, &strips, sums_from(d_table, low));
        set_positions(c, view, last); /* set c->index to w again, for the next pass */
    }
}

/* d s / d position = scale q_i . (e[w + 1] - e[w]). vjp->d_gates accumulates it over the operators. */
static void scan_vjp(pe_content_vjp *vjp, const pe_view *view, const real *dx)
{
    const pe_panel *p = view->panel;
    pe_content *c = vjp->content;
    const pe_lines table = matrix_of(view, TABLE);
    const pe_row_map r = rows_in_index(c, view);
    const int size = r.n * r.width, last = last_row(view);
    const real *q = c->q + p->first * c->d;
    real *d_position = vjp->d_gates + score_offset(p, view->bias->from);
    real *sign = fractions(c), *slope = complements(c);
    set_positions(c, view, last);
    table_vjp(vjp, view, dx);
    memset(slope, 0, (size_t)size * sizeof *slope);
    for (int i = 0; i < size; i++)
        sign[i] = -1;
    FN(add_lookup)(c, table, &r, c->d, q, sign, slope);
    next_rows(c, size, last);
    for (int i = 0; i < size; i++)
        sign[i] = 1;
    FN(add_lookup)(c, table, &r, c->d, q, sign, slope);
    add_reals(d_position, slope, size);
}

static const pe_scan cope_scan = {.add = scan, .vjp = scan_vjp};
const pe_content_operator FN(cope_operator) = {.scan = &cope_scan};
