/* fox.c -- Forgetting Transformer (Lin et al. 2025, equation 5): b_h = C[i] - C[j], C the cumulative sums of log f
 *
 * arrays: sums(h,t); positions are integers within t. In double: C grows with the length, its differences do not. */
#include "bias/pair.h"

void FN(fox_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, real *restrict out)
{
    const idx t = D(T);
    double of_query[PAIR_LANES];
    for (int l = 0; l < b->lanes; l++)
        of_query[l] = *place(&array[0], h, within((idx)b->q[l], t));
    for (int j = 0; j < b->keys; j++, out += b->lanes) {
        const double of_key = *place(&array[0], h, within((idx)b->k[j], t));
        SIMD
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real)(of_query[l] - of_key);
    }
}

/* From   out = C[i] - C[j]:   d C[i] += grad,   d C[j] -= grad */
void FN(fox_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, const double *grad,
                  const pe_array *into)
{
    const idx t = D(T);
    double of_query[PAIR_LANES] = {0};
    (void)array;
    for (int j = 0; j < b->keys; j++, grad += b->lanes) {
        double of_key = 0;
        for (int l = 0; l < b->lanes; l++) {
            of_query[l] += grad[l];
            of_key += grad[l];
        }
        *place(&into[0], h, within((idx)b->k[j], t)) -= of_key;
    }
    for (int l = 0; l < b->lanes; l++)
        *place(&into[0], h, within((idx)b->q[l], t)) += of_query[l];
}
