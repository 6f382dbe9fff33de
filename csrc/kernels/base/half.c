/* half.c -- convert rows of float16 and bfloat16 numbers; half.h has the formulas.
 *
 *     for (idx i = 0; i < n; i++)
 *         out[i] = widen_f16(in[i]);
 *
 * The rows are in a file of their own, because few files need immintrin.h, which takes half a second to parse.
 */
#include "base/half.h"

#if PE_REAL == 32
#if PE_F16C
#include <immintrin.h>
#endif

void FN(widen_bf16_row)(const uint16_t *restrict in, idx n, real *restrict out)
{
    SIMD
    for (idx i = 0; i < n; i++)
        out[i] = widen_bf16(in[i]);
}

void FN(narrow_bf16_row)(const real *restrict in, idx n, uint16_t *restrict out)
{
    SIMD
    for (idx i = 0; i < n; i++)
        out[i] = narrow_bf16(in[i]);
}

void FN(widen_f16_row)(const uint16_t *restrict in, idx n, real *restrict out)
{
    idx i = 0;
#if PE_F16C
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + i))));
#endif
    for (; i < n; i++)
        out[i] = widen_f16(in[i]);
}

void FN(narrow_f16_row)(const real *restrict in, idx n, uint16_t *restrict out)
{
    idx i = 0;
#if PE_F16C
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        out[i] = narrow_f16(in[i]);
}
#endif
