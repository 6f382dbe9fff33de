/* sandwich.c -- Sandwich (Chi et al. 2023, section 4): b_h = (sum_t cos(w_t rel) - T) / divisor_h, t = 1 .. T
 *
 * arrays: queries(c,n), keys(m,c), divisor(h). cos(w (k - q)) = cos wk cos wq + sin wk sin wq: a product of the 2 T sines
 * and cosines of the key and of the query, instead of T cosines for each pair of each head. */
#include "bias/pair.h"

enum { WAVES = 32, ABREAST = 4 };

/* sum[r * lanes + l] += sum over t of key[r, t] q[t, l], for LANES lanes; rows is a constant where this is inlined */
INLINE void add_waves(int rows, const char *key, idx key_step, int waves, const double *restrict q,
                      double *restrict sum, int lanes)
{
    double acc[ABREAST][LANES];
    for (int r = 0; r < rows; r++)
        for (int l = 0; l < LANES; l++)
            acc[r][l] = sum[r * lanes + l];
    for (int t = 0; t < waves; t++) {
        UNROLL
        for (int r = 0; r < rows; r++) {
            const double x = *(const double *)(const void *)(key + r * key_step + t * (idx)sizeof(double));
            SIMD
            for (int l = 0; l < LANES; l++)
                acc[r][l] = fma64(x, q[t * PAIR_LANES + l], acc[r][l]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int l = 0; l < LANES; l++)
            sum[r * lanes + l] = acc[r][l];
}

static NOINLINE void waves_of_four(const char *key, idx key_step, int waves, const double *q, double *sum, int lanes)
{
    add_waves(ABREAST, key, key_step, waves, q, sum, lanes);
}

static NOINLINE void waves_of_one(const char *key, idx key_step, int waves, const double *q, double *sum, int lanes)
{
    add_waves(1, key, key_step, waves, q, sum, lanes);
}

void FN(sandwich_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, real *restrict out)
{
    const idx columns = D(C), key_step = array[1].core[0];
    const double factor = 1 / *place(&array[2], h, 0), half = 0.5 * (double)columns;
    const char *queries = array[0].data + b->first_q * array[0].core[1];
    const char *keys = array[1].data + b->first_k * key_step;
    const int lanes = b->lanes, numbers = b->keys * lanes;
    double sum[PAIR_KEYS * PAIR_LANES], q[WAVES * PAIR_LANES] = {0};
    for (int i = 0; i < numbers; i++)
        sum[i] = 0;
    for (idx first = 0; first < columns; first += WAVES) {
        const int waves = (int)min_(WAVES, columns - first);
        const char *key = keys + first * (idx)sizeof(double);
        for (int t = 0; t < waves; t++)
            memcpy(q + t * PAIR_LANES, queries + (first + t) * array[0].core[0], (size_t)b->there * sizeof *q);
        for (int l = 0; l < lanes; l += LANES) {
            int j = 0;
            for (; j + ABREAST <= b->keys; j += ABREAST)
                waves_of_four(key + j * key_step, key_step, waves, q + l, sum + j * lanes + l, lanes);
            for (; j < b->keys; j++)
                waves_of_one(key + j * key_step, key_step, waves, q + l, sum + j * lanes + l, lanes);
        }
    }
    SIMD
    for (int i = 0; i < numbers; i++)
        out[i] = (real)((sum[i] - half) * factor);
}

/* Nothing to learn. */
void FN(sandwich_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, const double *grad,
                       const pe_array *into)
{
    (void)array, (void)dim, (void)h, (void)b, (void)grad, (void)into;
}
