/* row_sum.h -- sums of rows in double, in the order of the rows: gradients of tables and of broadcast operands.
 *
 * A unit is one tile of ROW_TILE columns of a row of the call:
 *
 *     for (column_tile tile = column_tile_at(call, begin, d); tile.unit < end; column_tile_next(call, &tile, d)) { ... }
 */
#ifndef PE_ROW_SUM_H
#define PE_ROW_SUM_H

#include "scratch.h"
#include "base/row.h"

enum { POLL_ROWS = 1024 }; /* rows that a sum adds between two polls of call->stop */

typedef struct {
    pe_row row;
    idx unit, column; /* column: the tile's first */
    int width;
} column_tile;

INLINE void column_tile_place(column_tile *tile, idx d)
{
    tile->column = tile->unit % BLOCKS(d, ROW_TILE) * ROW_TILE;
    tile->width = (int)min_(ROW_TILE, d - tile->column);
}

/* d is positive wherever the call has units. */
INLINE column_tile column_tile_at(const pe_call *call, idx unit, idx d)
{
    column_tile tile = {.row = row_at(call, unit / BLOCKS(d, ROW_TILE)), .unit = unit};
    column_tile_place(&tile, d);
    return tile;
}

INLINE void column_tile_next(const pe_call *call, column_tile *tile, idx d)
{
    if (++tile->unit % BLOCKS(d, ROW_TILE) == 0)
        row_next(call, &tile->row);
    column_tile_place(tile, d);
}

/* The tile's columns of a row that is stored at data. */
INLINE const real *column_tile_read(const column_tile *tile, const char *data, pe_storage storage, real *wide)
{
    return row_read(data + tile->column * storage_size(storage), storage, tile->width, wide);
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
