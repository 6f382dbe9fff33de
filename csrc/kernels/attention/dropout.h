/* dropout.h -- attention dropout: which weights of the softmax are dropped.
 *
 *     for each query i and key j:
 *         u = number j % 8 of Philox(seed; j / 8, i, head, row of the batch)     16 bits, uniform
 *         if (u < 65536 dropout)
 *             p_ij = 0;                                       the driver divides the others by 1 - dropout
 *
 * Philox4x32-7 (Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3) is a function of the seed and of a
 * counter, which has four words of 32 bits. So forward and gradient draw the same numbers in any order, and no mask is
 * stored. Word w of the result holds the numbers of keys 2 w (low half) and 2 w + 1 of eight.
 *
 * 16 bits round the probability to a multiple of 2**-16; 8 bits would change 0.1 to 0.1016. Seven rounds are the fewest
 * that pass all tests of BigCrush, and flash-attention takes as many.
 */
#ifndef PE_DROPOUT_H
#define PE_DROPOUT_H

#include "relative/content.h"

INLINE double dropout_of(const pe_call *call) { return call->par[A_DROPOUT]; }

/* Set x[j][lane] to 0 for the dropped weights of a panel. */
void FN(drop)(const pe_view *v, real *x);

#endif
