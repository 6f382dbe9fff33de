/* pair.h -- biases that read both positions of a pair, not only their difference.
 *
 * Each PAIR row of ops.def is two functions of one head h and a block of keys x queries, the block that attention has at
 * hand, in a file of the row's name: queries are lanes, and the numbers of a key are contiguous.
 *     name_at   (array, dim, h, block, out)          out[j * lanes + l] = b_h(query l, key j)
 *     name_grad (array, dim, h, block, grad, into)   into[k] += sum of grad[j * lanes + l] * d b_h / d array[k]
 * Arrays are doubles in the order of the row (int64 where the row says i64), at this row of the batch; those that have
 * gradients come first. Lanes from `there` on are no queries: they stand where the last one does, so that a position may
 * be used for any of them; an index into a row of queries may not. Their numbers are never read.
 *
 * Both tables are for attention: FN(pair)[op] fills a tile, FN(pair_grad)[op] takes the gradient of its logits, with 0
 * in the lanes that are no queries.
 */
#ifndef PE_PAIR_H
#define PE_PAIR_H

#include "bias/distance.h"
#include "base/vec.h"

/* Lanes are a multiple of LANES and at most 2 LANES; keys are at most PAIR_KEYS. */
enum { PAIR_KEYS = 128, PAIR_LANES = 2 * LANES };

typedef struct {
    int keys, lanes, there;
    const double *k, *q;  /* positions */
    idx first_k, first_q; /* index of key 0 and of lane 0 among all keys and queries */
} pe_block_of_pairs;

typedef void (*pe_pair)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *block, real *out);
typedef void (*pe_pair_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *block,
                             const double *grad, const pe_array *into);
extern const pe_pair FN(pair)[PE_COUNT]; /* NULL where the row is no PAIR */
extern const pe_pair_grad FN(pair_grad)[PE_COUNT];

#define PAIR(name, arrays, grads)                                                                                \
    void FN(name##_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *block, real *out); \
    void FN(name##_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *block,           \
                         const double *grad, const pe_array *into);
#include "ops.def"

/* Element (i, j) of an array, at most two axes; where to find it. */
INLINE double *place(const pe_array *a, idx i, idx j)
{
    return (double *)(void *)(a->data + i * a->core[0] + j * a->core[1]);
}

/* Nothing is read or written outside of a table, whatever was given beside it; Python refuses such numbers. */
INLINE idx within(idx i, idx n) { return i < 0 ? 0 : i < n ? i : n - 1; }

#endif
