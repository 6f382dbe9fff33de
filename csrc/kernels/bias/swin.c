/* swin.c -- Swin (Liu et al. 2021, equation 4): b_h = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]
 *
 * arrays: table(b,h), grid(s) = height, width. Tokens are row-major, so with code(p) = y (2 width - 1) + x the row is
 * code(q) - code(k) + a constant. Positions are integers within the grid. */
#include "bias/pair.h"

static int64_t grid_at(const pe_array *array, int axis)
{
    int64_t length;
    memcpy(&length, array[1].data + axis * array[1].core[0], sizeof length);
    return length < 1 ? 1 : length;
}

static void swin_codes(const pe_array *array, const double *positions, int n, idx plus, idx *restrict code)
{
    const idx width = (idx)grid_at(array, 1);
    for (int i = 0; i < n; i++) {
        const idx p = (idx)positions[i];
        code[i] = p / width * (2 * width - 1) + p % width + plus;
    }
}

static void swin_rows(const pe_array *array, const pe_block_of_pairs *b, idx *restrict k, idx *restrict q)
{
    const idx height = (idx)grid_at(array, 0), width = (idx)grid_at(array, 1);
    swin_codes(array, b->k, b->keys, 0, k);
    swin_codes(array, b->q, b->lanes, (height - 1) * (2 * width - 1) + width - 1, q);
}

void FN(swin_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, real *restrict out)
{
    const idx step = array[0].core[0];
    const char *column = array[0].data + h * array[0].core[1];
    const idx rows = D(B);
    idx k[PAIR_KEYS], q[PAIR_LANES];
    swin_rows(array, b, k, q);
    for (int j = 0; j < b->keys; j++, out += b->lanes)
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real) * (const double *)(const void *)(column + within(q[l] - k[j], rows) * step);
}

/* From   out = table[q - k, h]:   d table[q - k, h] += grad */
void FN(swin_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, const double *grad,
                   const pe_array *into)
{
    const idx rows = D(B);
    idx k[PAIR_KEYS], q[PAIR_LANES];
    swin_rows(array, b, k, q);
    for (int j = 0; j < b->keys; j++, grad += b->lanes)
        for (int l = 0; l < b->lanes; l++)
            *place(&into[0], within(q[l] - k[j], rows), h) += grad[l];
}
