/* backward.c -- the gradient of attention from its out and lse, without an array of size n x m.
 *
 *     out_i = sum_j p_ij v_j,  p_ij = exp(s_ij - lse_i)     dv_j = sum_i p_ij g_i
 *     g = d out, gl = d lse,  delta_i = g_i.out_i - gl_i    dS_ij = p_ij (g_i.v_j - delta_i)
 *     s_ij = softcap tanh(scale q_i.k_j / softcap) + bias   dX = dS (1 - tanh**2);  dq = scale dX k,  dk = dX^T scale q
 *     sink: d_i = -exp(sink_i - lse_i) delta_i              as for a key whose value is 0
 *     dropout: z_ij = 0 or 1 / (1 - dropout) multiplies p_ij in out_i and dv_j, and g_i.v_j in dS_ij
 *
 *     for each pair (i, j):
 *         p = exp(s_ij - lse_i);             dS = p (z dot(g_i, v_j) - delta_i); dX = dS * slope of the cap
 *         dv_j += z p g_i;                    dq_i += scale dX k_j;               dk_j += scale dX q_i
 *
 * Scores are recomputed tile by tile (Dao 2023, FlashAttention-2, algorithm 2). A unit is one kv head. If there are few
 * kv heads, each is split into chunks: a range of query heads times every block_chunks-th block of queries. For each
 * block, a unit visits the tiles of keys; it sums dk and dv in its scratch memory. The chunks depend on h, g and n
 * alone, and their sums are added in order, here or by the caller. So the bits depend neither on threads nor on other
 * rows of the batch.
 *
 * A pair with p = 0 adds nothing, even if its numbers are NaN or infinite: masked values do not reach a gradient. For
 * the products, nonfinite numbers are replaced by 0. Pairs that see them have p or dS = NaN, and so are the sums; below
 * a softcap that is saturated, dX is 0.
 *
 * Instructions for 16-bit numbers (tile/bf16.h) compute all five products, if the block's queries and cotangents and
 * all keys and values of the kv head are finite, and the call has no operator of content.h. p and dX are split into
 * terms.
 *
 * logits_vjp: the cotangent of the logits is dS. Operators take it as in attention; q.k has a gradient only through the
 * gates of a scan. Here a nonfinite query makes NaN of its cotangents.
 */
#include "attention/bias_grad.h"
#include "attention/dropout.h"
#include "attention/plan.h"
#include "attention/scores.h"
#include "base/elementary.h"
#include "relative/scan.h"
#include "tile/outer.h"
#include "tile/bf16.h"

/* The gradient of the keys, or of the values, of a kv head and a chunk: weights times strips */
typedef struct {
    int operand, product; /* A_DK and QK, or A_DV and GV */
    int width, step;      /* channels, and filled up to whole vectors */
    real *strips;         /* of the block's queries or cotangents (outer.h) */
    real *sums;           /* zero at the beginning of a chunk */
} key_gradient;

/* Queries and cotangents of a block are stored in two layouts: with one query per lane for the scores, and as strips
 * for the products that add to keys and values. */
typedef struct {
    int d, e;
    int nonfinite_keys; /* a key of the kv head is not finite */
    int allows_bf16;    /* nothing of the kv head, such as a nonfinite key, prevents 16-bit products */
    real *q, *g, *dq, *p, *ds, *slope, *factors, *k_copy, *v_copy, *row;
    key_gradient dk, dv;
    int is_clear; /* dk and dv are zero: write_keys clears them */
    real lse[BLOCK_M], delta[BLOCK_M];
    uint64_t nonfinite_q;   /* lanes whose strips have 0 in place of nonfinite numbers */
    const real *multiplier; /* the packed queries plus the vectors of content operators */
    pe_block_state at;
    pe_bias_grad *bias_grad;
    pe_content content;
    pe_content_vjp content_vjp;
    pe_split *split; /* for blocks of 16-bit products */
} attention_vjp_state;

/* ---- a block of queries ---- */

static double dot(const real *a, const real *b, int n)
{
    double sums[8] = {0}, sum = 0;
    int k = 0;
    for (; k + 8 <= n; k += 8) {
        for (int c = 0; c < 8; c++)
            sums[c] += (double)a[k + c] * (double)b[k + c];
    }
    for (; k < n; k++)
        sum += (double)a[k] * (double)b[k];
    for (int c = 0; c < 8; c++)
        sum += sums[c];
    return sum;
}

/* The gradient of a query's sink; 0 if its weight is 0, whatever delta is */
static void write_d_sink(const pe_query_block *queries, int lane, double lse, double delta)
{
    if (!queries->batch_row.data[A_D_SINK])
        return;
    const double below = lse - (double)sink_of(queries, queries->head, lane); /* at least 0, but for rounding */
    const double weight = exp_minus(below < 0 ? 0 : below), d_sink = weight == 0 ? 0 : -weight * delta;
    memcpy(query_row(queries, A_D_SINK, lane), &d_sink, sizeof d_sink);
}

/* Set lse and delta of each lane. If a lane has no query, or its query sees no key, lse = +inf makes all weights 0. The
 * strips of cotangents have 0 in place of nonfinite numbers, so lse = NaN makes the weights of these lanes NaN. */
static void read_lse_and_delta(attention_vjp_state *s, const pe_query_block *queries, uint64_t nonfinite_grad)
{
    const pe_array *a = queries->call->array;
    real *out_row = s->row + max_(s->d, s->e);
    for (int l = 0; l < queries->width; l++) {
        s->lse[l] = -MASKED;
        s->delta[l] = 0;
    }
    for (int l = 0; l < queries->lanes; l++) {
        const real *g = row_read(query_row(queries, A_GRAD, l), a[A_GRAD].storage, s->e, s->row);
        const real *o = row_read(query_row(queries, A_OUT, l), a[A_OUT].storage, s->e, out_row);
        const real lse = (real)scalar_read(query_row(queries, A_LSE, l), a[A_LSE].storage);
        double delta = dot(g, o, s->e);
        if (queries->batch_row.data[A_GRAD_LSE])
            delta -= scalar_read(query_row(queries, A_GRAD_LSE, l), a[A_GRAD_LSE].storage);
        s->delta[l] = (real)delta;
        s->lse[l] = lse == MASKED ? -MASKED : lse;
        write_d_sink(queries, l, (double)s->lse[l], delta);
        if (nonfinite_grad >> l & 1)
            s->lse[l] = (real)NAN;
    }
}

/* ---- dS ---- */

INLINE void differentiate_lanes(int width, real *restrict s, real *restrict dp, const real *restrict lse,
                                const real *restrict delta, int n)
{
    for (int j = 0; j < n; j++, s += width, dp += width) {
        SIMD
        for (int l = 0; l < width; l++) {
            const real x = exp2_or_inf((s[l] - lse[l]) * LOG2_E), p = s[l] == MASKED ? 0 : x;
            s[l] = p;
            dp[l] = p == 0 ? 0 : p * (dp[l] - delta[l]);
        }
    }
}

/* s -> p = exp(s - lse), and dp -> dS = p (dp - delta) */
static NOINLINE void differentiate(int width, real *s, real *dp, const real *lse, const real *delta, int n)
{
    if (width == LANES)
        differentiate_lanes(LANES, s, dp, lse, delta, n);
    else
        differentiate_lanes(PANEL_LANES, s, dp, lse, delta, n);
}

static NOINLINE void multiply_weights(real *restrict x, const real *restrict factor, int n)
{
    SIMD
    for (int i = 0; i < n; i++)
        x[i] = x[i] == 0 ? 0 : x[i] * factor[i];
}

/* Return the factor of each weight of a panel: 0 if it is dropped, else 1 / (1 - dropout). */
static const real *draw_factors(const attention_vjp_state *s, const pe_view *v)
{
    const int n = v->bias->to - v->bias->from;
    const real factor = (real)(1 / (1 - dropout_of(v->queries->call)));
    for (int i = 0; i < n * v->panel->width; i++)
        s->factors[i] = factor;
    FN(drop)(v, s->factors);
    return s->factors;
}

/* Recompute the weights p of a panel, and dS before the cap; reduce dS into the gradients of operators. `values` are
 * the rows of the tile's values. */
static void panel_vjp(attention_vjp_state *s, const pe_view *v, pe_lines values)
{
    const pe_panel *p = v->panel;
    const int first = p->first, width = p->width, from = v->bias->from, n = v->bias->to - from;
    real *scores = s->p + score_offset(p, from), *ds = s->ds + score_offset(p, from);
    const real *g = s->g + first * s->e;
    pe_content *c = &s->content;
    FN(panel_scores)(c, v, s->multiplier, scores, NULL, s->slope);
    const real *add = c->values ? FN(content_value_scores)(c, *v, g) : NULL;
    const pe_side side = {.b = g, .width = width, .from = from, .to = v->bias->to, .add = add, .step = width, .c = ds};
    const pe_bf16 *bf16 = bf16_of(v->queries);
    if (bf16)
        bf16->scores(v->queries, p, GV, &side);
    else
        FN(scores)(values, s->e, &side, 1);
    const real *factors = dropout_of(v->queries->call) > 0 ? draw_factors(s, v) : NULL;
    if (factors)
        multiply_weights(ds, factors, n * width);
    differentiate(width, scores, ds, s->lse + first, s->delta + first, n);
    if (factors)
        multiply_weights(scores, factors, n * width);
    if (p->lanes < width) { /* a nonfinite key makes NaN in lanes without a query */
        for (int j = 0; j < n; j++) {
            for (int l = p->lanes; l < width; l++)
                scores[j * width + l] = ds[j * width + l] = 0;
        }
    }
    FN(bias_grad_panel)(s->bias_grad, v, ds);
    if (c->values)
        FN(content_values_vjp)(&s->content_vjp, *v, scores);
    if (c->after_cap)
        FN(content_after_vjp)(&s->content_vjp, *v, ds);
    if (v->queries->call->par[A_SOFTCAP] > 0)
        multiply_weights(ds, s->slope, n * width);
    if (c->scans)
        FN(content_scan_vjp)(&s->content_vjp, *v, ds);
}

/* Logits: read dS of a panel, which is the cotangent, with 0 in lanes without a query. In lanes whose query is not
 * finite, numbers become NaN. */
static void logits_panel_vjp(attention_vjp_state *s, const pe_view *v)
{
    const pe_panel *p = v->panel;
    const pe_array *a = &v->queries->call->array[A_GRAD];
    pe_content *c = &s->content;
    real *ds = s->ds + score_offset(p, 0);
    for (int l = 0; l < p->width; l++) {
        const char *row = query_row(v->queries, A_GRAD, p->first + l) + v->keys->first * a->core[2];
        const int is_nonfinite = s->nonfinite_q >> (p->first + l) & 1;
        for (int j = 0; j < v->keys->n; j++) {
            const real grad = l < p->lanes ? (real)scalar_read(row + j * a->core[2], a->storage) : 0;
            ds[j * p->width + l] = grad != 0 && is_nonfinite ? (real)NAN : grad;
        }
    }
    if (c->after_cap)
        FN(content_after_vjp)(&s->content_vjp, *v, ds);
    if (!c->scans)
        return;
    FN(scan_panel)(c, v);
    FN(content_scan_vjp)(&s->content_vjp, *v, ds);
}

/* dS times `factor`, for the keys from <= j < to, in the layout of dS */
static const real *ds_times(attention_vjp_state *s, const pe_query_block *queries, real factor, int from, int to)
{
    real *product = s->content.added; /* with a factor, there is no operator that adds */
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int i = score_offset(p, from); i < score_offset(p, to); i++)
            product[i] = s->ds[i] * factor;
    }
    return product;
}

/* ---- products of 16-bit numbers ---- */

/* Return whether n rows of an operand are finite. */
static int rows_are_finite(const pe_array *a, const char *rows, idx n, int width, real *buffer)
{
    if (width == 0) /* rows without channels take no memory, so n may be any number */
        return 1;
    vec check = vec_set(0); /* sum of x * 0, for vec_all_finite */
    int nonfinite = 0, c;
    for (idx j = 0; j < n; j++) {
        const real *row = row_read(rows + j * a->core[1], a->storage, width, buffer);
        for (c = 0; c + LANES <= width; c += LANES)
            check = vec_fma(vec_load(row + c), vec_set(0), check);
        for (; c < width; c++)
            nonfinite |= !is_finite(row[c]);
    }
    return !nonfinite && vec_all_finite(check);
}

/* Read the keys and values of a kv head once, not in every block. 16-bit products need finite numbers: the terms of an
 * infinite product may be infinities of both signs, whose sum is NaN. The operators of content.h multiply reals. */
static void look_at_keys(attention_vjp_state *s, const pe_call *call, const pe_row *at, idx group)
{
    const pe_array *k = &call->array[A_K], *v = &call->array[A_V];
    s->nonfinite_keys = !rows_are_finite(k, at->data[A_K] + group * k->core[0], call->D(m), s->d, s->row);
    s->allows_bf16 = call->plan.bf16 && !s->nonfinite_keys
                     && rows_are_finite(v, at->data[A_V] + group * v->core[0], call->D(m), s->e, s->row);
}

/* Decide whether the block uses 16-bit products, before the queries are packed. */
static void choose_products(attention_vjp_state *s, pe_query_block *queries)
{
    const pe_array *a = queries->call->array;
    const int active = s->allows_bf16
                       && rows_are_finite(&a[A_Q], query_row(queries, A_Q, 0), queries->lanes, s->d, s->row)
                       && rows_are_finite(&a[A_GRAD], query_row(queries, A_GRAD, 0), queries->lanes, s->e, s->row);
    queries->split = active ? s->split : NULL;
}

/* ---- a tile ---- */

/* Zero the weights of keys from <= j < to that a panel does not see: add_dv and add_dk read them. */
static void zero_unseen(attention_vjp_state *s, const pe_query_block *queries, int (*seen)[2], int from, int to)
{
    for (int i = 0; i < queries->panels; i++) {
        const pe_panel *p = &queries->panel[i];
        const int begin = (int)max_(from, min_(seen[i][0], to)), end = (int)max_(begin, min_(seen[i][1], to));
        real *const rows[] = {s->p + score_offset(p, 0), s->ds + score_offset(p, 0)};
        for (int k = 0; k < 2; k++) {
            zero_reals(rows[k] + from * p->width, (begin - from) * p->width);
            zero_reals(rows[k] + end * p->width, (to - end) * p->width);
        }
    }
}

/* dk += dX^T q, or dv += p^T g, for the keys from <= j < to of a tile that begins with key `first` */
static void add_to_keys(const pe_query_block *queries, const key_gradient *d, const real *weights, idx first, int from,
                        int to)
{
    const pe_bf16 *bf16 = bf16_of(queries);
    const pe_strips strips = {d->strips, BLOCK_M, d->width};
    real *sums = d->sums + first * d->step;
    if (bf16)
        bf16->outer(queries, d->product, weights, from, to, (pe_sums){sums, d->step});
    else
        FN(add_outer_of_block)(queries, weights, &strips, from, to, (pe_sums){sums, d->step});
}

static void add_dq(attention_vjp_state *s, const pe_view *v, int (*seen)[2])
{
    const pe_query_block *queries = v->queries;
    const pe_bf16 *bf16 = bf16_of(queries);
    pe_lines rows = v->k;
    if (s->nonfinite_keys)
        rows = FN(finite_rows)(rows_of_keys(queries, A_K, v->keys->first), v->keys->n, s->d, s->k_copy);
    pe_side side[PANELS];
    for (int i = 0; i < queries->panels; i++) {
        const pe_panel *p = &queries->panel[i];
        side[i] = (pe_side){.b = s->ds + score_offset(p, seen[i][0]),
                            .width = p->width,
                            .from = seen[i][0],
                            .to = seen[i][1],
                            .c = s->dq + p->first * s->d};
        if (bf16)
            bf16->values(queries, &side[i]);
    }
    if (!bf16)
        FN(values)(rows, s->d, side, queries->panels);
}

/* Add the gradient of a scan's gates to ds, the gradient of q.k, which is 0 for logits. The gradients of the operators'
 * tables were computed before, from ds without the gates. */
static void add_gates_to_ds(attention_vjp_state *s, const pe_query_block *queries, int (*seen)[2])
{
    const int is_logits = queries->call->plan.mode == PE_LOGITS_VJP;
    for (int i = 0; i < queries->panels; i++) {
        const pe_panel *p = &queries->panel[i];
        for (int at = score_offset(p, seen[i][0]); at < score_offset(p, seen[i][1]); at++)
            s->ds[at] = (is_logits ? 0 : s->ds[at]) + s->content.gate_scale * s->content_vjp.d_gates[at];
    }
}

/* Compute p and dS of all panels, and the gradients that need no other panel. seen[i]: the keys that panel i sees */
static void panels_vjp(attention_vjp_state *s, pe_view v, pe_key_tile *keys, int (*seen)[2])
{
    const pe_query_block *queries = v.queries;
    const int is_logits = queries->call->plan.mode == PE_LOGITS_VJP, is_real_product = !is_logits && !bf16_of(queries);
    pe_lines values = {NULL, 0};
    if (is_real_product)
        values = FN(tile_rows)(rows_of_keys(queries, A_V, keys->first), keys->n, s->e, 2, s->v_copy);
    for (int i = 0; i < queries->panels; i++) {
        const pe_panel *p = &queries->panel[i];
        const pe_panel_bias all = {0, keys->n, p->width, NULL},
                            bias = is_logits ? all : FN(panel_bias)(keys, queries, p);
        v.panel = p;
        v.bias = &bias;
        seen[i][0] = bias.from;
        seen[i][1] = bias.to;
        if (is_logits)
            logits_panel_vjp(s, &v);
        else if (bias.from < bias.to)
            panel_vjp(s, &v, values);
    }
}

static void tile_vjp(attention_vjp_state *s, const pe_query_block *queries, pe_key_tile *keys)
{
    pe_content *c = &s->content;
    const pe_bf16 *bf16 = bf16_of(queries);
    const int is_logits = queries->call->plan.mode == PE_LOGITS_VJP;
    pe_view v = {.queries = queries, .keys = keys};
    int from = keys->n, to = 0, seen[PANELS][2];
    if (bf16)
        (void)bf16->split_tile(queries, keys, 0, queries->batch_row.data[A_DQ] != NULL);
    else
        v = FN(view_of_keys)(queries, keys, 2, s->k_copy);
    if (!is_logits)
        FN(content_tile)(c, v);
    panels_vjp(s, v, keys, seen);
    for (int i = 0; i < queries->panels; i++) {
        if (seen[i][0] < seen[i][1]) {
            from = (int)min_(from, seen[i][0]);
            to = (int)max_(to, seen[i][1]);
        }
    }
    if (from < to)
        zero_unseen(s, queries, seen, from, to);
    if (c->before_cap)
        FN(content_panels_vjp)(&s->content_vjp, v, seen, s->ds);
    if (c->before_cap && queries->batch_row.data[A_DK])
        FN(content_keys_vjp)(&s->content_vjp, v, from, to, s->ds, s->dk.sums + keys->first * s->dk.step, s->dk.step);
    if (c->scans)
        add_gates_to_ds(s, queries, seen);
    if (queries->batch_row.data[A_DV])
        add_to_keys(queries, &s->dv, s->p, keys->first, from, to);
    if (is_logits && !c->scans) /* without a q.k */
        return;
    if (queries->batch_row.data[A_DK]) {
        const real *ds = c->factor == 1 ? s->ds : ds_times(s, queries, c->factor, from, to);
        add_to_keys(queries, &s->dk, ds, keys->first, from, to);
    }
    if (queries->batch_row.data[A_DQ])
        add_dq(s, &v, seen);
}

/* Read g and delta of a block, and pack or split what the products of attention read. */
static void begin_attention(attention_vjp_state *s, const pe_query_block *queries)
{
    FN(pack_queries)(queries, A_GRAD, s->e, 1, s->v_copy, s->g);
    read_lse_and_delta(s, queries, FN(strips_of)(queries, A_GRAD, s->e, 1, s->dv.strips, s->row));
    s->multiplier = FN(content_multiplier)(&s->content, queries, s->q);
    const pe_bf16 *bf16 = bf16_of(queries);
    if (bf16) {
        bf16->split_queries(queries, QK, 0, s->multiplier, s->dk.strips);
        bf16->split_queries(queries, GV, 0, s->g, s->dv.strips);
    }
}

/* Add the gradients of one block of queries; t: the row of the dS reductions and of the gradients of tables. Returns 0
 * if the call was stopped. */
static int block_vjp(attention_vjp_state *s, const pe_query_block *queries, idx t, const pe_work *work)
{
    const int is_logits = queries->call->plan.mode == PE_LOGITS_VJP;
    pe_tiles tiles = tiles_of(queries, s->at.keys);
    tiles.visits_masked = is_logits;
    choose_products(s, s->at.queries);
    FN(bias_grad_block)(s->bias_grad, queries, t, work);
    FN(begin_block)(&s->content, queries, s->k_copy, s->q);
    s->nonfinite_q = FN(strips_of)(queries, A_Q, s->d, s->content.packed_scale, s->dk.strips, s->row);
    zero_reals(s->dq, queries->width * s->d);
    FN(content_block_vjp)(&s->content_vjp, &s->content, s->dk.strips, s->dv.strips, s->dq, t);
    if (!is_logits)
        begin_attention(s, queries);
    s->content.ascending = 1;
    if (s->content.scans && !FN(sum_gates)(&s->content, &s->at, s->k_copy))
        return 0;
    while (FN(next_tile)(&tiles))
        tile_vjp(s, queries, s->at.keys);
    if (tiles.stopped)
        return 0;
    FN(content_end_vjp)(&s->content_vjp, queries);
    if (queries->batch_row.data[A_DQ])
        FN(unpack_queries)(queries, queries->head, A_DQ, s->d, s->dq, s->content.scale, NULL, s->k_copy);
    FN(bias_grad_write)(s->bias_grad, queries);
    return 1;
}

/* ---- units ---- */

/* Store a chunk's dK or dV, or add it to the earlier chunks, then clear the accumulator. The output is `real` if chunks
 * are added. */
static void write_keys(const pe_call *call, const pe_row *at, const key_gradient *d, idx chunk, int is_first,
                       real *buffer)
{
    const pe_array *a = &call->array[d->operand];
    real *sum = d->sums;
    if (!at->data[d->operand] || d->width == 0)
        return;
    for (idx j = 0; j < call->D(m); j++, sum += d->step) {
        char *to = at->data[d->operand] + chunk * a->core[0] + j * a->core[1];
        real *restrict target = row_target(to, a->storage, buffer);
        for (int c = 0; c < d->width; c++)
            target[c] = is_first ? sum[c] : target[c] + sum[c];
        row_write(target, to, a->storage, d->width);
        zero_reals(sum, d->width);
    }
}

/* Add the gradients of one chunk of a kv head. Returns 0 if the call was stopped. */
static int chunk_vjp(attention_vjp_state *s, const pe_call *call, idx row, idx group, idx chunk, const pe_work *work)
{
    const idx share = call->D(h) / call->D(g), blocks = BLOCKS(call->D(n), BLOCK_M);
    const idx block_chunks = call->plan.block_chunks, heads_of_chunk = BLOCKS(share, call->plan.head_chunks);
    const idx first_block = chunk % block_chunks, first = group * share + chunk / block_chunks * heads_of_chunk;
    const int has_own_sums = call->par[A_PARTS] > 1;
    for (idx h = first; h < min_(first + heads_of_chunk, (group + 1) * share); h++) {
        const idx t = has_own_sums ? h * block_chunks + first_block : h;
        for (idx i = first_block; i < blocks; i += block_chunks) {
            FN(query_block)(s->at.queries, call, (row * call->D(h) + h) * blocks + i);
            if (i == (has_own_sums ? first_block : 0))
                FN(bias_grad_clear)(s->at.queries, t);
            if (!block_vjp(s, s->at.queries, t, work))
                return 0;
        }
    }
    return 1;
}

/* Compute a kv head, or one of its chunks. Returns 0 if the call was stopped. */
static int kv_head_unit(attention_vjp_state *s, const pe_call *call, idx unit, const pe_work *work)
{
    const idx groups = call->D(g), parts = (idx)call->par[A_PARTS], into = unit % (groups * parts);
    const idx row = unit / (groups * parts), group = into / parts;
    const idx chunks = call->plan.head_chunks * call->plan.block_chunks / parts, first = into % parts * chunks;
    const pe_row at = row_at(call, row);
    if (!s->is_clear) {
        zero_reals(s->dk.sums, call->D(m) * s->dk.step);
        zero_reals(s->dv.sums, call->D(m) * s->dv.step);
        s->is_clear = 1;
    }
    if (call->plan.mode == PE_ATTEND_VJP)
        look_at_keys(s, call, &at, group);
    for (idx chunk = first; chunk < first + chunks; chunk++) {
        if (!chunk_vjp(s, call, row, group, chunk, work))
            return 0;
        write_keys(call, &at, &s->dk, into, chunk == first, s->row);
        write_keys(call, &at, &s->dv, into, chunk == first, s->row);
    }
    return 1;
}

/* Compute only the gradient of a bias (n,m) that heads or rows of the batch share. A unit adds a block of queries of
 * each head and batch row in turn, so no two units add to the same rows. Returns 0 if the call was stopped. */
static int shared_bias_unit(attention_vjp_state *s, const pe_call *call, idx unit, const pe_work *work)
{
    const idx heads = call->D(h), blocks = BLOCKS(call->D(n), BLOCK_M), all = heads * count_rows(call);
    const idx units = all / heads * call->D(g) * (idx)call->par[A_PARTS];
    for (idx i = unit; i < blocks; i += units) {
        for (idx h = 0; h < all; h++) {
            FN(query_block)(s->at.queries, call, h * blocks + i);
            if (call->plan.bf16)
                look_at_keys(s, call, &s->at.queries->batch_row, s->at.queries->kv_head);
            if (!block_vjp(s, s->at.queries, 0, work))
                return 0;
        }
    }
    return 1;
}

static key_gradient carve_key_gradient(pe_carver *c, int operand, int product, idx width, idx keys)
{
    const int step = strips_width((int)width);
    real *const strips = carve_reals(c, BLOCK_M * (idx)step), *const sums = carve_reals(c, keys * step);
    return (key_gradient){operand, product, (int)width, step, strips, sums};
}

LAYOUT(attention_vjp)
{
    s->d = (int)D(d);
    s->e = (int)D(e);
    s->q = carve_reals(c, BLOCK_M * D(d));
    s->g = carve_reals(c, BLOCK_M * D(e));
    s->dq = carve_reals(c, BLOCK_M * D(d));
    s->p = carve_reals(c, BLOCK_M * BLOCK_N);
    s->ds = carve_reals(c, BLOCK_M * BLOCK_N);
    s->slope = carve_reals(c, PANEL_LANES * BLOCK_N);
    s->factors = carve_reals(c, PANEL_LANES * BLOCK_N);
    s->k_copy = carve_reals(c, (D(d) + ROW_PAD) * BLOCK_N);
    s->v_copy = carve_reals(c, (D(e) + ROW_PAD) * BLOCK_N);
    s->row = carve_reals(c, 2 * max_(D(d), D(e)));
    s->dk = carve_key_gradient(c, A_DK, QK, D(d), D(m));
    s->dv = carve_key_gradient(c, A_DV, GV, D(e), D(m));
    s->at = carve_block_state(c);
    s->bias_grad = carve_bytes(c, sizeof *s->bias_grad);
    FN(content_layout)(&s->content, &s->content_vjp, dim, c);
    s->split = call->plan.bf16 ? call->products->attention->carve(c, call, 1, 1) : NULL;
}

KERNEL(attention_vjp)
{
    attention_vjp_state s = attention_vjp_begin(call, work);
    s.is_clear = s.nonfinite_keys = s.allows_bf16 = 0;
    for (idx unit = begin; unit < end; unit++) {
        if (!(call->plan.mode == PE_SHARED_VJP ? shared_bias_unit : kv_head_unit)(&s, call, unit, work))
            return;
    }
}

KERNEL(logits_vjp) { FN(attention_vjp)(call, begin, end, work); }
