/* logits.c -- what operators that read q and k add to the logits, as a matrix: the tiles of content.c, written down.
 * q(h,n,d) k(g,m,d) -> out(h,n,m), before the common scale; one unit is one head and BLOCK_M queries.
 */
#include "tile/panel.h"
#include "content/content.h"
#include "tile/gemm.h"

static void write_tile(const pe_queries *u, const pe_panel *p, const pe_keys *k, const real *tile)
{
    enum { OUT = A_BIAS + 1 };
    const pe_array *a = &u->call->array[OUT];
    char *out = u->row.data[OUT] + u->head * a->core[0] + (u->first + p->first) * a->core[1]
                + k->first * storage_size(a->storage);
    for (int l = 0; l < p->lanes; l++, out += a->core[1]) {
        real room[BLOCK_N], *row = row_target(out, a->storage, room);
        for (int j = 0; j < k->n; j++)
            row[j] = tile[j * p->width + l];
        row_write(row, out, a->storage, k->n);
    }
}

void FN(logits)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const int d = (int)call->D(d);
    const idx tiles = BLOCKS(call->D(m), BLOCK_N);
    const pe_array *a = &call->array[A_K];
    pe_queries u;
    pe_keys keys;
    pe_content c;
    char *scratch = work->scratch;
    real *pack = carve(&scratch, (idx)BLOCK_M * d), *nothing = carve(&scratch, (idx)BLOCK_M * d);
    real *tile = carve(&scratch, (idx)BLOCK_M * BLOCK_N), *copy = carve(&scratch, (idx)BLOCK_N * (d + ATTENTION_PAD));
    memset(nothing, 0, (size_t)(BLOCK_M * d) * sizeof(real));
    for (idx i = begin; i < end; i++) {
        char *rest = scratch;
        FN(queries_at)(&u, call, i);
        queries_to_lanes(&u, A_Q, d, 1, copy, pack);
        FN(content_at)(&c, &u, nothing, &rest);
        c.scale = 1;
        c.gate_scale = (real)call->par[A_SCALE];
        const real *sum = FN(content_queries)(&c, &u); /* what is added to every query: Transformer-XL's u */
        c.q = pack;
        for (idx t = 0; t < tiles; t++) {
            idx step = a->core[1];
            FN(keys_at)(&keys, &u, (c.sums ? tiles - 1 - t : t) * BLOCK_N);
            if (call->stop && call->stop(call))
                return;
            const char *rows = tile_rows(u.row.data[A_K] + u.kv_head * a->core[0] + keys.first * step, &step,
                                         a->storage, keys.n, d, u.panels, copy);
            FN(content_keys)(&c, &u, &keys, rows, step);
            for (int p = 0; p < u.panels; p++) {
                const pe_panel *panel = &u.panel[p];
                const pe_bias all = {0, keys.n, panel->width, NULL};
                real *added = FN(content_tile)(&c, &u, &keys, panel, &all, rows, step), unused[PANEL_LANES] = {0};
                const pe_scores w = {.k = rows,
                                     .k_step = step,
                                     .d = d,
                                     .q = sum + panel->first * d,
                                     .bias = added,
                                     .bias_step = panel->width,
                                     .s = tile,
                                     .top = unused};
                if (sum != nothing)
                    (panel->width == PANEL_LANES ? scores_wide : scores_narrow)(&w, keys.n);
                write_tile(&u, panel, &keys, sum != nothing ? tile : added);
            }
        }
    }
}
