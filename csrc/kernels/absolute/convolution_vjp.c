/* convolution_vjp.c -- gradients of the kernel (r,s,d) and of the bias (d) of convolution.c.
 *
 *     for (i, j, c)                                           over grad(y,w,d)
 *         for (a < r, b < s)
 *             dkernel[a][b][c] += grad[i][j][c] * x[i + a - top][j + b - left][c];
 *         dbias[c] += grad[i][j][c];
 *
 * with x padded as in convolution.c, which also computes the gradient of x: it is a convolution of grad. A tile is at
 * most CONVOLUTION_GRADIENTS columns of a row of grad. Its sums, one per tap and channel, are `real` and stay in
 * registers for a micro-tile of taps; the sums of tiles are added in double.
 */
#include "absolute/convolution.h"

enum { GRAD, X, DKERNEL, DBIAS };

typedef convolution_state convolution_vjp_state;
LAYOUT(convolution_vjp) { carve_convolution(s, c, dim); }

/* Operands for one vector of channels of a tile: n columns of grad, and a patch of x */
typedef struct {
    patch_channels grad, x;
    idx n, lane;
} conv_products;

/* sums[a, t] += sum_k grad[j + k] x[a, j + k + t], k < width, a < rows, t < taps. x[0, 0], the first tap of the
 * micro-tile, is at `place` of the patch. A vector of x is loaded once for all its products. */
INLINE void add_products(const conv_products *p, idx j, idx place, const int width, const int rows, const int taps,
                         vec *sums)
{
    vec grad[4];
    UNROLL
    for (int k = 0; k < width; k++)
        grad[k] = patch_vec(&p->grad, j + k, p->lane);
    UNROLL
    for (int a = 0; a < rows; a++) {
        UNROLL
        for (int i = 0; i < width + taps - 1; i++) {
            const vec x = patch_vec(&p->x, place + a * p->x.columns + j + i, p->lane);
            UNROLL
            for (int t = 0; t < taps; t++)
                if (i >= t && i - t < width)
                    sums[a * taps + t] = vec_fma(grad[i - t], x, sums[a * taps + t]);
        }
    }
}

/* Gradients in double of the channels of one vector */
typedef struct {
    double *sums;
    idx row_step, tap_step, channels; /* steps between rows of taps and between taps */
} double_sums;

/* Add the sums of a micro-tile of `rows` x `taps` gradients to those in double, which begin at `first`. All sizes of
 * micro-tiles share this function: inlined into each, it took half of the file's machine code. */
static NOINLINE void add_to_double(const real *sums, int rows, int taps, const double_sums *to, double *first)
{
    for (int a = 0; a < rows; a++, first += to->row_step) {
        double *into = first;
        for (int t = 0; t < taps; t++, sums += LANES, into += to->tap_step) {
            if (to->channels == LANES) { /* a loop of constant length has no remainder */
                SIMD
                for (int k = 0; k < LANES; k++)
                    into[k] += (double)sums[k];
            } else {
                for (idx k = 0; k < to->channels; k++)
                    into[k] += (double)sums[k];
            }
        }
    }
}

/* Add a micro-tile of `rows` x `taps` gradients, whose first tap is (a, b). */
INLINE void add_micro_tile(const conv_products *p, idx a, idx b, const int rows, const int taps, const double_sums *to)
{
    const conv_products here = *p; /* a local copy, which no store can change */
    const idx place = a * here.x.columns + b;
    vec sums[9];
    idx j = 0;
    UNROLL
    for (int t = 0; t < rows * taps; t++)
        sums[t] = vec_set(0);
    for (; j + 4 <= here.n; j += 4)
        add_products(&here, j, place, 4, rows, taps, sums);
    for (; j < here.n; j++)
        add_products(&here, j, place, 1, rows, taps, sums);
    real stored[9 * LANES]; /* no function gets the address of `sums`, which stay in registers */
    UNROLL
    for (int t = 0; t < rows * taps; t++)
        vec_store(stored + t * LANES, sums[t]);
    add_to_double(stored, rows, taps, to, to->sums + a * to->row_step + b * to->tap_step);
}

/* Add the gradients of all taps of one vector of channels: of the columns before `eights` in micro-tiles of 1 x 8 taps,
 * before `threes` in micro-tiles of 3 x 3, because 8 or 9 sums hide the latency of an FMA, and of the
 * rest in smaller ones. */
static NOINLINE void add_tap_gradients(const conv_products *p, idx r, idx s, const double_sums *to)
{
    const idx eights = s & ~(idx)7, threes = s - (s - eights) % 3;
    idx a = 0;
    for (; a < r; a++) {
        for (idx b = 0; b < eights; b += 8)
            add_micro_tile(p, a, b, 1, 8, to);
    }
    for (a = 0; a + 3 <= r; a += 3) {
        for (idx b = eights; b < threes; b += 3)
            add_micro_tile(p, a, b, 3, 3, to);
        for (idx b = threes; b < s; b++)
            add_micro_tile(p, a, b, 3, 1, to);
    }
    for (; a < r; a++) {
        for (idx b = eights; b < threes; b += 3)
            add_micro_tile(p, a, b, 1, 3, to);
        for (idx b = threes; b < s; b++)
            add_micro_tile(p, a, b, 1, 1, to);
    }
}

/* Add to the gradients what a tile of grad contributes. */
static void add_tile(const pe_call *call, const pe_row *row, const convolution_state *state, const conv_tile *t,
                     const pe_work *work)
{
    const idx d = call->D(d), r = call->D(r), s = call->D(s), n = t->n, places = r * (n + s - 1);
    const idx top = (idx)call->par[CONVOLUTION_TOP], left = (idx)call->par[CONVOLUTION_LEFT];
    const int few = r * s <= FEW_TAPS;
    double *dkernel = block_sums(call, DKERNEL, work), *dbias = block_sums(call, DBIAS, work);
    const patch x = {state->rows, t->i - top, t->j - left, r, n + s - 1, call->array[X].storage};
    const patch grad = {state->rows + places, t->i, t->j, 1, n, call->array[GRAD].storage};
    patch_rows(call, row, X, (int)call->par[CONVOLUTION_PADDING], state->zeros, &x);
    patch_rows(call, row, GRAD, PADDING_ZERO, state->zeros, &grad);
    for (idx c = 0; c < d; c += CHANNELS) {
        const idx channels = min_(CHANNELS, d - c);
        if (stopped_at_channel(call, c))
            return;
        conv_products p = {
            channels_of(&grad, c, channels, few, state->copied + places, state->copy + places * CHANNELS),
            channels_of(&x, c, channels, few, state->copied, state->copy), n, 0};
        for (; p.lane < channels; p.lane += LANES) {
            const idx lanes = min_(LANES, channels - p.lane), channel = c + p.lane;
            const double_sums to = {dkernel + channel, s * d, d, lanes}, to_bias = {dbias + channel, 0, 0, lanes};
            vec sum = vec_set(0);
            for (idx k = 0; k < n; k++)
                sum = vec_add(sum, patch_vec(&p.grad, k, p.lane));
            real stored[LANES];
            vec_store(stored, sum);
            add_to_double(stored, 1, 1, &to_bias, to_bias.sums);
            add_tap_gradients(&p, r, s, &to);
        }
    }
}

KERNEL(convolution_vjp)
{
    const idx *dim = call->dim;
    const idx w = D(w), unit = CONVOLUTION_UNIT, pieces = BLOCKS(w, unit), units = D(y) * pieces;
    const convolution_state state = convolution_vjp_begin(call, work);
    memset(state.zeros, 0, (size_t)D(d) * sizeof(real));
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / units);
        const idx first = u % pieces * unit, last = min_(w, first + unit);
        for (idx j = first; j < last; j += CONVOLUTION_GRADIENTS) {
            const conv_tile t = {u % units / pieces, j, min_(CONVOLUTION_GRADIENTS, last - j)};
            add_tile(call, &row, &state, &t, work);
        }
    }
}
