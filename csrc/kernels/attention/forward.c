/* forward.c -- streaming attention: nothing of size n x m exists.   q(h,n,d) k(g,m,d) v(g,m,e) -> out(h,n,e) lse(h,n)
 *
 *     x_ij = scale q_i.k_j;   x = softcap tanh(x / softcap);   x += bias_ij, -inf where masked
 *     lse_i = log sum_j exp(x_ij);   out_i = sum_j exp(x_ij - lse_i) v_j;   a row that sees nothing: 0, -inf
 *
 * One unit is one head and a block of BLOCK_M queries. The queries stand on SIMD lanes, two vectors to a panel, so
 * softmax is vertical and keys and values need no packing. Tiles of BLOCK_N keys start at key 0 for every block; a tile
 * that is skipped, or a key that is trimmed, would have changed no bit. Scale is folded into the packed queries; log2 e
 * is not: (s - top) log2 e costs one instruction more and rounds better (largest error over that of the same NumPy
 * expression in float32, worst of 60 calls: 1.5 instead of 1.9).
 */
#include "tile/panel.h"
#include "content/content.h"
#include "attention/decode.h"
#include "tile/gemm.h"

/* Blocks of 64 lanes; panel p has its part at p->first times the length of a lane. */
typedef struct {
    int d, e, careful;
    real *q, *o, *s, *copy, *row;
    real top[BLOCK_M], total[BLOCK_M], factor[BLOCK_M]; /* so far: maximum, sum of exp(s - top); what to rescale by */
    uint64_t sees[BLOCK_N];                             /* careful only: the lanes that see a key */
    const real *pack;                                   /* what meets the keys: q, and what content adds to it */
    pe_content content;
} pe_block;

/* ---- softmax ---- */

static void note_who_sees(pe_block *b, const pe_panel *p, const real *s, const pe_bias *bias)
{
    for (int j = bias->from; j < bias->to; j++)
        for (int l = 0; l < p->lanes; l++)
            b->sees[j] |= (uint64_t)(s[(j - bias->from) * p->width + l] != MASKED) << (p->first + l);
}

static void soften(pe_block *b, const pe_queries *u, const pe_keys *keys, const pe_panel *p, const pe_bias *given,
                   const char *k, idx step)
{
    pe_content *c = &b->content;
    const int first = p->first, width = p->width, n = given->to - given->from;
    const real softcap = (real)u->call->par[A_SOFTCAP];
    real *s = b->s + first * BLOCK_N, *top = b->top + first, old[PANEL_LANES], unused[PANEL_LANES] = {0},
         base[PANEL_LANES];
    real *content = before_cap(c) ? FN(content_tile)(c, u, keys, p, given, k, step) : NULL;
    pe_bias after = c->after ? FN(content_after)(c, u, keys, p, given) : *given, *bias = &after;
    if (content && !(softcap > 0)) {
        merge_bias(content, bias, width);
        after.add = content;
        after.step = width;
    }
    const pe_scores w = {.k = k + bias->from * step,
                         .k_step = step,
                         .d = b->d,
                         .q = b->pack + first * b->d,
                         .bias = softcap > 0 ? content : bias->add,
                         .bias_step = softcap > 0 ? width : bias->step,
                         .s = s,
                         .top = softcap > 0 ? unused : top};
    memcpy(old, top, (size_t)width * sizeof *old);
    (width == PANEL_LANES ? scores_wide : scores_narrow)(&w, n);
    if (softcap > 0) {
        cap(s, n * width, softcap);
        add_bias(s, n, width, bias, top);
    }
    if (b->careful)
        note_who_sees(b, p, s, bias);
    for (int l = 0; l < width; l++) {
        base[l] = top[l] == MASKED ? 0 : top[l]; /* nothing seen yet: exp(-inf - 0) is 0, exp(-inf + inf) is not */
        b->factor[first + l] = exp2_((old[l] - base[l]) * LOG2_E);
        b->total[first + l] *= b->factor[first + l];
    }
    (width == PANEL_LANES ? exponentials_wide : exponentials_narrow)(s, base, n, b->total + first);
}

/* ---- keys and values ---- */

/* What finite_rows left out, given to the lanes that see it. */
static void add_not_finite(pe_block *b, const pe_panel *p, const pe_bias *bias, const char *data, idx step,
                           pe_storage storage)
{
    for (int j = bias->from; j < bias->to; j++) {
        const real *row = row_read(data + j * step, storage, b->e, b->row);
        const real *weight = b->s + p->first * BLOCK_N + (j - bias->from) * p->width;
        for (int k = 0; k < b->e; k++)
            for (int l = 0; l < p->lanes && !(row[k] - row[k] == 0); l++)
                if (b->sees[j] >> (p->first + l) & 1)
                    b->o[p->first * b->e + k * p->width + l] += weight[l] * row[k];
    }
}

static void tile(pe_block *b, const pe_queries *u, pe_keys *keys)
{
    const pe_array *ka = &u->call->array[A_K], *va = &u->call->array[A_V];
    const char *k = u->row.data[A_K] + u->kv_head * ka->core[0] + keys->first * ka->core[1];
    const char *v = u->row.data[A_V] + u->kv_head * va->core[0] + keys->first * va->core[1];
    idx k_step = ka->core[1], v_step = va->core[1];
    pe_bias bias[BLOCK_M / PANEL_LANES];
    if (b->careful)
        memset(b->sees, 0, sizeof b->sees);
    const char *rows = tile_rows(k, &k_step, ka->storage, keys->n, b->d, u->panels, b->copy);
    if (before_cap(&b->content))
        FN(content_keys)(&b->content, u, keys, rows, k_step);
    for (int p = 0; p < u->panels; p++) {
        bias[p] = FN(bias_of)(keys, u, &u->panel[p]);
        if (bias[p].from < bias[p].to)
            soften(b, u, keys, &u->panel[p], &bias[p], rows, k_step);
    }
    rows = b->careful ? finite_rows(v, &v_step, va->storage, keys->n, b->e, b->copy)
                      : tile_rows(v, &v_step, va->storage, keys->n, b->e, u->panels, b->copy);
    for (int p = 0; p < u->panels; p++) {
        const int first = u->panel[p].first;
        const pe_values w = {.v = rows + bias[p].from * v_step,
                             .v_step = v_step,
                             .n = bias[p].to - bias[p].from,
                             .p = b->s + first * BLOCK_N,
                             .factor = b->factor + first,
                             .o = b->o + first * b->e};
        if (w.n > 0)
            (u->panel[p].width == PANEL_LANES ? values_wide : values_narrow)(&w, b->e);
        if (w.n > 0 && b->content.values)
            FN(content_values)(&b->content, u, keys, &u->panel[p], &bias[p], w.p, w.o);
        if (b->careful)
            add_not_finite(b, &u->panel[p], &bias[p], v, va->core[1], va->storage);
    }
}

/* ---- a unit ---- */

/* Where something is seen the largest score gives exactly 1, so that total >= 1 */
static NOINLINE void log_sums(const real *top, const real *total, int n, real *restrict lse)
{
    SIMD
    for (int l = 0; l < n; l++) {
        const double sum = (double)total[l], x = (double)top[l] + log1p_pos(sum - 1);
        lse[l] = sum == 0 ? MASKED : (real)x;
    }
}

/* o / total and lse; whether all of o is finite */
static int write_unit(const pe_block *b, const pe_queries *u)
{
    real lse[BLOCK_M], divisor[BLOCK_M];
    for (int l = 0; l < u->width; l++)
        divisor[l] = b->total[l] == 0 ? 1 : b->total[l]; /* it saw nothing: 0 / 1 */
    log_sums(b->top, b->total, u->width, lse);
    lanes_to_queries(u, A_LSE, 1, lse, 1, NULL, b->copy);
    return lanes_to_queries(u, A_OUT, b->e, b->o, 1, divisor, b->copy);
}

/* 0 if it was stopped */
static int run(pe_block *b, const pe_queries *u)
{
    const pe_call *call = u->call;
    const idx tiles = BLOCKS(call->D(m), BLOCK_N);
    pe_keys keys;
    memset(b->o, 0, (size_t)(u->width * b->e) * sizeof(real));
    if (b->content.sums)
        memset(b->content.passed, 0, sizeof b->content.passed);
    for (int l = 0; l < u->width; l++) {
        b->top[l] = MASKED;
        b->total[l] = 0;
    }
    for (idx t = 0; t < tiles; t++) {
        const idx from = b->content.sums ? tiles - 1 - t : t; /* CoPE's sums begin at the last key */
        if (!FN(keys_at)(&keys, u, from * BLOCK_N))
            continue;
        if (call->stop && call->stop(call))
            return 0;
        tile(b, u, &keys);
    }
    return 1;
}

/* 0 if it was stopped */
static int unit(pe_block *b, const pe_call *call, idx i, char *scratch)
{
    pe_queries u;
    FN(queries_at)(&u, call, i);
    queries_to_lanes(&u, A_Q, b->d, (real)call->par[A_SCALE], b->copy, b->q);
    FN(content_at)(&b->content, &u, b->q, &scratch);
    b->pack = FN(content_queries)(&b->content, &u);
    for (b->careful = 0; b->careful < 2; b->careful++) {
        if (!run(b, &u))
            return 0;
        if (write_unit(b, &u))
            break;
    }
    return 1;
}

void FN(attention)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    pe_queries u;
    pe_block b;
    char *scratch = work->scratch;
    b.d = (int)call->D(d);
    b.e = (int)call->D(e);
    b.q = carve(&scratch, (idx)BLOCK_M * b.d);
    b.o = carve(&scratch, (idx)BLOCK_M * b.e);
    b.s = carve(&scratch, (idx)BLOCK_M * BLOCK_N);
    b.copy = carve(&scratch, (max_(b.d, b.e) + ATTENTION_PAD) * BLOCK_N);
    b.row = carve(&scratch, max_(b.d, b.e));
    const int decoding = FN(is_decoding)(call);
    for (idx i = begin; i < end; i++) {
        if (!decoding) {
            if (!unit(&b, call, i, scratch))
                return;
        } else if (FN(begins_decoding)(call, i)) {
            FN(queries_at)(&u, call, i);
            const int left = FN(decode)(&u, work->scratch);
            for (int h = 0; left >> h; h++)
                if (left < 0 || (left >> h & 1 && !unit(&b, call, i + h, scratch)))
                    return;
        }
    }
}
