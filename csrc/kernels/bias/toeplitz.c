/* toeplitz.c -- the caller's own bias by diagonal, and the two kernels between a row of diagonals and its matrix.
 *
 *     b_h(i, j) = diagonals(h, j - i + n - 1), whatever the positions
 *
 *     for (i < n)
 *         for (j < m)
 *             out[i][j] = row[j - i + n - 1];
 *
 * A row of the matrix is a piece of the row of diagonals: n copies, each one element earlier, without arithmetic.
 */
#include "bias/position.h"

const pe_position_op FN(toeplitz_op) = {.diagonal = 1};

/* Every row of the matrix is a window of `row`, copied whatever the storage. Units are BLOCK_M rows. */
KERNEL(toeplitz_matrix)
{
    enum { ROW, OUT };
    const idx n = call->D(n), m = call->D(m), blocks = BLOCKS(n, BLOCK_M);
    const idx size = storage_size(call->array[OUT].storage);
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / blocks);
        const idx first = u % blocks * BLOCK_M, last = min_(n, first + BLOCK_M);
        for (idx i = first; i < last; i++)
            memcpy(row.data[OUT] + i * call->array[OUT].core[0], row.data[ROW] + (n - 1 - i) * size,
                   (size_t)(m * size));
    }
}

/* The transpose: out(t) = sum of grad(i, j) over j - i + n - 1 = t, in order of i. */
KERNEL(diagonal_sums)
{
    enum { GRAD, OUT };
    const pe_array *a = &call->array[GRAD];
    const idx n = call->D(n), m = call->D(m);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        double *sum = as_doubles(row.data[OUT]);
        memset(sum, 0, (size_t)call->D(l) * sizeof *sum);
        for (idx i = 0; i < n; i++) {
            const char *grad = row.data[GRAD] + i * a->core[0];
            for (idx j = 0; j < m; j++)
                sum[n - 1 - i + j] += scalar_read(grad + j * a->core[1], a->storage);
        }
    }
}
