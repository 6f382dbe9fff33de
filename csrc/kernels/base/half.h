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
#if defined(__F16C__) && PE_REAL == 32
#define PE_F16C 1 /* builtins, because parsing immintrin.h takes longer than compiling most kernels */
typedef float f16c_floats __attribute__((vector_size(32)));
typedef short f16c_halves __attribute__((vector_size(16)));
#define F16C_WIDEN(halves) __builtin_ia32_vcvtph2ps256(halves)
#ifdef __clang__
#if !__has_builtin(__builtin_ia32_vcvtph2ps256) /* recent versions convert vectors instead */
typedef _Float16 f16c_numbers __attribute__((vector_size(16)));
#undef F16C_WIDEN
#define F16C_WIDEN(halves) __builtin_convertvector((f16c_numbers)(halves), f16c_floats)
#endif
#endif
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

static NOINLINE void widen_bf16_row(const uint16_t *restrict in, idx n, real *restrict out)
{
    SIMD
    for (idx i = 0; i < n; i++)
        out[i] = (real)widen_bf16(in[i]);
}

static NOINLINE void narrow_bf16_row(const real *restrict in, idx n, uint16_t *restrict out)
{
    SIMD
    for (idx i = 0; i < n; i++)
        out[i] = narrow_bf16((float)in[i]);
}

static NOINLINE void widen_f16_row(const uint16_t *restrict in, idx n, real *restrict out)
{
    idx i = 0;
#if PE_F16C
    for (; i + 8 <= n; i += 8) {
        f16c_halves half;
        memcpy(&half, in + i, sizeof half);
        const f16c_floats wide = F16C_WIDEN(half);
        memcpy(out + i, &wide, sizeof wide);
    }
#endif
    for (; i < n; i++)
        out[i] = (real)widen_f16(in[i]);
}

static NOINLINE void narrow_f16_row(const real *restrict in, idx n, uint16_t *restrict out)
{
    idx i = 0;
#if PE_F16C
    enum { TO_NEAREST = 0 };
    for (; i + 8 <= n; i += 8) {
        f16c_floats wide;
        memcpy(&wide, in + i, sizeof wide);
        const f16c_halves half = __builtin_ia32_vcvtps2ph256(wide, TO_NEAREST);
        memcpy(out + i, &half, sizeof half);
    }
#endif
    for (; i < n; i++)
        out[i] = narrow_f16((float)in[i]);
}

#endif
