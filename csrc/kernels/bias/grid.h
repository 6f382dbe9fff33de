/* grid.h -- table rows for pairs of tokens of a grid, by the difference of their rows and of their columns.
 *
 *     code(p) = (p / width) * (2 * width - 1) + p % width;
 *     table row of a pair = code(q) - code(k) + code((height - 1, width - 1));
 *                         = (yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1
 *
 * Token p is in row p / width. A block computes the code of each key and each query once, so a pair costs one
 * subtraction and no division. Codes are unsigned. Python checks the size of the grid; if a wrong size arrives anyway,
 * unsigned integers overflow without undefined behaviour, and grid_row clamps the table row.
 */
#ifndef PE_GRID_H
#define PE_GRID_H

#include "bias/position.h"

INLINE idx grid_length(const pe_array *grid, int axis)
{
    int64_t length;
    memcpy(&length, grid->data + axis * grid->core[0], sizeof length);
    return length < 1 ? 1 : (idx)length; /* at least 1: a division by 0 would be undefined */
}

/* Set q and k so that key j and lane l read table row q[l] - k[j]. Token 0 of the grid is at position `first`. */
INLINE void grid_codes(const pe_array *grid, const pe_pair_block *block, idx first, size_t *restrict k,
                       size_t *restrict q)
{
    const idx height = grid_length(grid, 0), width = grid_length(grid, 1);
    const size_t pitch = 2 * (size_t)width - 1, center = (size_t)(height - 1) * pitch + (size_t)width - 1;
    for (int j = 0; j < block->keys; j++) {
        const idx p = (idx)block->k_positions[j] - first;
        k[j] = (size_t)(p / width) * pitch + (size_t)(p % width);
    }
    for (int l = 0; l < block->width; l++) {
        const idx p = (idx)block->q_positions[l] - first;
        q[l] = (size_t)(p / width) * pitch + (size_t)(p % width) + center;
    }
}

/* The row of a pair in a table of `rows` rows */
INLINE idx grid_row(size_t q, size_t k, idx rows) { return within((idx)(q - k), rows); }

#endif
