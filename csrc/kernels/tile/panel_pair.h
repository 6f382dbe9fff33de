/* panel_pair.h -- the products of gemm.h and outer.h for two panels, or two strips of channels, at once.
 *
 *     for each row r, one number of `a`:   sum[r] += a[r] * (two vectors of the first panel, two of the second)
 *
 * With one panel, 8 rows x 2 vectors of sums need 10 loads for 16 products. With two, 6 x 4 need 10 loads for 24. On an
 * Intel Xeon attention takes 0.92 to 0.96 of the time of single panels. On AMD Zen 4, whose AVX-512 products take two
 * cycles, it takes 0.96 to 1.0 of that time. 24 sums need the registers of AVX-512. Each lane sums in the order of
 * gemm.h, so no bit changes.
 */
#ifndef PE_PANEL_PAIR_H
#define PE_PANEL_PAIR_H

#include "tile/gemm.h"

enum { PANEL_PAIRS = VEC_BYTES == 64, PAIR_ROWS = 6, PAIR_SUMS = 4 * PAIR_ROWS };

/* Add to acc[4 r ...] the products of row r with two vectors of b0, then with two of b1. */
INLINE void accumulate_pair(vec acc[PAIR_SUMS], int rows, const char *a, idx a_row, idx a_step, const real *b0,
                            const real *b1, int n)
{
    for (int k = 0; k < n; k++, a += a_step, b0 += 2 * LANES, b1 += 2 * LANES) {
        const vec x[4] = {vec_load(b0), vec_load(b0 + LANES), vec_load(b1), vec_load(b1 + LANES)};
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec y = vec_set(*(const real *)(const void *)(a + r * a_row));
            UNROLL
            for (int c = 0; c < 4; c++)
                acc[4 * r + c] = vec_fma(y, x[c], acc[4 * r + c]);
        }
    }
}

INLINE void zero_pair_sums(vec acc[PAIR_SUMS], int rows)
{
    UNROLL
    for (int i = 0; i < 4 * rows; i++)
        acc[i] = vec_set(0);
}

/* Call `block` for the rows from <= j < to, 6 or 4 rows at a time, and return the first row that is left. If two rows
 * would be left, one block of 6 becomes two of 4, because sums of two rows do not hide the latency of FMA. */
INLINE int in_pair_blocks(void (*block)(int rows, const void *w, int j), const void *w, int from, int to)
{
    const int fours = (to - from) % PAIR_ROWS == 2 && to - from >= 8 ? 2 : (to - from) % PAIR_ROWS >= 4;
    int j = from;
    for (; to - j >= PAIR_ROWS + 4 * fours; j += PAIR_ROWS)
        block(PAIR_ROWS, w, j);
    for (int i = 0; i < fours; i++, j += 4)
        block(4, w, j);
    return j;
}

/* Compute n keys of two wide panels, which differ in q, bias, s and m. */
void FN(scores_of_pair)(const pe_scores w[2], int n);
/* Compute e columns of v of two wide panels, which differ in p, alpha and o. */
void FN(values_of_pair)(const pe_values w[2], int e);

#endif
