/* standardize.c -- out = (x - mean) / |x - mean| for each row, in double. Products of such rows are correlations.
 *
 *     for (k < d)  mean += x[k] / d;
 *     for (k < d)  norm += (x[k] - mean) * (x[k] - mean);
 *     for (k < d)  out[k] = (x[k] - mean) / sqrt(norm);
 *
 * Three passes are more accurate than one, and cost little: the row is in the cache, and gram.c, which multiplies the
 * rows, takes much longer.
 */
#include "base/layout.h"
#include "base/row.h"

#include <math.h>

/* The first number is subtracted before the mean, so that a row of equal numbers gives exactly 0 / 0 = NaN. */
KERNEL(standardize)
{
    enum { X, OUT };
    const idx d = call->D(d);
    const pe_array *a = call->array;
    real *wide = scratch_row(call, work, X), *result = scratch_row(call, work, OUT);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const real *x = row_read(row.data[X], a[X].storage, d, wide);
        real *out = row_target(row.data[OUT], a[OUT].storage, result);
        double sum = 0, squares = 0, largest = 0;
        for (idx k = 0; k < d; k++) {
            const double y = (double)x[k] - (double)x[0];
            sum += y;
            largest = fabs_(y) > largest ? fabs_(y) : largest;
        }
        const double mean = sum / (double)max_(d, 1);
        const double unit = largest > 0 ? 1 / largest : 1; /* scaled squares neither overflow nor underflow */
        for (idx k = 0; k < d; k++) {
            const double y = ((double)x[k] - (double)x[0] - mean) * unit;
            squares += y * y;
        }
        const double norm = sqrt(squares);
        for (idx k = 0; k < d; k++)
            out[k] = (real)(((double)x[k] - (double)x[0] - mean) * unit / norm);
        row_write(out, row.data[OUT], a[OUT].storage, d);
    }
}
