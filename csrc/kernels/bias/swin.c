/* swin.c -- Swin (Liu et al. 2021, equation 4):
 *      b_h = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]
 *
 * arrays: table(b,h), grid(s) = height, width. Tokens are row-major integers within the grid, so with
 * code(p) = y (2 width - 1) + x the row of the table is code(q) - code(k) + a constant.
 */
#include "bias/position.h"

enum { TABLE, GRID };

static idx grid_length(const pe_array *array, int axis)
{
    int64_t length;
    memcpy(&length, array[GRID].data + axis * array[GRID].core[0], sizeof length);
    return length < 1 ? 1 : (idx)length; /* no division by 0, whatever the caller wrote */
}

/* code[i] = code(position i) + constant */
static void codes_of(const double *positions, int n, idx width, idx constant, idx *restrict code)
{
    for (int i = 0; i < n; i++) {
        const idx p = (idx)positions[i];
        code[i] = p / width * (2 * width - 1) + p % width + constant;
    }
}

/* Key j and lane l read row q[l] - k[j]. */
static void codes_of_block(const pe_array *array, const pe_pair_block *b, idx *restrict k, idx *restrict q)
{
    const idx height = grid_length(array, 0), width = grid_length(array, 1);
    codes_of(b->k, b->keys, width, 0, k);
    codes_of(b->q, b->lanes, width, (height - 1) * (2 * width - 1) + width - 1, q);
}

static void swin(const pe_array *array, const idx *dim, idx h, const pe_pair_block *b, real *restrict out)
{
    const idx rows = D(B);
    idx k[PAIR_KEYS], q[PAIR_LANES];
    codes_of_block(array, b, k, q);
    for (int j = 0; j < b->keys; j++, out += b->lanes) {
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real)*element(&array[TABLE], within(q[l] - k[j], rows), h);
    }
}

/* d table[row of the pair, h] += grad */
static void swin_vjp(const pe_array *array, const idx *dim, idx h, const pe_pair_block *b, const double *grad,
                     const pe_array *into)
{
    const idx rows = D(B);
    idx k[PAIR_KEYS], q[PAIR_LANES];
    codes_of_block(array, b, k, q);
    for (int j = 0; j < b->keys; j++, grad += b->lanes) {
        for (int l = 0; l < b->lanes; l++)
            *element(&into[TABLE], within(q[l] - k[j], rows), h) += grad[l];
    }
}

const pe_position_op FN(swin_op) = {.pairs = swin, .pairs_vjp = swin_vjp};
