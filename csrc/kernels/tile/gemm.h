/* gemm.h -- the two matrix products of attention. Queries stand on SIMD lanes; keys and values are broadcast from where
 * they lie, with any row stride. (The third product of the gradient is in outer.h.)
 *
 *     scores   s[j][lane]  = sum_d k[j][d] q[d][lane] (+ bias)      m[lane] = max(m[lane], s[j][lane])
 *     values   o[d][lane]  = o[d][lane] alpha[lane] + sum_j v[j][d] p[j][lane]
 *
 * A panel is one vector of lanes or two. Each lane sums in the order of d or j, whatever the panel, the row block or
 * its neighbours are: that makes a query's result independent of everything else in the call.
 */
#ifndef PE_GEMM_H
#define PE_GEMM_H

#include "base/vec.h"

/* Accumulators of the micro-kernel: 8 rows x 2 vectors of AVX-512's 32 registers, 6 x 2 of AVX2's 16, 4 x 2 elsewhere;
 * the other registers hold the two loads and the broadcast. A narrow panel takes twice the rows: six sums would wait
 * for the latency of FMA (N = 1, M = 1024: 48 us instead of 32). */
enum { SUMS = VEC_BYTES == 64 ? 16 : VEC_BYTES == 32 ? 12 : 8 };

/* acc[r, c] += sum over k < n of a(r, k) * b(k, c); rows and cols are constants where this is inlined */
INLINE void accumulate(vec acc[SUMS], int rows, int cols, const char *a, idx a_row, idx a_step, const real *b, int n)
{
    for (int k = 0; k < n; k++) {
        vec x[2];
        for (int c = 0; c < cols; c++)
            x[c] = vec_load(b + c * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec y = vec_set(*(const real *)(const void *)(a + r * a_row));
            for (int c = 0; c < cols; c++)
                acc[r * cols + c] = vec_fma(y, x[c], acc[r * cols + c]);
        }
        a += a_step;
        b += cols * LANES;
    }
}

/* Cut rows from <= j < to into blocks of as many rows as the registers hold sums for. The rest is cut into blocks of 8,
 * 4, 2 and 1 rows: a padded block would read rows that are not there. The number of rows is a constant in each
 * call of `block`, so that its sums are in registers. */
INLINE void in_row_blocks(void (*block)(int rows, int cols, const void *w, int j), int cols, const void *w, int from,
                          int to)
{
    const int rows = SUMS / cols;
    int j = from;
    for (; to - j >= rows; j += rows)
        block(rows, cols, w, j);
    if (rows > 8 && to - j >= 8) {
        block(8, cols, w, j);
        j += 8;
    }
    if (rows > 4 && to - j >= 4) {
        block(4, cols, w, j);
        j += 4;
    }
    if (to - j >= 2) {
        block(2, cols, w, j);
        j += 2;
    }
    if (to - j >= 1)
        block(1, cols, w, j);
}

/* bias is NULL or the row of the first key; the row of the next key is bias_step numbers further. */
typedef struct {
    const char *k;
    idx k_step; /* bytes */
    int d;
    const real *q, *bias;
    int bias_step;
    real *s, *m;
} pe_scores;

/* For n keys and a panel of `width` lanes, LANES or 2 LANES */
void FN(scores)(const pe_scores *w, int n, int width);

typedef struct {
    const char *v;
    idx v_step; /* bytes */
    int n;      /* keys */
    const real *p, *alpha;
    real *o;
} pe_values;

/* For e columns of v and a panel of `width` lanes */
void FN(values)(const pe_values *w, int e, int width);

#endif
