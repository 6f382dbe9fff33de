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

/* The lines of `x`, `length` reals apart */
INLINE pe_lines lines_of(const real *x, idx length) { return (pe_lines){(const char *)x, length * (idx)sizeof *x}; }

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
INLINE vec vec_fma(vec a, vec b, vec c) { return a * b + c; } /* one rounding with FMA: -ffp-contract */
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

/* The list f(0, x), f(1, x), ... of the numbers of all lanes, for __builtin_shufflevector. Its numbers below LANES are
 * lanes of the first vector, the others lanes of the second one. */
#define PE_EACH2(f, x) f(0, x), f(1, x)
#define PE_EACH4(f, x) PE_EACH2(f, x), f(2, x), f(3, x)
#define PE_EACH8(f, x) PE_EACH4(f, x), f(4, x), f(5, x), f(6, x), f(7, x)
#define PE_EACH16(f, x) PE_EACH8(f, x), f(8, x), f(9, x), f(10, x), f(11, x), f(12, x), f(13, x), f(14, x), f(15, x)
#if VEC_BYTES * 8 / PE_REAL == 16
#define PE_EACH PE_EACH16
#elif VEC_BYTES * 8 / PE_REAL == 8
#define PE_EACH PE_EACH8
#elif VEC_BYTES * 8 / PE_REAL == 4
#define PE_EACH PE_EACH4
#else
#define PE_EACH PE_EACH2
#endif
#define SHUFFLE(a, b, f, x) __builtin_shufflevector(a, b, PE_EACH(f, x))

/* Lane l is b[l] if l & bit, else a[l]. bit is a power of two below LANES. */
#define MIXED(l, bit) (l) & (bit) ? LANES + (l) : (l)
INLINE vec vec_mix(vec a, vec b, int bit)
{
    return bit == 1   ? SHUFFLE(a, b, MIXED, 1)
           : bit == 2 ? SHUFFLE(a, b, MIXED, 2)
           : bit == 4 ? SHUFFLE(a, b, MIXED, 4)
                      : SHUFFLE(a, b, MIXED, 8);
}

/* Lane i is the sum of x[i], added in a tree of neighbours. May overwrite x. */
#define EVERY_OTHER(l, first) 2 * (l) + (first)
INLINE vec vec_sums(vec *x)
{
    UNROLL
    for (int n = LANES / 2; n > 0; n /= 2) {
        UNROLL
        for (int i = 0; i < n; i++) {
            const vec a = x[2 * i], b = x[2 * i + 1];
            x[i] = vec_add(SHUFFLE(a, b, EVERY_OTHER, 0), SHUFFLE(a, b, EVERY_OTHER, 1));
        }
    }
    return x[0];
}

/* Return whether all y are finite. Each lane of `check` is a sum of products y * 0: 0 if they are, else NaN. */
INLINE int vec_all_finite(vec check)
{
    const vec_mask finite = check == vec_set(0); /* all bits of a lane are 1 or 0 */
    uint64_t word[sizeof finite / sizeof(uint64_t)], all = ~(uint64_t)0;
    memcpy(word, &finite, sizeof finite);
    for (size_t w = 0; w < sizeof word / sizeof *word; w++)
        all &= word[w];
    return all == ~(uint64_t)0;
}

INLINE void zero_sums(vec *acc, int n)
{
    UNROLL
    for (int i = 0; i < n; i++)
        acc[i] = vec_set(0);
}

/* acc[r, p, c] += sum over k < n of a(r, k) * b(k, c) of panel p, whose lines are b[p]. Callers pass constant rows,
 * cols and panels, so that the sums stay in registers; b[1] is read if panels is 2. */
INLINE void accumulate(vec *acc, int rows, int cols, int panels, pe_matrix a, const pe_lines *b, int n)
{
    enum { MOST = 8 }; /* vectors of b at once */
    const int all = panels * cols;
    const char *b0 = b[0].data, *b1 = panels == 2 ? b[1].data : NULL;
    for (int k = 0; k < n; k++) {
        vec x[MOST];
        UNROLL
        for (int c = 0; c < cols; c++) {
            x[c] = vec_load((const real *)(const void *)b0 + c * LANES);
            if (panels == 2)
                x[cols + c] = vec_load((const real *)(const void *)b1 + c * LANES);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec y = vec_set(*(const real *)(const void *)(a.data + r * a.row));
            UNROLL
            for (int c = 0; c < all; c++)
                acc[r * all + c] = vec_fma(y, x[c], acc[r * all + c]);
        }
        a.data += a.column;
        b0 += b[0].step;
        if (panels == 2)
            b1 += b[1].step;
    }
}
#endif
