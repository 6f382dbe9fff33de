/* swin.c -- Swin (Liu et al. 2021, equation 4), with pitch = 2 width - 1:
 *
 *     for each pair of tokens q = (yq, xq) and k = (yk, xk) of the grid:
 *         b_h = table[(yq - yk + height - 1) * pitch + (xq - xk + width - 1)][h];
 *
 * arrays: table(B,h), grid(S) = height, width. The position of token (y, x) is y * width + x. The table row is a number
 * of the query minus a number of the key (grid_codes), so no pair needs a division.
 *
 * BEiT (Bao et al. 2022) has the same table, and three rows more for a class token, which precedes the grid: position 0
 * is the class token, and position 1 + p is token p of the grid.
 *
 *     class to token: table[B - 3][h]     token to class: table[B - 2][h]     class to class: table[B - 1][h]
 */
#include "bias/grid.h"

enum { TABLE, GRID };

/* The row of key j and lane l in a table of `rows` rows. k and q are their codes (grid.h). */
INLINE idx pair_row(const pe_pair_block *block, int has_class, idx rows, int j, int l, const size_t *k, const size_t *q)
{
    const int to_class = has_class && block->k_positions[j] < 1, from_class = has_class && block->q_positions[l] < 1;
    if (to_class || from_class)
        return within(rows - (!to_class ? 3 : !from_class ? 2 : 1), rows);
    return grid_row(q[l], k[j], rows);
}

INLINE void fill(const pe_array *array, idx rows, idx h, const pe_pair_block *block, int has_class, real *restrict out)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    grid_codes(&array[GRID], block, has_class, k, q);
    for (int j = 0; j < block->keys; j++, out += block->width) {
        for (int l = 0; l < block->width; l++)
            out[l] = (real)*element(&array[TABLE], pair_row(block, has_class, rows, j, l, k, q), h);
    }
}

/* d table[row of the pair, h] += grad */
INLINE void vjp(const pe_array *array, idx rows, idx h, const pe_pair_block *block, int has_class, const double *grad,
                const pe_array *into)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    grid_codes(&array[GRID], block, has_class, k, q);
    for (int j = 0; j < block->keys; j++, grad += block->width) {
        for (int l = 0; l < block->width; l++)
            *element(&into[TABLE], pair_row(block, has_class, rows, j, l, k, q), h) += grad[l];
    }
}

PAIR_VALUES(swin) { fill(array, D(B), h, block, 0, out); }
PAIR_VJP(swin_vjp) { vjp(array, D(B), h, block, 0, grad, into); }
PAIR_VALUES(beit) { fill(array, D(B), h, block, 1, out); }
PAIR_VJP(beit_vjp) { vjp(array, D(B), h, block, 1, grad, into); }

const pe_position_operator FN(swin_operator) = {.pairs = swin, .pairs_vjp = swin_vjp};
const pe_position_operator FN(beit_operator) = {.pairs = beit, .pairs_vjp = beit_vjp};
