/* merge.c -- an encoding and what it encodes: x + p, x p, x (1 + p), p alone, [x | p].
 *
 * x (1 + p) is two roundings on purpose: x + x p would be NaN where x is infinite.
 */
#include "base/row_sum.h"

static NOINLINE void combine(int mode, const real *restrict x, const real *restrict p, idx n, real *restrict out)
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

/* x(d) p(d) -> out(d); mode */
void FN(merge)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx d = call->D(d);
    const int mode = (int)call->par[0];
    const pe_array *a = call->array;
    real *wide_x = work->scratch, *wide_p = wide_x + d, *room = wide_p + d;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        if (mode == MERGE_REPLACE) { /* Python has cast p to the dtype of x */
            memcpy(at.data[2], at.data[1], (size_t)(d * storage_size(a[2].storage)));
            continue;
        }
        real *out = row_target(at.data[2], a[2].storage, room);
        combine(mode, row_read(at.data[0], a[0].storage, d, wide_x), row_read(at.data[1], a[1].storage, d, wide_p), d,
                out);
        row_write(out, at.data[2], a[2].storage, d);
    }
}

/* x(d) p(c) -> out(e); all three in one dtype, e = d + c */
void FN(concat)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx size = storage_size(call->array[2].storage);
    const idx d = min_(call->D(d), call->D(e)), c = min_(call->D(c), call->D(e) - d);
    (void)work;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        memcpy(at.data[2], at.data[0], (size_t)(d * size));
        memcpy(at.data[2] + d * size, at.data[1], (size_t)(c * size));
    }
}

/* From   out_r = x_r p   (or x_r (1 + p)):   dp = sum_r grad_r x_r;   from out_r = x_r + p (or p):   dp = sum_r grad_r.
 * grad(r,d) x?(r,d) -> dp(d) */
void FN(merge_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    enum { LOOK = 1024 }; /* rows between two looks at call->stop */
    const idx d = call->D(d), rows = call->D(r), tiles = BLOCKS(d, ROW_TILE);
    const pe_array *a = call->array;
    real wide_grad[ROW_TILE], wide_x[ROW_TILE];
    double sum[ROW_TILE];
    (void)work;
    pe_row at = row_at(call, begin / max_(tiles, 1));
    for (idx unit = begin; unit < end; unit++) {
        const idx k0 = tile_begin(unit, d);
        const int n = tile_width(k0, d);
        memset(sum, 0, sizeof sum);
        for (idx r = 0; r < rows; r++) {
            const real *grad = tile_read(at.data[0] + r * a[0].core[0], a[0].storage, k0, n, wide_grad);
            if (at.data[1])
                add_product(sum, grad, tile_read(at.data[1] + r * a[1].core[0], a[1].storage, k0, n, wide_x), n);
            else
                add_row(sum, grad, n);
            if (r % LOOK == LOOK - 1 && call->stop && call->stop(call))
                return;
        }
        memcpy(at.data[2] + k0 * (idx)sizeof(double), sum, (size_t)n * sizeof(double));
        if ((unit + 1) % tiles == 0)
            row_next(call, &at);
    }
}
