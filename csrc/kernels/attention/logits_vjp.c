/* logits_vjp.c -- gradients of what operators that read q and k add to the logits, from the gradient of that matrix:
 * the tiles of content_vjp.c, read from grad(h,n,m). q(h,n,d) k(g,m,d) -> dq(h,n,d) dk(g,m,d); one unit is a kv head.
 */
#include "tile/panel.h"
#include "content/gradient.h"

enum { L_GRAD = A_BIAS + 1, L_DQ, L_DK };

typedef struct {
    int d, wide;
    real *q, *q_rows, *dq, *dx, *k_copy, *row, *dk;
    pe_content content;
    pe_content_vjp vjp;
} pe_logits_vjp;

/* The gradient of a tile, its queries on the lanes; 0 in lanes that are no query */
static void read_tile(const pe_queries *u, const pe_keys *k, real *dx)
{
    const pe_array *a = &u->call->array[L_GRAD];
    const char *grad = u->row.data[L_GRAD] + u->head * a->core[0] + u->first * a->core[1] + k->first * a->core[2];
    for (int p = 0; p < u->panels; p++) {
        const int first = u->panel[p].first, width = u->panel[p].width;
        for (int l = 0; l < width; l++)
            for (int j = 0; j < k->n; j++)
                dx[first * BLOCK_N + j * width + l] =
                    l < u->panel[p].lanes
                        ? (real)scalar_read(grad + (first + l) * a->core[1] + j * a->core[2], a->storage)
                        : 0;
    }
}

static const char *rows_of_keys(pe_logits_vjp *b, const pe_queries *u, const pe_keys *k, idx *step)
{
    const pe_array *a = &u->call->array[A_K];
    *step = a->core[1];
    return tile_rows(u->row.data[A_K] + u->kv_head * a->core[0] + k->first * *step, step, a->storage, k->n, b->d, 2,
                     b->k_copy);
}

/* From   gate = sigmoid(scale q_i.k_t):   what the gates add goes to both, as in attention's own product */
static void add_gates(pe_logits_vjp *b, const pe_queries *u, const pe_keys *k, const char *keys, idx step)
{
    const pe_table_rows rows = {keys, step};
    for (int p = 0; p < u->panels; p++) {
        const int first = u->panel[p].first, width = u->panel[p].width;
        real *more = b->vjp.more + first * BLOCK_N;
        for (int i = 0; i < k->n * width; i++)
            more[i] *= b->content.gate_scale;
        add_table(&rows, 0, k->n, b->d, width, more, b->dq + first * b->d);
    }
    add_outer_of_block(u, b->vjp.more, b->q_rows, b->d, 0, k->n, b->dk + k->first * b->wide, b->wide);
}

static void write_rows(const pe_array *a, char *to, const real *rows, int n, idx step, int d)
{
    for (int i = 0; i < n; i++, to += a->core[1], rows += step)
        if (a->storage == PE_STORAGE)
            memcpy(to, rows, (size_t)d * sizeof *rows);
        else
            row_write(rows, to, a->storage, d);
}

/* 0 if it was stopped */
static int block_of_queries(pe_logits_vjp *b, const pe_queries *u, char *rest)
{
    const pe_call *call = u->call;
    pe_keys keys;
    idx step;
    int seen[BLOCK_M / LANES][2];
    const uint64_t odd = strips_of(u, A_Q, b->d, 1, b->q_rows, b->row);
    queries_to_lanes(u, A_Q, b->d, 1, b->k_copy, b->q);
    memset(b->dq, 0, (size_t)(u->width * b->d) * sizeof(real));
    FN(content_at)(&b->content, u, b->q, &rest);
    FN(content_vjp_at)(&b->vjp, &b->content, b->q_rows, NULL, b->dq, u->head, &rest);
    b->vjp.odd_q = odd;
    b->content.scale = 1;
    b->content.gate_scale = (real)call->par[A_SCALE];
    b->content.ascending = 1;
    for (int count = b->content.sums != 0; count >= 0; count--) /* CoPE counts all gates before the first tile */
        for (idx first = 0; first < call->D(m); first += BLOCK_N) {
            FN(keys_at)(&keys, u, first);
            if (call->stop && call->stop(call))
                return 0;
            const char *rows = rows_of_keys(b, u, &keys, &step);
            b->content.held = NULL; /* another tile */
            if (!count)
                read_tile(u, &keys, b->dx);
            for (int p = 0; p < u->panels; p++) {
                const pe_panel *panel = &u->panel[p];
                seen[p][0] = 0;
                seen[p][1] = keys.n;
                const pe_bias all = {0, keys.n, panel->width, NULL};
                const real *dx = b->dx + panel->first * BLOCK_N;
                if (count)
                    FN(content_count)(&b->content, u, &keys, panel, &all, rows, step);
                else if (b->content.sums)
                    FN(content_sums_vjp)(&b->vjp, &b->content, u, &keys, panel, &all, rows, step, dx);
            }
            if (count)
                continue;
            if (b->content.by_query)
                FN(content_tables_vjp)(&b->vjp, &b->content, u, &keys, seen, b->dx);
            real *dk = b->dk + first * b->wide;
            FN(content_keys_vjp)(&b->vjp, &b->content, u, &keys, rows, step, 0, keys.n, b->dx, dk, b->wide);
            if (b->content.sums)
                add_gates(b, u, &keys, rows, step);
        }
    FN(content_vjp_end)(&b->vjp, &b->content, u);
    lanes_to_queries(u, L_DQ, b->d, b->dq, 1, NULL, b->k_copy);
    return 1;
}

void FN(logits_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx heads = call->D(h), groups = call->D(g), m = call->D(m), blocks = BLOCKS(call->D(n), BLOCK_M);
    const pe_array *a = &call->array[L_DK];
    char *scratch = work->scratch;
    pe_logits_vjp b;
    pe_queries u;
    b.d = (int)call->D(d);
    b.wide = strips_width(b.d);
    b.q = carve(&scratch, (idx)BLOCK_M * b.d);
    b.q_rows = carve(&scratch, (idx)BLOCK_M * b.wide);
    b.dq = carve(&scratch, (idx)BLOCK_M * b.d);
    b.dx = carve(&scratch, (idx)BLOCK_M * BLOCK_N);
    b.k_copy = carve(&scratch, (b.d + ATTENTION_PAD) * BLOCK_N);
    b.row = carve(&scratch, b.d);
    b.dk = carve(&scratch, m * b.wide);
    for (idx unit = begin; unit < end; unit++) {
        const idx group = unit % groups, share = heads / groups;
        const pe_row row = row_at(call, unit / groups);
        memset(b.dk, 0, (size_t)(m * b.wide) * sizeof(real));
        for (idx h = group * share; h < (group + 1) * share; h++)
            for (idx i = 0; i < blocks; i++) {
                FN(queries_at)(&u, call, (unit / groups * heads + h) * blocks + i);
                if (!block_of_queries(&b, &u, scratch))
                    return;
            }
        for (idx first = 0; first < m; first += BLOCK_N)
            write_rows(a, row.data[L_DK] + group * a->core[0] + first * a->core[1], b.dk + first * b.wide,
                       (int)min_(BLOCK_N, m - first), b.wide, b.d);
    }
}
