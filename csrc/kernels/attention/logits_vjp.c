/* logits_vjp.c -- the gradient of logits.c from grad(h,n,m).   q(h,n,d) k(g,m,d) -> dq(h,n,d) dk(g,m,d)
 *
 *     for (i < n)
 *         for (j < m) {
 *             dq[h][i] += grad[h][i][j] * table[row(i, j)];   d table[row(i, j)] += grad[h][i][j] * q[h][i];
 *         }                                                   dk likewise, for a table that multiplies keys
 *
 * A unit of work is one kv head, because all its queries add to its dk. read_tile transposes a tile of grad once, to
 * one query per SIMD lane, and the gradient functions of attention (content.h) compute the rest.
 */
#include "attention/scores.h"
#include "relative/lookup.h"
#include "relative/scan.h"
#include "tile/panel.h"

typedef struct {
    int d, padded_d;
    real *q, *q_rows, *dq, *dx, *k_copy, *row, *dk;
    uint64_t nonfinite_q; /* lanes whose strips have 0 in place of nonfinite numbers */
    pe_content content;
    pe_content_vjp vjp;
    pe_block_state at;
} logits_vjp_state;

/* Read grad of a tile, with one query per lane and 0 in lanes without a query. In nonfinite lanes, numbers become
 * NaN. */
static void read_tile(const pe_view *view, uint64_t nonfinite, real *dx)
{
    const pe_query_block *queries = view->queries;
    const pe_array *a = &queries->call->array[L_GRAD];
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int l = 0; l < p->width; l++) {
            const char *row = query_row(queries, L_GRAD, p->first + l) + view->keys->first * a->core[2];
            real *to = dx + score_offset(p, 0) + l;
            for (int j = 0; j < view->keys->n; j++) {
                const real grad = l < p->lanes ? (real)scalar_read(row + j * a->core[2], a->storage) : 0;
                to[j * p->width] = grad != 0 && nonfinite >> (p->first + l) & 1 ? (real)NAN : grad;
            }
        }
    }
}

/* From   gate = sigmoid(scale q_i.k_t):   add scale d_gates k to dq and scale d_gates q to dk. */
static void add_gate_products(logits_vjp_state *s, const pe_view *view)
{
    const pe_query_block *queries = view->queries;
    const int n = view->keys->n;
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        real *d_gates = s->vjp.d_gates + score_offset(p, 0);
        for (int x = 0; x < n * p->width; x++)
            d_gates[x] *= s->content.gate_scale;
        FN(add_rows)(view->k, 0, n, s->d, p->width, d_gates, s->dq + p->first * s->d);
    }
    const pe_sums dk = {s->dk + view->keys->first * s->padded_d, s->padded_d};
    FN(add_outer_of_block)(queries, s->vjp.d_gates, &(pe_strips){s->q_rows, BLOCK_M, s->d}, 0, n, dk);
}

static void logits_tile_vjp(logits_vjp_state *s, pe_view view)
{
    const int n = view.keys->n;
    pe_content *c = &s->content;
    int seen[PANELS][2];
    read_tile(&view, s->nonfinite_q, s->dx);
    for (int i = 0; i < view.queries->panels; i++) {
        const pe_panel_bias all = {0, n, view.queries->panel[i].width, NULL};
        view.panel = &view.queries->panel[i];
        view.bias = &all;
        seen[i][0] = 0;
        seen[i][1] = n;
        if (c->after_cap)
            FN(content_after_vjp)(&s->vjp, view, s->dx + score_offset(view.panel, 0));
        if (!c->scans)
            continue;
        FN(scan_panel)(c, &view);
        FN(content_scan_vjp)(&s->vjp, view, s->dx + score_offset(view.panel, 0));
    }
    FN(content_panels_vjp)(&s->vjp, view, seen, s->dx);
    FN(content_keys_vjp)(&s->vjp, view, 0, n, s->dx, s->dk + view.keys->first * s->padded_d, s->padded_d);
    if (c->scans)
        add_gate_products(s, &view);
}

/* Add the gradients of one block of queries. Returns 0 if the call was stopped. */
static int logits_block_vjp(logits_vjp_state *s, const pe_query_block *queries)
{
    const pe_call *call = queries->call;
    s->nonfinite_q = FN(strips_of)(queries, A_Q, s->d, 1, s->q_rows, s->row);
    FN(pack_queries)(queries, A_Q, s->d, 1, s->k_copy, s->q);
    zero_reals(s->dq, queries->width * s->d);
    FN(content_block)(&s->content, queries, s->q, 1);
    FN(content_block_vjp)(&s->vjp, &s->content, s->q_rows, NULL, s->dq, queries->head);
    s->content.ascending = 1;
    s->content.gate_scale = (real)call->par[A_SCALE];
    if (s->content.scans && !FN(sum_gates)(&s->content, &s->at, s->k_copy))
        return 0;
    pe_tiles tiles = tiles_of(queries, s->at.keys);
    tiles.visits_masked = 1;
    while (FN(next_tile)(&tiles))
        logits_tile_vjp(s, FN(view_of_keys)(queries, s->at.keys, 2, s->k_copy));
    if (tiles.stopped)
        return 0;
    FN(content_end_vjp)(&s->vjp, queries);
    FN(unpack_queries)(queries, queries->head, L_DQ, s->d, s->dq, 1, NULL, s->k_copy);
    return 1;
}

static void write_dk(const pe_call *call, const pe_row *row, idx group, const logits_vjp_state *s)
{
    const pe_array *a = &call->array[L_DK];
    char *to = row->data[L_DK] + group * a->core[0];
    const real *dk = s->dk;
    for (idx j = 0; j < call->D(m); j++, to += a->core[1], dk += s->padded_d)
        row_store(dk, to, a->storage, s->d);
}

LAYOUT(logits_vjp)
{
    s->d = (int)D(d);
    s->padded_d = strips_width(s->d);
    s->q = carve_reals(c, BLOCK_M * D(d));
    s->q_rows = carve_reals(c, BLOCK_M * (idx)s->padded_d);
    s->dq = carve_reals(c, BLOCK_M * D(d));
    s->dx = carve_reals(c, BLOCK_M * BLOCK_N);
    s->k_copy = carve_reals(c, (D(d) + ROW_PAD) * BLOCK_N);
    s->row = carve_reals(c, D(d));
    s->at = carve_block_state(c);
    s->dk = carve_reals(c, D(m) * s->padded_d);
    FN(content_layout)(&s->content, &s->vjp, dim, c);
}

KERNEL(logits_vjp)
{
    const idx heads = call->D(h), groups = call->D(g), share = heads / groups, m = call->D(m);
    const idx blocks = BLOCKS(call->D(n), BLOCK_M);
    logits_vjp_state s = logits_vjp_begin(call, work);
    for (idx unit = begin; unit < end; unit++) {
        const idx group = unit % groups;
        const pe_row row = row_at(call, unit / groups);
        zero_reals(s.dk, m * s.padded_d);
        for (idx h = group * share; h < (group + 1) * share; h++) {
            for (idx i = 0; i < blocks; i++) {
                FN(query_block)(s.at.queries, call, (unit / groups * heads + h) * blocks + i);
                if (!logits_block_vjp(&s, s.at.queries))
                    return;
            }
        }
        write_dk(call, &row, group, &s);
    }
}
