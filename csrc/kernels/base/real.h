/* real.h -- the arithmetic type of the kernels, and names for what compilers offer beyond C.
 *
 * The build compiles every .c of kernels/ once per variant: a PE_ISA (base, avx2, avx512) and a PE_REAL (32 or 64). In
 * the variant (avx2, 32), FN(rope) is rope_avx2_32 and real is float.
 *
 * fma_ rounds once if the variant has an FMA instruction, else twice. Vector loops and scalar tails round alike,
 * so a result does not depend on where its row begins in memory.
 */
#ifndef PE_REAL_H
#define PE_REAL_H

#include "posenc.h"

#ifdef __FAST_MATH__
#error "rounding by a magic constant, infinities and NaN must mean what they say: no -ffast-math"
#endif

#if PE_REAL == 32
typedef float real;
#define R(x) x##f
#define PE_STORAGE PE_F32
#else
typedef double real;
#define R(x) x
#define PE_STORAGE PE_F64
#endif

#define PE_PASTE_(name, isa, bits) name##_##isa##_##bits
#define PE_PASTE(name, isa, bits) PE_PASTE_(name, isa, bits)
#define FN(name) PE_PASTE(name, PE_ISA, PE_REAL)

/* SIMD: the iterations of the loop are independent. SIMD_OR and SIMD_AND: each iteration also ORs or ANDs a flag. */
#define PE_PRAGMA(text) _Pragma(#text)
#define SIMD _Pragma("omp simd")
#define SIMD_OR(flag) PE_PRAGMA(omp simd reduction(| : flag))
#define SIMD_AND(flag) PE_PRAGMA(omp simd reduction(& : flag))
/* clang ignores GCC's pragma without a warning. A loop that is not unrolled keeps its accumulators in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define MAYBE_UNUSED __attribute__((unused))
#define NOINLINE __attribute__((noinline, unused)) /* unused: a file need not call all functions of its headers */
#define INLINE static inline __attribute__((always_inline))

#if defined(__FMA__) || defined(__aarch64__)
#define PE_FMA 1
#define fma64(a, b, c) __builtin_fma(a, b, c)
#if PE_REAL == 32
#define fma_(a, b, c) __builtin_fmaf(a, b, c)
#else
#define fma_(a, b, c) __builtin_fma(a, b, c)
#endif
#else
#define PE_FMA 0
#define fma64(a, b, c) ((a) * (b) + (c))
#define fma_(a, b, c) ((a) * (b) + (c))
#endif

/* The kernel of an entry of ops.def. It computes the units begin <= u < end of a call. */
#define KERNEL(name) \
    void FN(name)(const pe_call *call, MAYBE_UNUSED idx begin, MAYBE_UNUSED idx end, MAYBE_UNUSED const pe_work *work)

/* A union instead of memcpy, because Apple's headers check every memcpy, and a loop with checks does not vectorize. */
typedef union {
    double d;
    uint64_t u;
} double_bits;
INLINE uint64_t bits_of(double x) { return (double_bits){.d = x}.u; }
INLINE double double_of(uint64_t bits) { return (double_bits){.u = bits}.d; }

/* Three steps of Horner's rule */
INLINE double horner3(double p, double x, double a, double b, double c)
{
    return fma64(fma64(fma64(p, x, a), x, b), x, c);
}

INLINE int is_finite(real x) { return x - x == 0; } /* x - x is NaN for infinity and NaN */
/* For |x| < 2**51, x + ROUNDER64 rounds x to an integer, ties to even. The low bits of the sum hold the integer. */
#define ROUNDER64 0x1.8p52
INLINE double nearest(double x) { return (x + ROUNDER64) - ROUNDER64; }
INLINE double fabs_(double x) { return x < 0 ? -x : x; }
/* x clamped to -most .. most. NaN gives most: if another thread writes NaN into the caller's array, an index stays
 * valid. */
INLINE double clamp_(double x, double most) { return x < -most ? -most : x < most ? x : most; }

#endif
