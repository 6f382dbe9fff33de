/* gemm.c -- the two products of gemm.h, in SIMD registers. For a panel of lanes and a block of rows:
 *
 *     for (int k = 0; k < n; k++)
 *         for (int r = 0; r < rows; r++)
 *             for (int l = 0; l < width; l++)
 *                 sum[r][l] += a[r][k] * b[k][l];
 *
 * A row is a key in `scores`, and a column of v in `values`. The sums stay in registers for the whole loop over k, and
 * each load of b serves all rows of the block. The loop broadcasts a from the caller's memory, so a is not packed.
 */
#include "tile/gemm.h"

INLINE void sum_products(vec acc[SUMS], int rows, int cols, const char *a, idx a_row, idx a_step, const real *b, int n)
{
    UNROLL
    for (int i = 0; i < rows * cols; i++)
        acc[i] = vec_set(0);
    accumulate(acc, rows, cols, a, a_row, a_step, b, n);
}

INLINE void score_rows(int rows, int cols, const void *of, int j)
{
    const pe_scores *w = of;
    vec acc[SUMS];
    sum_products(acc, rows, cols, w->k + j * w->k_step, w->k_step, (idx)sizeof(real), w->q, w->d);
    const real *bias = w->bias ? w->bias + j * w->bias_step : NULL;
    real *s = w->s + j * cols * LANES;
    UNROLL
    for (int c = 0; c < cols; c++) {
        vec m = vec_load(w->m + c * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vec x = acc[r * cols + c];
            if (bias)
                x = vec_bias(x, vec_load(bias + r * w->bias_step + c * LANES));
            m = vec_max(x, m);
            vec_store(s + (r * cols + c) * LANES, x);
        }
        vec_store(w->m + c * LANES, m);
    }
}

INLINE void value_rows(int rows, int cols, const void *of, int d)
{
    const pe_values *w = of;
    vec acc[SUMS];
    sum_products(acc, rows, cols, w->v + d * (int)sizeof(real), (idx)sizeof(real), w->v_step, w->p, w->n);
    /* acc is the sum of this tile only. Adding it to o lets the error grow with the number of tiles, not of keys. */
    UNROLL
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            real *o = w->o + ((d + r) * cols + c) * LANES;
            vec_store(o, vec_fma(vec_load(o), vec_load(w->alpha + c * LANES), acc[r * cols + c]));
        }
    }
}

/* Arguments are passed by value, so the compiler knows that no store changes them. */
static NOINLINE void scores_narrow(pe_scores w, int n) { in_row_blocks(score_rows, 1, &w, 0, n); }
static NOINLINE void scores_wide(pe_scores w, int n) { in_row_blocks(score_rows, 2, &w, 0, n); }
static NOINLINE void values_narrow(pe_values w, int e) { in_row_blocks(value_rows, 1, &w, 0, e); }
static NOINLINE void values_wide(pe_values w, int e) { in_row_blocks(value_rows, 2, &w, 0, e); }

void FN(scores)(const pe_scores *w, int n, int width) { (width == LANES ? scores_narrow : scores_wide)(*w, n); }
void FN(values)(const pe_values *w, int e, int width) { (width == LANES ? values_narrow : values_wide)(*w, e); }
