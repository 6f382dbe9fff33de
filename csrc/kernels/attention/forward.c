/* forward.c -- streaming attention, without an array of size n x m.   q(h,n,d) k(g,m,d) v(g,m,e) -> out(h,n,e) lse(h,n)
 *
 *     s_ij = scale q_i.k_j;   s = softcap tanh(s / softcap);   s += bias_ij, -inf where masked
 *     lse_i = log sum_j exp(s_ij);   out_i = sum_j exp(s_ij - lse_i) v_j;   no key seen: out 0, lse -inf
 *
 *     for each query i, with m = -inf, l = 0, o = 0 (with a sink: m = sink, l = 1):
 *         for each key j:
 *             m' = max(m, s_ij);   a = exp(m - m');   p = exp(s_ij - m')
 *             l = a l + p;   o = a o + p v_j;   m = m'
 *         out_i = o / l;   lse_i = m + log l
 *
 * A unit of work is a block of BLOCK_M queries of a head, or, with few blocks and many keys, a block and a part of the
 * keys. Each SIMD lane holds one query, and a panel is one or two vectors. So softmax does not cross lanes, and keys
 * and values need no packing. A step computes a tile of BLOCK_N keys. Tiles start at key 0 for every block. Skipping a
 * masked tile, or trimming a masked key, changes no bit. The packed queries include scale, but not log2 e: (s - m)
 * log2(e) costs one instruction more and rounds better.
 *
 * logits: out(h,n,m) is the sum of the operators alone, the same tiles without q.k, masks and softmax. A table row is
 * multiplied once per tile and panel, not once per pair.
 */
#include "attention/decode.h"
#include "attention/dropout.h"
#include "attention/plan.h"
#include "attention/scores.h"
#include "base/elementary.h"
#include "base/transpose.h"
#include "tile/bf16.h"
#include "tile/product.h"

/* A block of queries: e numbers of o for each lane; panel p begins at o + p->first * e */
typedef struct {
    pe_query_block *queries;
    real *o, m[BLOCK_M], l[BLOCK_M]; /* m, l: running max, running sum of exp(s - m) */
    const real *multiplier;          /* the packed queries plus the vectors of content operators; logits: these alone */
    pe_content content;
} block_state;

/* With 16-bit products and no operators of content.h, several blocks of queries of one head visit each tile of keys
 * together, because the tile is then split and transposed once for all of them. Otherwise there is one block. */
typedef struct {
    int d, e, most;
    int prefetch;       /* one block reads keys and values from memory, where L3 is slow as in rotary/rope.c */
    int mask_nonfinite; /* second run: NaN and infinite values reach only the lanes that see them */
    pe_key_tile *keys;
    pe_key_part part;
    block_state *block;
    real *q, *scores, *copy, *row; /* panel p begins at p->first * (numbers of a lane: d in q, BLOCK_N in scores) */
    real alpha[BLOCK_M];           /* rescale of the last tile */
    uint64_t sees[BLOCK_N];        /* mask_nonfinite only: the lanes that see a key of the tile */
    pe_split *split;               /* of 16-bit products, else NULL */
    int splits_values;             /* the values of the tile are split */
    pe_content content;            /* its buffers serve all blocks */
} forward_state;

/* ---- online softmax ---- */

static void note_who_sees(forward_state *s, const pe_panel *p, const real *scores, const pe_panel_bias *bias)
{
    for (int j = bias->from; j < bias->to; j++) {
        for (int l = 0; l < p->lanes; l++)
            s->sees[j] |= (uint64_t)(scores[(j - bias->from) * p->width + l] != MASKED) << (p->first + l);
    }
}

/* One step of online softmax for a panel: update the running sum, and replace s by p = exp(s - m), or 0 if dropped.
 * Until a lane sees a key, m is -inf; then 0 is subtracted instead of m, because exp(-inf + inf) is NaN. old_m is m
 * before the scores. */
static void softmax_step(forward_state *s, block_state *block, const pe_view *v, const real *old_m)
{
    const int first = v->panel->first, width = v->panel->width, n = v->bias->to - v->bias->from;
    real *scores = s->scores + score_offset(v->panel, 0), *m = block->m + first, base[PANEL_LANES];
    if (s->mask_nonfinite)
        note_who_sees(s, v->panel, scores, v->bias);
    for (int l = 0; l < width; l++) {
        base[l] = m[l] == MASKED ? 0 : m[l];
        s->alpha[first + l] = exp2_((old_m[l] - base[l]) * LOG2_E);
        block->l[first + l] *= s->alpha[first + l];
    }
    FN(exponentials)(scores, base, n, width, block->l + first);
    if (dropout_of(v->queries->call) > 0)
        FN(drop)(v, scores);
}

/* ---- values ---- */

/* Add the numbers that finite_rows left out to the lanes that see them. */
static void add_nonfinite_values(forward_state *s, const pe_panel *p, const pe_panel_bias *bias, const pe_rows *values,
                                 real *o)
{
    for (int j = bias->from; j < bias->to; j++) {
        const real *row = real_row_of(values, j, s->e, s->row);
        const real *weight = s->scores + score_offset(p, j - bias->from);
        for (int k = 0; k < s->e; k++) {
            if (is_finite(row[k]))
                continue;
            for (int l = 0; l < p->lanes; l++) {
                if (s->sees[j] >> (p->first + l) & 1)
                    o[k * p->width + l] += weight[l] * row[k];
            }
        }
    }
}

/* o = o alpha + p v for the panels of a block */
static void add_values(forward_state *s, block_state *block, pe_view v, const pe_panel_bias *bias)
{
    const pe_query_block *queries = v.queries;
    const pe_rows stored = rows_of_keys(queries, A_V, v.keys->first);
    const pe_bf16 *bf16 = s->splits_values ? bf16_of(queries) : NULL;
    const int n = v.keys->n;
    pe_side side[PANELS];
    for (int i = 0; i < queries->panels; i++) {
        const pe_panel *p = &queries->panel[i];
        side[i] = (pe_side){.b = s->scores + score_offset(p, 0),
                            .width = p->width,
                            .from = bias[i].from,
                            .to = bias[i].to,
                            .alpha = s->alpha + p->first,
                            .c = block->o + p->first * s->e};
    }
    if (!bf16) {
        const pe_lines rows = s->mask_nonfinite ? FN(finite_rows)(stored, n, s->e, s->copy)
                                                : FN(tile_rows)(stored, n, s->e, queries->panels, s->copy);
        FN(values)(rows, s->e, side, queries->panels);
    }
    for (int i = 0; i < queries->panels; i++) {
        const pe_side *w = &side[i];
        if (w->from == w->to)
            continue;
        v.panel = &queries->panel[i];
        v.bias = &bias[i];
        if (bf16)
            bf16->values(queries, w);
        if (block->content.values)
            FN(content_values)(&block->content, v, w->b, w->c);
        if (s->mask_nonfinite)
            add_nonfinite_values(s, v.panel, &bias[i], &stored, w->c);
    }
}

static int reads_real_keys(const pe_content *c) { return c->before_cap || c->after_cap || c->values; }

static void attend_to_tile(forward_state *s, block_state *block)
{
    const pe_query_block *queries = block->queries;
    pe_key_tile *keys = s->keys;
    pe_view v = {.queries = queries, .keys = keys};
    pe_panel_bias bias[PANELS];
    if (!bf16_of(queries) || reads_real_keys(&block->content))
        v = FN(view_of_keys)(queries, keys, queries->panels, s->copy);
    if (s->mask_nonfinite)
        memset(s->sees, 0, sizeof s->sees);
    FN(content_tile)(&block->content, v);
    real old_m[BLOCK_M];
    memcpy(old_m, block->m, (size_t)queries->width * sizeof *old_m);
    for (int p = 0; p < queries->panels; p++)
        bias[p] = FN(panel_bias)(keys, queries, &queries->panel[p]);
    FN(block_scores)(&block->content, v, bias, block->multiplier, s->scores, block->m);
    for (int p = 0; p < queries->panels; p++) {
        v.panel = &queries->panel[p];
        v.bias = &bias[p];
        if (bias[p].from < bias[p].to)
            softmax_step(s, block, &v, old_m + v.panel->first);
    }
    add_values(s, block, v, bias);
}

/* ---- logits ---- */

/* Store the numbers of a panel and a tile, as rows of the matrix (h,n,m). */
static void write_panel(const pe_view *v, const real *logits, real *copy)
{
    const pe_query_block *queries = v->queries;
    const pe_panel *p = v->panel;
    const pe_array *a = &queries->call->array[A_OUT];
    const int n = v->keys->n;
    char *out = query_row(queries, A_OUT, p->first) + v->keys->first * storage_size(a->storage);
    unpack_transposed((pe_lanes){logits, p->width, p->lanes, n}, 1, NULL, (char *)copy, BLOCK_N * (idx)sizeof(real));
    for (int l = 0; l < p->lanes; l++)
        row_store(copy + l * BLOCK_N, out + l * a->core[1], a->storage, n);
}

/* Store what the operators add, before the common scale. Those that add after the cap are alone in a call. */
static void write_logits(forward_state *s, block_state *block)
{
    pe_content *c = &block->content;
    const pe_query_block *queries = block->queries;
    const int n = s->keys->n;
    pe_view v = FN(view_of_keys)(queries, s->keys, queries->panels, s->copy);
    FN(content_tile)(c, v);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const pe_panel_bias all = {0, n, p->width, NULL};
        v.panel = p;
        v.bias = &all;
        const real *logits = c->after_cap ? FN(content_after)(c, v).add : FN(content_panel)(c, v);
        if (block->multiplier) {
            const real *q = block->multiplier + p->first * s->d;
            const pe_side side = {.b = q, .width = p->width, .to = n, .add = logits, .step = p->width, .c = s->scores};
            FN(scores)(v.k, s->d, &side, 1);
            logits = s->scores;
        }
        write_panel(&v, logits, s->scores + PANEL_LANES * BLOCK_N);
    }
}

/* ---- a head and blocks of queries ---- */

static NOINLINE void log_sums(const real *m, const real *l, int n, double *restrict lse)
{
    SIMD
    for (int i = 0; i < n; i++)
        lse[i] = log_sum(m[i], l[i]);
}

static void write_lses(const block_state *block, idx head, int operand)
{
    const pe_query_block *queries = block->queries;
    double lse[BLOCK_M];
    log_sums(block->m, block->l, queries->width, lse);
    for (int l = 0; l < queries->lanes; l++)
        write_lse(lse[l], query_row_of_head(queries, head, operand, l), queries->call->array[operand].storage);
}

/* Store o / l, and lse if the caller passes it. Returns whether all of o is finite. */
static int write_block(const forward_state *s, const block_state *block)
{
    const pe_query_block *queries = block->queries;
    const int outs = s->part.parts > 1 ? A_PART_OUT : A_OUT, lses = s->part.parts > 1 ? A_PART_LSE : A_LSE;
    const idx head = output_head(&s->part, queries->head);
    const real remaining = (real)(1 - dropout_of(queries->call));
    real divisor[BLOCK_M];
    for (int l = 0; l < queries->width; l++)
        divisor[l] = block->l[l] == 0 ? 1 : block->l[l] * remaining; /* the lane saw no key: 0 / 1 */
    if (queries->batch_row.data[lses])
        write_lses(block, head, lses);
    return FN(unpack_queries)(queries, head, outs, s->e, block->o, 1, divisor, s->copy);
}

static void clear_sums(const forward_state *s, block_state *block)
{
    const pe_query_block *queries = block->queries;
    zero_reals(block->o, queries->width * s->e);
    if (block->content.scans)
        memset(block->content.passed, 0, sizeof block->content.passed);
    for (int l = 0; l < queries->width; l++) {
        block->m[l] = l < queries->lanes ? sink_of_part(queries, &s->part, queries->head, l) : MASKED;
        block->l[l] = (real)(block->m[l] != MASKED);
    }
}

/* Split the keys and values of the tile for all blocks. */
static void split_tile(forward_state *s, const pe_query_block *queries)
{
    const pe_rows keys = rows_of_keys(queries, A_K, s->keys->first),
                  values = rows_of_keys(queries, A_V, s->keys->first);
    if (s->prefetch) {
        FN(prefetch_rows)(&keys, s->keys->n, s->d);
        FN(prefetch_rows)(&values, s->keys->n, s->e);
    }
    s->splits_values = bf16_of(queries)->split_tile(queries, s->keys, s->mask_nonfinite, 1);
}

/* Visit the tiles of the part with `count` blocks of a head, in descending order if an operator scans from the last
 * key. With mask_nonfinite, NaN and infinity in masked values reach no query. Returns 0 if the call was stopped. */
static int attend(forward_state *s, block_state *blocks, int count, int mask_nonfinite)
{
    pe_tiles tiles = tiles_of(blocks->queries, s->keys);
    idx split = -1; /* the first key of the tile that split_tile split */
    tiles.blocks = count;
    tiles.first = s->part.first;
    tiles.last = s->part.last;
    tiles.descends = blocks->content.scans;
    tiles.visits_masked = blocks->queries->call->plan.mode == PE_LOGITS;
    tiles.polls = 0;
    s->mask_nonfinite = mask_nonfinite;
    for (int k = 0; k < count; k++)
        clear_sums(s, &blocks[k]);
    while (FN(next_tile)(&tiles)) {
        block_state *block = &blocks[tiles.block];
        if (bf16_of(block->queries) && split != s->keys->first)
            split_tile(s, block->queries);
        split = s->keys->first;
        (tiles.visits_masked ? write_logits : attend_to_tile)(s, block);
    }
    return !tiles.stopped;
}

static void begin_block(forward_state *s, block_state *block, const pe_call *call, idx unit)
{
    FN(query_block)(block->queries, call, unit);
    block->queries->split = s->split;
    FN(begin_block)(&block->content, block->queries, s->copy, s->q);
    block->multiplier =
        FN(content_multiplier)(&block->content, block->queries, call->plan.mode == PE_LOGITS ? NULL : s->q);
    const pe_bf16 *bf16 = bf16_of(block->queries);
    if (bf16)
        bf16->split_queries(block->queries, QK, block->content.before_cap, block->multiplier, NULL);
}

/* Compute `count` blocks of a head. If the result of a block is not finite, compute it again with mask_nonfinite.
 * Returns 0 if the call was stopped. */
static int attend_blocks(forward_state *s, const pe_call *call, idx first, int count)
{
    for (int k = 0; k < count; k++)
        begin_block(s, &s->block[k], call, first + k);
    if (!attend(s, s->block, count, 0))
        return 0;
    if (call->plan.mode == PE_LOGITS)
        return 1;
    for (int k = 0; k < count; k++) {
        block_state *block = &s->block[k];
        if (write_block(s, block))
            continue;
        if (count > 1)
            begin_block(s, block, call, first + k); /* s->q has the queries of the last block */
        if (!attend(s, block, 1, 1))
            return 0;
        (void)write_block(s, block);
    }
    return 1;
}

LAYOUT(forward)
{
    s->d = (int)D(d);
    s->e = (int)D(e);
    s->most = call->plan.blocks_together;
    s->q = carve_reals(c, BLOCK_M * D(d));
    real *const o = carve_reals(c, s->most * BLOCK_M * D(e));
    s->scores = carve_reals(c, BLOCK_M * BLOCK_N);
    s->copy = carve_reals(c, (max_(D(d), D(e)) + ROW_PAD) * BLOCK_N);
    s->row = carve_reals(c, max_(D(d), D(e)));
    FN(content_layout)(&s->content, NULL, dim, c);
    s->keys = carve_bytes(c, sizeof *s->keys);
    s->block = carve_bytes(c, s->most * (idx)sizeof *s->block);
    pe_query_block *const queries = carve_bytes(c, s->most * (idx)sizeof *queries);
    s->split = call->plan.bf16 ? call->products->attention->carve(c, call, s->most, 0) : NULL;
    for (int k = 0; c->memory && k < s->most; k++) {
        s->block[k].queries = queries + k;
        s->block[k].content = s->content;
        s->block[k].o = o + k * BLOCK_M * D(e);
    }
}

static forward_state begin_call(const pe_call *call, const pe_work *work)
{
    forward_state s = forward_begin(call, work);
    s.splits_values = 0;
    s.prefetch = s.most == 1 && work->slow_l3;
    return s;
}

int FN(attend_unit)(const pe_call *call, idx unit, const pe_work *work)
{
    forward_state s = begin_call(call, work);
    s.part = part_of_unit(call, unit);
    return attend_blocks(&s, call, unit / s.part.parts, 1);
}

KERNEL(forward)
{
    const idx blocks = BLOCKS(call->D(n), BLOCK_M);
    forward_state s = begin_call(call, work);
    for (idx unit = begin, together; unit < end; unit += together) {
        s.part = part_of_unit(call, unit);
        const idx block = unit / s.part.parts; /* with several parts, most is 1 */
        together = min_(s.most, min_(end - unit, blocks - block % blocks));
        if (!attend_blocks(&s, call, block, (int)together))
            return;
    }
}

KERNEL(logits) { FN(forward)(call, begin, end, work); }
