/* toeplitz.c -- between a row of distances and the matrix that it stands for: matrix(i, j) = row(j - i + n - 1). */
#include "base/row.h"

/* row(l) -> out(n,m), l = n + m - 1: every line is a window of the row, moved by memcpy whatever the storage.
 * One unit is BLOCK_M lines. */
void FN(toeplitz_matrix)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n), m = call->D(m), blocks = BLOCKS(n, BLOCK_M), size = storage_size(call->array[1].storage);
    (void)work;
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / blocks);
        const idx first = u % blocks * BLOCK_M, last = min_(n, first + BLOCK_M);
        for (idx i = first; i < last; i++)
            memcpy(row.data[1] + i * call->array[1].core[0], row.data[0] + (n - 1 - i) * size, (size_t)(m * size));
    }
}

/* The transpose: grad(n,m) -> out(l), out(t) = sum of grad(i, j) over j - i + n - 1 = t, in order of i. */
void FN(diagonal_sums)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n), m = call->D(m), step = call->array[0].core[1];
    (void)work;
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        double *sum = (double *)(void *)row.data[1];
        memset(sum, 0, (size_t)call->D(l) * sizeof *sum);
        for (idx i = 0; i < n; i++) {
            const char *grad = row.data[0] + i * call->array[0].core[0];
            for (idx j = 0; j < m; j++)
                sum[n - 1 - i + j] += scalar_read(grad + j * step, call->array[0].storage);
        }
    }
}
