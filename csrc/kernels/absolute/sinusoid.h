/* sinusoid.h -- a scratch table of cos and sin of position * frequency, for other kernels.
 *
 *     for (i < n)
 *         for (k < f)
 *             table[i][k] = cos(p[i] * w[k]), table[i][f + k] = sin(p[i] * w[k]);
 */
#ifndef PE_SINUSOID_H
#define PE_SINUSOID_H

#include "base/real.h"

size_t FN(sinusoid_scratch)(const pe_call *call);
/* n rows [cos | sin] of f pairs each; `scratch` has sinusoid_scratch bytes, and positions are contiguous. */
void FN(cos_sin_table)(void *scratch, const char *positions, pe_storage storage, idx n, const double *w, idx f,
                       real *table);

#endif
