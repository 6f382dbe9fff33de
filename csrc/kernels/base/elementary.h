/* elementary.h -- exp2, tanh and log1p as straight-line C that a SIMD loop can hold: no calls, no branches, no tables.
 *
 * NaN comes out as NaN. Results depend on the argument only, not on where in a vector it stands.
 */
#ifndef PE_ELEMENTARY_H
#define PE_ELEMENTARY_H

#include "base/real.h"
#include <string.h>

#if PE_REAL == 32
typedef uint32_t real_bits;
enum { EXPONENT_BIAS = 127, MANTISSA = 23 };
#define ROUNDER 0x1.8p23f /* adding it rounds to an integer, which then stands in the low bits */
#else
typedef uint64_t real_bits;
enum { EXPONENT_BIAS = 1023, MANTISSA = 52 };
#define ROUNDER 0x1.8p52
#endif

#define LOG2_E R(1.442695040888963407)

/* (2**r - 1) / r for |r| <= 1/2, minimax (Remez): relative error 1.1e-8 in float, 1.8e-17 in double.
 * By Horner: even and odd powers apart (Estrin) made the loop of exp 1.06 x slower. */
INLINE double exp2m1_ratio_64(double r)
{
    double p = 4.44553736266735316e-10;
    p = fma64(p, r, 7.072561839448474636e-9);
    p = fma64(p, r, 1.017812129655722257e-7);
    p = fma64(p, r, 1.321544272352697645e-6);
    p = fma64(p, r, 1.525273370122648716e-5);
    p = fma64(p, r, 1.540353044148181251e-4);
    p = fma64(p, r, 1.333355814653161306e-3);
    p = fma64(p, r, 9.618129107607065072e-3);
    p = fma64(p, r, 5.550410866482123665e-2);
    p = fma64(p, r, 2.402265069591009789e-1);
    return fma64(p, r, 6.931471805599453112e-1);
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

/* 2**x = 2**n * 2**r. n is rounded with the exponent's bias added, so that a shift makes 2**n of it; n = -127 gives
 * exactly 0, which -inf becomes. x <= 127 (1023); below -126.5 (-1022.5) all is 0.
 * 0.9 ulp with FMA, 1.2 without. */
INLINE real exp2_(real x)
{
    const real lowest = -(real)EXPONENT_BIAS, magic = ROUNDER + (real)EXPONENT_BIAS;
    const real y = x < lowest ? lowest : x; /* in this order NaN stays */
    const real t = y + magic, r = y - (t - magic);
    real_bits bits;
    real power;
    memcpy(&bits, &t, sizeof bits);
    bits <<= MANTISSA;
    memcpy(&power, &bits, sizeof power);
    return fma_(exp2m1_ratio(r), r, R(1.0)) * power; /* a product: NaN in r survives any power */
}

/* tanh |y| = u / (u + 2), u = exp(2 |y|) - 1 = 2**n (2**r - 1) + (2**n - 1): relative accuracy down to 0, 3.7 ulp.
 * Beyond the clamp tanh rounds to 1. */
INLINE real tanh_(real y)
{
    const real most = PE_REAL == 32 ? R(9.5) : R(20.0), magic = ROUNDER + (real)EXPONENT_BIAS;
    const real size = y < 0 ? -y : y, x = (size > most ? most : size) * R(2.885390081777926815); /* 2 log2 e */
    const real t = x + magic, r = x - (t - magic);
    real_bits bits;
    real power;
    memcpy(&bits, &t, sizeof bits);
    bits <<= MANTISSA;
    memcpy(&power, &bits, sizeof power);
    const real u = fma_(exp2m1_ratio(r) * r, power, power - 1), z = u / (u + 2);
    return y < 0 ? -z : z;
}

/* log(1 + x) for x >= 0, in double. 1 + x = 2**k m with sqrt(1/2) <= m < sqrt 2, what the sum lost goes back into
 * f = m - 1; log(1 + f) by s = f / (2 + f) and the polynomial of fdlibm's e_log.c (error 2**-58). 1.4 ulp. */
INLINE double log1p_pos(double x)
{
    const double u = 1 + x, lost = x < 1 ? x - (u - 1) : 1 - (u - x);
    const uint64_t half = 0x3fe6a09e667f3bcdu, counter = 0x4330000000000000u; /* sqrt(1/2); 2**52 */
    uint64_t bits, k;
    double m, unit, count;
    memcpy(&bits, &u, sizeof bits);
    k = (bits - half) >> 52;
    bits -= k << 52;
    memcpy(&m, &bits, sizeof m);
    bits = (0x400u - k) << 52; /* 2**(1-k): 2**-k itself would overflow the field at k = 1024 */
    memcpy(&unit, &bits, sizeof unit);
    bits = counter | k; /* k as a double: AVX2 cannot convert 64-bit integers */
    memcpy(&count, &bits, sizeof count);
    count -= 0x1p52;
    const double f = (m - 1) + lost * (0.5 * unit), s = f / (2 + f), z = s * s, square = 0.5 * f * f;
    double p = 1.479819860511658591e-01;
    p = fma64(p, z, 1.531383769920937332e-01);
    p = fma64(p, z, 1.818357216161805012e-01);
    p = fma64(p, z, 2.222219843214978396e-01);
    p = fma64(p, z, 2.857142874366239149e-01);
    p = fma64(p, z, 3.999999999940941908e-01);
    p = fma64(p, z, 6.666666666666735130e-01);
    /* ln 2 in two parts: the first times k is exact */
    const double tail = s * fma64(p, z, square) + count * 1.90821492927058770002e-10;
    const double y = count * 6.93147180369123816490e-01 - ((square - tail) - f);
    return x <= 0x1.fffffffffffffp1023 ? y : x; /* infinity and NaN as they are */
}

/* x**y = 2**(y log2 x) for x >= 0 and y > 0, in double. log2 x = k + log2 m, sqrt(1/2) <= m < sqrt 2, by the polynomial
 * of log1p_pos. y is cut in two so that y k is exact up to its last part: whole powers of two leave it exactly and only
 * y log2 m is rounded before the exponential, which makes 2 + y ulp of the result, whatever x is. Results are held
 * between 2**-1022 and 2**1023, 0**y is 0, and y beyond 2**30 is taken as 2**30. */
INLINE double power_pos(double x, double exponent)
{
    const double tiny = 0x1p-1022, magic = 0x1.8p52;
    const uint64_t half = 0x3fe6a09e667f3bcdu, counter = 0x4330000000000000u, shift = (uint64_t)1100 << 52;
    const double normal = x < tiny ? x * 0x1p60 : x, y = exponent < 0x1p30 ? exponent : 0x1p30;
    uint64_t bits, k;
    double m, count, y_hi, power;
    memcpy(&bits, &normal, sizeof bits);
    k = (bits - half + shift) >> 52; /* exponents below 0 too are counted up from 0 */
    bits = bits - (k << 52) + shift;
    memcpy(&m, &bits, sizeof m);
    bits = counter | k;
    memcpy(&count, &bits, sizeof count);
    count -= x < tiny ? 0x1p52 + 1160 : 0x1p52 + 1100;
    memcpy(&bits, &y, sizeof bits);
    bits &= 0xfffffffffffff000u; /* 41 bits and the 11 of k */
    memcpy(&y_hi, &bits, sizeof y_hi);

    const double f = m - 1, s = f / (2 + f), z = s * s, square = 0.5 * f * f;
    double p = 1.479819860511658591e-01;
    p = fma64(p, z, 1.531383769920937332e-01);
    p = fma64(p, z, 1.818357216161805012e-01);
    p = fma64(p, z, 2.222219843214978396e-01);
    p = fma64(p, z, 2.857142874366239149e-01);
    p = fma64(p, z, 3.999999999940941908e-01);
    p = fma64(p, z, 6.666666666666735130e-01);
    const double log_m = f - (square - s * fma64(p, z, square));
    const double exact = y_hi * count, whole = (exact + magic) - magic;
    const double rest = (exact - whole) + ((y - y_hi) * count + y * log_m * 1.442695040888963407);
    const double more = (rest + magic) - magic, r = rest - more;
    double n = whole + more;
    n = n > 1023 ? 1023 : n < -1022 ? -1022 : n;
    n += 0x1p52 + 1023; /* the exponent's field stands in the low bits */
    memcpy(&bits, &n, sizeof bits);
    bits <<= 52;
    memcpy(&power, &bits, sizeof power);
    return x == 0 ? 0 : fma64(exp2m1_ratio_64(r), r, 1.0) * power;
}

#endif
