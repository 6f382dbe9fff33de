/* beit.c -- BEiT (Bao et al. 2022): Swin's table (swin.c) with three rows more for a class token before the grid.
 *
 *     b_h = q and k on the grid ? table[Swin's row of q - 1 and k - 1][h]
 *           : table[B - 3 (class to token), B - 2 (token to class) or B - 1 (class to class)][h];
 *
 * arrays: table(b,h), grid(s) = height, width. Position 0 is the class token, position 1 + p is token p of the grid.
 * Numbers that depend on the query or the key alone are computed once per block (grid.h).
 */
#include "bias/grid.h"

enum { TABLE, GRID };

/* Table rows of the pairs of a key and all lanes */
static void rows_of_key(const pe_pair_block *b, idx rows, idx k, int is_class, const idx *restrict q, idx *restrict row)
{
    for (int l = 0; l < b->lanes; l++) {
        const int from_class = b->q_positions[l] < 1;
        const idx by_class = rows - (is_class ? from_class ? 1 : 2 : 3);
        row[l] = within(is_class || from_class ? by_class : q[l] - k, rows);
    }
}

static void beit(const pe_array *array, const idx *dim, idx h, const pe_pair_block *b, real *restrict out)
{
    idx k[PAIR_KEYS], q[PAIR_LANES], row[PAIR_LANES];
    grid_codes(&array[GRID], b, 1, k, q);
    for (int j = 0; j < b->keys; j++, out += b->lanes) {
        rows_of_key(b, D(B), k[j], b->k_positions[j] < 1, q, row);
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real)*element(&array[TABLE], row[l], h);
    }
}

/* d table[row of the pair, h] += grad */
static void beit_vjp(const pe_array *array, const idx *dim, idx h, const pe_pair_block *b, const double *grad,
                     const pe_array *into)
{
    idx k[PAIR_KEYS], q[PAIR_LANES], row[PAIR_LANES];
    grid_codes(&array[GRID], b, 1, k, q);
    for (int j = 0; j < b->keys; j++, grad += b->lanes) {
        rows_of_key(b, D(B), k[j], b->k_positions[j] < 1, q, row);
        for (int l = 0; l < b->lanes; l++)
            *element(&into[TABLE], row[l], h) += grad[l];
    }
}

const pe_position_op FN(beit_op) = {.pairs = beit, .pairs_vjp = beit_vjp};
