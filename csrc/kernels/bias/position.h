/* position.h -- attention biases b_h(i, j) that depend on positions or indices, but not on q and k.
 *
 * Each operator is one pe_position_operator, FN(<name>_operator), in the file of its name (kerple_log and kerple_power
 * share kerple.c). Exactly one of these members is set, and its _vjp if it has gradients:
 *     distance   for a bias by rel = position of key - position of query
 *     diagonal   for a bias by column - row, whatever the positions are (Toeplitz)
 *     pairs      for other biases; called with a block of keys and queries
 * array[k] is array k of the operator's entry in ops.def, at one row of the batch; dim holds the lengths of the axes. A
 * gradient function adds to into[k], the gradient of array k. The arrays without a gradient are the last ones.
 */
#ifndef PE_POSITION_H
#define PE_POSITION_H

#include "base/row.h"
#include "base/vec.h"

/* A block of keys and queries has at most PAIR_KEYS keys and is at most PAIR_LANES lanes wide. */
enum { PAIR_KEYS = 128, PAIR_LANES = 2 * LANES };

/* Each lane holds one query. Number j * width + l of a block belongs to key j and lane l. `width` is a multiple of
 * LANES. Only the first `lanes` lanes hold queries, as in a panel (tile.h); the others repeat the position of the last
 * query: a function may read the position of every lane, but entry first_q + l of an array only for
 * l < lanes. Callers ignore the results of the other lanes, and their grad is 0. */
typedef struct {
    int keys, lanes, width;
    const double *k_positions, *q_positions; /* of the keys and of the lanes */
    idx first_k, first_q;                    /* indices of key 0 and of lane 0 among all keys and queries */
} pe_pair_block;

typedef struct {
    /* out[j] = b_h(rel[j]), j < n */
    void (*distance)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, real *out);
    /* into[k] += sum_j grad[j] d b_h(rel[j]) / d array[k] */
    void (*distance_vjp)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                         const pe_array *into);
    int diagonal; /* nonzero: the only array (h,n+m-1) holds the bias of each diagonal */
    /* out[j * width + l] = b_h(query l, key j) */
    void (*pairs)(const pe_array *array, const idx *dim, idx h, const pe_pair_block *block, real *out);
    /* into[k] += sum_jl grad[j * width + l] d b_h(query l, key j) / d array[k] */
    void (*pairs_vjp)(const pe_array *array, const idx *dim, idx h, const pe_pair_block *block, const double *grad,
                      const pe_array *into);
} pe_position_operator;

/* Declare the functions of an operator. Not every operator reads all arguments. */
#define DISTANCE_VALUES(name)                                                                                      \
    static void name(const pe_array *array, MAYBE_UNUSED const idx *dim, idx h, const double *restrict rel, int n, \
                     real *restrict out)
#define DISTANCE_VJP(name)                                                                                             \
    static void name(MAYBE_UNUSED const pe_array *array, MAYBE_UNUSED const idx *dim, idx h, const double *rel, int n, \
                     const double *grad, const pe_array *into)
#define PAIR_VALUES(name)                                                                                   \
    static void name(const pe_array *array, MAYBE_UNUSED const idx *dim, idx h, const pe_pair_block *block, \
                     real *restrict out)
#define PAIR_VJP(name)                                                                       \
    static void name(MAYBE_UNUSED const pe_array *array, MAYBE_UNUSED const idx *dim, idx h, \
                     const pe_pair_block *block, const double *grad, const pe_array *into)

/* NULL for entries that are no position operators */
extern const pe_position_operator *const FN(position_operators)[PE_COUNT];

/* The address of element (i, j) of an array of doubles with at most two axes. */
INLINE double *element(const pe_array *a, idx i, idx j) { return as_doubles(entry_at(a, a->data, i, j)); }

/* Element i of an array of integers with one axis */
INLINE int64_t integer_at(const pe_array *a, idx i)
{
    int64_t value;
    memcpy(&value, a->data + i * a->core[0], sizeof value);
    return value;
}

/* i clamped to 0 .. n - 1, so that a kernel stays inside a table if its caller failed to reject an index. */
INLINE idx within(idx i, idx n) { return i < 0 ? 0 : i < n ? i : n - 1; }

#endif
