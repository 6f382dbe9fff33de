/* gemm.h -- the two matrix products of attention. Each SIMD lane holds one query. Keys and values are read in place,
 * with any row stride, and each number is broadcast to all lanes. (outer.h has the third product, of the gradient.)
 *
 *     scores   s[j][lane]  = sum_d k[j][d] q[d][lane] (+ bias)      m[lane] = max(m[lane], s[j][lane])
 *     values   o[d][lane]  = o[d][lane] alpha[lane] + sum_j v[j][d] p[j][lane]
 *
 * A panel is one vector of lanes or two. Each lane sums in the order of d or j, for any panel and row block. So the
 * result of a query does not depend on the other queries of the call.
 */
#ifndef PE_GEMM_H
#define PE_GEMM_H

#include "base/vec.h"

/* Accumulators of the micro-kernel: 8 rows x 2 vectors of AVX-512's 32 registers, 6 x 2 of AVX2's 16, 4 x 2
 * elsewhere; the other registers hold two vectors of b and the broadcast number. A panel of one vector has blocks of
 * twice the rows, because six sums are too few to hide the latency of FMA: one query and 1024 keys took 1.5x the time
 * with six sums. */
enum { SUMS = VEC_BYTES == 64 ? 16 : VEC_BYTES == 32 ? 12 : 8 };

/* acc[r, c] += sum over k < n of a(r, k) * b(k, c). Callers pass constant rows and cols. */
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

/* Call `block` for the rows from <= j < to, SUMS / cols rows at a time. The rest is split into blocks of 8, 4, 2 and 1
 * rows, because a padded block would read beyond the last row. Each call passes a constant number of rows, so that the
 * compiler keeps the sums in registers. */
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

/* bias is NULL, or the bias of the first key; the bias of the next key begins bias_step numbers later. */
typedef struct {
    const char *k;
    idx k_step; /* bytes */
    int d;
    const real *q, *bias;
    int bias_step;
    real *s, *m;
} pe_scores;

/* Compute n keys and a panel of `width` lanes, LANES or 2 LANES. */
void FN(scores)(const pe_scores *w, int n, int width);

typedef struct {
    const char *v;
    idx v_step; /* bytes */
    int n;      /* keys */
    const real *p, *alpha;
    real *o;
} pe_values;

/* Compute e columns of v and a panel of `width` lanes. */
void FN(values)(const pe_values *w, int e, int width);

#endif
