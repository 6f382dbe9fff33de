/* swin.c -- Swin (Liu et al. 2021, equation 4), with pitch = 2 width - 1:
 *
 *     for each pair of tokens q = (yq, xq) and k = (yk, xk) of the grid:
 *         b_h = table[(yq - yk + height - 1) * pitch + (xq - xk + width - 1)][h];
 *
 * arrays: table(B,h), codes(T). The token at position p has codes[p] = y * pitch + x, so the table row of a pair is
 * codes[q] - codes[k] + codes[T - 1]: no pair needs a division. The code of each key and each query of a block is read
 * once.
 *
 * BEiT (Bao et al. 2022) has the same table, and three rows more for a class token, which precedes the grid: position 0
 * is the class token, and position 1 + p is token p of the grid.
 *
 *     class to token: table[B - 3][h]     token to class: table[B - 2][h]     class to class: table[B - 1][h]
 */
#include "bias/position.h"

enum { TABLE, CODES };

/* Set q and k so that key j and lane l of the grid read table row q[l] - k[j]. Codes are Python's, and positions are
 * checked: within keeps a wrong one inside the arrays. Unsigned differences do not overflow. */
INLINE void read_codes(const pe_array *codes, idx count, const pe_pair_block *block, size_t *restrict k,
                       size_t *restrict q)
{
    const size_t center = (size_t)integer_at(codes, count - 1);
    for (int j = 0; j < block->keys; j++)
        k[j] = (size_t)integer_at(codes, within((idx)block->k_positions[j], count));
    for (int l = 0; l < block->width; l++)
        q[l] = (size_t)integer_at(codes, within((idx)block->q_positions[l], count)) + center;
}

/* The row of key j and lane l in a table of `rows` rows. k and q are their codes. */
INLINE idx pair_row(const pe_pair_block *block, int has_class, idx rows, int j, int l, const size_t *k, const size_t *q)
{
    const int to_class = has_class && block->k_positions[j] < 1, from_class = has_class && block->q_positions[l] < 1;
    if (to_class || from_class)
        return within(rows - (!to_class ? 3 : !from_class ? 2 : 1), rows);
    return within((idx)(q[l] - k[j]), rows);
}

INLINE void fill(const pe_array *array, const idx *dim, idx h, const pe_pair_block *block, int has_class,
                 real *restrict out)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    read_codes(&array[CODES], D(T), block, k, q);
    for (int j = 0; j < block->keys; j++, out += block->width) {
        for (int l = 0; l < block->width; l++)
            out[l] = (real)*element(&array[TABLE], pair_row(block, has_class, D(B), j, l, k, q), h);
    }
}

/* d table[row of the pair, h] += grad */
INLINE void vjp(const pe_array *array, const idx *dim, idx h, const pe_pair_block *block, int has_class,
                const double *grad, const pe_array *into)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    read_codes(&array[CODES], D(T), block, k, q);
    for (int j = 0; j < block->keys; j++, grad += block->width) {
        for (int l = 0; l < block->width; l++)
            *element(&into[TABLE], pair_row(block, has_class, D(B), j, l, k, q), h) += grad[l];
    }
}

PAIR_VALUES(swin) { fill(array, dim, h, block, 0, out); }
PAIR_VJP(swin_vjp) { vjp(array, dim, h, block, 0, grad, into); }
PAIR_VALUES(beit) { fill(array, dim, h, block, 1, out); }
PAIR_VJP(beit_vjp) { vjp(array, dim, h, block, 1, grad, into); }

const pe_position_operator FN(swin_operator) = {.pairs = swin, .pairs_vjp = swin_vjp};
const pe_position_operator FN(beit_operator) = {.pairs = beit, .pairs_vjp = beit_vjp};
