/* convolution.c -- depthwise convolution over a grid of tokens; a sequence is a grid of one row.
 *
 *     for (c < d) {                                           out(i, j), with kernel(r,s,d)
 *         sum = bias[c];
 *         for (a < r)
 *             for (b < s)
 *                 sum = fma(kernel[a][b][c], x[i + a - top][j + b - left][c], sum);
 *         out[i][j][c] = sum;                                 + x[i][j][c] with residual
 *     }
 *
 * Each SIMD lane holds one channel. patch_rows resolves padding once per tile: the pointer of a place outside the grid
 * points to zeros, to the token at the opposite edge, or to the nearest token. The sums then need no test for edges. A
 * kernel of at most FEW_TAPS taps reads tokens in place. Larger kernels, half types, and the last d % CHANNELS channels
 * read a copy of CHANNELS channels. A large kernel needs the copy because tokens 2 KB apart share a few sets of the
 * cache, and the last channels need it because no load may pass the end of a token. Each output adds its taps in this
 * order in every tile, so its bits do not depend on the tile.
 */
#include "absolute/convolution.h"

LAYOUT(convolution) { carve_convolution(s, c, dim); }

enum { X, KERNEL, BIAS, OUT };

/* Operands and output of a range of channels of one tile */
typedef struct {
    patch_channels x;
    const char *kernel, *start; /* start: first terms of the sums, the bias; NULL for 0 */
    char *out;
    idx kernel_row, kernel_step, out_step; /* bytes from tap to tap, from column to column */
    idx r, s, center;                      /* center: x[center] is the residual of column 0; -1: none */
} conv_operands;

/* sums[k] += sum_t kernel[t] x[place + k + t], k < width, t < taps. A vector of x is loaded once. */
INLINE void add_taps(const conv_operands *o, idx place, const char *kernel, idx lane, const int width, const int taps,
                     vec *sums)
{
    vec tap[4];
    UNROLL
    for (int t = 0; t < taps; t++)
        tap[t] = vec_at(kernel + t * o->kernel_step, lane);
    UNROLL
    for (int i = 0; i < width + taps - 1; i++) {
        const vec x = patch_vec(&o->x, place + i, lane);
        UNROLL
        for (int t = 0; t < taps; t++)
            if (i >= t && i - t < width)
                sums[i - t] = vec_fma(tap[t], x, sums[i - t]);
    }
}

/* Compute columns j .. j + width of one vector of channels. */
INLINE void convolve_columns(const conv_operands *o, idx j, idx lane, const int width)
{
    vec sums[8];
    UNROLL
    for (int k = 0; k < width; k++)
        sums[k] = o->start ? vec_at(o->start, lane) : vec_set(0);
    for (idx a = 0; a < o->r; a++) {
        const char *kernel = o->kernel + a * o->kernel_row;
        const idx place = a * o->x.columns + j;
        idx t = 0;
        for (; t + 4 <= o->s; t += 4)
            add_taps(o, place + t, kernel + t * o->kernel_step, lane, width, 4, sums);
        kernel += t * o->kernel_step;
        switch (o->s - t) {
        case 3: add_taps(o, place + t, kernel, lane, width, 3, sums); break;
        case 2: add_taps(o, place + t, kernel, lane, width, 2, sums); break;
        case 1: add_taps(o, place + t, kernel, lane, width, 1, sums); break;
        default: break;
        }
    }
    UNROLL
    for (int k = 0; k < width; k++) {
        if (o->center >= 0)
            sums[k] = vec_add(sums[k], patch_vec(&o->x, o->center + j + k, lane));
        vec_store(as_reals(o->out + (j + k) * o->out_step) + lane, sums[k]);
    }
}

/* The last group of columns begins at n - width, so it overlaps the group before; both store the same bits. */
#define CONVOLVE(name, width)                                              \
    static NOINLINE void name(const conv_operands *o, idx n, idx channels) \
    {                                                                      \
        for (idx j = 0; j < n; j += width) {                               \
            for (idx lane = 0; lane < channels; lane += LANES)             \
                convolve_columns(o, min_(j, n - width), lane, width);      \
        }                                                                  \
    }
CONVOLVE(convolve_by_8, 8)
CONVOLVE(convolve_by_4, 4)
CONVOLVE(convolve_by_2, 2)
CONVOLVE(convolve_by_1, 1)

static void convolve(const conv_operands *o, idx n, idx channels)
{
    (n >= 8 ? convolve_by_8 : n >= 4 ? convolve_by_4 : n >= 2 ? convolve_by_2 : convolve_by_1)(o, n, channels);
}

/* Point o at channels c .. c + n of the kernel and of the bias: in place, or converted and padded in `buffer`. */
static void read_kernel(const pe_call *call, const pe_row *row, idx c, idx n, real *buffer, conv_operands *o)
{
    const pe_array *kernel = &call->array[KERNEL], *bias = &call->array[BIAS];
    o->kernel = row->data[KERNEL] + c * storage_size(kernel->storage);
    o->kernel_row = kernel->core[0], o->kernel_step = kernel->core[1];
    o->start = row->data[BIAS] ? row->data[BIAS] + c * storage_size(bias->storage) : NULL;
    if (n < CHANNELS || kernel->storage != PE_STORAGE) {
        for (idx t = 0; t < o->r * o->s; t++)
            copy_padded(o->kernel + t / o->s * o->kernel_row + t % o->s * o->kernel_step, kernel->storage, n,
                        buffer + t * CHANNELS);
        o->kernel = (const char *)buffer;
        o->kernel_step = CHANNELS * (idx)sizeof(real), o->kernel_row = o->s * o->kernel_step;
    }
    if (o->start && (n < CHANNELS || bias->storage != PE_STORAGE)) {
        real *padded = buffer + o->r * o->s * CHANNELS;
        copy_padded(o->start, bias->storage, n, padded);
        o->start = (const char *)padded;
    }
}

/* Compute channels c .. c + channels of a tile, whose patch of x has been set at c = 0. */
static void convolve_channels(const pe_call *call, const pe_row *row, const convolution_state *state,
                              const conv_tile *t, idx c, idx channels)
{
    const idx top = (idx)call->par[CONVOLUTION_TOP], left = (idx)call->par[CONVOLUTION_LEFT];
    const pe_array *x = &call->array[X], *out = &call->array[OUT];
    char *target = entry_at(out, row->data[OUT], t->i, t->j) + c * storage_size(out->storage);
    const int in_place = channels >= CHANNELS && out->storage == PE_STORAGE;
    const patch seen = {state->rows, t->i - top, t->j - left, call->D(r), t->n + call->D(s) - 1, x->storage};
    conv_operands o = {.r = call->D(r), .s = call->D(s)};
    read_kernel(call, row, c, channels, state->kernel, &o);
    o.out = in_place ? target : (char *)state->result;
    o.out_step = in_place ? out->core[1] : CHANNELS * (idx)sizeof(real);
    if (c == 0)
        patch_rows(call, row, X, (int)call->par[CONVOLUTION_PADDING], state->zeros, &seen);
    o.x = channels_of(&seen, c, channels, o.r * o.s <= FEW_TAPS, state->copied, state->copy);
    o.center = call->par[CONVOLUTION_RESIDUAL] != 0 ? top * seen.columns + left : -1;
    convolve(&o, t->n, channels);
    for (idx j = 0; j < t->n && !in_place; j++)
        row_store(state->result + j * CHANNELS, target + j * out->core[1], out->storage, channels);
}

/* The number of channels that one pass computes: CHANNELS if anything is copied, else all whole multiples of CHANNELS,
 * so that memory is read in sequence. */
static idx channels_at_once(const pe_call *call)
{
    const pe_array *a = call->array;
    const int copies_nothing = call->D(r) * call->D(s) <= FEW_TAPS && a[X].storage == PE_STORAGE
                               && a[KERNEL].storage == PE_STORAGE && (!a[BIAS].data || a[BIAS].storage == PE_STORAGE)
                               && a[OUT].storage == PE_STORAGE;
    return copies_nothing ? call->D(d) - call->D(d) % CHANNELS : CHANNELS;
}

KERNEL(convolution)
{
    const idx d = call->D(d), w = call->D(w), tiles = BLOCKS(w, CONVOLUTION_TILE), of_row = call->D(y) * tiles;
    const idx most = channels_at_once(call);
    const convolution_state state = convolution_begin(call, work);
    memset(state.zeros, 0, (size_t)d * sizeof(real));
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / of_row);
        const idx j = u % tiles * CONVOLUTION_TILE;
        const conv_tile t = {u % of_row / tiles, j, min_(CONVOLUTION_TILE, w - j)};
        for (idx c = 0, n; c < d; c += n) {
            n = min_(d - c >= CHANNELS ? most : CHANNELS, d - c);
            if (stopped_at_channel(call, c))
                return;
            convolve_channels(call, &row, &state, &t, c, n);
        }
    }
}
