/* dense.c -- a bias that the caller passes as a matrix:   b_h(i, j) = array(h, i, j), for any positions
 *
 *     for (int j = 0; j < keys; j++)
 *         for (int l = 0; l < lanes; l++)
 *             out[j][l] = array[h][first_q + l][first_k + j];
 *
 * The array may have any strides, 0 along axes that broadcast, so the caller does not copy it. -inf masks a pair.
 */
#include "base/transpose.h"
#include "bias/position.h"

enum { ARRAY };

/* Copy the rows of the block to `to` as real, PAIR_KEYS numbers apart. */
static void read_rows(const pe_array *a, const char *data, const pe_pair_block *block, real *to)
{
    const int has_dense_rows = a->core[2] == storage_size(a->storage);
    for (int l = 0; l < block->lanes; l++, data += a->core[1], to += PAIR_KEYS) {
        if (has_dense_rows && (a->storage == PE_BF16 || a->storage == PE_F16)) {
            row_read(data, a->storage, block->keys, to);
        } else {
            for (int j = 0; j < block->keys; j++)
                to[j] = (real)scalar_read(data + j * a->core[2], a->storage);
        }
    }
}

/* A row of the array is a query, and a row of `out` is a key, so pack_transposed transposes the block in registers. It
 * reads the array in place if the storage is real and rows are contiguous, else the copy of read_rows. */
PAIR_VALUES(dense)
{
    const pe_array *a = &array[ARRAY];
    real copy[PAIR_KEYS * PAIR_LANES];
    pe_lines rows = {a->data + h * a->core[0] + block->first_q * a->core[1] + block->first_k * a->core[2], a->core[1]};
    if (a->storage != PE_STORAGE || a->core[2] != (idx)sizeof(real)) {
        read_rows(a, rows.data, block, copy);
        rows = lines_of(copy, PAIR_KEYS);
    }
    pack_transposed(rows, block->lanes, block->keys, 1, block->width, out);
}

const pe_position_operator FN(dense_operator) = {.pairs = dense};
