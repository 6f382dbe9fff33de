/* distance.c -- ALiBi and its like, one pair of short functions each, and the kernels that evaluate them on a row
 * of distances. A bias of this kind is evaluated once per distinct distance, N + M - 1 of them, never N M.
 */
#include "bias/distance.h"
#include "base/elementary.h"

#include <math.h>

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

/* Kerple, power (Chi et al. 2022, eq. 5): b_h(rel) = -r1_h |rel|**r2_h */
static void FN(kerple_power_at)(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                                real *restrict out)
{
    const double r1 = per_head(array, 0, h), r2 = per_head(array, 1, h);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - r1 * power_pos(fabs_(rel[j]), r2));
}

/* From   out = -r1 |rel|**r2:   d r1 -= |rel|**r2 grad,   d r2 -= r1 |rel|**r2 log |rel| grad, which is 0 at rel = 0 */
static void FN(kerple_power_grad)(const pe_array *array, const idx *dim, idx h, const double *rel, int n,
                                  const double *grad, const pe_array *into)
{
    const double r1 = per_head(array, 0, h), r2 = per_head(array, 1, h);
    double d_r1 = 0, d_r2 = 0;
    (void)dim;
    for (int j = 0; j < n; j++) {
        const double distance = fabs_(rel[j]), power = power_pos(distance, r2);
        d_r1 -= grad[j] * power;
        d_r2 -= distance > 0 ? grad[j] * r1 * power * log(distance) : 0;
    }
    add_per_head(into, 0, h, d_r1);
    add_per_head(into, 1, h, d_r2);
}

/* T5 (Raffel et al. 2020, section 2.1): b_h(rel) = table[bucket(rel), h], rel cut to an integer towards zero.
 * lookup holds the buckets of -r .. r, edges the distances beyond r from which on the bucket is one more, on the sides
 * that have buckets at all. Thresholds are integers made in Python: no logarithm decides anything. */
static int64_t integer_at(const pe_array *a, idx i)
{
    int64_t value;
    memcpy(&value, a->data + i * a->core[0], sizeof value);
    return value;
}

static int64_t far_bucket(const pe_array *array, const idx *dim, double rel)
{
    const idx reach = D(K) / 2;
    const int64_t near = integer_at(&array[1], rel < 0 ? 0 : 2 * reach);
    idx low = 0, high = near == integer_at(&array[1], reach) ? 0 : D(O); /* no buckets on this side: none */
    while (low < high) {
        const idx middle = low + (high - low) / 2;
        if (fabs_(rel) >= (double)integer_at(&array[2], middle))
            low = middle + 1;
        else
            high = middle;
    }
    return near + low;
}

/* Buckets of n <= SOME distances */
enum { SOME = 64 };

static void buckets_of(const pe_array *array, const idx *dim, const double *restrict rel, int n,
                       int64_t *restrict bucket)
{
    const int64_t *restrict lookup = (const int64_t *)(const void *)array[1].data;
    const int reach = (int)(D(K) / 2);
    const double most = reach;
    SIMD
    for (int j = 0; j < n; j++) {
        const double low = rel[j] < -most ? -most : rel[j], near = low > most ? most : low;
        bucket[j] = lookup[(int)near + reach];
    }
    for (int j = 0; j < n && D(O) > 0; j++)
        if (fabs_(rel[j]) > most)
            bucket[j] = far_bucket(array, dim, rel[j]);
    const int64_t last = D(B) - 1;
    SIMD
    for (int j = 0; j < n; j++) /* a row of the table, whatever was looked up */
        bucket[j] = bucket[j] < 0 ? 0 : bucket[j] < last ? bucket[j] : last;
}

static void FN(t5_at)(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                      real *restrict out)
{
    const char *column = array[0].data + h * array[0].core[1];
    const double *restrict numbers = (const double *)(const void *)column;
    const idx step = array[0].core[0] / (idx)sizeof(double);
    int64_t bucket[SOME];
    for (int first = 0; first < n; first += SOME) {
        const int count = (int)min_(SOME, n - first);
        buckets_of(array, dim, rel + first, count, bucket);
        if (step == 1) {
            SIMD
            for (int j = 0; j < count; j++)
                out[first + j] = (real)numbers[bucket[j]];
        } else {
            for (int j = 0; j < count; j++)
                out[first + j] = (real)numbers[bucket[j] * step];
        }
    }
}

/* From   out = table[bucket, h]:   d table[bucket, h] += grad */
static void FN(t5_grad)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                        const pe_array *into)
{
    char *column = into[0].data + h * into[0].core[1];
    int64_t bucket[SOME];
    for (int first = 0; first < n; first += SOME) {
        const int count = (int)min_(SOME, n - first);
        buckets_of(array, dim, rel + first, count, bucket);
        for (int j = 0; j < count; j++)
            *(double *)(void *)(column + bucket[j] * into[0].core[0]) += grad[first + j];
    }
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

/* grad(h,l), arrays..., rel(l) -> gradients...: those of the first arrays. One unit is all heads: they may add to the
 * same numbers. */
static void gradients(const pe_call *call, int arrays, pe_distance_gradient of)
{
    const idx heads = call->D(h), l = call->D(l);
    const pe_array *rel = &call->array[1 + arrays], *into = rel + 1;
    for (idx h = 0; h < heads; h++) {
        const double *grad = (const double *)(void *)(call->array[0].data + h * call->array[0].core[0]);
        for (idx j = 0; j < l; j += ROW)
            of(call->array + 1, call->dim, h, (const double *)(void *)rel->data + j, (int)min_(ROW, l - j), grad + j,
               into);
    }
}

#define DISTANCE(name, arrays, grads)                                                 \
    void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work)       \
    {                                                                                 \
        (void)work;                                                                   \
        values(call, begin, end, FN(name##_at));                                      \
    }                                                                                 \
    void FN(name##_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work) \
    {                                                                                 \
        (void)begin, (void)end, (void)work;                                           \
        gradients(call, arrays_in(arrays), FN(name##_grad));                          \
    }
#include "ops.def"

const pe_distance FN(distance)[PE_COUNT] = {
#define DISTANCE(name, arrays, grads) [PE_##name] = FN(name##_at),
#include "ops.def"
};

const pe_distance_gradient FN(distance_gradient)[PE_COUNT] = {
#define DISTANCE(name, arrays, grads) [PE_##name] = FN(name##_grad),
#include "ops.def"
};
