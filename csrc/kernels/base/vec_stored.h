/* vec_stored.h -- load LANES numbers as a vec. float16, bfloat16 and int8 are widened in registers, exactly.
 *
 *     for (int l = 0; l < LANES; l++)
 *         x[l] = (real)stored[l];
 *
 * A loop that reads each number once is limited by memory bandwidth. Rows of float16, bfloat16 or int8 have half or a
 * quarter of the bytes of float, and widening them in registers avoids a copy as real. half.h has the formulas.
 */
#ifndef PE_VEC_STORED_H
#define PE_VEC_STORED_H

#include "base/half.h"
#include "base/vec.h"

#if PE_REAL == 32
typedef int8_t vec_bytes __attribute__((vector_size(LANES)));
typedef uint16_t vec_halves __attribute__((vector_size(2 * LANES)));
typedef uint32_t vec_words __attribute__((vector_size(4 * LANES)));
typedef int64_t long_pair __attribute__((vector_size(16)));

/* Zero-extend LANES 16-bit integers, or sign-extend LANES bytes, to 32 bits. With AVX2 and AVX-512, clang compiles
 * __builtin_convertvector to one instruction. GCC 12 compiles it to five for halves and forty for bytes, so GCC gets
 * the instruction by name. */
#if VEC_BYTES == 64 && !defined(__clang__)
typedef short vec_shorts __attribute__((vector_size(32)));
typedef char vec_chars __attribute__((vector_size(16)));
enum { ALL_LANES = 0xffff };
#define WORDS_OF_HALVES(h) (vec_words) __builtin_ia32_pmovzxwd512_mask((vec_shorts)(h), (vec_mask){0}, ALL_LANES)
#define INTS_OF_BYTES(b) (vec_mask) __builtin_ia32_pmovsxbd512_mask((vec_chars)(b), (vec_mask){0}, ALL_LANES)
#elif VEC_BYTES == 32 && !defined(__clang__)
typedef short vec_shorts __attribute__((vector_size(16)));
typedef char vec_chars __attribute__((vector_size(16)));
#define WORDS_OF_HALVES(h) (vec_words) __builtin_ia32_pmovzxwd256((vec_shorts)(h))
INLINE vec_mask ints_of_bytes(vec_bytes b)
{
    int64_t bytes;
    memcpy(&bytes, &b, sizeof bytes);
    return (vec_mask)__builtin_ia32_pmovsxbd256((vec_chars)(long_pair){bytes, 0});
}
#define INTS_OF_BYTES(b) ints_of_bytes(b)
#elif VEC_BYTES == 16 && !defined(__clang__)
typedef uint16_t half_pairs __attribute__((vector_size(16)));
typedef uint8_t byte_quads __attribute__((vector_size(16)));
INLINE vec_words words_of_halves(vec_halves h)
{
    int64_t halves;
    memcpy(&halves, &h, sizeof halves);
    const half_pairs x = (half_pairs)(long_pair){halves, 0};
    return (vec_words)__builtin_shufflevector(x, (half_pairs){0}, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINE vec_mask ints_of_bytes(vec_bytes b) /* repeat each byte four times, then sign-extend the top one */
{
    int32_t bytes;
    memcpy(&bytes, &b, sizeof bytes);
    byte_quads x = (byte_quads)(long_pair){bytes, 0};
    x = __builtin_shufflevector(x, x, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const half_pairs y = (half_pairs)x;
    return (vec_mask)__builtin_shufflevector(y, y, 0, 8, 1, 9, 2, 10, 3, 11) >> 24;
}
#define WORDS_OF_HALVES(h) words_of_halves(h)
#define INTS_OF_BYTES(b) ints_of_bytes(b)
#else
#define WORDS_OF_HALVES(h) __builtin_convertvector(h, vec_words)
#define INTS_OF_BYTES(b) __builtin_convertvector(b, vec_mask)
#endif

INLINE vec vec_load_bf16(const char *p)
{
    vec_halves h;
    memcpy(&h, p, sizeof h);
    return (vec)(WORDS_OF_HALVES(h) << 16);
}

INLINE vec vec_load_i8(const char *p)
{
    vec_bytes b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(INTS_OF_BYTES(b), vec);
}

#if PE_F16C && VEC_BYTES == 32
INLINE vec vec_load_f16(const char *p)
{
    f16c_halves h;
    memcpy(&h, p, sizeof h);
    return F16C_WIDEN(h);
}
#elif PE_F16C && VEC_BYTES == 64 && !defined(__clang__)
INLINE vec vec_load_f16(const char *p)
{
    enum { CURRENT_ROUNDING = 4 }; /* has no effect: widening is exact */
    vec_shorts h;
    memcpy(&h, p, sizeof h);
    return __builtin_ia32_vcvtph2ps512_mask(h, (vec){0}, (short)ALL_LANES, CURRENT_ROUNDING);
}
#elif PE_F16C && VEC_BYTES == 64
INLINE vec vec_load_f16(const char *p)
{
    f16c_halves low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, p + sizeof low, sizeof high);
    const f16c_floats a = F16C_WIDEN(low), b = F16C_WIDEN(high);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif
#endif

/* Return whether a load widens in a few instructions. float16 without F16C takes twenty: callers copy the rows. */
INLINE int widens_in_registers(pe_storage storage) { return storage != PE_F16 || PE_F16C; }

/* Callers pass a constant storage, so no branch remains. */
INLINE vec vec_load_stored(const char *p, pe_storage storage)
{
#if PE_REAL == 32
    if (storage == PE_BF16)
        return vec_load_bf16(p);
#if PE_F16C
    if (storage == PE_F16)
        return vec_load_f16(p);
#endif
    if (storage == PE_I8)
        return vec_load_i8(p);
#endif
    (void)storage;
    return vec_load((const real *)(const void *)p);
}

#endif
