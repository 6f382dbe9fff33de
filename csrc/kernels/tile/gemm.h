/* gemm.h -- the products of attention and of its gradient. One micro-kernel does all. Queries stand on the lanes,
 * and keys and values are broadcast from where they lie, with any row stride. (A third one, outer.h, has channels on
 * the lanes and broadcasts the weights of the pairs.)
 *
 *     scores   s[j][lane]  = sum_d k[j][d] q[d][lane] (+ bias)     top[lane] = max(top, s)
 *     values   o[d][lane]  = o[d][lane] factor[lane] + sum_j v[j][d] p[j][lane]
 *
 * A panel is one vector of lanes or two. Each lane sums in the order of d or j whatever the panel, the row block or
 * its neighbours: that is what makes a row's result independent of everything else in the call.
 */
#ifndef PE_GEMM_H
#define PE_GEMM_H

#include "base/vec.h"

/* Accumulators: 6 x 2 of AVX2's 16 registers, 8 x 2 of 32 with AVX-512, 4 x 2 elsewhere; the rest holds the two loads
 * and the broadcast. A narrow panel takes twice the rows: 6 sums would wait for
 * the latency of FMA (N = 1, M = 1024: 48 us instead of 32). */
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

INLINE void multiply(vec acc[SUMS], int rows, int cols, const char *a, idx a_row, idx a_step, const real *b, int n)
{
    UNROLL
    for (int i = 0; i < rows * cols; i++)
        acc[i] = vec_set(0);
    accumulate(acc, rows, cols, a, a_row, a_step, b, n);
}

/* What scores reads and writes; bias is NULL or the row of the first key, the next one bias_step numbers on. */
typedef struct {
    const char *k;
    idx k_step;
    int d;
    const real *q, *bias;
    int bias_step;
    real *s, *top;
} pe_scores;

INLINE void score_rows(int rows, int cols, const pe_scores *w, int j)
{
    vec acc[SUMS];
    multiply(acc, rows, cols, w->k + j * w->k_step, w->k_step, (idx)sizeof(real), w->q, w->d);
    const real *bias = w->bias ? w->bias + j * w->bias_step : NULL;
    real *s = w->s + j * cols * LANES;
    UNROLL
    for (int c = 0; c < cols; c++) {
        vec top = vec_load(w->top + c * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vec x = acc[r * cols + c];
            if (bias)
                x = vec_bias(x, vec_load(bias + r * w->bias_step + c * LANES));
            top = vec_max(x, top);
            vec_store(s + (r * cols + c) * LANES, x);
        }
        vec_store(w->top + c * LANES, top);
    }
}

/* The rest of a row block by binary pieces: a padded block would read rows that are not there. */
INLINE void scores(int cols, const pe_scores *given, int n)
{
    const pe_scores here = *given, *w = &here; /* a copy that no store can alias */
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

/* What values reads and writes: n keys, sums o of the columns of v */
typedef struct {
    const char *v;
    idx v_step;
    int n;
    const real *p, *factor;
    real *o;
} pe_values;

INLINE void value_rows(int rows, int cols, const pe_values *w, int d)
{
    vec acc[SUMS];
    multiply(acc, rows, cols, w->v + d * (int)sizeof(real), (idx)sizeof(real), w->v_step, w->p, w->n);
    /* the tile is summed on its own and then added: the error grows with the number of tiles, not of keys */
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            real *o = w->o + ((d + r) * cols + c) * LANES;
            vec_store(o, vec_fma(vec_load(o), vec_load(w->factor + c * LANES), acc[r * cols + c]));
        }
}

INLINE void values(int cols, const pe_values *given, int e)
{
    const pe_values here = *given, *w = &here;
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

#endif
