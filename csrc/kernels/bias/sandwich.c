/* sandwich.c -- Sandwich (Chi et al. 2023, section 4):   b_h = (sum_t cos(w_t rel) - T) / divisor_h,   t = 1 .. T
 *
 *     for (int c = 0; c < C; c++)
 *         sum += keys[j][c] * queries[c][i];              sum is now sum_t cos(w_t rel)
 *     b_h(i, j) = (sum - T) / divisor[h];
 *
 * arrays: queries(C,n), keys(m,C), divisor(h), with C = 2 T sines and cosines of each position.
 * cos(w (k - q)) = cos wk cos wq + sin wk sin wq. So a bias is the inner product of the C numbers of the key and of the
 * query, and a pair needs no cosine. Sandwich has no learned parameters, so there is no gradient.
 */
#include "bias/position.h"

enum { QUERIES, KEYS, DIVISOR };
/* Columns and keys per pass, so that the sums fit a small stack; ROWS is the number of keys with sums in registers. */
enum { CHUNK = 32, KEYS_AT_ONCE = 32, ROWS = 4 };

/* sum[r * lanes + l] += sum over t < count of key[r, t] q[t, l], for LANES lanes. Callers pass a constant `rows`. */
INLINE void add_products_of_rows(int rows, const char *key, idx key_step, int count, const double *restrict q,
                                 double *restrict sum, int lanes)
{
    double acc[ROWS][LANES];
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < LANES; l++)
            acc[r][l] = sum[r * lanes + l];
    }
    for (int t = 0; t < count; t++) {
        UNROLL
        for (int r = 0; r < rows; r++) {
            const double x = *(const double *)(const void *)(key + r * key_step + t * (idx)sizeof(double));
            SIMD
            for (int l = 0; l < LANES; l++)
                acc[r][l] = fma64(x, q[t * PAIR_LANES + l], acc[r][l]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < LANES; l++)
            sum[r * lanes + l] = acc[r][l];
    }
}

static NOINLINE void products_of_four(const char *key, idx key_step, int count, const double *q, double *sum, int lanes)
{
    add_products_of_rows(ROWS, key, key_step, count, q, sum, lanes);
}

static NOINLINE void products_of_one(const char *key, idx key_step, int count, const double *q, double *sum, int lanes)
{
    add_products_of_rows(1, key, key_step, count, q, sum, lanes);
}

/* Compute the bias of n keys of the block, from key `from` on. */
static void some_keys(const pe_array *array, idx columns, idx h, const pe_pair_block *b, int from, int n,
                      real *restrict out)
{
    const idx key_step = array[KEYS].core[0];
    const double factor = 1 / *element(&array[DIVISOR], h, 0), half = 0.5 * (double)columns;
    const char *keys = array[KEYS].data + (b->first_k + from) * key_step;
    const int lanes = b->lanes, numbers = n * lanes;
    double sum[KEYS_AT_ONCE * PAIR_LANES], q[CHUNK * PAIR_LANES] = {0};
    for (int i = 0; i < numbers; i++)
        sum[i] = 0;
    for (idx first = 0; first < columns; first += CHUNK) {
        const int count = (int)min_(CHUNK, columns - first);
        const char *key = keys + first * (idx)sizeof(double);
        for (int t = 0; t < count; t++)
            memcpy(q + t * PAIR_LANES, element(&array[QUERIES], first + t, b->first_q), (size_t)b->queries * sizeof *q);
        for (int l = 0; l < lanes; l += LANES) {
            int j = 0;
            for (; j + ROWS <= n; j += ROWS)
                products_of_four(key + j * key_step, key_step, count, q + l, sum + j * lanes + l, lanes);
            for (; j < n; j++)
                products_of_one(key + j * key_step, key_step, count, q + l, sum + j * lanes + l, lanes);
        }
    }
    SIMD
    for (int i = 0; i < numbers; i++)
        out[i] = (real)((sum[i] - half) * factor);
}

PAIR_VALUES(sandwich)
{
    for (int j = 0; j < b->keys; j += KEYS_AT_ONCE)
        some_keys(array, D(C), h, b, j, (int)min_(KEYS_AT_ONCE, b->keys - j), out + j * b->lanes);
}

const pe_position_op FN(sandwich_op) = {.pairs = sandwich};
