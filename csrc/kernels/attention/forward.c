/* forward.c -- streaming attention, without an array of size n x m.   q(h,n,d) k(g,m,d) v(g,m,e) -> out(h,n,e) lse(h,n)
 *
 *     s_ij = scale q_i.k_j;   s = softcap tanh(s / softcap);   s += bias_ij, -inf where masked
 *     lse_i = log sum_j exp(s_ij);   out_i = sum_j exp(s_ij - lse_i) v_j;   a row that sees nothing: 0, -inf
 *
 *     for each query i, with m = -inf (or its sink), l = 0 (1), o = 0:
 *         for each key j:
 *             m' = max(m, s_ij);   a = exp(m - m');   p = exp(s_ij - m')
 *             l = a l + p;   o = a o + p v_j;   m = m'
 *         out_i = o / l;   lse_i = m + log l
 *
 * A unit of work is a block of BLOCK_M queries of a head, or, with few blocks and many keys, a block and a part of the
 * keys. Each SIMD lane holds one query, and a panel is two vectors. So softmax does not cross lanes, and keys and
 * values need no packing. A step computes a tile of BLOCK_N keys. Tiles start at key 0 for every block. Skipping a
 * masked tile, or trimming a masked key, changes no bit. The packed queries include scale, but not log2 e:
 * (s - m) log2 e costs one instruction more and rounds better (the largest error, divided by the error of the same
 * NumPy expression in float32, worst of 60 calls, is 1.5 instead of 1.9).
 */
#include "attention/decode.h"
#include "attention/scores.h"
#include "base/elementary.h"
#include "tile/gemm.h"
#include "tile/panel.h"
#include "tile/panel_pair.h"

/* Buffers for BLOCK_M lanes. Panel p begins at p->first * (numbers of a lane: d in q, e in o, BLOCK_N in s). */
typedef struct {
    int d, e;
    int mask_nonfinite; /* second run: NaN and infinite values reach only the lanes that see them */
    pe_block_state at;
    pe_key_part part;
    real *q, *o, *s, *copy, *row;
    real m[BLOCK_M], l[BLOCK_M], alpha[BLOCK_M]; /* running max, running sum of exp(s - m), rescale of the last tile */
    uint64_t sees[BLOCK_N];                      /* mask_nonfinite only: the lanes that see a key of the tile */
    const real *multiplier;                      /* the packed queries plus the vectors of content operators */
    pe_content content;
} attention_state;

/* ---- online softmax ---- */

static void note_who_sees(attention_state *b, const pe_panel *p, const real *s, const pe_panel_bias *bias)
{
    for (int j = bias->from; j < bias->to; j++) {
        for (int l = 0; l < p->lanes; l++)
            b->sees[j] |= (uint64_t)(s[(j - bias->from) * p->width + l] != MASKED) << (p->first + l);
    }
}

/* One step of online softmax from the scores of a panel: running sum, and p = exp(s - m) over s. Until a lane sees a
 * key, m is -inf; then 0 is subtracted instead of m, because exp(-inf + inf) is NaN. old_m is m before the scores. */
static void softmax_step(attention_state *b, const pe_view *v, const real *old_m)
{
    const int first = v->panel->first, width = v->panel->width, n = v->bias->to - v->bias->from;
    real *s = b->s + first * BLOCK_N, *m = b->m + first, base[PANEL_LANES];
    if (b->mask_nonfinite)
        note_who_sees(b, v->panel, s, v->bias);
    for (int l = 0; l < width; l++) {
        base[l] = m[l] == MASKED ? 0 : m[l];
        b->alpha[first + l] = exp2_((old_m[l] - base[l]) * LOG2_E);
        b->l[first + l] *= b->alpha[first + l];
    }
    FN(exponentials)(s, base, n, width, b->l + first);
}

/* ---- values ---- */

/* Add the numbers that finite_rows left out to the lanes that see them. */
static void add_nonfinite_values(attention_state *b, const pe_panel *p, const pe_panel_bias *bias,
                                 const pe_rows *values)
{
    for (int j = bias->from; j < bias->to; j++) {
        const real *row = real_row_of(values, j, b->e, b->row);
        const real *weight = b->s + p->first * BLOCK_N + (j - bias->from) * p->width;
        for (int k = 0; k < b->e; k++) {
            if (is_finite(row[k]))
                continue;
            for (int l = 0; l < p->lanes; l++) {
                if (b->sees[j] >> (p->first + l) & 1)
                    b->o[p->first * b->e + k * p->width + l] += weight[l] * row[k];
            }
        }
    }
}

/* o = o alpha + p v for the panels of a block; `pair`: both panels see the same keys */
static void add_values(attention_state *b, pe_view v, const pe_panel_bias *bias, int pair)
{
    const pe_query_block *queries = v.queries;
    const pe_rows stored = rows_of_keys(queries, A_V, v.keys->first);
    const int n = v.keys->n;
    const pe_rows rows = b->mask_nonfinite ? FN(finite_rows)(stored, n, b->e, b->copy)
                                           : FN(tile_rows)(stored, n, b->e, queries->panels, b->copy);
    pe_values w[PANELS];
    for (int i = 0; i < queries->panels; i++) {
        const int first = queries->panel[i].first, from = bias[i].from;
        w[i] = (pe_values){rows.data + from * rows.step, rows.step,        bias[i].to - from,
                           b->s + first * BLOCK_N,       b->alpha + first, b->o + first * b->e};
    }
    if (pair)
        FN(values_of_pair)(w, b->e);
    for (int i = 0; i < queries->panels; i++) {
        const pe_panel *p = &queries->panel[i];
        if (w[i].n == 0)
            continue;
        if (!pair)
            FN(values)(&w[i], b->e, p->width);
        v.panel = p;
        v.bias = &bias[i];
        if (b->content.values)
            FN(content_values)(&b->content, v, w[i].p, w[i].o);
        if (b->mask_nonfinite)
            add_nonfinite_values(b, p, &bias[i], &stored);
    }
}

static void attend_to_tile(attention_state *b, const pe_query_block *queries, pe_key_tile *keys)
{
    pe_view v = FN(view_of_keys)(queries, keys, queries->panels, b->copy);
    pe_panel_bias bias[PANELS];
    if (b->mask_nonfinite)
        memset(b->sees, 0, sizeof b->sees);
    FN(content_tile)(&b->content, v);
    real old_m[BLOCK_M];
    memcpy(old_m, b->m, (size_t)queries->width * sizeof *old_m);
    const int pair = FN(scores_pair_up)(&b->content, queries, keys, bias);
    if (pair)
        FN(pair_scores)(&b->content, &v, bias, b->multiplier, b->s, b->m);
    for (int p = 0; p < queries->panels; p++) {
        const int first = queries->panel[p].first;
        if (!pair)
            bias[p] = FN(panel_bias)(keys, queries, &queries->panel[p]);
        v.panel = &queries->panel[p];
        v.bias = &bias[p];
        if (bias[p].from == bias[p].to)
            continue;
        if (!pair)
            FN(panel_scores)(&b->content, &v, b->multiplier, b->s + first * BLOCK_N, b->m + first, NULL);
        softmax_step(b, &v, old_m + first);
    }
    add_values(b, v, bias, pair);
}

/* ---- a head and a block of queries ---- */

/* lse = m + log l. Where a lane has seen a key or a sink, the largest score adds exactly 1, so l >= 1. */
static NOINLINE void log_sums(const real *m, const real *l, int n, double *restrict lse)
{
    SIMD
    for (int i = 0; i < n; i++) {
        const double sum = (double)l[i], x = (double)m[i] + log1p_pos(sum - 1);
        lse[i] = sum == 0 ? (double)MASKED : x;
    }
}

static void write_lses(const attention_state *b, const pe_query_block *queries, idx head, int operand)
{
    double lse[BLOCK_M];
    log_sums(b->m, b->l, queries->width, lse);
    for (int l = 0; l < queries->lanes; l++)
        write_lse(lse[l], query_row_of_head(queries, head, operand, l), queries->call->array[operand].storage);
}

/* Store o / l, and lse if the caller passes it. Returns whether all of o is finite. */
static int write_unit(const attention_state *b, const pe_query_block *queries)
{
    const int outs = b->part.parts > 1 ? A_PART_OUT : A_OUT, lses = b->part.parts > 1 ? A_PART_LSE : A_LSE;
    const idx head = output_head(&b->part, queries->head);
    real divisor[BLOCK_M];
    for (int l = 0; l < queries->width; l++)
        divisor[l] = b->l[l] == 0 ? 1 : b->l[l]; /* the lane saw no key: 0 / 1 */
    if (queries->batch_row.data[lses])
        write_lses(b, queries, head, lses);
    return FN(unpack_queries)(queries, head, outs, b->e, b->o, 1, divisor, b->copy);
}

/* Visit all tiles of the part, in descending order if an operator scans from the last key. Returns 0 if the call was
 * stopped. */
static int attend(attention_state *b, const pe_query_block *queries)
{
    const pe_call *call = queries->call;
    const idx first = b->part.first, last = b->part.last;
    zero_reals(b->o, queries->width * b->e);
    memset(b->content.passed, 0, sizeof b->content.passed);
    for (int l = 0; l < queries->width; l++) {
        b->m[l] = l < queries->lanes ? sink_of_part(queries, &b->part, queries->head, l) : MASKED;
        b->l[l] = (real)(b->m[l] != MASKED);
    }
    for (idx i = first; i < last; i++) {
        const idx tile = b->content.scans ? first + last - 1 - i : i;
        if (!FN(key_tile)(b->at.keys, queries, tile * BLOCK_N))
            continue;
        if (i > first && stop_requested(call)) /* not in units of one tile: a poll may read the clock */
            return 0;
        attend_to_tile(b, queries, b->at.keys);
    }
    return 1;
}

/* Compute a unit. If its result is not finite, compute it again with mask_nonfinite, so that NaN and infinity in masked
 * values reach no query. Returns 0 if the call was stopped. */
static int attend_unit(attention_state *b, const pe_call *call, idx block)
{
    pe_query_block *queries = b->at.queries;
    FN(query_block)(queries, call, block);
    FN(begin_block)(&b->content, queries, b->copy, b->q);
    b->multiplier = FN(content_multiplier)(&b->content, queries);
    for (b->mask_nonfinite = 0; b->mask_nonfinite < 2; b->mask_nonfinite++) {
        if (!attend(b, queries))
            return 0;
        if (write_unit(b, queries))
            break;
    }
    return 1;
}

/* In the first unit of heads that share keys, decode() computes these heads. attend_unit recomputes the heads whose
 * results are not finite. Returns 0 if the call was stopped. */
static int decode_unit(attention_state *b, const pe_call *call, idx block, const pe_work *work)
{
    if (!FN(begins_decoding)(call, block))
        return 1;
    FN(query_block)(b->at.queries, call, block);
    const int64_t nonfinite = FN(decode)(b->at.queries, &b->part, work);
    if (nonfinite < 0)
        return 0;
    for (int h = 0; nonfinite >> h; h++) {
        if (nonfinite >> h & 1 && !attend_unit(b, call, block + h))
            return 0;
    }
    return 1;
}

LAYOUT(attention)
{
    s->d = (int)D(d);
    s->e = (int)D(e);
    s->q = carve_reals(c, BLOCK_M * D(d));
    s->o = carve_reals(c, BLOCK_M * D(e));
    s->s = carve_reals(c, BLOCK_M * BLOCK_N);
    s->copy = carve_reals(c, (max_(D(d), D(e)) + ROW_PAD) * BLOCK_N);
    s->row = carve_reals(c, max_(D(d), D(e)));
    FN(content_layout)(&s->content, NULL, dim, c);
    /* decode() uses the same memory, before attend_unit does. */
    c->used = (size_t)max_((idx)c->used, (idx)FN(decode_scratch)(dim, par));
    s->at = carve_block_state(c); /* not shared: decode() reads at.queries */
}

KERNEL(attention)
{
    const int decoding = FN(is_decoding)(call);
    attention_state b = attention_begin(call, work);
    const idx parts = (idx)call->par[A_PARTS];
    for (idx unit = begin; unit < end; unit++) {
        b.part = key_part(call, unit % parts);
        if (!(decoding ? decode_unit(&b, call, unit / parts, work) : attend_unit(&b, call, unit / parts)))
            return;
    }
}
