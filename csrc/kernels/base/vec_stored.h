/* vec_stored.h -- load LANES numbers as a vec. float16, bfloat16 and int8 are widened in registers, exactly.
 *
 *     for (int l = 0; l < LANES; l++)
 *         x[l] = (real)stored[l];
 *
 * A loop that reads each number once is limited by memory bandwidth. Rows of float16, bfloat16 or int8 have half or a
 * quarter of the bytes of float, and widening them in registers avoids a copy as real. half.h has the formulas.
 */
#ifndef PE_VEC_STORED_H
#define PE_VEC_STORED_H

#include "base/half.h"
#include "base/vec.h"

#if PE_REAL == 32
#if VEC_BYTES == 64
#include <immintrin.h>
INLINE vec vec_load_bf16(const char *p)
{
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
}
INLINE vec vec_load_i8(const char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}
#elif VEC_BYTES == 32
#include <immintrin.h>
INLINE vec vec_load_bf16(const char *p)
{
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16);
}
INLINE vec vec_load_i8(const char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}
#elif defined(__SSE2__)
#include <emmintrin.h>
INLINE vec vec_load_bf16(const char *p)
{
    return (vec)_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const void *)p));
}
INLINE vec vec_load_i8(const char *p) /* move each byte to the top of its word, then shift it down with its sign */
{
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    const __m128i zero = _mm_setzero_si128(), halves = _mm_unpacklo_epi8(zero, _mm_cvtsi32_si128(bytes));
    return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(zero, halves), 24));
}
#else
INLINE vec vec_load_bf16(const char *p)
{
    uint16_t h __attribute__((vector_size(2 * LANES)));
    memcpy(&h, p, sizeof h);
    return (vec)(__builtin_convertvector(h, vec_mask) << 16);
}
INLINE vec vec_load_i8(const char *p)
{
    int8_t b __attribute__((vector_size(LANES)));
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, vec);
}
#endif

#if PE_F16C && VEC_BYTES == 64
INLINE vec vec_load_f16(const char *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
#elif PE_F16C
INLINE vec vec_load_f16(const char *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
#endif
#endif

/* Return whether a load widens in a few instructions. float16 without F16C takes twenty: callers copy the rows. */
INLINE int widens_in_registers(pe_storage storage) { return PE_REAL == 64 || storage != PE_F16 || PE_F16C; }

/* Callers pass a constant storage, so no branch remains. */
INLINE vec vec_load_stored(const char *p, pe_storage storage)
{
#if PE_REAL == 32
    if (storage == PE_BF16)
        return vec_load_bf16(p);
#if PE_F16C
    if (storage == PE_F16)
        return vec_load_f16(p);
#endif
    if (storage == PE_I8)
        return vec_load_i8(p);
#endif
    (void)storage;
    return vec_load((const real *)(const void *)p);
}

#endif
