/* vec.h -- one SIMD register of LANES reals, and its arithmetic.
 *
 *     for (int l = 0; l < LANES; l++)
 *         y[l] = fma(a[l], b[l], c[l]);          is y = vec_fma(a, b, c)
 *
 * Kernels that keep sums in registers use vec, such as attention, convolutions and matvec.h. Most other kernels
 * are plain loops. A vec has the width of the variant's registers, because compilers translate wider vectors badly.
 */
#ifndef PE_VEC_H
#define PE_VEC_H

#include "base/real.h"
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

enum { LANES = VEC_BYTES / (int)sizeof(real) };

/* Call f(width, ...) for a width of LANES or 2 LANES. Each call passes a constant, so that the compiler unrolls the
 * loops over lanes of an inlined f and keeps its sums in registers. */
#define FOR_WIDTH(f, width, ...) ((width) == LANES ? f(LANES, __VA_ARGS__) : f(2 * LANES, __VA_ARGS__))

/* The score of a masked pair; its exponential is exactly 0 */
#define MASKED ((real)-HUGE_VAL)

#define PREFETCH(p) __builtin_prefetch(p)
#define PREFETCH_SECOND(p) __builtin_prefetch(p, 0, 2) /* into L2, not L1 */
typedef real vec __attribute__((vector_size(VEC_BYTES)));
#if PE_REAL == 32
typedef int32_t vec_mask __attribute__((vector_size(VEC_BYTES)));
#else
typedef int64_t vec_mask __attribute__((vector_size(VEC_BYTES)));
#endif

/* Lines of numbers in memory, `step` bytes apart: rows of queries, keys or values, or of a table */
typedef struct {
    const char *data;
    idx step;
} pe_lines;

/* Line i, of reals */
INLINE const real *line_at(pe_lines x, idx i) { return (const real *)(const void *)(x.data + i * x.step); }
/* The lines from number `first` on */
INLINE pe_lines lines_from(pe_lines x, idx first) { return (pe_lines){x.data + first * x.step, x.step}; }

/* A matrix in memory with any strides: number (r, k) is `row` r + `column` k bytes from data */
typedef struct {
    const char *data;
    idx row, column;
} pe_matrix;

INLINE vec vec_load(const real *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vec_store(real *p, vec v) { memcpy(p, &v, sizeof v); }

/* vec_fma is a b + c. vec_max(a, b) is b where a is NaN. vec_bias(x, b) is x + b, but -inf wherever b is -inf. */
INLINE vec vec_set(real x) { return x - (vec){0}; }
INLINE vec vec_mul(vec a, vec b) { return a * b; }
INLINE vec vec_add(vec a, vec b) { return a + b; }
INLINE vec vec_div(vec a, vec b) { return a / b; }
INLINE vec vec_fma(vec a, vec b, vec c) { return a * b + c; } /* one rounding with FMA: -ffp-contract=fast */
/* C has no ?: on vectors. */
INLINE vec vec_select(vec_mask m, vec a, vec b) { return (vec)(((vec_mask)a & m) | ((vec_mask)b & ~m)); }
INLINE vec vec_bias(vec x, vec b) { return vec_select(b == vec_set(MASKED), b, x + b); }
/* GCC 12 compiles vec_select(a > b, a, b) to up to five instructions, so x86 gets its instruction by name: MAXPS(a, b)
 * is b if a or b is NaN, or if both are zeros. Its intrinsic is in immintrin.h, which takes half a second to parse,
 * longer than most kernels take to compile. */
#if PE_REAL == 32
#define PE_MAX "maxps"
#else
#define PE_MAX "maxpd"
#endif
INLINE vec vec_max(vec a, vec b)
{
#if defined(__AVX__)
    __asm__("v" PE_MAX " %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    return a;
#elif defined(__SSE2__)
    __asm__(PE_MAX " %1, %0" : "+x"(a) : "x"(b));
    return a;
#else
    return vec_select(a > b, a, b);
#endif
}

/* Lane l of vec_mix is b[l] if l & bit, else a[l]. Lane i of vec_sums is the sum of x[i], added in a tree of
 * neighbours; vec_sums may overwrite x. */
#define PE_EVEN2 0, 2
#define PE_EVEN4 PE_EVEN2, 4, 6
#define PE_EVEN8 PE_EVEN4, 8, 10, 12, 14
#define PE_EVEN16 PE_EVEN8, 16, 18, 20, 22, 24, 26, 28, 30
#define PE_ODD2 1, 3
#define PE_ODD4 PE_ODD2, 5, 7
#define PE_ODD8 PE_ODD4, 9, 11, 13, 15
#define PE_ODD16 PE_ODD8, 17, 19, 21, 23, 25, 27, 29, 31
#define PE_HALVES_(n) vec_add(__builtin_shufflevector(a, b, PE_EVEN##n), __builtin_shufflevector(a, b, PE_ODD##n))
#define PE_HALVES(n) PE_HALVES_(n)
#if VEC_BYTES * 8 / PE_REAL == 16
#define PE_LANES 16
#elif VEC_BYTES * 8 / PE_REAL == 8
#define PE_LANES 8
#elif VEC_BYTES * 8 / PE_REAL == 4
#define PE_LANES 4
#else
#define PE_LANES 2
#endif
/* bit is a power of two below LANES. */
#define PE_MIX1(lane, bit) (lane) & (bit) ? PE_LANES + (lane) : (lane)
#define PE_MIX2(lane, bit) PE_MIX1(lane, bit), PE_MIX1((lane) + 1, bit)
#define PE_MIX4(lane, bit) PE_MIX2(lane, bit), PE_MIX2((lane) + 2, bit)
#define PE_MIX8(lane, bit) PE_MIX4(lane, bit), PE_MIX4((lane) + 4, bit)
#define PE_MIX16(lane, bit) PE_MIX8(lane, bit), PE_MIX8((lane) + 8, bit)
#define PE_MIX_(n, bit) PE_MIX##n(0, bit)
#define PE_MIX(n, bit) PE_MIX_(n, bit)
INLINE vec vec_mix(vec a, vec b, int bit)
{
    return bit == 1   ? __builtin_shufflevector(a, b, PE_MIX(PE_LANES, 1))
           : bit == 2 ? __builtin_shufflevector(a, b, PE_MIX(PE_LANES, 2))
           : bit == 4 ? __builtin_shufflevector(a, b, PE_MIX(PE_LANES, 4))
                      : __builtin_shufflevector(a, b, PE_MIX(PE_LANES, 8));
}
INLINE vec vec_sums(vec *x)
{
    UNROLL
    for (int n = LANES / 2; n > 0; n /= 2) {
        UNROLL
        for (int i = 0; i < n; i++) {
            const vec a = x[2 * i], b = x[2 * i + 1];
            x[i] = PE_HALVES(PE_LANES);
        }
    }
    return x[0];
}

/* Return whether all y are finite. Each lane of `check` is a sum of products y * 0: 0 if they are, else NaN. */
INLINE int vec_all_finite(vec check)
{
    real lane[LANES], sum = 0;
    vec_store(lane, check);
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum == 0;
}
#endif
