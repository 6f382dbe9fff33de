/* content_vjp.c -- gradients of Shaw, Transformer-XL, DeBERTa, CoPE and TUPE, tile by tile.
 *
 * Where the forward fetches number row_ij of a product, the gradient adds up dX_ij by rows, w[row][lane]; then
 *
 *     x_ij += (q_i + v) . table[row_ij]      dq_i += sum_row w[row][i] table[row],   d table[row] += w[row][i] (q_i + v)
 *
 * are the two products of attention's own gradient. scale is in q and in q_rows; dq gets it when it is written. What
 * meets the keys is in content_keys_vjp.c.
 */
#include "base/elementary.h"
#include "content/gradient.h"

#include <limits.h>

/* Rows of a panel's slot: a window of rows that follow each other fits, and others that are no more */
enum { SPAN = BLOCK_N + PANEL_LANES + 2 * MARGIN };

/* What the strips of the queries leave out, to the rows that such a query takes */
static void add_odd_queries(const pe_content_vjp *b, const pe_content *c, const pe_panel *p, const real *w, int n,
                            real *rows, idx step)
{
    for (int l = 0; l < p->lanes && b->odd_q; l++)
        for (int i = 0; i < n && (b->odd_q >> (p->first + l) & 1); i++)
            for (int k = 0; k < c->d && w[i * p->width + l] != 0; k++) {
                const real x = c->q[p->first * c->d + k * p->width + l];
                if (!(x - x == 0))
                    rows[i * step + k] += w[i * p->width + l] * x;
            }
}

void FN(content_vjp_at)(pe_content_vjp *b, const pe_content *c, const real *q_rows, const real *g_rows, real *dq, idx t,
                        char **scratch)
{
    memset(b, 0, sizeof *b);
    b->q_rows = q_rows;
    b->g_rows = g_rows;
    b->dq = dq;
    b->t = t;
    b->more = carve(scratch, (idx)BLOCK_M * BLOCK_N);
    b->sum = carve(scratch, (idx)PANEL_LANES * max_(c->d, CONTENT_PIECE));
    b->strips = carve(scratch, (idx)PANEL_LANES * (max_(c->d, CONTENT_PIECE) + LANES));
    b->shifted = carve(scratch, (idx)BLOCK_M * strips_width(c->d));
    b->dq_apart = carve(scratch, (idx)BLOCK_M * c->d);
    b->vector = -1;
    b->by_row = carve(scratch, (idx)BLOCK_M * SPAN);
}

/* ---- tables that meet the queries ---- */

/* Where gradients of a table that meets the queries go */
typedef struct {
    const real *strips;
    real *dq, *table;
    idx step;
} pe_to;

/* From   x_ij += scale (q_i + v) . table[row_ij]:   strips of q + v take the place of those of q, and d v is the sum over
 * the lanes of what table gives to dq. Both are kept for a block of queries, of the term that came last. */
static void end_vector(pe_content_vjp *b, const pe_content *c, const pe_queries *u)
{
    if (b->vector < 0)
        return;
    double *dv = (double *)(void *)gradient_of(b, u, b->vector, XL_DV);
    for (int p = 0; p < u->panels; p++)
        for (int k = 0; k < c->d; k++) {
            const idx at = u->panel[p].first * c->d + k * u->panel[p].width;
            double sum = 0;
            for (int l = 0; l < u->panel[p].lanes; l++) {
                b->dq[at + l] += b->dq_apart[at + l];
                sum += (double)b->dq_apart[at + l];
            }
            if (dv)
                dv[k] += (double)c->scale * sum;
        }
    b->vector = -1;
}

static void begin_vector(pe_content_vjp *b, const pe_content *c, const pe_queries *u, int term)
{
    const real *v = vector_of(u, term, XL_V);
    if (b->vector == term)
        return;
    end_vector(b, c, u);
    b->vector = term;
    memset(b->dq_apart, 0, (size_t)(u->width * c->d) * sizeof(real));
    for (int first = 0; first < c->d; first += PANEL_LANES) {
        const int w = strip_width(c->d, first), some = (int)min_(w, c->d - first);
        real shift[PANEL_LANES] = {0};
        for (int k = 0; k < some; k++)
            shift[k] = c->scale * v[first + k];
        for (int i = first * BLOCK_M; i < first * BLOCK_M + u->lanes * w; i += w)
            for (int k = 0; k < w; k++)
                b->shifted[i + k] = b->q_rows[i + k] + shift[k];
    }
}

/* w[row][lane] of a panel, to dq and to the rows of the table. All of it where it fits a slot, else piece by piece; then
 * to the rows at once. */
static void panel_vjp(pe_content_vjp *b, pe_content *c, const pe_panel *p, const pe_table_rows *t, const pe_rows *r,
                      const int *seen, const real *dx, const pe_to *to, pe_span *span)
{
    const int width = p->width, most = SPAN - 2 * MARGIN;
    real *slot = b->by_row + p->first * SPAN, *w = slot + MARGIN * width;
    int low, high;
    range(r, seen[0], seen[1], width, &low, &high);
    const int whole = high - low < most;
    *span = (pe_span){w - low * width, p->first, p->lanes, width, low, whole ? high + 1 : low};
    for (; low <= high; low += most) {
        const int n = (int)min_(most, high - low + 1);
        real *rows = to->table ? to->table + low * to->step : NULL;
        add_by_row(c, r, seen[0], seen[1], low, n, width, dx, NULL, 1, w);
        add_table(t, low, n, c->d, width, w, to->dq + p->first * c->d);
        if (rows && !whole)
            add_outer_rows(p->first, p->lanes, width, w, to->strips, BLOCK_M, c->d, n, rows, to->step);
        if (rows)
            add_odd_queries(b, c, p, w, n, rows, to->step);
        if (whole) {
            memset(slot, 0, (size_t)(MARGIN * width) * sizeof *slot);
            memset(w + n * width, 0, (size_t)(MARGIN * width) * sizeof *slot);
        }
    }
}

/* ---- CoPE ---- */

/* From   x_ij += (1 - f) z[w] + f z[w + 1],  w + f = p_ij = sum_{t >= j} gate_it:
 * d gate_it = sum_{j <= t} dX_ij (z[w + 1] - z[w]), and the gate is sigmoid(scale q_i.k_t). */
void FN(content_sums_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                          const pe_bias *bias, const char *keys, idx step, const real *dx)
{
    const int width = p->width, n = bias->to - bias->from, size = n * width;
    real *more = b->more + p->first * BLOCK_N + bias->from * width, *rest = c->weight + BLOCK_N * PANEL_LANES;
    const real *pack = c->q + p->first * c->d;
    memset(more, 0, (size_t)size * sizeof *more);
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_cope)
            continue;
        const int last = (int)u->call->term[t].D(P) - 1;
        const pe_table_rows table = table_of(u, t, COPE_TABLE);
        char *into = gradient_of(b, u, t, COPE_D);
        const idx d_step = row_step(u, t, COPE_D);
        const pe_rows r = {c->index, width};
        int low, high;
        FN(content_positions)(c, u, k, p, bias, keys, step, last);
        range(&r, 0, n, width, &low, &high);
        high = (int)min_(high + 1, last);
        for (; low <= high; low += TILE_RELS) { /* both rows of a pair, one after the other */
            const int some = (int)min_(TILE_RELS, high - low + 1);
            add_by_row(c, &r, 0, n, low, some, width, dx, rest, 1, c->products);
            for (int i = 0; i < size; i++)
                c->index[i] += c->index[i] < last;
            add_by_row(c, &r, 0, n, low, some, width, dx, c->weight, 0, c->products);
            add_table(&table, low, some, c->d, width, c->products, b->dq + p->first * c->d);
            if (!into)
                continue;
            real *rows = (real *)(void *)(into + low * d_step);
            add_outer_rows(p->first, p->lanes, width, c->products, b->q_rows, BLOCK_M, c->d, some, rows,
                           d_step / (idx)sizeof(real));
            add_odd_queries(b, c, p, c->products, some, rows, d_step / (idx)sizeof(real));
            FN(content_positions)(c, u, k, p, bias, keys, step, last);
        }
        real *slope = rest; /* z[w + 1] - z[w], summed over the terms: their gates are the same */
        memset(slope, 0, (size_t)size * sizeof *slope);
        for (int i = 0; i < size; i++)
            c->weight[i] = -1;
        add_products(c, &table, &r, 0, n, c->d, pack, p, c->weight, slope);
        for (int i = 0; i < size; i++) {
            c->index[i] += c->index[i] < last;
            c->weight[i] = 1;
        }
        add_products(c, &table, &r, 0, n, c->d, pack, p, c->weight, slope);
        for (int i = 0; i < size; i++)
            more[i] += slope[i];
    }
    real *gate = c->weight;
    FN(content_gates)(c, u, k, p, bias, keys, step, gate);
    double *run = b->run + p->first;
    for (int j = 0; j < n; j++)
        for (int l = 0; l < width; l++) {
            const int i = j * width + l;
            run[l] += dx[i] == 0 ? 0 : (double)(dx[i] * more[i]);
            c->passed[p->first + l] -= (double)gate[i]; /* on to the next tile */
            more[i] = gate[i] == 0 ? 0 : (real)run[l] * (gate[i] * (1 - gate[i]));
        }
}

void FN(content_tables_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, int (*seen)[2],
                            const real *dx)
{
    for (int t = 0; t < u->call->nterms; t++) {
        const int op = u->call->term[t].op;
        int table = SHAW_K, rows = SHAW_ROWS, into = SHAW_DK, n = 0, low = INT_MAX, high = INT_MIN;
        pe_to to = {.strips = b->q_rows, .dq = b->dq};
        pe_span span[BLOCK_M / LANES];
        if (op == PE_transformer_xl) {
            table = XL_R;
            rows = XL_ROWS;
            into = XL_DR;
            begin_vector(b, c, u, t);
            to.strips = b->shifted;
            to.dq = b->dq_apart;
        } else if (op == PE_deberta && u->term[t][DEBERTA_K].data) {
            table = DEBERTA_K;
            rows = DEBERTA_ROWS;
            into = DEBERTA_DK;
        } else if (op != PE_shaw) {
            continue;
        }
        const pe_table_rows from = table_of(u, t, table);
        to.table = (real *)(void *)gradient_of(b, u, t, into);
        to.step = row_step(u, t, into) / (idx)sizeof(real);
        for (int p = 0; p < u->panels; p++) {
            const pe_panel *panel = &u->panel[p];
            if (seen[p][0] >= seen[p][1])
                continue;
            const pe_rows r = rows_of(c, &u->term[t][rows], u->call->term[t].dim, u, k, panel->first, panel->width);
            panel_vjp(b, c, panel, &from, &r, seen[p], dx + panel->first * BLOCK_N + seen[p][0] * panel->width, &to,
                      &span[n]);
            low = (int)min_(low, span[n].from);
            high = (int)max_(high, span[n].to);
            n += span[n].from < span[n].to;
        }
        if (to.table && n)
            add_outer(span, n, to.strips, BLOCK_M, c->d, low, high, to.table, to.step);
    }
}

void FN(content_vjp_end)(pe_content_vjp *b, const pe_content *c, const pe_queries *u) { end_vector(b, c, u); }

/* ---- Shaw's values ---- */

real *FN(content_values_of)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                            const pe_bias *bias, const real *g)
{
    real *add = c->weight;
    memset(add, 0, (size_t)((bias->to - bias->from) * p->width) * sizeof *add);
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_shaw || !u->term[t][SHAW_V].data)
            continue;
        const pe_table_rows table = table_of(u, t, SHAW_V);
        const pe_rows r = rows_of(c, &u->term[t][SHAW_ROWS], u->call->term[t].dim, u, k, p->first, p->width);
        add_products(c, &table, &r, bias->from, bias->to, c->e, g, p, NULL, add);
    }
    return add;
}

void FN(content_values_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                            const pe_bias *bias, const real *weights)
{
    for (int t = 0; t < u->call->nterms; t++) {
        char *into = u->call->term[t].op == PE_shaw ? gradient_of(b, u, t, SHAW_DV) : NULL;
        if (!into)
            continue;
        const pe_rows r = rows_of(c, &u->term[t][SHAW_ROWS], u->call->term[t].dim, u, k, p->first, p->width);
        const idx step = row_step(u, t, SHAW_DV);
        int low, high;
        range(&r, bias->from, bias->to, p->width, &low, &high);
        for (; low <= high; low += TILE_RELS) {
            const int n = (int)min_(TILE_RELS, high - low + 1);
            add_by_row(c, &r, bias->from, bias->to, low, n, p->width, weights, NULL, 1, c->products);
            add_outer_rows(p->first, p->lanes, p->width, c->products, b->g_rows, BLOCK_M, c->e, n,
                           (real *)(void *)(into + low * step), step / (idx)sizeof(real));
        }
    }
}

/* ---- TUPE ---- */

/* From   bias_ij = pos_q_i . pos_k_j, column 0 and row 0 reset */
static void positions_vjp(pe_content_vjp *b, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                          const pe_bias *bias, int term, real *ds)
{
    const int n = bias->to - bias->from, width = p->width;
    const idx depth = u->call->term[term].D(P);
    double *d_cls = (double *)(void *)gradient_of(b, u, term, TUPE_D_CLS);
    double *d_any = (double *)(void *)gradient_of(b, u, term, TUPE_D_ANY);
    if (u->term[term][TUPE_CLS_TO_ANY].data && u->first + p->first == 0)
        for (int j = 0; j < n; j++) {
            if (d_cls)
                *d_cls += (double)ds[j * width];
            ds[j * width] = 0;
        }
    if (u->term[term][TUPE_ANY_TO_CLS].data && k->first + bias->from == 0)
        for (int l = 0; l < width; l++) {
            if (d_any)
                *d_any += (double)ds[l];
            ds[l] = 0;
        }
    const pe_array *dq = &u->term[term][TUPE_DQ], *dk = &u->term[term][TUPE_DK];
    if (!dq->data || !dk->data)
        return;
    pe_table_rows keys = table_of(u, term, TUPE_K);
    keys.data += (k->first + bias->from) * keys.step;
    for (idx piece = 0; piece < depth; piece += CONTENT_PIECE) {
        const int some = (int)min_(CONTENT_PIECE, depth - piece);
        const pe_table_rows part = {keys.data + piece * (idx)sizeof(real), keys.step};
        memset(b->sum, 0, (size_t)(some * width) * sizeof(real));
        add_table(&part, 0, n, some, width, ds, b->sum);
        for (int l = 0; l < p->lanes; l++) {
            real *to = (real *)(void *)(dq->data + u->head * dq->core[0] + (u->first + p->first + l) * dq->core[1]);
            for (int x = 0; x < some; x++)
                to[piece + x] += b->sum[x * width + l];
        }
        const pe_table_rows q = positions_of(u, p, term, piece);
        for (int l = 0; l < p->lanes; l++)
            strip_row(row_number(q.data, q.step, l), some, position_factor(u, term), b->strips, PANEL_LANES, l);
        char *rows = gradient_of(b, u, term, TUPE_DK) + (k->first + bias->from) * dk->core[1];
        add_outer_rows(0, p->lanes, width, ds, b->strips, PANEL_LANES, some, n, (real *)(void *)rows + piece,
                       dk->core[1] / (idx)sizeof(real));
    }
}

void FN(content_after_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                           const pe_bias *bias, const real *ds)
{
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_tupe)
            continue;
        memcpy(c->weight, ds, (size_t)((bias->to - bias->from) * p->width) * sizeof *ds);
        positions_vjp(b, u, k, p, bias, t, c->weight);
    }
}
