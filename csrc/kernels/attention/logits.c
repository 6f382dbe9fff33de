/* logits.c -- the sum of the logits of operators on q and k, as a matrix.   q(h,n,d) k(g,m,d) -> out(h,n,m)
 * Operators that add after the cap are alone in a call; they read neither q nor k.
 *
 *     for (i < n)
 *         for (j < m)
 *             out[h][i][j] = dot(q[h][i], table[row(i, j)]) + ...;     before the common scale
 *
 * A unit of work is a block of BLOCK_M queries of a head. content.h computes the tiles, as in attention. A table row is
 * multiplied once per tile and panel, not once per pair.
 */
#include "attention/scores.h"
#include "relative/scan.h"
#include "tile/product.h"
#include "tile/panel.h"

typedef struct {
    int d;
    pe_block_state at;
    real *q, *zero, *scores, *copy;
    const real *multiplier; /* the sum of the key tables with a single row, which multiplies the keys; or `zero` */
    pe_content content;
} logits_state;

static void write_panel(const pe_view *view, const real *scores)
{
    const pe_query_block *queries = view->queries;
    const pe_array *a = &queries->call->array[L_OUT];
    const int n = view->keys->n, width = view->panel->width;
    char *out = query_row(queries, L_OUT, view->panel->first) + view->keys->first * storage_size(a->storage);
    for (int l = 0; l < view->panel->lanes; l++, out += a->core[1]) {
        real buffer[BLOCK_N], *row = row_target(out, a->storage, buffer);
        for (int j = 0; j < n; j++)
            row[j] = scores[j * width + l];
        row_write(row, out, a->storage, n);
    }
}

static void write_tile(logits_state *s, pe_view view)
{
    FN(content_tile)(&s->content, view);
    for (int i = 0; i < view.queries->panels; i++) {
        const int width = view.queries->panel[i].width, n = view.keys->n;
        const pe_panel_bias all = {0, n, width, NULL};
        view.panel = &view.queries->panel[i];
        view.bias = &all;
        const real *q = s->multiplier + view.panel->first * s->d;
        const real *added =
            s->content.after_cap ? FN(content_after)(&s->content, view).add : FN(content_panel)(&s->content, view);
        const pe_side side = {.b = q, .width = width, .to = n, .add = added, .step = width, .c = s->scores};
        if (s->multiplier != s->zero)
            FN(scores)(view.k, s->d, &side, 1);
        write_panel(&view, s->multiplier != s->zero ? s->scores : added);
    }
}

/* Compute one unit. For key tables with a single row, zero queries replace the queries, so that the multiplier is the
 * sum of these tables; the other operators read s->q. Returns 0 if the call was stopped. */
static int logits_unit(logits_state *s, const pe_call *call, idx unit)
{
    pe_query_block *queries = s->at.queries;
    FN(query_block)(queries, call, unit);
    FN(pack_queries)(queries, A_Q, s->d, 1, s->copy, s->q);
    FN(content_block)(&s->content, queries, s->zero, 1);
    s->multiplier = FN(content_multiplier)(&s->content, queries);
    s->content.q = s->q;
    s->content.gate_scale = (real)call->par[A_SCALE];
    pe_tiles tiles = tiles_of(queries, s->at.keys);
    tiles.visits_masked = 1;
    tiles.descends = s->content.scans;
    while (FN(next_tile)(&tiles))
        write_tile(s, FN(view_of_keys)(queries, s->at.keys, queries->panels, s->copy));
    return !tiles.stopped;
}

LAYOUT(logits)
{
    s->d = (int)D(d);
    s->q = carve_reals(c, BLOCK_M * D(d));
    s->zero = carve_reals(c, BLOCK_M * D(d));
    s->scores = carve_reals(c, BLOCK_M * BLOCK_N);
    s->copy = carve_reals(c, BLOCK_N * (D(d) + ROW_PAD));
    s->at = carve_block_state(c);
    FN(content_layout)(&s->content, NULL, dim, c);
}

KERNEL(logits)
{
    logits_state s = logits_begin(call, work);
    zero_reals(s.zero, BLOCK_M * s.d);
    for (idx unit = begin; unit < end; unit++) {
        if (!logits_unit(&s, call, unit))
            return;
    }
}
