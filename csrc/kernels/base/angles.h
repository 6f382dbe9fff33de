/* angles.h -- rows of sines and cosines of position * frequency, and of sums of two angles.
 *
 * Integer positions in float: p = base + offset, 0 <= offset < OFFSETS, where base is a multiple of OFFSETS. sin and
 * cos of the sum of the two angles are computed in double by the angle-addition theorem. Consecutive rows share sin and
 * cos of the base, and all rows share those of the offsets: a pair costs four multiplications. A row depends on its
 * position alone, not on its neighbours. Near a zero of sin or cos the addition loses relative accuracy, so results
 * below 2**-26 are recomputed without it; elsewhere its error of 2**-52 is at most 2**-26 of the result, a quarter of a
 * float's half ulp. Double, and positions with a fraction: sincos.h evaluates every pair.
 */
#ifndef PE_ANGLES_H
#define PE_ANGLES_H

#include "base/sincos.h"

enum { OFFSETS = 16 };

/* Sines and cosines of a row of angles */
typedef struct {
    double *sine, *cosine;
} pe_angles;

static NOINLINE void sincos_row(const double *restrict hi, const double *restrict lo, double p, int n, pe_angles to)
{
    double *restrict sine = to.sine, *restrict cosine = to.cosine;
    SIMD
    for (int k = 0; k < n; k++)
        sincos_turns(p, hi[k], lo[k], &sine[k], &cosine[k]);
}

/* Set base and offset of p, and return 1; return 0 if p needs sincos_row. */
INLINE int split_position(double p, int64_t *base, int *offset)
{
    const int64_t whole = (int64_t)p;
    *base = whole & ~(int64_t)(OFFSETS - 1);
    *offset = (int)(whole - *base);
    return PE_REAL != 64 && (double)whole == p;
}

/* The columns of a row: s[k] and c[k], or pairs that begin at s (or at c). */
typedef enum { HALVES, SINE_COSINE, COSINE_SINE } column_order;

/* f(order, ...) with a constant order, so that each order gets a loop of its own */
#define FOR_ORDER(f, order, ...)                            \
    ((order) == HALVES        ? f(HALVES, __VA_ARGS__)      \
     : (order) == SINE_COSINE ? f(SINE_COSINE, __VA_ARGS__) \
                              : f(COSINE_SINE, __VA_ARGS__))

/* Pairs are interleaved as they are computed: a second loop that interleaves them cost 1.5x the time. */
INLINE void store_pair(column_order order, real *restrict s, real *restrict c, int k, real sine, real cosine)
{
    if (order == HALVES) {
        s[k] = sine;
        c[k] = cosine;
    } else {
        real *pair = order == SINE_COSINE ? s : c;
        pair[2 * k] = order == SINE_COSINE ? sine : cosine;
        pair[2 * k + 1] = order == SINE_COSINE ? cosine : sine;
    }
}

/* sin(x + y) = sin x cos y + cos x sin y, cos(x + y) = cos x cos y - sin x sin y, times a and b. Returns whether a sine
 * or a cosine may be below 2**-26. Their product is then below a b 2**-26. Magnitudes of floats compare like integers,
 * so an OR collects the sign of the difference. */
INLINE int add_angles(column_order order, pe_angles base, pe_angles offset, double a, double b, int n, real *restrict s,
                      real *restrict c)
{
    const double *restrict base_sine = base.sine, *restrict base_cosine = base.cosine;
    const double *restrict offset_sine = offset.sine, *restrict offset_cosine = offset.cosine;
    const float least = (float)fabs_(a * b) * 0x1.01p-26f;
    const uint32_t least_bits = float_bits(least);
    int32_t small = 0;
    SIMD_OR(small)
    for (int k = 0; k < n; k++) {
        const double sine = fma64(base_sine[k], offset_cosine[k], base_cosine[k] * offset_sine[k]);
        const double cosine = fma64(base_cosine[k], offset_cosine[k], -(base_sine[k] * offset_sine[k]));
        const real scaled_sine = (real)(a * sine), scaled_cosine = (real)(b * cosine);
        const float product = (float)scaled_sine * (float)scaled_cosine;
        small |= (int32_t)((float_bits(product) & 0x7fffffffu) - least_bits);
        store_pair(order, s, c, k, scaled_sine, scaled_cosine);
    }
    return small < 0 || least < 0x1p-60f; /* a product so small could underflow */
}

static NOINLINE int add_angles_row(column_order order, pe_angles base, pe_angles offset, double a, double b, int n,
                                   real *s, real *c)
{
    if (a == 1 && b == 1) /* the two multiplications take an eighth of the time */
        return FOR_ORDER(add_angles, order, base, offset, 1, 1, n, s, c);
    return FOR_ORDER(add_angles, order, base, offset, a, b, n, s, c);
}

/* Recompute the results of add_angles_row that are too close to zero for it to be accurate. If one of the two angles is
 * 0, the addition is exact. */
static NOINLINE void recompute_small(const double *hi, const double *lo, double p, pe_angles base, pe_angles offset,
                                     double a, double b, int n, int step, real *s, real *c)
{
    const double *x = base.sine, *y = base.cosine, *u = offset.sine, *v = offset.cosine;
    for (int k = 0; k < n; k++) {
        const double sine = fma64(x[k], v[k], y[k] * u[k]), cosine = fma64(y[k], v[k], -(x[k] * u[k]));
        double exact_sine, exact_cosine;
        sincos_turns(p, hi[k], lo[k], &exact_sine, &exact_cosine);
        if (sine * sine < 0x1p-52)
            s[k * step] = (real)(a * exact_sine);
        if (cosine * cosine < 0x1p-52)
            c[k * step] = (real)(b * exact_cosine);
    }
}

INLINE void scale(column_order order, pe_angles angles, double a, double b, int n, real *restrict s, real *restrict c)
{
    const double *restrict sine = angles.sine, *restrict cosine = angles.cosine;
    SIMD
    for (int k = 0; k < n; k++)
        store_pair(order, s, c, k, (real)(a * sine[k]), (real)(b * cosine[k]));
}

static NOINLINE void scale_row(column_order order, pe_angles angles, double a, double b, int n, real *s, real *c)
{
    FOR_ORDER(scale, order, angles, a, b, n, s, c);
}

#endif
