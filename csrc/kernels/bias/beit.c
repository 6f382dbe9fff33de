/* beit.c -- BEiT (Bao et al. 2022): the table of swin.c plus three rows for a class token, which precedes the grid.
 *
 *     b_h = q and k on the grid ? table[Swin's row of q - 1 and k - 1][h]
 *           : table[B - 3 (class to token), B - 2 (token to class) or B - 1 (class to class)][h];
 *
 * arrays: table(B,h), grid(S) = height, width. Position 0 is the class token, position 1 + p is token p of the grid.
 * grid.h computes one code per query and one per key of a block; a pair subtracts its two codes.
 */
#include "bias/grid.h"

enum { TABLE, GRID };

/* Set row[l] to the table row of lane l and of one key, whose code (grid.h) is k. */
static void rows_of_key(const pe_pair_block *b, idx rows, size_t k, int is_class, const size_t *restrict q,
                        idx *restrict row)
{
    for (int l = 0; l < b->lanes; l++) {
        const int from_class = b->q_positions[l] < 1;
        const idx by_class = rows - (is_class ? from_class ? 1 : 2 : 3);
        row[l] = is_class || from_class ? within(by_class, rows) : grid_row(q[l], k, rows);
    }
}

PAIR_VALUES(beit)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    idx row[PAIR_LANES];
    grid_codes(&array[GRID], b, 1, k, q);
    for (int j = 0; j < b->keys; j++, out += b->lanes) {
        rows_of_key(b, D(B), k[j], b->k_positions[j] < 1, q, row);
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real)*element(&array[TABLE], row[l], h);
    }
}

/* d table[row of the pair, h] += grad */
PAIR_VJP(beit_vjp)
{
    size_t k[PAIR_KEYS], q[PAIR_LANES];
    idx row[PAIR_LANES];
    grid_codes(&array[GRID], b, 1, k, q);
    for (int j = 0; j < b->keys; j++, grad += b->lanes) {
        rows_of_key(b, D(B), k[j], b->k_positions[j] < 1, q, row);
        for (int l = 0; l < b->lanes; l++)
            *element(&into[TABLE], row[l], h) += grad[l];
    }
}

const pe_position_op FN(beit_op) = {.pairs = beit, .pairs_vjp = beit_vjp};
