/* convolution.h -- patches of x for convolution.c and convolution_vjp.c, with padding resolved to pointers.
 *
 *     rows[a * columns + b] = &x[pad(i + a)][pad(j + b)]         channels_of: CHANNELS channels of these rows as reals
 */
#ifndef PE_CONVOLUTION_H
#define PE_CONVOLUTION_H

#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/vec.h"

/* Kernels of at most FEW_TAPS taps read rows in place; with more taps, a copy of CHANNELS channels is faster. */
enum { CHANNELS = 32, FEW_TAPS = 16 };

typedef struct {
    const char **rows, **copied; /* rows of patches: in the caller's x, and in `copy` */
    char *zeros;                 /* zeros for the channels of one token */
    real *copy;                  /* CHANNELS channels of each row of the patches */
    real *result, *kernel;       /* CHANNELS channels: a tile of out; the kernel and the bias */
} convolution_state;

/* For a kernel of D(r) x D(s) taps: D(r) rows of x, and in convolution_vjp one of grad, each with the columns of the
 * widest tile and D(s) more */
static void carve_convolution(convolution_state *state, pe_carver *c, const idx *dim)
{
    const idx columns = CONVOLUTION_GRADIENTS + D(s), places = (D(r) + 1) * columns;
    state->copy = carve_reals(c, places * CHANNELS);
    state->result = carve_reals(c, columns * CHANNELS);
    state->kernel = carve_reals(c, (D(r) * D(s) + 1) * CHANNELS);
    state->rows = carve_bytes(c, places * (idx)sizeof *state->rows);
    state->copied = carve_bytes(c, places * (idx)sizeof *state->copied);
    state->zeros = carve_bytes(c, D(d) * (idx)sizeof(real));
}

/* Return whether the call must stop. A poll is not free: there is one for MANY_CHANNELS channels, or one each time if
 * the kernel has more than MANY_TAPS taps. */
static int stopped_at_channel(const pe_call *call, idx channel)
{
    enum { MANY_TAPS = 1024, MANY_CHANNELS = 64 * CHANNELS };
    return (channel % MANY_CHANNELS == 0 || call->D(r) * call->D(s) > MANY_TAPS) && stop_requested(call);
}

/* Which of the n entries of an axis stands at place i, or -1 for zero padding. With circular padding, -n <= i < 2n. */
INLINE idx padded_index(idx i, idx n, int padding)
{
    if (i >= 0 && i < n)
        return i;
    switch (padding) {
    case PADDING_CIRCULAR: return i < 0 ? i + n : i - n;
    case PADDING_REPLICATE: return i < 0 ? 0 : n - 1;
    default: return -1;
    }
}

/* A tile of out, or of its gradient: n columns from (i, j) */
typedef struct {
    idx i, j, n;
} conv_tile;

/* The tokens that a tile reads: rows[a * columns + b] points to place (i + a, j + b), in the type of `storage`. */
typedef struct {
    const char **rows;
    idx i, j, height, columns;
    pe_storage storage;
} patch;

/* Set the rows of a patch of an array (y,w,d); row->data[operand] is its first token. */
static void patch_rows(const pe_call *call, const pe_row *row, int operand, int padding, const char *zeros,
                       const patch *to)
{
    for (idx a = 0; a < to->height; a++) {
        const idx y = padded_index(to->i + a, call->D(y), padding);
        for (idx b = 0; b < to->columns; b++) {
            const idx x = padded_index(to->j + b, call->D(w), padding);
            const int is_outside = x < 0 || y < 0;
            to->rows[a * to->columns + b] =
                is_outside ? zeros : entry_at(&call->array[operand], row->data[operand], y, x);
        }
    }
}

/* Convert n <= CHANNELS numbers to real and append zeros up to CHANNELS. */
static void copy_padded(const char *from, pe_storage storage, idx n, real *to)
{
    if (n == CHANNELS && storage == PE_STORAGE) { /* a memcpy of constant length needs no loop */
        memcpy(to, from, CHANNELS * sizeof *to);
        return;
    }
    row_load(from, storage, n, to);
    memset(to + n, 0, (size_t)(CHANNELS - n) * sizeof *to);
}

/* Channels of a patch as reals, in place or in copies of CHANNELS channels */
typedef struct {
    const char *const *rows;
    idx columns, offset; /* offset: bytes to channel c in each row */
} patch_channels;

/* n channels from c on: in place if there are few taps and nothing to convert or to pad, else copied to `copy` */
static patch_channels channels_of(const patch *from, idx c, idx n, int few_taps, const char **rows, real *copy)
{
    if (few_taps && n % CHANNELS == 0 && from->storage == PE_STORAGE)
        return (patch_channels){from->rows, from->columns, c * (idx)sizeof(real)};
    const idx offset = c * storage_size(from->storage);
    for (idx k = 0; k < from->height * from->columns; k++) {
        copy_padded(from->rows[k] + offset, from->storage, n, copy + k * CHANNELS);
        rows[k] = (const char *)(copy + k * CHANNELS);
    }
    return (patch_channels){rows, from->columns, 0};
}

INLINE vec vec_at(const char *data, idx lane) { return vec_load((const real *)(const void *)data + lane); }
INLINE vec patch_vec(const patch_channels *x, idx place, idx lane) { return vec_at(x->rows[place] + x->offset, lane); }

#endif
