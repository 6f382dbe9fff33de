/* row_sum.h -- rows added up in double, in their order: what gradients of tables and of broadcast operands are. */
#ifndef PE_ROW_SUM_H
#define PE_ROW_SUM_H

#include "scratch.h"
#include "base/row.h"

/* A unit of a row of d columns: its first column, and how many there are. */
INLINE idx tile_begin(idx unit, idx d) { return unit % BLOCKS(d, ROW_TILE) * ROW_TILE; }
INLINE int tile_width(idx begin, idx d) { return (int)min_(ROW_TILE, d - begin); }

/* Columns `begin` .. of a stored row. */
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
