/* words.h -- a SIMD register of 64-bit words, and the product of their low halves.
 *
 *     for (int i = 0; i < words; i++)
 *         y[i] = (uint64_t)(uint32_t)a[i] * (uint32_t)b[i];          is y = u64_mul(a, b)
 *
 * GCC 12 finds the instruction for this product only with AVX-512.
 */
#ifndef PE_WORDS_H
#define PE_WORDS_H

#include "base/vec.h"
#ifdef __SSE2__
#include <immintrin.h>
#endif

typedef uint64_t vec_u64 __attribute__((vector_size(VEC_BYTES)));
INLINE vec_u64 u64_set(uint64_t x) { return x - (vec_u64){0}; }
INLINE vec_u64 u64_mul(vec_u64 a, vec_u64 b)
{
#if defined(__AVX512F__)
    return (vec_u64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vec_u64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vec_u64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & u64_set(0xFFFFFFFF)) * (b & u64_set(0xFFFFFFFF));
#endif
}
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
enum { BIG_ENDIAN_WORDS = 1 };
#else
enum { BIG_ENDIAN_WORDS = 0 };
#endif

#endif
