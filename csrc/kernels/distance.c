/* distance.c -- ALiBi and its like, one pair of short functions each, and the kernels that evaluate them on a row
 * of distances. A bias of this kind is evaluated once per distinct distance, N + M - 1 of them, never N M.
 */
#include "distance.h"
#include "elementary.h"

/* ALiBi (Press et al. 2022, section 3): b_h(rel) = -slope_h |rel| */
static void FN(alibi_at)(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                         real *restrict out)
{
    const double slope = per_head(array, 0, h);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - slope * fabs_(rel[j])); /* not -0.0 on the diagonal */
}

static void FN(alibi_grad)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                           const pe_array *into)
{
    double sum = 0;
    (void)array, (void)dim;
    for (int j = 0; j < n; j++)
        sum -= grad[j] * fabs_(rel[j]);
    add_per_head(into, 0, h, sum);
}

/* Kerple, logarithmic (Chi et al. 2022, eq. 6): b_h(rel) = -r1_h log(1 + r2_h |rel|) */
static void FN(kerple_log_at)(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                              real *restrict out)
{
    const double r1 = per_head(array, 0, h), r2 = per_head(array, 1, h);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - r1 * log1p_pos(r2 * fabs_(rel[j])));
}

/* From   out = -r1 log(1 + r2 |rel|):   d r1 -= log(1 + r2 |rel|) grad,   d r2 -= r1 |rel| / (1 + r2 |rel|) grad */
static void FN(kerple_log_grad)(const pe_array *array, const idx *dim, idx h, const double *rel, int n,
                                const double *grad, const pe_array *into)
{
    const double r1 = per_head(array, 0, h), r2 = per_head(array, 1, h);
    double d_r1 = 0, d_r2 = 0;
    (void)dim;
    for (int j = 0; j < n; j++) {
        const double distance = fabs_(rel[j]);
        d_r1 -= grad[j] * log1p_pos(r2 * distance);
        d_r2 -= grad[j] * r1 * distance / (1 + r2 * distance);
    }
    add_per_head(into, 0, h, d_r1);
    add_per_head(into, 1, h, d_r2);
}

/* ---- every DISTANCE row as callable kernels ---- */

enum { ROW = 512 };

/* arrays..., rel(l) -> out(h,l): one unit is one head */
static void values(const pe_call *call, idx begin, idx end, pe_distance at)
{
    const idx heads = call->D(h), l = call->D(l);
    const int rel = call->narrays - 2, out = call->narrays - 1;
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / heads);
        const idx h = u % heads;
        char *to = row.data[out] + h * call->array[out].core[0];
        for (idx j = 0; j < l; j += ROW) {
            const int n = (int)min_(ROW, l - j);
            const idx size = storage_size(call->array[out].storage);
            real room[ROW], *target = row_target(to + j * size, call->array[out].storage, room);
            at(call->array, call->dim, h, (const double *)(void *)row.data[rel] + j, n, target);
            row_write(target, to + j * size, call->array[out].storage, n);
        }
    }
}

/* grad(h,l), arrays..., rel(l) -> gradients...: arrays and gradients are as many. One unit is all heads: they may
 * add to the same numbers. */
static void gradients(const pe_call *call, pe_distance_gradient of)
{
    const idx heads = call->D(h), l = call->D(l);
    const int arrays = (call->narrays - 2) / 2;
    const pe_array *rel = &call->array[1 + arrays], *into = rel + 1;
    for (idx h = 0; h < heads; h++) {
        const double *grad = (const double *)(void *)(call->array[0].data + h * call->array[0].core[0]);
        for (idx j = 0; j < l; j += ROW)
            of(call->array + 1, call->dim, h, (const double *)(void *)rel->data + j, (int)min_(ROW, l - j), grad + j,
               into);
    }
}

#define OP(name, ...)
#define TERM(name, signature)
#define DISTANCE(name, arrays, grads)                                                 \
    void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work)       \
    {                                                                                 \
        (void)work;                                                                   \
        values(call, begin, end, FN(name##_at));                                      \
    }                                                                                 \
    void FN(name##_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work) \
    {                                                                                 \
        (void)begin, (void)end, (void)work;                                           \
        gradients(call, FN(name##_grad));                                             \
    }
#include "../ops.def"
#undef DISTANCE

const pe_distance FN(distance)[PE_COUNT] = {
#define DISTANCE(name, arrays, grads) [PE_##name] = FN(name##_at),
#include "../ops.def"
};
#undef DISTANCE

const pe_distance_gradient FN(distance_gradient)[PE_COUNT] = {
#define DISTANCE(name, arrays, grads) [PE_##name] = FN(name##_grad),
#include "../ops.def"
};
