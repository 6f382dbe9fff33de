/* position.h -- operators on the logits that read positions or indices, but not q and k.
 *
 * Each operator is one pe_position_op, FN(<name>_op), defined in the file of its name (kerple_log and kerple_power
 * share kerple.c). Exactly one of its three value functions is set:
 *     distance   a function of rel = position of key - position of query, evaluated once per distinct distance
 *     diagonal   a function of column - row, whatever the positions are (Toeplitz)
 *     pairs      anything else, evaluated for every pair of a block of keys and queries
 * A gradient adds to `into`, the gradients of the first arrays of the row in ops.def. Arrays are given at one row of
 * the batch, in the order of the row of ops.def; dim holds the lengths of their axes.
 */
#ifndef PE_POSITION_H
#define PE_POSITION_H

#include "base/row.h"
#include "base/vec.h"

/* A block of keys and queries has at most PAIR_KEYS keys and PAIR_LANES lanes. */
enum { PAIR_KEYS = 128, PAIR_LANES = 2 * LANES };

/* Queries stand on lanes; number j * lanes + l of a block belongs to key j and lane l. `lanes` is a multiple of LANES.
 * Lanes from `queries` on repeat the position of the last query: a position may be used for any lane, an index into
 * rows of queries may not. The results of these lanes are never read, and their gradients are 0. */
typedef struct {
    int keys, lanes, queries;
    const double *k_positions, *q_positions; /* of the keys and of the lanes */
    idx first_k, first_q;                    /* indices of key 0 and of lane 0 among all keys and queries */
} pe_pair_block;

typedef struct {
    /* out[j] = b_h(rel[j]), j < n */
    void (*distance)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, real *out);
    /* into[k] += sum_j grad[j] d b_h(rel[j]) / d array[k] */
    void (*distance_vjp)(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                         const pe_array *into);
    int diagonal; /* its only array is the row (h,n+m-1) of the numbers */
    /* out[j * lanes + l] = b_h(query l, key j) */
    void (*pairs)(const pe_array *array, const idx *dim, idx h, const pe_pair_block *block, real *out);
    /* into[k] += sum_jl grad[j * lanes + l] d b_h(query l, key j) / d array[k] */
    void (*pairs_vjp)(const pe_array *array, const idx *dim, idx h, const pe_pair_block *block, const double *grad,
                      const pe_array *into);
    /* Inside attention the gradient follows from sums of dS over rows and columns; pairs_vjp is then called only
     * for the gradient of the operator's own matrix. */
    int vjp_from_sums;
} pe_position_op;

extern const pe_position_op *const FN(position_op)[PE_COUNT]; /* NULL if the row is no position operator */

/* Return whether attention's gradient calls the operator's own gradient function for each tile. */
INLINE int has_tile_vjp(const pe_position_op *op)
{
    return op && (op->distance_vjp || op->pairs_vjp) && !op->vjp_from_sums;
}

/* The address of element (i, j) of an array of doubles with at most two axes. */
INLINE double *element(const pe_array *a, idx i, idx j) { return as_doubles(entry_at(a, a->data, i, j)); }

/* i clamped to 0 .. n - 1, so that an index that Python failed to refuse cannot leave a table. */
INLINE idx within(idx i, idx n) { return i < 0 ? 0 : i < n ? i : n - 1; }

#endif
