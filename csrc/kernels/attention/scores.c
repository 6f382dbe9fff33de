/* scores.c -- the scores of a panel (scores.h), with add = what operators add before the cap; the others are in
 * bias.
 *
 *     for (int j = from; j < to; j++)
 *         for (int l = 0; l < width; l++) {
 *             s[j][l] = cap(dot(q[l], k[j]) + add[j][l]) + bias[j][l];
 *             m[l] = max(m[l], s[j][l]);
 *         }
 *
 * Without a softcap or 16-bit products, one call of FN(scores) (product.h) does all of this: it adds add + bias and
 * updates m in registers. A query whose product with the scale leaves the range of real gives infinite or NaN
 * scores.
 */
#include "attention/scores.h"

#include <math.h>

#include "relative/scan.h"
#include "tile/bf16.h"
#include "tile/product.h"

/* From   x = softcap tanh(y / softcap):   d x / d y = 1 - (x / softcap)**2 */
static NOINLINE void slope_of_cap(const real *restrict x, real *restrict slope, int n, real softcap)
{
    const real inverse = 1 / softcap;
    SIMD
    for (int i = 0; i < n; i++)
        slope[i] = 1 - (x[i] * inverse) * (x[i] * inverse);
}

void FN(begin_block)(pe_content *c, const pe_query_block *queries, real *copy, real *q)
{
    const int is_logits = queries->call->plan.mode == PE_LOGITS || queries->call->plan.mode == PE_LOGITS_VJP;
    const double given = queries->call->par[A_SCALE], scale = is_logits ? 1 : given;
    double packed = scale;
    FN(content_block)(c, queries, q, scale);
    c->gate_scale = is_logits ? (real)given : 1;
    if (bf16_of(queries) && !c->before_cap) {
        int exponent;
        c->factor = (real)(2 * frexp(scale, &exponent));
        packed = ldexp(1, exponent - 1);
    }
    c->packed_scale = (real)packed;
    FN(pack_queries)(queries, A_Q, c->d, c->packed_scale, copy, q);
}

/* One panel of the product of queries and keys, with `add` */
static pe_side side_of(const pe_content *c, const pe_view *v, const real *multiplier, const pe_panel_bias *add, real *s,
                       real *m)
{
    return (pe_side){.b = multiplier + v->panel->first * c->d,
                     .width = v->panel->width,
                     .from = v->bias->from,
                     .to = v->bias->to,
                     .add = add->add,
                     .step = add->step,
                     .max = m,
                     .c = s};
}

/* Without a cap, the sum of content and bias is added to the product. With a cap, the content is added before the cap,
 * and the bias after it. */
void FN(panel_scores)(pe_content *c, const pe_view *v, const real *multiplier, real *s, real *m, real *cap_slope)
{
    const int width = v->panel->width, n = v->bias->to - v->bias->from;
    const real softcap = (real)v->queries->call->par[A_SOFTCAP];
    const int has_cap = softcap > 0;
    const pe_bf16 *bf16 = bf16_of(v->queries);
    real *content = c->before_cap ? FN(content_panel)(c, *v) : NULL;
    const pe_panel_bias bias = c->after_cap ? FN(content_after)(c, *v) : *v->bias;
    pe_panel_bias before = {.add = content, .step = width};
    if (!has_cap && content)
        merge_bias(content, &bias, width);
    else if (!has_cap)
        before = bias;
    real *const max = has_cap ? NULL : m;
    const pe_side side = side_of(c, v, multiplier, &before, s, max);
    if (bf16) {
        bf16->scores(v->queries, v->panel, QK, &side);
        FN(add_bias)(s, n, width, c->factor, &before, max);
    } else {
        FN(scores)(v->k, c->d, &side, 1);
    }
    if (!has_cap)
        return;
    FN(cap)(s, n * width, softcap);
    if (cap_slope)
        slope_of_cap(s, cap_slope, n * width, softcap);
    FN(add_bias)(s, n, width, 1, &bias, m);
}

void FN(block_scores)(pe_content *c, pe_view v, const pe_panel_bias *bias, const real *multiplier, real *s, real *m)
{
    const int only_products =
        !c->before_cap && !c->after_cap && !bf16_of(v.queries) && !(v.queries->call->par[A_SOFTCAP] > 0);
    pe_side side[PANELS];
    for (int p = 0; p < v.queries->panels; p++) {
        const pe_panel *panel = &v.queries->panel[p];
        real *const scores = s + score_offset(panel, 0), *const max = m + panel->first;
        v.panel = panel;
        v.bias = &bias[p];
        side[p] = side_of(c, &v, multiplier, v.bias, scores, max);
        if (!only_products && bias[p].from < bias[p].to)
            FN(panel_scores)(c, &v, multiplier, scores, max, NULL);
    }
    if (only_products)
        FN(scores)(v.k, c->d, side, v.queries->panels);
}

pe_view FN(view_of_keys)(const pe_query_block *queries, const pe_key_tile *keys, int panels, real *copy)
{
    const int d = (int)queries->call->D(d);
    const pe_lines k = FN(tile_rows)(rows_of_keys(queries, A_K, keys->first), keys->n, d, panels, copy);
    return (pe_view){.queries = queries, .keys = keys, .k = k};
}

int FN(sum_gates)(pe_content *c, const pe_block_state *at, real *copy)
{
    const pe_query_block *queries = at->queries;
    pe_tiles tiles = tiles_of(queries, at->keys);
    while (FN(next_tile)(&tiles)) {
        pe_view v = FN(view_of_keys)(queries, at->keys, 2, copy);
        for (int i = 0; i < queries->panels; i++) {
            const pe_panel_bias bias = FN(panel_bias)(at->keys, queries, &queries->panel[i]);
            v.panel = &queries->panel[i];
            v.bias = &bias;
            if (bias.from < bias.to)
                FN(scan_count)(c, &v);
        }
    }
    return !tiles.stopped;
}
