/* transpose.h -- copy matrix rows to SIMD lanes and back. Squares of LANES x LANES are transposed in registers.
 *
 *     pack_transposed     out[k][lane] = scale * rows[lane][k], lane < width; lanes without a row get 0
 *     unpack_transposed   rows[lane][k] = scale * x[k][lane] / divisor[lane], or undivided if divisor is NULL;
 *                         returns whether every result is finite
 *
 * There are `lanes` rows of n numbers. Rows of out and x are `width` numbers apart.
 */
#ifndef PE_TRANSPOSE_H
#define PE_TRANSPOSE_H

#include "base/vec.h"

/* Exchange number i of x[j] and number j of x[i]. Flatten the square: interleaving its two halves moves number i to
 * 2 i modulo LANES * LANES - 1. After log2(LANES) interleavings rows and columns are exchanged. */
#define INTERLEAVED(l, first) (first) + (l) / 2 + (l) % 2 * LANES
INLINE void transpose(vec *x)
{
    vec y[LANES];
    UNROLL
    for (int n = 1; n < LANES; n *= 2) {
        UNROLL
        for (int i = 0; i < LANES / 2; i++) {
            y[2 * i] = SHUFFLE(x[i], x[i + LANES / 2], INTERLEAVED, 0);
            y[2 * i + 1] = SHUFFLE(x[i], x[i + LANES / 2], INTERLEAVED, LANES / 2);
        }
        UNROLL
        for (int i = 0; i < LANES; i++)
            x[i] = y[i];
    }
}

static NOINLINE void pack_transposed(pe_lines rows, int lanes, int n, real scale, int width, real *out)
{
    for (int l = 0; l < width; l += LANES, out += LANES) {
        const pe_lines square = lines_from(rows, l);
        const int here = (int)min_(LANES, max_(lanes - l, 0)), squares = here == LANES ? n - n % LANES : 0;
        int k = 0;
        for (; k < squares; k += LANES) {
            vec x[LANES];
            UNROLL
            for (int i = 0; i < LANES; i++)
                x[i] = vec_load(line_at(square, i) + k);
            transpose(x);
            UNROLL
            for (int i = 0; i < LANES; i++)
                vec_store(out + (k + i) * width, vec_mul(x[i], vec_set(scale)));
        }
        for (; k < n; k++) {
            for (int i = 0; i < LANES; i++)
                out[k * width + i] = i < here ? line_at(square, i)[k] * scale : 0;
        }
    }
}

/* scale * x / divisor + 0. Adding 0 turns -0 into 0. A product that underflows may be -0, but a tile that is skipped
 * leaves 0, and both must give the same bits. */
INLINE vec scaled_vec(const real *x, real scale, const real *divisor)
{
    const vec y = vec_mul(vec_load(x), vec_set(scale));
    return vec_add(divisor ? vec_div(y, vec_load(divisor)) : y, vec_set(0));
}

/* Numbers of `lanes` lanes, n of each: those of one index are `width` numbers after those of the index before. */
typedef struct {
    const real *x;
    int width, lanes, n;
} pe_lanes;

static NOINLINE int unpack_transposed(pe_lanes from, real scale, const real *divisor, char *rows, idx step)
{
    const int width = from.width, n = from.n;
    const real *x = from.x;
    vec check = vec_set(0); /* sum of y * 0, for vec_all_finite */
    for (int l = 0; l < from.lanes; l += LANES, rows += LANES * step, x += LANES) {
        const int here = (int)min_(LANES, from.lanes - l), squares = here == LANES ? n - n % LANES : 0;
        const real *by = divisor ? divisor + l : NULL;
        int k = 0;
        for (; k < squares; k += LANES) {
            vec y[LANES];
            UNROLL
            for (int i = 0; i < LANES; i++) {
                y[i] = scaled_vec(x + (k + i) * width, scale, by);
                check = vec_fma(y[i], vec_set(0), check);
            }
            transpose(y);
            UNROLL
            for (int i = 0; i < LANES; i++)
                vec_store((real *)(void *)(rows + i * step) + k, y[i]);
        }
        for (; k < n; k++) {
            real y[LANES];
            vec_store(y, scaled_vec(x + k * width, scale, by));
            for (int i = 0; i < LANES; i++)
                y[i] = i < here ? y[i] : 0;
            for (int i = 0; i < here; i++)
                ((real *)(void *)(rows + i * step))[k] = y[i];
            check = vec_fma(vec_load(y), vec_set(0), check);
        }
    }
    return vec_all_finite(check);
}

#endif
