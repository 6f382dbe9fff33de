/* sincos.h -- sin and cos of position * frequency, without a libm call, for any position below 2**53.
 *
 *     *sine = sin(p * w), *cosine = cos(p * w);
 *
 * A frequency is stored in turns per position, t = w / 2 pi, as the double-double t_hi + t_lo. The angle p t is
 *     h = fl(p t_hi),   l = (p t_hi - h) + p t_lo
 * Argument reduction then subtracts whole turns, which is exact, and the nearest quarter turn, which selects the
 * polynomial and the sign. At most 1/8 turn remains, with an absolute error near 2**-105 |p t| turns. For |t| < 1/2 the
 * error is below 2**-74 turns at p = 2**31, and below 2**-52 turns at p = 2**53. So no multi-word reduction is needed,
 * and the functions vectorize.
 */
#ifndef PE_SINCOS_H
#define PE_SINCOS_H

#include "base/real.h"

/* a*b - ab, exactly, where ab = fl(a*b) */
INLINE double product_error(double a, double b, double ab)
{
#if PE_FMA
    return __builtin_fma(a, b, -ab);
#else
    const double split = 134217729.0; /* 2**27 + 1 splits a number into halves of 26 bits (Dekker) */
    const double ta = a * split, ah = ta - (ta - a), al = a - ah;
    const double tb = b * split, bh = tb - (tb - b), bl = b - bh;
    return ((ah * bh - ab) + ah * bl + al * bh) + al * bl;
#endif
}

/* t = (hi + lo) / 2 pi: radians per position -> turns per position */
INLINE void turns(double hi, double lo, double *t_hi, double *t_lo)
{
    const double inv_hi = 0x1.45f306dc9c883p-3, inv_lo = -0x1.6b01ec5417056p-57; /* 1/2pi = inv_hi + inv_lo */
    const double h = hi * inv_hi, l = product_error(hi, inv_hi, h) + (hi * inv_lo + lo * inv_hi);
    *t_hi = h + l;
    *t_lo = l - (*t_hi - h);
}

/* h minus its nearest integer, |h| < 2**80. `nearest` needs |h| < 2**51, so multiples of 2**30 are removed first. */
INLINE double without_turns(double h)
{
    const double coarse = 0x1p30;
    h -= coarse * nearest(h * (1 / coarse));
    return h - nearest(h);
}

/* sin and cos of h + l turns, |h| and |l| at most 1/2: Taylor series of sin(2 pi f) and cos(2 pi f), |f| <= 1/8, to
 * degrees 17 and 16; the next terms are below 2**-58. Coefficients are (2 pi)**k / k!. The first one of sin is a
 * sum of two doubles. */
INLINE void sincos_fraction(double h, double l, double *sine, double *cosine)
{
    const double sum = h + l, rest = (h - (sum - (sum - h))) + (l - (sum - h)); /* sum + rest = h + l exactly */
    const double shifted = 4 * sum + ROUNDER64;                                 /* its low bits count quarter turns */
    const double f = (sum - 0.25 * (shifted - ROUNDER64)) + rest, x = f * f;

    double a = fma64(0x1.aaec32af93359p-4, x, -0x1.6fadb9f155744p-1);
    a = horner3(a, x, 0x1.e8f434d018d63p+1, -0x1.e3074fde8871fp+3, 0x1.50783487ee782p+5);
    a = horner3(a, x, -0x1.32d2cce62bd86p+6, 0x1.466bc6775aae2p+6, -0x1.4abbce625be53p+5);
    const double s = fma64(f, 0x1.921fb54442d18p+2, f * fma64(a, x, 0x1.1a62633145c07p-52));
    double b = fma64(0x1.20c62c2f2d7f5p-2, x, -0x1.b6e24f44b128fp+0);
    b = horner3(b, x, 0x1.f9d38a3763cc3p+2, -0x1.a6d1f2a204a8cp+4, 0x1.e1f506891babbp+5);
    b = horner3(b, x, -0x1.55d3c7e3cbffap+6, 0x1.03c1f081b5ac4p+6, -0x1.3bd3cc9be45dep+4);
    const double c = fma64(b, x, 1.0);

    /* odd quarters exchange sine and cosine; bit 1 of quarter is the sign of sine, bit 1 of quarter + 1 of cosine */
    const uint64_t quarter = bits_of(shifted);
    double_bits to_sine = {.d = quarter & 1 ? c : s}, to_cosine = {.d = quarter & 1 ? s : c};
    to_sine.u ^= (quarter & 2) << 62;
    to_cosine.u ^= ((quarter + 1) & 2) << 62;
    *sine = to_sine.d;
    *cosine = to_cosine.d;
}

/* sin and cos of p (t_hi + t_lo) turns */
INLINE void sincos_turns(double p, double t_hi, double t_lo, double *sine, double *cosine)
{
    const double h = p * t_hi, l = product_error(p, t_hi, h) + p * t_lo;
    sincos_fraction(without_turns(h), l - nearest(l), sine, cosine);
}

#endif
