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

#include "base/layout.h"
#include "base/sincos.h"

enum { OFFSETS = 16 };

/* Sines and cosines of a row of angles */
typedef struct {
    double *sine, *cosine;
} pe_angles;

/* The frequencies of n pairs, and the angles that their rows share */
typedef struct {
    int n;
    double *hi, *lo;       /* turns per position */
    pe_angles base, whole; /* of base_position, and of a position whose angles cannot be added */
    double *offsets;       /* sines and cosines of 0 .. OFFSETS - 1 */
    int64_t base_position; /* 1, never a base, if `base` is not computed */
    char ready[OFFSETS];   /* 1 if the angles of an offset are computed */
} pe_frequencies;

static pe_angles carve_angles(pe_carver *c, idx n) { return (pe_angles){carve_doubles(c, n), carve_doubles(c, n)}; }

static void carve_frequencies(pe_frequencies *w, pe_carver *c, idx n)
{
    w->hi = carve_doubles(c, n);
    w->lo = carve_doubles(c, n);
    w->base = carve_angles(c, n);
    w->whole = carve_angles(c, n);
    w->offsets = carve_doubles(c, 2 * OFFSETS * n);
}

static pe_angles offset_at(const pe_frequencies *w, int offset)
{
    double *sine = w->offsets + (idx)2 * offset * w->n;
    return (pe_angles){sine, sine + w->n};
}

/* Set the frequencies of n pairs to hi + lo, or to hi if lo is NULL. */
static NOINLINE void set_frequencies(pe_frequencies *w, const double *hi, const double *lo, int n)
{
    w->n = n;
    w->base_position = 1;
    memset(w->ready, 0, sizeof w->ready);
    SIMD
    for (int k = 0; k < n; k++)
        turns(hi[k], lo ? lo[k] : 0.0, &w->hi[k], &w->lo[k]);
}

static NOINLINE void sincos_row(const pe_frequencies *w, double p, pe_angles to)
{
    const double *restrict hi = w->hi, *restrict lo = w->lo;
    double *restrict sine = to.sine, *restrict cosine = to.cosine;
    SIMD
    for (int k = 0; k < w->n; k++)
        sincos_turns(p, hi[k], lo[k], &sine[k], &cosine[k]);
}

/* Prepare the angles whose sums are those of p, and return the offset; -1 if the angles of p cannot be added. */
static int offset_of(pe_frequencies *w, double p)
{
    const int64_t whole = (int64_t)p, base = whole & ~(int64_t)(OFFSETS - 1);
    const int offset = (int)(whole - base);
    if (PE_REAL == 64 || (double)whole != p)
        return -1;
    if (w->base_position != base)
        sincos_row(w, (double)base, w->base);
    if (!w->ready[offset])
        sincos_row(w, offset, offset_at(w, offset));
    w->base_position = base;
    w->ready[offset] = 1;
    return offset;
}

/* The order of a row: s[k] and c[k] apart (HALVES), or pairs that begin at s (SINE_COSINE) or at c (COSINE_SINE). */
typedef enum { HALVES, SINE_COSINE, COSINE_SINE } column_order;

/* Where a row is stored */
typedef struct {
    column_order order;
    double a, b; /* scales of sines and of cosines */
    real *s, *c;
} angle_row;

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
INLINE int add_angles(column_order order, double a, double b, const pe_frequencies *w, int offset, const angle_row *to)
{
    const double *restrict base_sine = w->base.sine, *restrict base_cosine = w->base.cosine;
    const double *restrict offset_sine = offset_at(w, offset).sine, *restrict offset_cosine =
                                                                        offset_at(w, offset).cosine;
    real *restrict s = to->s, *restrict c = to->c;
    const float least = (float)fabs_(a * b) * 0x1.01p-26f;
    const uint32_t least_bits = float_bits(least);
    const int n = w->n;
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

static NOINLINE int add_angles_row(const pe_frequencies *w, int offset, const angle_row *to)
{
    if (to->a == 1 && to->b == 1) /* skips two multiplications, an eighth of the loop's time */
        return FOR_ORDER(add_angles, to->order, 1, 1, w, offset, to);
    return FOR_ORDER(add_angles, to->order, to->a, to->b, w, offset, to);
}

/* Recompute the results of add_angles_row that are too close to zero to be accurate. */
static NOINLINE void recompute_small(const pe_frequencies *w, double p, int offset, const angle_row *to)
{
    const double *x = w->base.sine, *y = w->base.cosine, *u = offset_at(w, offset).sine,
                 *v = offset_at(w, offset).cosine;
    const int step = to->order == HALVES ? 1 : 2;
    for (int k = 0; k < w->n; k++) {
        const double sine = fma64(x[k], v[k], y[k] * u[k]), cosine = fma64(y[k], v[k], -(x[k] * u[k]));
        double exact_sine, exact_cosine;
        sincos_turns(p, w->hi[k], w->lo[k], &exact_sine, &exact_cosine);
        if (sine * sine < 0x1p-52)
            to->s[k * step] = (real)(to->a * exact_sine);
        if (cosine * cosine < 0x1p-52)
            to->c[k * step] = (real)(to->b * exact_cosine);
    }
}

INLINE void scale_angles(column_order order, pe_angles angles, int n, const angle_row *to)
{
    const double *restrict sine = angles.sine, *restrict cosine = angles.cosine;
    const double a = to->a, b = to->b;
    real *restrict s = to->s, *restrict c = to->c;
    SIMD
    for (int k = 0; k < n; k++)
        store_pair(order, s, c, k, (real)(a * sine[k]), (real)(b * cosine[k]));
}

static NOINLINE void scale_row(pe_angles angles, int n, const angle_row *to)
{
    FOR_ORDER(scale_angles, to->order, angles, n, to);
}

/* Store the row of position p. */
INLINE void store_angles_at(pe_frequencies *w, double p, const angle_row *to)
{
    const int offset = offset_of(w, p);
    if (offset < 0) {
        sincos_row(w, p, w->whole);
        scale_row(w->whole, w->n, to);
    } else if (add_angles_row(w, offset, to) && offset != 0 && w->base_position != 0) {
        recompute_small(w, p, offset, to); /* if base or offset is 0, the sum is exact */
    }
}

#endif
