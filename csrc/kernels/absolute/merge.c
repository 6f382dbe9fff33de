/* merge.c -- combine x with its encoding p: x + p, x p, x (1 + p), or [x | p]. p alone is [x | p] without columns of x.
 *
 *     for (idx k = 0; k < d; k++)
 *         out[k] = x[k] + p[k];                          or the other forms
 *
 * x (1 + p) is computed as written, with two roundings: x + x p would be NaN where x is infinite and p <= 0. Each mode
 * has a separate loop, which the compiler vectorises.
 */
#include "base/layout.h"
#include "base/row_sum.h"

static NOINLINE void merge_row(int mode, const real *restrict x, const real *restrict p, idx n, real *restrict out)
{
    switch (mode) {
    case MERGE_ADD:
        SIMD
        for (idx k = 0; k < n; k++)
            out[k] = x[k] + p[k];
        break;
    case MERGE_MUL:
        SIMD
        for (idx k = 0; k < n; k++)
            out[k] = x[k] * p[k];
        break;
    default:
        SIMD
        for (idx k = 0; k < n; k++)
            out[k] = x[k] * (1 + p[k]);
    }
}

KERNEL(merge)
{
    enum { X, P, OUT, MODE = 0 };
    const idx d = call->D(d);
    const int mode = (int)call->par[MODE];
    const pe_array *a = call->array;
    real *wide_x = scratch_row(call, work, X), *wide_p = scratch_row(call, work, P);
    real *result = scratch_row(call, work, OUT);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const real *x = row_read(row.data[X], a[X].storage, d, wide_x);
        real *out = row_target(row.data[OUT], a[OUT].storage, result);
        merge_row(mode, x, row_read(row.data[P], a[P].storage, d, wide_p), d, out);
        row_write(out, row.data[OUT], a[OUT].storage, d);
    }
}

/* out = [x | p]; e = d + c, and p is in the dtype of x. */
KERNEL(concat)
{
    enum { X, P, OUT };
    const idx size = storage_size(call->array[OUT].storage);
    const idx d = min_(call->D(d), call->D(e)), c = min_(call->D(c), call->D(e) - d);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        memcpy(row.data[OUT], row.data[X], (size_t)(d * size));
        memcpy(row.data[OUT] + d * size, row.data[P], (size_t)(c * size));
    }
}

/* Gradient of p, which was broadcast over the rows r. MUL and x (1 + p): dp = sum_r grad_r x_r. ADD and REPLACE, for
 * which the caller passes no X: dp = sum_r grad_r. */
KERNEL(merge_vjp)
{
    enum { GRAD, X, DP };
    const idx d = call->D(d), rows = call->D(r), tiles = BLOCKS(d, ROW_TILE);
    const pe_array *grad = &call->array[GRAD], *x = &call->array[X];
    real wide_grad[ROW_TILE], wide_x[ROW_TILE];
    double sum[ROW_TILE];
    pe_row row = row_at(call, begin / max_(tiles, 1));
    for (idx unit = begin; unit < end; unit++) {
        const idx k0 = tile_begin(unit, d);
        const int n = tile_width(k0, d);
        memset(sum, 0, sizeof sum);
        for (idx r = 0; r < rows; r++) {
            const real *g = tile_read(row.data[GRAD] + r * grad->core[0], grad->storage, k0, n, wide_grad);
            if (row.data[X])
                add_product(sum, g, tile_read(row.data[X] + r * x->core[0], x->storage, k0, n, wide_x), n);
            else
                add_row(sum, g, n);
            if (r % POLL_ROWS == POLL_ROWS - 1 && stop_requested(call))
                return;
        }
        memcpy(as_doubles(row.data[DP]) + k0, sum, (size_t)n * sizeof *sum);
        if ((unit + 1) % tiles == 0)
            row_next(call, &row);
    }
}
