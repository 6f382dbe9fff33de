/* angles.h -- rows of sines and cosines of position * frequency, and of sums of two angles.
 *
 *     for (int k = 0; k < n; k++)
 *         s[k] = a * sin(p * w[k]), c[k] = b * cos(p * w[k]);
 *
 * In float, an integer position p is split into base + offset. base is a multiple of OFFSETS, 0 <= offset < OFFSETS.
 * Consecutive rows share the sines and cosines of their base, and all rows share the sines and cosines of the OFFSETS
 * offsets. The angle-addition theorem combines base and offset in double, so a pair costs four multiplications. A row
 * depends on its position alone. Near a zero of sin or cos the addition loses relative accuracy, so results below
 * 2**-26 are recomputed by sincos.h. For larger results the error of 2**-52 is at most an eighth of a float's ulp.
 * Double, and positions with a fraction, use sincos.h for every pair.
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

/* Split p into base and offset. Return 1 if the angles may be added, 0 if p needs sincos_row. */
INLINE int split_position(double p, int64_t *base, int *offset)
{
    const int64_t whole = (int64_t)p;
    *base = whole & ~(int64_t)(OFFSETS - 1);
    *offset = (int)(whole - *base);
    return PE_REAL != 64 && (double)whole == p;
}

/* The order of a row: s[k] and c[k] apart (HALVES), or pairs that begin at s (SINE_COSINE) or at c (COSINE_SINE). */
typedef enum { HALVES, SINE_COSINE, COSINE_SINE } column_order;

/* Call f(order, ...) with a constant order, so that the compiler makes a separate loop for each order. */
#define FOR_ORDER(f, order, ...)                            \
    ((order) == HALVES        ? f(HALVES, __VA_ARGS__)      \
     : (order) == SINE_COSINE ? f(SINE_COSINE, __VA_ARGS__) \
                              : f(COSINE_SINE, __VA_ARGS__))

/* store_pair interleaves each pair when it is computed, so that no second loop reads and writes the row again. */
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

/* Store a sin(x + y) = a (sin x cos y + cos x sin y) and b cos(x + y) = b (cos x cos y - sin x sin y). Return
 * whether a sine or a cosine may be below 2**-26. If one is, the product of the two results is below a b 2**-26. The
 * bits of nonnegative floats compare like integers: bits(product) - bits(least) is negative if the product is
 * smaller, and `small` collects its sign bit. */
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
    return small < 0 || least < 0x1p-60f; /* below 2**-60 the product could underflow */
}

static NOINLINE int add_angles_row(column_order order, pe_angles base, pe_angles offset, double a, double b, int n,
                                   real *s, real *c)
{
    if (a == 1 && b == 1) /* skips two multiplications, an eighth of the loop's time */
        return FOR_ORDER(add_angles, order, base, offset, 1, 1, n, s, c);
    return FOR_ORDER(add_angles, order, base, offset, a, b, n, s, c);
}

/* Recompute the results of add_angles_row that are too close to zero to be accurate. If base or offset is 0, the
 * addition is exact, and the caller skips this. */
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
