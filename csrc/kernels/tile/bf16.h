/* bf16.h -- attention of 16-bit operands, as its drivers see it.
 *
 *     float, double    product.h and outer.h, which multiply reals
 *     16-bit numbers   the room `bf16`, in instructions that multiply bfloat16 numbers
 *
 * A call reaches the room by its pointer `products`, which is NULL in an ordinary call. Of the kernels, none names the
 * room. Only dispatch.c does, for its variants; without them, all operands are multiplied as reals.
 */
#ifndef PE_BF16_H
#define PE_BF16_H

#include "tile/outer.h"
#include "tile/panel.h"

/* An instruction of AMX computes a dot product of DOT numbers before it adds to a sum. So keys are multiplied in the
 * same groups of DOT for every query: the groups begin at the first key of a tile, and a masked key has weight 0. */
enum { DOT = 32 };
/* A number is the sum of at most MOST_TERMS bfloat16 numbers. */
enum { MOST_TERMS = 3 };
/* The products with one number for each query and key: queries with keys, and in the gradient cotangents with values */
enum { QK, GV };

/* The operands of a call, split into terms: of the blocks of queries that go together, and of their tile of keys. A
 * block whose products are of 16-bit numbers has it in queries->split. */
typedef struct pe_split pe_split;

typedef struct pe_bf16 {
    /* Return whether attention, or its gradient, multiplies the operands of the call as 16-bit numbers. */
    int (*takes)(const pe_call *call, int is_gradient);
    /* Carve memory for up to `blocks` blocks of a head, one after the other. */
    pe_split *(*carve)(pe_carver *c, const pe_call *call, int blocks, int is_gradient);
    /* Split a block: its lanes, and its strips (outer.h) unless they are NULL. If `exact`, the vectors are no longer
     * 16-bit numbers, because an operator added to them or reads them times scale, and take three terms. */
    void (*split_queries)(const pe_query_block *queries, int product, int exact, const real *lanes, const real *strips);
    /* Split the keys and values of a tile. With `finite`, nonfinite values are 0, and scores that are NaN are computed
     * again as reals. With `transposes`, split for `values`, too. Returns 0 if `values` must multiply reals: a mask may
     * hide a value whose scale is not finite, and its weight 0 must not meet the scale. */
    int (*split_tile)(const pe_query_block *queries, const pe_key_tile *keys, int finite, int transposes);
    /* side->c[j][lane] = the numbers of QK or GV, for a panel. side->b has the lanes as reals. */
    void (*scores)(const pe_query_block *queries, const pe_panel *p, int product, const pe_side *side);
    /* FN(values) of one side, whose matrix is that of the values, in the gradient that of the keys */
    void (*values)(const pe_query_block *queries, const pe_side *side);
    /* FN(add_outer_of_block) with the strips of QK or GV; `from` is a multiple of DOT. */
    void (*outer)(const pe_query_block *queries, int product, const real *w, int from, int to, pe_sums o);
} pe_bf16;

/* The functions for a block; NULL if its products are of reals, as those of doubles are */
INLINE const pe_bf16 *bf16_of(const pe_query_block *queries)
{
    return PE_REAL == 32 && queries->split ? queries->call->products->attention : NULL;
}

#endif
