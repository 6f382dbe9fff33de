/* swin.c -- Swin (Liu et al. 2021, equation 4), with pitch = 2 width - 1:
 *
 *     for each pair of tokens q = (yq, xq) and k = (yk, xk) of the grid:
 *         b_h = table[(yq - yk + height - 1) * pitch + (xq - xk + width - 1)][h];
 *
 * arrays: table(B,h), grid(S) = height, width. The position of token (y, x) is y * width + x. The table row is a number
 * of the query minus a number of the key (grid_codes), so no pair needs a division.
 */
#include "bias/grid.h"

enum { TABLE, GRID };

PAIR_VALUES(swin)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    grid_codes(&array[GRID], b, 0, k, q);
    for (int j = 0; j < b->keys; j++, out += b->lanes) {
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real)*element(&array[TABLE], grid_row(q[l], k[j], D(B)), h);
    }
}

/* d table[row of the pair, h] += grad */
PAIR_VJP(swin_vjp)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    grid_codes(&array[GRID], b, 0, k, q);
    for (int j = 0; j < b->keys; j++, grad += b->lanes) {
        for (int l = 0; l < b->lanes; l++)
            *element(&into[TABLE], grid_row(q[l], k[j], D(B)), h) += grad[l];
    }
}

const pe_position_op FN(swin_op) = {.pairs = swin, .pairs_vjp = swin_vjp};
