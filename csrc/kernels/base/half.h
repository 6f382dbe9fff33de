/* half.h -- float16 and bfloat16 storage: widening is exact, narrowing rounds once to nearest even, NaN stays NaN.
 *
 *     float32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *     bfloat16   s eeeeeeee mmmmmmm                      the upper 16 bits of a float32
 *     float16    s eeeee    mmmmmmmmmm
 *
 * bfloat16 is converted by shifts, which compilers vectorize. Variants with F16C convert float16 by its instructions.
 * Other variants, and the tails of rows, use C code that gives the same bits, except that F16C makes a signalling NaN
 * quiet. The C code also works while the thread flushes subnormal numbers to zero: widening has no subnormal operand,
 * and narrowing rounds subnormal floats to 0.
 */
#ifndef PE_HALF_H
#define PE_HALF_H

#include "base/real.h"
#include <string.h>

#if defined(__F16C__) && defined(__AVX2__) && PE_REAL == 32
#define PE_F16C 1
#else
#define PE_F16C 0
#endif

INLINE float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
INLINE uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

INLINE float widen_bf16(uint16_t h) { return bits_float((uint32_t)h << 16); }

INLINE uint16_t narrow_bf16(float f)
{
    const uint32_t u = float_bits(f);
    const uint32_t even = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t quiet = (u >> 16) | 0x40u; /* rounding a NaN up could carry it into infinity */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : even);
}

INLINE float widen_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = (uint32_t)(h & 0x7fffu) << 13;
    /* below 2**-14 the bits count multiples of 2**-24: add them to the bits of 2**-14, then subtract 2**-14 */
    const uint32_t tiny = float_bits(bits_float(magnitude + 0x38800000u) - 0x1p-14f);
    const uint32_t finite = magnitude < 0x00800000u ? tiny : magnitude + 0x38000000u;
    return bits_float(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

INLINE uint16_t narrow_f16(float f)
{
    const uint32_t u = float_bits(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    /* float16 below 2**-14 are multiples of 2**-24, the spacing of floats from 1/2 on: adding 1/2 rounds to one */
    const uint32_t tiny = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    uint32_t h = magnitude < 0x38800000u ? tiny : normal;
    h = magnitude >= 0x477ff000u ? 0x7c00u : h; /* 65520 and above round to infinity */
    h = magnitude > 0x7f800000u ? nan : h;
    return (uint16_t)(sign | h);
}

/* Convert rows of n numbers (half.c). No call in double has operands of half types. */
void FN(widen_bf16_row)(const uint16_t *restrict in, idx n, real *restrict out);
void FN(narrow_bf16_row)(const real *restrict in, idx n, uint16_t *restrict out);
void FN(widen_f16_row)(const uint16_t *restrict in, idx n, real *restrict out);
void FN(narrow_f16_row)(const real *restrict in, idx n, uint16_t *restrict out);

#endif
