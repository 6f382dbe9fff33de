/* toeplitz.c -- a bias that the caller passes by diagonal; kernels that make a matrix from diagonals, and back.
 *
 *     b_h(i, j) = diagonals(h, j - i + n - 1), for any positions
 *
 *     for (i < n)
 *         for (j < m)
 *             out[i][j] = diagonals[j - i + n - 1];
 *
 * Row i of the matrix is m consecutive diagonals from n - 1 - i on, so the kernel is n calls of memcpy.
 */
#include "base/stream.h"
#include "bias/position.h"

const pe_position_operator FN(toeplitz_operator) = {.diagonal = 1};

/* Copy the rows of matrices from their diagonals, of any storage. A unit is BLOCK_M rows of a matrix. If the matrices
 * of the call are larger together than the last-level cache, they are written by non-temporal stores. */
KERNEL(toeplitz_matrix)
{
    enum { ROW, OUT };
    const idx n = call->D(n), m = call->D(m), blocks = BLOCKS(n, BLOCK_M);
    const idx size = storage_size(call->array[OUT].storage);
    const int stream = count_rows(call) * n * m * size > PE_LAST_CACHE;
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / blocks);
        const idx first = u % blocks * BLOCK_M, last = min_(n, first + BLOCK_M);
        for (idx i = first; i < last; i++) {
            const char *from = row.data[ROW] + (n - 1 - i) * size;
            char *to = row.data[OUT] + i * call->array[OUT].core[0];
            if (stream)
                stream_row(from, to, m * size);
            else
                memcpy(to, from, (size_t)(m * size));
        }
    }
    if (stream)
        stream_end();
}

/* Gradient of the diagonals: out(t) = sum of grad(i, j) over the pairs with j - i + n - 1 = t, in the order of i */
KERNEL(diagonal_sums)
{
    enum { GRAD, OUT };
    const pe_array *a = &call->array[GRAD];
    const int is_dense = is_real(a->storage) && a->core[1] == (idx)sizeof(real);
    const idx n = call->D(n), m = call->D(m);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        double *sum = as_doubles(row.data[OUT]);
        memset(sum, 0, (size_t)call->D(l) * sizeof *sum);
        for (idx i = 0; i < n; i++) {
            char *grad = row.data[GRAD] + i * a->core[0];
            double *restrict of_row = sum + n - 1 - i;
            for (idx j = 0; is_dense && j < m; j++)
                of_row[j] += (double)as_reals(grad)[j];
            for (idx j = 0; !is_dense && j < m; j++)
                of_row[j] += scalar_read(grad + j * a->core[1], a->storage);
        }
    }
}
