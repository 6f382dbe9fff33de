/* elementary.h -- exp2, tanh, log1p and power as straight-line C for SIMD loops: no calls, branches or tables.
 *
 *     exp2(x) = 2**n * exp2(r),   n = nearest integer of x,   r = x - n in [-1/2, 1/2]
 *                                 exp2(r) is a polynomial, 2**n a shift of the exponent bits
 *
 * Functions return NaN for NaN, except power_pos, whose results are finite. A result depends on its argument only, not
 * on its lane. A loop of libm calls would not vectorise, and its bits would depend on the machine's libm. Numbers in
 * parentheses are for double.
 */
#ifndef PE_ELEMENTARY_H
#define PE_ELEMENTARY_H

#include "base/real.h"

#if PE_REAL == 32
typedef uint32_t real_bits; /* an unsigned integer of the same size */
enum { EXPONENT_BIAS = 127, MANTISSA = 23 };
#define ROUNDER 0x1.8p23f /* rounds a float as ROUNDER64 rounds a double */
#else
typedef uint64_t real_bits;
enum { EXPONENT_BIAS = 1023, MANTISSA = 52 };
#define ROUNDER ROUNDER64
#endif

#define LOG2_E R(1.442695040888963407)

/* (2**r - 1) / r for |r| <= 1/2, minimax (Remez): relative error 2.1e-8 in float, 5.4e-17 in double, with the
 * rounded coefficients. The code uses Horner's rule, which has fewer operations than Estrin's scheme. */
INLINE double exp2m1_ratio_64(double r)
{
    double p = fma64(4.44553736266735316e-10, r, 7.072561839448474636e-9);
    p = horner3(p, r, 1.017812129655722257e-7, 1.321544272352697645e-6, 1.525273370122648716e-5);
    p = horner3(p, r, 1.540353044148181251e-4, 1.333355814653161306e-3, 9.618129107607065072e-3);
    return horner3(p, r, 5.550410866482123665e-2, 2.402265069591009789e-1, 6.931471805599453112e-1);
}

INLINE real exp2m1_ratio(real r)
{
#if PE_REAL == 32
    real p = 1.540351679e-4f;
    p = fma_(p, r, 1.339073563e-3f);
    p = fma_(p, r, 9.618237477e-3f);
    p = fma_(p, r, 5.550357433e-2f);
    p = fma_(p, r, 2.402264980e-1f);
    return fma_(p, r, 6.931471879e-1f);
#else
    return exp2m1_ratio_64(r);
#endif
}

/* Split x = n + r, with n the nearest integer. Return 2**n, or 0 if n = -bias. The low bits of x + magic hold n + bias;
 * a shift moves them into the exponent field. */
INLINE real split_exponent(real x, real *r)
{
    const real magic = ROUNDER + (real)EXPONENT_BIAS;
    union {
        real x;
        real_bits u;
    } power = {x + magic};
    *r = x - (power.x - magic);
    power.u <<= MANTISSA;
    return power.x;
}

/* 2**x = 2**n * 2**r for x <= 127 (1023). For x <= -126.5 (-1022.5) the result is 0, so exp2_(-inf) is exactly 0.
 * Between -126.5 and -126 (-1022.5 and -1022) the result is subnormal; attention flushes it to 0. The error is 0.9 ulp
 * with FMA, 1.2 ulp without. */
INLINE real exp2_(real x)
{
    const real lowest = -(real)EXPONENT_BIAS;
    real r;
    const real power = split_exponent(x < lowest ? lowest : x, &r); /* false for NaN, so NaN is kept */
    return fma_(exp2m1_ratio(r), r, R(1.0)) * power;                /* NaN in r gives NaN for every power */
}

/* exp2_ for any x; infinity for x above 127.5 (1023.5) */
INLINE real exp2_or_inf(real x)
{
    const real most = (real)(EXPONENT_BIAS + 1); /* split_exponent(most) has the bits of infinity */
    return exp2_(x > most ? most : x);
}

/* tanh |y| = u / (u + 2), u = exp(2 |y|) - 1 = 2**n (2**r - 1) + (2**n - 1). The error is 3.7 ulp, also near 0. For |y|
 * above `most`, tanh rounds to 1. */
INLINE real tanh_(real y)
{
    const real most = PE_REAL == 32 ? R(9.5) : R(20.0), size = y < 0 ? -y : y;
    real r;
    const real power = split_exponent((size > most ? most : size) * R(2.885390081777926815), &r); /* 2 log2 e */
    const real u = fma_(exp2m1_ratio(r) * r, power, power - 1), z = u / (u + 2);
    return y < 0 ? -z : z;
}

/* log(1 + f) = f - (f^2/2 - rest) for sqrt(1/2) <= 1 + f < sqrt 2: returns rest, which is s (f^2/2 + p(s^2)),
 * s = f / (2 + f), with the polynomial p of fdlibm's e_log.c (error 2**-58). */
INLINE double log1p_rest(double f, double *half_square)
{
    const double s = f / (2 + f), z = s * s;
    *half_square = 0.5 * f * f;
    double p = 1.479819860511658591e-01;
    p = horner3(p, z, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01);
    p = horner3(p, z, 2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01);
    return s * fma64(p, z, *half_square);
}

/* The bits of the double sqrt(1/2). Code that splits x = 2**k m subtracts them before it reads the exponent k, so
 * that m is in [sqrt(1/2), sqrt 2). */
#define SQRT_HALF_BITS 0x3fe6a09e667f3bcdu

/* 2**52 + k for an integer 0 <= k < 2**52. The bits are ORed, because AVX2 cannot convert 64-bit integers. */
INLINE double two52_plus(uint64_t k) { return double_of(0x4330000000000000u | k); }

/* log(1 + x) for x >= 0, in double. 1 + x = 2**k m. The rounding error of 1 + x is added to f = m - 1. 1.4 ulp. */
INLINE double log1p_pos(double x)
{
    const double u = 1 + x, lost = x < 1 ? x - (u - 1) : 1 - (u - x);
    const uint64_t k = (bits_of(u) - SQRT_HALF_BITS) >> 52;
    const double m = double_of(bits_of(u) - (k << 52));
    const double unit =
        double_of((0x400u - k) << 52); /* 2**(1-k): at k = 1024 the exponent field of 2**-k would be -1 */
    const double count = two52_plus(k) - 0x1p52, f = (m - 1) + lost * (0.5 * unit);
    double half_square;
    const double rest = log1p_rest(f, &half_square);
    /* ln 2 is a sum of two doubles. The product of count and the larger one is exact. */
    const double tail = rest + count * 1.90821492927058770002e-10;
    const double y = count * 6.93147180369123816490e-01 - ((half_square - tail) - f);
    return x <= 0x1.fffffffffffffp1023 ? y : x; /* infinity and NaN are returned as they are */
}

/* Split x > 0 as 2**count m, sqrt(1/2) <= m < sqrt 2; returns m. */
INLINE double split_power(double x, double *count)
{
    enum { OFFSET = 1100 }; /* added to the exponent, so that it is not negative */
    const double tiny = 0x1p-1022;
    const uint64_t shift = (uint64_t)OFFSET << 52;
    const double normal = x < tiny ? x * 0x1p60 : x;
    const uint64_t k = (bits_of(normal) - SQRT_HALF_BITS + shift) >> 52;
    *count = two52_plus(k) - (x < tiny ? 0x1p52 + OFFSET + 60 : 0x1p52 + OFFSET);
    return double_of(bits_of(normal) - (k << 52) + shift);
}

/* log x for finite x > 0, in double, as log1p_pos */
INLINE double log_pos(double x)
{
    double count, half_square;
    const double f = split_power(x, &count) - 1, rest = log1p_rest(f, &half_square);
    const double tail = rest + count * 1.90821492927058770002e-10;
    return count * 6.93147180369123816490e-01 - ((half_square - tail) - f);
}

/* x**y = 2**(y log2 x) for x >= 0 and y > 0, in double, with log2 x = k + log2 m, sqrt(1/2) <= m < sqrt 2. y is split
 * into y_hi and a rest. y_hi k is exact, and so is subtracting its integer part. Before the exponential only y log2 m
 * and (y - y_hi) k are rounded. The error is 2 + y ulp for every x. The power of two in the result is clamped to
 * 2**-1022 .. 2**1023, and y to at most 2**30. 0**y is 0. */
INLINE double power_pos(double x, double exponent)
{
    const double y = exponent < 0x1p30 ? exponent : 0x1p30;
    double count;
    const double m = split_power(x, &count);
    const double y_hi = double_of(bits_of(y) & 0xfffffffffffff000u); /* 41 bits, and k 11: the product is exact */

    const double f = m - 1;
    double half_square;
    const double rest = log1p_rest(f, &half_square), log_m = f - (half_square - rest);
    const double exact = y_hi * count, whole = nearest(exact);
    const double fraction = (exact - whole) + ((y - y_hi) * count + y * log_m * 1.442695040888963407);
    const double carry = nearest(fraction), r = fraction - carry;
    const double n = whole + carry, exponent_of_2 = n > 1023 ? 1023 : n < -1022 ? -1022 : n;
    /* adding 2**52 + 1023 moves the exponent with its bias into the low bits */
    const double power = double_of(bits_of(exponent_of_2 + (0x1p52 + 1023)) << 52);
    return x == 0 ? 0 : fma64(exp2m1_ratio_64(r), r, 1.0) * power;
}

/* exp(-x) for x >= 0, as a power of 1 / e; 0 where it would be subnormal. The error is 2 + x ulp, but exp(-x) falls
 * faster than the error grows. */
INLINE double exp_minus(double x)
{
    const double power = power_pos(0.367879441171442334, x), normal = x > 708 ? 0 : power;
    return x == x ? normal : x;
}

#endif
