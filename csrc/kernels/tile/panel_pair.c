/* panel_pair.c -- scores and values of two wide panels at once (panel_pair.h), in SIMD registers.
 *
 *     for (int k = 0; k < n; k++)
 *         for (int r = 0; r < rows; r++)
 *             for (int l = 0; l < width; l++) {
 *                 sum0[r][l] += a[r][k] * b0[k][l];               the first panel
 *                 sum1[r][l] += a[r][k] * b1[k][l];               the second panel
 *             }
 *
 * Each number of a is broadcast once for both panels.
 */
#include "tile/panel_pair.h"

typedef struct {
    pe_scores w[2];
} scores_pair;

typedef struct {
    pe_values w[2];
} values_pair;

/* Add the bias to the two vectors of a panel, store them, and update the maximum. */
INLINE void store_scores(int rows, const vec *acc, const pe_scores *w, int j)
{
    const real *bias = w->bias ? w->bias + j * w->bias_step : NULL;
    UNROLL
    for (int c = 0; c < 2; c++) {
        vec m = vec_load(w->m + c * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vec x = acc[4 * r + c];
            if (bias)
                x = vec_bias(x, vec_load(bias + r * w->bias_step + c * LANES));
            m = vec_max(x, m);
            vec_store(w->s + ((j + r) * 2 + c) * LANES, x);
        }
        vec_store(w->m + c * LANES, m);
    }
}

INLINE void pair_score_rows(int rows, const void *of, int j)
{
    const pe_scores *w = ((const scores_pair *)of)->w;
    vec acc[PAIR_SUMS];
    zero_pair_sums(acc, rows);
    accumulate_pair(acc, rows, w->k + j * w->k_step, w->k_step, (idx)sizeof(real), w[0].q, w[1].q, w->d);
    store_scores(rows, acc, &w[0], j);
    store_scores(rows, acc + 2, &w[1], j);
}

INLINE void store_values(int rows, const vec *acc, const pe_values *w, int d)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int c = 0; c < 2; c++) {
            real *o = w->o + ((d + r) * 2 + c) * LANES;
            vec_store(o, vec_fma(vec_load(o), vec_load(w->alpha + c * LANES), acc[4 * r + c]));
        }
    }
}

INLINE void pair_value_rows(int rows, const void *of, int d)
{
    const pe_values *w = ((const values_pair *)of)->w;
    vec acc[PAIR_SUMS];
    zero_pair_sums(acc, rows);
    accumulate_pair(acc, rows, w->v + d * (int)sizeof(real), (idx)sizeof(real), w->v_step, w[0].p, w[1].p, w->n);
    store_values(rows, acc, &w[0], d);
    store_values(rows, acc + 2, &w[1], d);
}

/* Arguments are passed by value, so the compiler knows that no store changes them. */
static NOINLINE int scores_in_blocks(scores_pair w, int n) { return in_pair_blocks(pair_score_rows, &w, 0, n); }
static NOINLINE int values_in_blocks(values_pair w, int e) { return in_pair_blocks(pair_value_rows, &w, 0, e); }

void FN(scores_of_pair)(const pe_scores w[2], int n)
{
    const int done = scores_in_blocks((scores_pair){{w[0], w[1]}}, n);
    for (int p = 0; p < 2 && done < n; p++) {
        pe_scores rest = w[p];
        rest.k += done * rest.k_step;
        rest.bias = rest.bias ? rest.bias + done * rest.bias_step : NULL;
        rest.s += done * 2 * LANES;
        FN(scores)(&rest, n - done, 2 * LANES);
    }
}

void FN(values_of_pair)(const pe_values w[2], int e)
{
    const int done = values_in_blocks((values_pair){{w[0], w[1]}}, e);
    for (int p = 0; p < 2 && done < e; p++) {
        pe_values rest = w[p];
        rest.v += done * (idx)sizeof(real);
        rest.o += done * 2 * LANES;
        FN(values)(&rest, e - done, 2 * LANES);
    }
}
