/* backward.h -- one block of queries and one tile of keys in the gradient of attention (see attention_vjp.c): packing,
 * dS, and the three products that take it to queries, keys and values.
 */
#ifndef PE_BACKWARD_H
#define PE_BACKWARD_H

#include "tile/panel.h"
#include "content/content_vjp.h"
#include "tile/gemm.h"
#include "tile/outer.h"
#include "attention/bias_grad.h"

/* Queries and cotangents of a block twice: across the lanes as the scores want them, and as rows in strips. */
typedef struct {
    int d, e, wide_d, wide_e; /* widths of heads, and with what fills up the last vector */
    int careful;              /* a key is not finite */
    real *q, *g, *q_rows, *g_rows, *dq, *p, *ds, *slope, *k_copy, *v_copy, *row;
    real *dk, *dv; /* of one kv head and one chunk; zero where a unit begins */
    real lse[BLOCK_M], delta[BLOCK_M], one[BLOCK_M], unused[PANEL_LANES];
    uint64_t odd_q, odd_g; /* lanes whose row is not finite: left out of the strips */
    pe_sums sums;
    const real *pack; /* what meets the keys: q, and what content adds to it */
    char *rest;       /* scratch for content */
    pe_content content;
    pe_content_vjp content_vjp;
} pe_back;

static double dot(const real *a, const real *b, int n)
{
    double part[8] = {0}, sum = 0;
    int k = 0;
    for (; k + 8 <= n; k += 8)
        for (int c = 0; c < 8; c++)
            part[c] += (double)a[k + c] * (double)b[k + c];
    for (; k < n; k++)
        sum += (double)a[k] * (double)b[k];
    for (int c = 0; c < 8; c++)
        sum += part[c];
    return sum;
}

/* lse and delta of each lane. A query that saw nothing, or a lane that is no query: +inf makes every weight 0. */
static void pack_sums(pe_back *b, const pe_queries *u)
{
    const pe_array *a = u->call->array;
    real *room = b->row + max_(b->d, b->e);
    for (int l = 0; l < u->width; l++) {
        b->lse[l] = -MASKED;
        b->delta[l] = 0;
    }
    for (int l = 0; l < u->lanes; l++) {
        const idx i = u->first + l, h = u->head;
        const char *g = u->row.data[A_GRAD] + h * a[A_GRAD].core[0] + i * a[A_GRAD].core[1];
        const char *o = u->row.data[A_OUT] + h * a[A_OUT].core[0] + i * a[A_OUT].core[1];
        const char *lse = u->row.data[A_LSE] + h * a[A_LSE].core[0] + i * a[A_LSE].core[1];
        const char *gl = u->row.data[A_GRAD_LSE];
        double delta =
            dot(row_read(g, a[A_GRAD].storage, b->e, b->row), row_read(o, a[A_OUT].storage, b->e, room), b->e);
        if (gl)
            delta -= scalar_read(gl + h * a[A_GRAD_LSE].core[0] + i * a[A_GRAD_LSE].core[1], a[A_GRAD_LSE].storage);
        b->delta[l] = (real)delta;
        b->lse[l] = (real)scalar_read(lse, a[A_LSE].storage);
        b->lse[l] = b->lse[l] == MASKED ? -MASKED : b->lse[l];
    }
}

/* ---- dS ---- */

/* s -> p = exp(s - lse);   ds = p (dp - delta), over dp */
INLINE void differentiate(int width, real *restrict s, real *restrict dp, const real *restrict lse,
                          const real *restrict delta, int n)
{
    for (int j = 0; j < n; j++, s += width, dp += width)
        SIMD
    for (int l = 0; l < width; l++) {
        const real x = exp2_((s[l] - lse[l]) * LOG2_E), p = s[l] == MASKED ? 0 : x;
        s[l] = p;
        dp[l] = p == 0 ? 0 : p * (dp[l] - delta[l]);
    }
}

static NOINLINE void differentiate_narrow(real *s, real *dp, const real *lse, const real *delta, int n)
{
    differentiate(LANES, s, dp, lse, delta, n);
}

static NOINLINE void differentiate_wide(real *s, real *dp, const real *lse, const real *delta, int n)
{
    differentiate(PANEL_LANES, s, dp, lse, delta, n);
}

/* From   x = softcap tanh(y / softcap):   d x / d y = 1 - (x / softcap)**2 */
static NOINLINE void slope_of_cap(const real *restrict x, real *restrict slope, int n, real most)
{
    const real inverse = 1 / most;
    SIMD
    for (int i = 0; i < n; i++)
        slope[i] = 1 - (x[i] * inverse) * (x[i] * inverse);
}

static NOINLINE void times(real *restrict ds, const real *restrict slope, int n)
{
    SIMD
    for (int i = 0; i < n; i++)
        ds[i] = ds[i] == 0 ? 0 : ds[i] * slope[i];
}

static void panel_of_tile(pe_back *b, pe_keys *keys, const pe_queries *u, const pe_panel *p, const pe_bias *given,
                          const char *k, idx k_step, const char *v, idx v_step)
{
    const int first = p->first, width = p->width, from = given->from, n = given->to - from;
    const real softcap = (real)u->call->par[A_SOFTCAP];
    real *s = b->p + first * BLOCK_N + from * width, *ds = b->ds + first * BLOCK_N + from * width;
    pe_content *c = &b->content;
    real *content = before_cap(c) ? FN(content_tile)(c, u, keys, p, given, k, k_step) : NULL;
    pe_bias after = c->after ? FN(content_after)(c, u, keys, p, given) : *given, *bias = &after;
    if (content && !(softcap > 0)) {
        merge_bias(content, bias, width);
        after.add = content;
        after.step = width;
    }
    const pe_scores x = {.k = k + from * k_step,
                         .k_step = k_step,
                         .d = b->d,
                         .q = b->pack + first * b->d,
                         .bias = softcap > 0 ? content : bias->add,
                         .bias_step = softcap > 0 ? width : bias->step,
                         .s = s,
                         .top = b->unused};
    (width == PANEL_LANES ? scores_wide : scores_narrow)(&x, n);
    if (softcap > 0) {
        cap(s, n * width, softcap);
        slope_of_cap(s, b->slope, n * width, softcap);
        add_bias(s, n, width, bias, b->unused);
    }
    const pe_scores dp = {.k = v + from * v_step,
                          .k_step = v_step,
                          .d = b->e,
                          .q = b->g + first * b->e,
                          .bias = c->values ? FN(content_values_of)(c, u, keys, p, given, b->g + first * b->e) : NULL,
                          .bias_step = width,
                          .s = ds,
                          .top = b->unused};
    (width == PANEL_LANES ? scores_wide : scores_narrow)(&dp, n);
    (width == PANEL_LANES ? differentiate_wide : differentiate_narrow)(s, ds, b->lse + first, b->delta + first, n);
    for (int j = 0; j < n && p->lanes < width; j++) /* lanes that are no query: a key that is not finite spoils them */
        for (int l = p->lanes; l < width; l++)
            s[j * width + l] = ds[j * width + l] = 0;
    FN(sums_add)(&b->sums, keys, u, p, from, bias->to, ds);
    if (c->values)
        FN(content_values_vjp)(&b->content_vjp, c, u, keys, p, given, s);
    if (c->after)
        FN(content_after_vjp)(&b->content_vjp, c, u, keys, p, given, ds);
    if (softcap > 0)
        times(ds, b->slope, n * width);
    if (c->sums)
        FN(content_sums_vjp)(&b->content_vjp, c, u, keys, p, given, k, k_step, ds);
}

/* ---- the products ---- */

/* What the strips left out, to the keys that such a query sees */
static void add_odd_rows(const pe_back *b, const pe_queries *u, int operand, uint64_t odd, real scale,
                         const real *weights, int n, real *out, int step, int from, int to)
{
    const pe_array *a = &u->call->array[operand];
    for (int p = 0; p < u->panels; p++)
        for (int l = 0; l < u->panel[p].lanes; l++) {
            const int i = u->panel[p].first + l, width = u->panel[p].width, at = u->panel[p].first * BLOCK_N + l;
            if (!(odd >> i & 1))
                continue;
            const char *data = u->row.data[operand] + u->head * a->core[0] + (u->first + i) * a->core[1];
            const real *row = row_read(data, a->storage, n, b->row);
            for (int j = from; j < to; j++)
                for (int c = 0; c < n && b->p[at + j * width] != 0; c++)
                    if (!(row[c] * scale - row[c] * scale == 0))
                        out[j * step + c] += weights[at + j * width] * (row[c] * scale);
        }
}

static void add_odd_keys(const pe_back *b, const pe_panel *p, const char *k, idx step, pe_storage storage, int from,
                         int to)
{
    for (int j = from; j < to; j++) {
        const real *row = row_read(k + j * step, storage, b->d, b->row);
        const real *weight = b->p + p->first * BLOCK_N + j * p->width, *ds = b->ds + (weight - b->p);
        for (int c = 0; c < b->d; c++)
            for (int l = 0; l < p->lanes && !(row[c] - row[c] == 0); l++)
                if (weight[l] != 0)
                    b->dq[p->first * b->d + c * p->width + l] += ds[l] * row[c];
    }
}

/* Looked at once for a unit, not in every block */
static int keys_are_finite(const pe_call *call, const pe_row *at, idx group, int d, real *room)
{
    const pe_array *a = &call->array[A_K];
    for (idx j = 0; j < call->D(m); j++) {
        const real *row = row_read(at->data[A_K] + group * a->core[0] + j * a->core[1], a->storage, d, room);
        int odd = 0;
        SIMD_OR(odd)
        for (int c = 0; c < d; c++)
            odd |= !(row[c] - row[c] == 0);
        if (odd)
            return 0;
    }
    return 1;
}

static void zero_keys(real *x, const pe_panel *p, int from, int to)
{
    if (from < to)
        memset(x + p->first * BLOCK_N + from * p->width, 0, (size_t)((to - from) * p->width) * sizeof *x);
}

static void tile(pe_back *b, pe_keys *keys, const pe_queries *u)
{
    const pe_array *ka = &u->call->array[A_K], *va = &u->call->array[A_V];
    const char *k = u->row.data[A_K] + u->kv_head * ka->core[0] + keys->first * ka->core[1];
    const char *v = u->row.data[A_V] + u->kv_head * va->core[0] + keys->first * va->core[1];
    const real scale = (real)u->call->par[A_SCALE];
    idx k_step = ka->core[1], v_step = va->core[1];
    const char *k_rows = tile_rows(k, &k_step, ka->storage, keys->n, b->d, 2, b->k_copy);
    const char *v_rows = tile_rows(v, &v_step, va->storage, keys->n, b->e, 2, b->v_copy);
    pe_content *c = &b->content;
    int from = keys->n, to = 0, seen[BLOCK_M / LANES][2];
    if (before_cap(c))
        FN(content_keys)(c, u, keys, k_rows, k_step);
    for (int p = 0; p < u->panels; p++) {
        const pe_bias bias = FN(bias_of)(keys, u, &u->panel[p]);
        seen[p][0] = bias.from;
        seen[p][1] = bias.to;
        if (bias.from == bias.to)
            continue;
        panel_of_tile(b, keys, u, &u->panel[p], &bias, k_rows, k_step, v_rows, v_step);
        from = (int)min_(from, bias.from);
        to = (int)max_(to, bias.to);
    }
    for (int p = 0; p < u->panels; p++) {
        const int begin = (int)min_(seen[p][0], to), end = (int)max_(seen[p][1], begin);
        for (int i = 0; i < 2; i++) {
            zero_keys(i ? b->p : b->ds, &u->panel[p], from, begin);
            zero_keys(i ? b->p : b->ds, &u->panel[p], end, to);
        }
    }
    if (c->by_query)
        FN(content_tables_vjp)(&b->content_vjp, c, u, keys, seen, b->ds);
    real *dk = b->dk + keys->first * b->wide_d;
    if (c->by_key && u->row.data[A_DK])
        FN(content_keys_vjp)(&b->content_vjp, c, u, keys, k_rows, k_step, from, to, b->ds, dk, b->wide_d);
    for (int p = 0; p < u->panels && c->sums; p++) {
        const int first = u->panel[p].first * BLOCK_N, width = u->panel[p].width;
        for (int i = first + seen[p][0] * width; i < first + seen[p][1] * width; i++)
            b->ds[i] += b->content_vjp.more[i];
    }
    if (u->row.data[A_DV]) {
        real *out = b->dv + keys->first * b->wide_e;
        add_outer_of_block(u, b->p, b->g_rows, b->e, from, to, out, b->wide_e);
        if (b->odd_g)
            add_odd_rows(b, u, A_GRAD, b->odd_g, 1, b->p, b->e, out, b->wide_e, from, to);
    }
    if (u->row.data[A_DK]) {
        add_outer_of_block(u, b->ds, b->q_rows, b->d, from, to, dk, b->wide_d);
        if (b->odd_q)
            add_odd_rows(b, u, A_Q, b->odd_q, scale, b->ds, b->d, dk, b->wide_d, from, to);
    }
    if (!u->row.data[A_DQ])
        return;
    if (b->careful) {
        k_step = ka->core[1];
        k_rows = finite_rows(k, &k_step, ka->storage, keys->n, b->d, b->k_copy);
    }
    for (int p = 0; p < u->panels; p++) {
        const int first = u->panel[p].first, width = u->panel[p].width, begin = seen[p][0], n = seen[p][1] - begin;
        const pe_values w = {.v = k_rows + begin * k_step,
                             .v_step = k_step,
                             .n = n,
                             .p = b->ds + first * BLOCK_N + begin * width,
                             .factor = b->one,
                             .o = b->dq + first * b->d};
        if (n > 0)
            (width == PANEL_LANES ? values_wide : values_narrow)(&w, b->d);
        if (b->careful)
            add_odd_keys(b, &u->panel[p], k, ka->core[1], ka->storage, begin, begin + n);
    }
}

#endif
