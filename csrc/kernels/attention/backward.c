/* backward.c -- the gradient of attention from its out and lse: nothing of size n x m exists here either.
 *
 *     out_i = sum_j p_ij v_j,  p_ij = exp(x_ij - lse_i)       dv_j = sum_i p_ij g_i
 *     g = d out, gl = d lse                                   dS_ij = p_ij (g_i.v_j - delta_i),  delta_i = g_i.out_i - gl_i
 *     x_ij = softcap tanh(scale q_i.k_j / softcap) + bias     dX = dS (1 - tanh**2);  dq = scale dX k,  dk = dX^T scale q
 *
 * Weights are computed again, tile by tile, as by Dao 2023 (FlashAttention-2), algorithm 2; the order is another: one
 * unit is a kv head, or a chunk of it: some of the heads that share it and some blocks of BLOCK_M queries. It walks
 * over the keys of one block after the other, as the forward does, and adds up dk and dv in its own memory. What a chunk
 * is depends on the heads and on n only, and chunks are added in their order, here or by the caller: neither threads nor
 * other rows of the batch change a bit.
 *
 * A pair whose weight is 0 gives nothing, whatever the numbers: so nothing leaks from what is masked.
 */
#include "attention/backward.h"

enum { A_HEAD_PARTS = A_SHIFT + 1, A_BLOCK_PARTS, A_MODE };

/* What a chunk has summed: out it goes, or onto the chunks before (Python sees to it that the output is real then),
 * and the memory is zero again. */
static void write_keys(const pe_call *call, const pe_row *at, int operand, idx part, int first, real *sum, int step,
                       int width, real *room)
{
    const pe_array *a = &call->array[operand];
    for (idx j = 0; j < call->D(m) && at->data[operand] && part < call->D(p); j++, sum += step) {
        char *to = at->data[operand] + part * a->core[0] + j * a->core[1];
        real *restrict target = row_target(to, a->storage, room);
        for (int c = 0; c < width; c++)
            target[c] = first ? sum[c] : target[c] + sum[c];
        row_write(target, to, a->storage, width);
        memset(sum, 0, (size_t)width * sizeof *sum);
    }
}

/* CoPE counts from the last key, and tiles go from the first: the sum of all comes before. 0 if it was stopped */
static int count_gates(pe_back *b, const pe_queries *u)
{
    const pe_call *call = u->call;
    const pe_array *a = &call->array[A_K];
    pe_keys keys;
    for (idx first = 0; first < call->D(m); first += BLOCK_N) {
        idx step = a->core[1];
        if (!FN(keys_at)(&keys, u, first))
            continue;
        if (call->stop && call->stop(call))
            return 0;
        const char *k = u->row.data[A_K] + u->kv_head * a->core[0] + first * step;
        k = tile_rows(k, &step, a->storage, keys.n, b->d, 2, b->k_copy);
        for (int p = 0; p < u->panels; p++) {
            const pe_bias bias = FN(bias_of)(&keys, u, &u->panel[p]);
            if (bias.from < bias.to)
                FN(content_count)(&b->content, u, &keys, &u->panel[p], &bias, k, step);
        }
    }
    return 1;
}

/* 0 if it was stopped, and so for units; t is the row of sums and of gradients of tables */
static int block_of_queries(pe_back *b, const pe_queries *u, idx t)
{
    const pe_call *call = u->call;
    const real scale = (real)call->par[A_SCALE];
    pe_keys keys;
    char *rest = b->rest;
    queries_to_lanes(u, A_Q, b->d, scale, b->k_copy, b->q);
    queries_to_lanes(u, A_GRAD, b->e, 1, b->v_copy, b->g);
    b->odd_q = strips_of(u, A_Q, b->d, scale, b->q_rows, b->row);
    b->odd_g = strips_of(u, A_GRAD, b->e, 1, b->g_rows, b->row);
    pack_sums(b, u);
    memset(b->dq, 0, (size_t)(u->width * b->d) * sizeof(real));
    FN(content_at)(&b->content, u, b->q, &rest);
    FN(content_vjp_at)(&b->content_vjp, &b->content, b->q_rows, b->g_rows, b->dq, t, &rest);
    b->pack = FN(content_queries)(&b->content, u);
    b->content.ascending = 1;
    if (b->content.sums && !count_gates(b, u))
        return 0;
    for (idx first = 0; first < call->D(m); first += BLOCK_N) {
        if (!FN(keys_at)(&keys, u, first))
            continue;
        if (call->stop && call->stop(call))
            return 0;
        tile(b, &keys, u);
    }
    FN(content_vjp_end)(&b->content_vjp, &b->content, u);
    if (u->row.data[A_DQ])
        lanes_to_queries(u, A_DQ, b->d, b->dq, scale, NULL, b->k_copy);
    FN(sums_write)(&b->sums, u);
    return 1;
}

static int unit_of_keys(pe_back *b, const pe_call *call, idx unit, const pe_work *work)
{
    const idx heads = call->D(h), groups = call->D(g), share = heads / groups, blocks = BLOCKS(call->D(n), BLOCK_M);
    const idx head_parts = max_(1, (idx)call->par[A_HEAD_PARTS]);
    const idx block_parts = max_(1, (idx)call->par[A_BLOCK_PARTS]);
    const int together = call->par[A_MODE] == VJP_TOGETHER;
    const idx parts = head_parts * block_parts, each = BLOCKS(share, head_parts);
    const idx row = unit / (groups * VJP_PARTS), group = unit / VJP_PARTS % groups, mine = unit % VJP_PARTS;
    const pe_row at = row_at(call, row);
    pe_queries u;
    if (mine >= (together ? 1 : parts))
        return 1;
    b->careful = !keys_are_finite(call, &at, group, b->d, b->row);
    for (idx part = together ? 0 : mine; part < (together ? parts : mine + 1); part++) {
        const idx first = group * share + part / block_parts * each, last = min_(first + each, (group + 1) * share);
        for (idx h = first; h < last; h++) {
            const idx t = together ? h : h * block_parts + part % block_parts;
            for (idx i = part % block_parts; i < blocks; i += block_parts) {
                FN(queries_at)(&u, call, (row * heads + h) * blocks + i);
                if (i == part % block_parts && (!together || i == 0))
                    FN(sums_clear)(&u, t);
                FN(sums_at)(&b->sums, &u, t, work);
                if (!block_of_queries(b, &u, t))
                    return 0;
            }
        }
        const idx into = together ? group : group * parts + mine;
        write_keys(call, &at, A_DK, into, part == 0 || !together, b->dk, b->wide_d, b->d, b->row);
        write_keys(call, &at, A_DV, into, part == 0 || !together, b->dv, b->wide_e, b->e, b->row);
    }
    return 1;
}

/* Only the gradient of a matrix that heads or rows of the batch share: they take turns to add to it, so a unit is some
 * blocks of queries and all heads and rows. */
static int unit_of_pairs(pe_back *b, const pe_call *call, idx unit, const pe_work *work)
{
    const idx heads = call->D(h), blocks = BLOCKS(call->D(n), BLOCK_M);
    idx all = heads;
    pe_queries u;
    for (int a = 0; a < call->nloops; a++)
        all *= call->shape[a];
    for (idx i = unit; i < blocks; i += all / heads * call->D(g) * VJP_PARTS)
        for (idx h = 0; h < all; h++) {
            FN(queries_at)(&u, call, h * blocks + i);
            FN(sums_at)(&b->sums, &u, 0, work);
            if (!block_of_queries(b, &u, 0))
                return 0;
        }
    return 1;
}

void FN(attention_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    pe_back b;
    char *scratch = work->scratch;
    const idx m = call->D(m);
    b.d = (int)call->D(d);
    b.e = (int)call->D(e);
    b.wide_d = strips_width(b.d);
    b.wide_e = strips_width(b.e);
    b.q = carve(&scratch, (idx)BLOCK_M * b.d);
    b.g = carve(&scratch, (idx)BLOCK_M * b.e);
    b.q_rows = carve(&scratch, (idx)BLOCK_M * b.wide_d);
    b.g_rows = carve(&scratch, (idx)BLOCK_M * b.wide_e);
    b.dq = carve(&scratch, (idx)BLOCK_M * b.d);
    b.p = carve(&scratch, (idx)BLOCK_M * BLOCK_N);
    b.ds = carve(&scratch, (idx)BLOCK_M * BLOCK_N);
    b.slope = carve(&scratch, (idx)PANEL_LANES * BLOCK_N);
    b.k_copy = carve(&scratch, (b.d + ATTENTION_PAD) * BLOCK_N);
    b.v_copy = carve(&scratch, (b.e + ATTENTION_PAD) * BLOCK_N);
    b.row = carve(&scratch, 2 * max_(b.d, b.e));
    b.dk = carve(&scratch, m * b.wide_d);
    b.dv = carve(&scratch, m * b.wide_e);
    if (call->par[A_MODE] != VJP_ACROSS) {
        memset(b.dk, 0, (size_t)(m * b.wide_d) * sizeof(real));
        memset(b.dv, 0, (size_t)(m * b.wide_e) * sizeof(real));
    }
    b.rest = scratch;
    b.careful = 0;
    for (int l = 0; l < BLOCK_M; l++)
        b.one[l] = 1;
    memset(b.unused, 0, sizeof b.unused);
    for (idx unit = begin; unit < end; unit++)
        if (!(call->par[A_MODE] == VJP_ACROSS ? unit_of_pairs : unit_of_keys)(&b, call, unit, work))
            return;
}
