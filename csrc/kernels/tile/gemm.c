/* gemm.c -- see gemm.h. A row block is as many keys (or columns of v) as the registers hold sums for. What is left over
 * is cut into blocks of 8, 4, 2 and 1 rows: a padded block would read rows that are not there. */
#include "tile/gemm.h"

INLINE void multiply(vec acc[SUMS], int rows, int cols, const char *a, idx a_row, idx a_step, const real *b, int n)
{
    UNROLL
    for (int i = 0; i < rows * cols; i++)
        acc[i] = vec_set(0);
    accumulate(acc, rows, cols, a, a_row, a_step, b, n);
}

INLINE void score_rows(int rows, int cols, const pe_scores *w, int j)
{
    vec acc[SUMS];
    multiply(acc, rows, cols, w->k + j * w->k_step, w->k_step, (idx)sizeof(real), w->q, w->d);
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

INLINE void scores(int cols, const pe_scores *of, int n)
{
    const pe_scores copy = *of, *w = &copy; /* a local copy, which no store can alias */
    const int rows = SUMS / cols;
    int j = 0;
    for (; n - j >= rows; j += rows)
        score_rows(rows, cols, w, j);
    if (rows > 8 && n - j >= 8) {
        score_rows(8, cols, w, j);
        j += 8;
    }
    if (rows > 4 && n - j >= 4) {
        score_rows(4, cols, w, j);
        j += 4;
    }
    if (n - j >= 2) {
        score_rows(2, cols, w, j);
        j += 2;
    }
    if (n - j >= 1)
        score_rows(1, cols, w, j);
}

static NOINLINE void scores_narrow(const pe_scores *w, int n) { scores(1, w, n); }
static NOINLINE void scores_wide(const pe_scores *w, int n) { scores(2, w, n); }

void FN(scores)(const pe_scores *w, int n, int width) { (width == LANES ? scores_narrow : scores_wide)(w, n); }

INLINE void value_rows(int rows, int cols, const pe_values *w, int d)
{
    vec acc[SUMS];
    multiply(acc, rows, cols, w->v + d * (int)sizeof(real), (idx)sizeof(real), w->v_step, w->p, w->n);
    /* The tile is summed on its own and then added: the error grows with the number of tiles, not of keys. */
    UNROLL
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            real *o = w->o + ((d + r) * cols + c) * LANES;
            vec_store(o, vec_fma(vec_load(o), vec_load(w->alpha + c * LANES), acc[r * cols + c]));
        }
    }
}

INLINE void values(int cols, const pe_values *of, int e)
{
    const pe_values copy = *of, *w = &copy;
    const int rows = SUMS / cols;
    int d = 0;
    for (; e - d >= rows; d += rows)
        value_rows(rows, cols, w, d);
    if (rows > 8 && e - d >= 8) {
        value_rows(8, cols, w, d);
        d += 8;
    }
    if (rows > 4 && e - d >= 4) {
        value_rows(4, cols, w, d);
        d += 4;
    }
    if (e - d >= 2) {
        value_rows(2, cols, w, d);
        d += 2;
    }
    if (e - d >= 1)
        value_rows(1, cols, w, d);
}

static NOINLINE void values_narrow(const pe_values *w, int e) { values(1, w, e); }
static NOINLINE void values_wide(const pe_values *w, int e) { values(2, w, e); }

void FN(values)(const pe_values *w, int e, int width) { (width == LANES ? values_narrow : values_wide)(w, e); }
