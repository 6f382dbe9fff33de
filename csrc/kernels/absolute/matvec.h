/* matvec.h -- y = start + W x for a few vectors x at once, and the gradient of W, a sum of outer products.
 *
 *     for (r < rows)
 *         for (y[c][r] = start[r], i = 0; i < k; i++)         for each vector c
 *             y[c][r] = fma(W[r][i], x[c][i], y[c][r]);
 *
 * W is packed once for many products: stripes of STRIPE rows, stored column by column. Each SIMD lane holds one row, so
 * no sum crosses lanes. A product with one x is limited by the bandwidth of reading W; several x share each load of W.
 * Each sum runs in this order for any number of vectors, so a result depends on its own x alone. Vectors x and y have
 * padded(n) elements, and y is 0 past the last row of W.
 */
#ifndef PE_MATVEC_H
#define PE_MATVEC_H

#include "fits.h"
#include "base/layout.h"
#include "base/row.h"

enum { STRIPE = 64 };

INLINE idx padded(idx n) { return BLOCKS(n, STRIPE) * STRIPE; }

/* Pack rows first .. first + rows of W into stripes of k columns. */
void FN(pack_matrix)(const pe_array *w, idx first, idx rows, idx k, real *restrict out);

/* Pack the transpose: its rows are the first `rows` columns of W, its k columns are the rows of W from `first` on. */
void FN(pack_matrix_transposed)(const pe_array *w, idx first, idx rows, idx k, real *restrict out);

/* A stored vector as reals, padded with zeros */
void FN(read_padded)(const char *data, pe_storage storage, idx n, real *out);

/* y[c] = start[c] + W x[c], or its positive part, with W(rows, k) packed. A column is one vector x[c] or y[c]. x_step
 * and y_step are strides between columns. */
typedef struct {
    const real *w, *start, *x; /* start: NULL for 0 */
    real *y;
    idx rows, k, x_step, y_step;
    int relu;
    idx start_step; /* 0 if all columns share `start` */
} matvec;

/* Multiply all stripes by columns 0 .. cols. */
void FN(multiply_columns)(const matvec *m, idx cols);

/* ---- gradient of W: the sum over terms q, l[q] x[q]^T ---- */

typedef struct {
    const real *l, *x;
    idx l_step, x_step, terms;
    double *into;
    idx rows, columns; /* of `into`, which is dense */
} outer_products;

/* into += sum over q of l[q] x[q]^T; rows of x are padded */
void FN(add_outer_products)(const outer_products *o);

/* into += sum over q of l[q] */
void FN(add_vectors)(const real *restrict l, idx l_step, idx terms, idx n, double *restrict into);

/* The first entry of share `unit` of the batch, which has `units` shares. Kernels scan SCAN_COLUMNS entries at once. */
INLINE idx share_begin(const pe_call *call, idx unit, idx units) { return unit * call->D(b) / units; }

#endif
