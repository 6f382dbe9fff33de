/* distance.h -- biases that are functions of rel = position of key - position of query.
 *
 * Each DISTANCE row of ops.def is two functions of one head h and n relative positions. Arrays are doubles, in the
 * order of the row (int64 where the row says i64); rel is exact in double; values are rounded once.
 *     name_at   (array, dim, h, rel, n, out)           out[j] = b_h(rel[j])
 *     name_grad (array, dim, h, rel, n, grad, into)    into[k] += sum_j grad[j] * d b_h(rel[j]) / d array[k]
 * The arrays that have gradients come first in the row.
 */
#ifndef PE_DISTANCE_H
#define PE_DISTANCE_H

#include "base/row.h"

typedef void (*pe_distance)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, real *out);
typedef void (*pe_distance_gradient)(const pe_array *array, const idx *dim, idx h, const double *rel, int n,
                                     const double *grad, const pe_array *into);
extern const pe_distance FN(distance)[PE_COUNT]; /* NULL where the row is not a distance */
extern const pe_distance_gradient FN(distance_gradient)[PE_COUNT];

/* Element h of array k when it has one axis, the heads. */
INLINE double per_head(const pe_array *array, int k, idx h)
{
    double value;
    memcpy(&value, array[k].data + h * array[k].core[0], sizeof value);
    return value;
}

INLINE void add_per_head(const pe_array *into, int k, idx h, double value)
{
    char *p = into[k].data + h * into[k].core[0];
    double sum;
    memcpy(&sum, p, sizeof sum);
    sum += value;
    memcpy(p, &sum, sizeof sum);
}

/* How many arrays a list of them in ops.def has. */
INLINE int arrays_in(const char *list)
{
    int n = 0;
    for (; *list; list++)
        n += *list == '(';
    return n;
}

#endif
