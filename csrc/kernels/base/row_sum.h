/* row_sum.h -- sum rows in double, in order: gradients of tables and of broadcast operands.
 *
 *     for (idx r = 0; r < rows; r++)
 *         for (int k = 0; k < n; k++)
 *             sum[k] += (double)row[r][k];
 *
 * A unit is a tile of ROW_TILE columns, whose sums stay in the first-level cache while the loop reads all rows.
 */
#ifndef PE_ROW_SUM_H
#define PE_ROW_SUM_H

#include "fits.h"
#include "base/row.h"

enum { POLL_ROWS = 1024 }; /* rows that a sum adds between two polls of call->stop */

INLINE idx tile_begin(idx unit, idx d) { return unit % BLOCKS(d, ROW_TILE) * ROW_TILE; }
INLINE int tile_width(idx begin, idx d) { return (int)min_(ROW_TILE, d - begin); }

/* n columns of a stored row, from `begin` on, as real. Rows of another storage are widened into `wide`. */
INLINE const real *tile_read(const char *row, pe_storage storage, idx begin, int n, real *wide)
{
    return row_read(row + begin * storage_size(storage), storage, n, wide);
}

INLINE void add_row(double *restrict sum, const real *restrict row, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sum[k] += (double)row[k];
}

INLINE void add_scaled(double *restrict sum, const real *restrict row, double weight, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sum[k] = fma64(weight, (double)row[k], sum[k]);
}

INLINE void add_product(double *restrict sum, const real *restrict row, const real *restrict other, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sum[k] = fma64((double)row[k], (double)other[k], sum[k]);
}

#endif
