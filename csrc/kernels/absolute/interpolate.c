/* interpolate.c -- a table resampled linearly to n rows; the first and the last row stay.   table(r,d) -> out(n,d)
 *
 *     place = i * (r - 1), w = place / (n - 1), f = (double)(place % (n - 1)) / (n - 1);      in integers, but f
 *     for (k < d)
 *         out[i][k] = (1 - f) * table[w][k] + f * table[w + 1][k];
 *
 * So f is exactly 0 where a row of `out` falls on a row of the table. The kernel then copies that row, and does not read
 * row w + 1. A single row is that of place 0. A unit of work is one row of `out`.
 */
#include "base/layout.h"
#include "base/row.h"

static void mix_rows(const real *restrict low, const real *restrict high, double f, idx d, real *restrict out)
{
    SIMD
    for (idx k = 0; k < d; k++)
        out[k] = (real)((1 - f) * (double)low[k] + f * (double)high[k]);
}

KERNEL(interpolate_table)
{
    enum { TABLE, OUT };
    const idx n = call->D(n), d = call->D(d), last = call->D(r) - 1, steps = max_(n - 1, 1);
    const pe_array *table = &call->array[TABLE], *out = &call->array[OUT];
    real *wide_low = scratch_row(call, work, 0), *wide_high = scratch_row(call, work, 1);
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / n);
        const idx place = u % n * last, w = place / steps;
        const char *from = row.data[TABLE] + w * table->core[0];
        char *to = row.data[OUT] + u % n * out->core[0];
        if (place % steps == 0) {
            memcpy(to, from, (size_t)(d * storage_size(out->storage)));
            continue;
        }
        const real *low = row_read(from, table->storage, d, wide_low);
        const real *high = row_read(from + table->core[0], table->storage, d, wide_high);
        real *target = row_target(to, out->storage, scratch_row(call, work, 2));
        mix_rows(low, high, (double)(place % steps) / (double)steps, d, target);
        row_write(target, to, out->storage, d);
    }
}
