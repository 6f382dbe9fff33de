/* convolution.h -- what a tile of a convolution sees: a window of rows, wherever padding finds them, and some of their
 * channels as reals, in place or copied.
 */
#ifndef PE_CONVOLUTION_H
#define PE_CONVOLUTION_H

#include "scratch.h"
#include "base/row.h"
#include "base/vec.h"

enum { CHANNELS = CONVOLUTION_CHANNELS, TILE = CONVOLUTION_TILE, GRADIENTS = CONVOLUTION_GRADIENTS, FEW_TAPS = 16 };

/* Where place i of an axis of n is found, -1 where nothing is. Circular kernels reach at most n. */
INLINE idx found_at(idx i, idx n, int padding)
{
    if (i >= 0 && i < n)
        return i;
    switch (padding) {
    case PADDING_CIRCULAR: return i < 0 ? i + n : i - n;
    case PADDING_REPLICATE: return i < 0 ? 0 : n - 1;
    default: return -1;
    }
}

/* The rows that a tile reads: rows[a * columns + b] is place (i + a, j + b), as it is stored. */
typedef struct {
    const char **rows;
    idx high, columns; /* places */
    pe_storage storage;
} window;

static void window_rows(const pe_call *call, const char *data, const pe_array *array, idx i, idx j, int padding,
                        const char *zeros, window *to)
{
    to->storage = array->storage;
    for (idx a = 0; a < to->high; a++) {
        const idx y = found_at(i + a, call->D(y), padding);
        for (idx b = 0; b < to->columns; b++) {
            const idx x = found_at(j + b, call->D(w), padding);
            to->rows[a * to->columns + b] = x < 0 || y < 0 ? zeros : data + y * array->core[0] + x * array->core[1];
        }
    }
}

/* n numbers as CHANNELS reals; what is past them is 0. */
static void copy_padded(const char *from, pe_storage storage, idx n, real *to)
{
    const real *row = row_read(from, storage, n, to);
    if (row != to)
        memcpy(to, row, (size_t)n * sizeof(real));
    memset(to + n, 0, (size_t)(CHANNELS - n) * sizeof(real));
}

/* Where channels c .. c + n of a window can be read as reals: in place, or from a copy padded to CHANNELS. */
typedef struct {
    const char *const *rows;
    idx columns, offset; /* bytes to the first channel of each row */
} view;

static view view_of(const window *from, idx c, idx n, int few, const char **rows, real *panel)
{
    if (few && n % CHANNELS == 0 && from->storage == PE_STORAGE)
        return (view){from->rows, from->columns, c * (idx)sizeof(real)};
    const idx offset = c * storage_size(from->storage);
    for (idx k = 0; k < from->high * from->columns; k++) {
        copy_padded(from->rows[k] + offset, from->storage, n, panel + k * CHANNELS);
        rows[k] = (const char *)(panel + k * CHANNELS);
    }
    return (view){rows, from->columns, 0};
}

INLINE vec load(const char *data, idx lane) { return vec_load((const real *)(const void *)data + lane); }
INLINE vec row_vec(const view *x, idx at, idx lane) { return load(x->rows[at] + x->offset, lane); }

#endif
