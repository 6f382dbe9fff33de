/* fox.c -- Forgetting Transformer (Lin et al. 2025, equation 5):   b_h = C[i] - C[j],   C the cumulative sum of log f
 *
 *     for (int j = 0; j < keys; j++)
 *         for (int l = 0; l < lanes; l++)
 *             out[j][l] = sums[h][position of query l] - sums[h][position of key j];
 *
 * arrays: sums(h,T), which is C. Positions are integers below T. C is double, because C grows with the length of the
 * sequence while C[i] - C[j] may be small. C[i] is read once per query and block, so a pair costs one subtraction.
 */
#include "bias/position.h"

enum { SUMS };

PAIR_VALUES(fox)
{
    const idx t = D(T);
    double of_query[PAIR_LANES];
    for (int l = 0; l < block->width; l++)
        of_query[l] = *element(&array[SUMS], h, within((idx)block->q_positions[l], t));
    for (int j = 0; j < block->keys; j++, out += block->width) {
        const double of_key = *element(&array[SUMS], h, within((idx)block->k_positions[j], t));
        SIMD
        for (int l = 0; l < block->width; l++)
            out[l] = (real)(of_query[l] - of_key);
    }
}

/* d C[i] += grad,   d C[j] -= grad */
PAIR_VJP(fox_vjp)
{
    const idx t = D(T);
    double of_query[PAIR_LANES] = {0};
    for (int j = 0; j < block->keys; j++, grad += block->width) {
        double of_key = 0;
        for (int l = 0; l < block->width; l++) {
            of_query[l] += grad[l];
            of_key += grad[l];
        }
        *element(&into[SUMS], h, within((idx)block->k_positions[j], t)) -= of_key;
    }
    for (int l = 0; l < block->width; l++)
        *element(&into[SUMS], h, within((idx)block->q_positions[l], t)) += of_query[l];
}

const pe_position_operator FN(fox_operator) = {.pairs = fox, .pairs_vjp = fox_vjp};
