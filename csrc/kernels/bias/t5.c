/* t5.c -- T5 (Raffel et al. 2020, section 2.1):   b_h(rel) = table[bucket(rel), h], rel truncated to an integer
 *
 *     for (int j = 0; j < n; j++)
 *         out[j] = table[fabs(rel[j]) <= r ? lookup[rel[j] + r] : bucket beyond r][h];
 *
 * arrays: table(B,h), lookup(K), edges(O). lookup holds the buckets of -r .. r, K = 2 r + 1. edges holds the distances
 * beyond r at which the bucket number grows by one, on each side that has buckets. Python computes the edges as
 * integers, so no logarithm decides a bucket. |rel| <= r takes one gather; larger distances take a bisection of edges.
 */
#include "bias/position.h"

enum { TABLE, LOOKUP, EDGES };
enum { DISTANCES = 64 }; /* distances per call of buckets_of */

/* The bucket of a distance beyond r, by bisection of the edges. T5 for causal attention has buckets on one side
 * only: if the bucket at the end of a side of lookup is the bucket of distance 0, the side has no others, and the
 * function returns this bucket. */
static int64_t far_bucket(const pe_array *array, const idx *dim, double rel)
{
    const idx reach = D(K) / 2;
    const int64_t near = integer_at(&array[LOOKUP], rel < 0 ? 0 : 2 * reach);
    const int has_buckets = near != integer_at(&array[LOOKUP], reach);
    idx low = 0, high = has_buckets ? D(O) : 0;
    while (low < high) {
        const idx middle = low + (high - low) / 2;
        if (fabs_(rel) >= (double)integer_at(&array[EDGES], middle))
            low = middle + 1;
        else
            high = middle;
    }
    return within((idx)near, D(B)) + low;
}

/* Buckets of n <= DISTANCES distances, clamped to the rows of the table in case `lookup` or `edges` are wrong. */
static void buckets_of(const pe_array *array, const idx *dim, const double *restrict rel, int n,
                       int64_t *restrict bucket)
{
    const int64_t *restrict lookup = (const int64_t *)(const void *)array[LOOKUP].data;
    const int reach = (int)(D(K) / 2);
    const int64_t last = D(B) - 1;
    const double most = reach;
    SIMD
    for (int j = 0; j < n; j++)
        bucket[j] = lookup[(int)clamp_(rel[j], most) + reach];
    if (D(O) > 0) {
        for (int j = 0; j < n; j++)
            if (fabs_(rel[j]) > most)
                bucket[j] = far_bucket(array, dim, rel[j]);
    }
    SIMD
    for (int j = 0; j < n; j++)
        bucket[j] = bucket[j] < 0 ? 0 : bucket[j] < last ? bucket[j] : last;
}

DISTANCE_VALUES(t5)
{
    const double *restrict column = element(&array[TABLE], 0, h);
    const idx step = array[TABLE].core[0] / (idx)sizeof(double);
    int64_t bucket[DISTANCES];
    for (int first = 0; first < n; first += DISTANCES) {
        const int count = (int)min_(DISTANCES, n - first);
        buckets_of(array, dim, rel + first, count, bucket);
        if (step == 1) { /* a constant step: the compiler gathers */
            SIMD
            for (int j = 0; j < count; j++)
                out[first + j] = (real)column[bucket[j]];
        } else {
            for (int j = 0; j < count; j++)
                out[first + j] = (real)column[bucket[j] * step];
        }
    }
}

/* d table[bucket(rel), h] += grad */
DISTANCE_VJP(t5_vjp)
{
    int64_t bucket[DISTANCES];
    for (int first = 0; first < n; first += DISTANCES) {
        const int count = (int)min_(DISTANCES, n - first);
        buckets_of(array, dim, rel + first, count, bucket);
        for (int j = 0; j < count; j++)
            *element(&into[TABLE], bucket[j], h) += grad[first + j];
    }
}

const pe_position_operator FN(t5_operator) = {.distance = t5, .distance_vjp = t5_vjp};
