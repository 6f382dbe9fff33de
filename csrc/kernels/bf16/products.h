/* products.h -- the matrix products of attention for 16-bit operands, in instructions that multiply bfloat16 numbers.
 *
 *     c[row][lane] = sum over passes of  sum_k a[row][k] b[k][lane]     a: bfloat16, b: words of two bfloat16, c: float
 *
 *     scores   a = keys, read in place      b = packed queries q0, q1, ...    row = key,      k = channel
 *     values   a = values, transposed       b = weights                       row = channel,  k = key
 *
 * A number that bfloat16 does not represent is a sum of `terms`: x = t0 + t1 + ..., each the bfloat16 number nearest to
 * what the terms before it leave (for weights, ties are rounded away from 0, and numbers beyond 0x1.ffp127 are
 * truncated). Two terms are exact for every float16, and have a relative error of 2**-17 for a float; three are exact
 * for a float, unless a term underflows or overflows. A code of int8 is exact in one term; the scale of a key
 * multiplies its scores, that of a value its weights. Pass (i, j) multiplies term i of a by term j of b. Passes with i
 * + j of at least the larger number of terms are left out, so 2 terms times 3 take 5 passes.
 *
 *     b[k / 2][lane]:   k = 0, 1   [ q0[0] q0[1] | q1[0] q1[1] | ... ]      low and high half of a 32-bit word
 *                       k = 2, 3   [ q0[2] q0[3] | q1[2] q1[3] | ... ]
 */
#ifndef PE_PRODUCTS_H
#define PE_PRODUCTS_H

#include "base/half.h"
#include "tile/bf16.h"

enum { MOST_PASSES = 5 };

typedef struct {
    const char *a;
    const uint32_t *b;
} pe_pass;

/* `rows` and `depth`, the count of k, are multiples of DOT; `width` is LANES or 2 LANES. */
typedef struct pe_product {
    int rows, depth, width, passes;
    pe_pass pass[MOST_PASSES];
    idx row_step, dot_step; /* bytes from a row of a to the next, and from DOT numbers of a row to the next DOT */
    real *c;
} pe_product;

/* The implementations sum in different orders: for each c,
 *     amx            even = odd = 0;   for each k, k + 1 of DOT numbers: even += a[k] b[k], odd += a[k + 1] b[k + 1];
 *                    c += even + odd
 *     avx512bf16     for each k, k + 1: c += a[k + 1] b[k + 1];   c += a[k] b[k]
 * Each += of a product is one fused multiply-add. Subnormal operands and results are 0. The emulation has the bits of
 * amx, on every machine. */
extern const pe_products FN(products_amx), FN(products_avx512bf16), FN(products_emulated);

/* amx and avx512bf16 are written in assembly, and compiled in the AVX-512 variant only. */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__) && PE_REAL == 32
#define PE_HAS_INSTRUCTIONS 1
#else
#define PE_HAS_INSTRUCTIONS 0
#endif

/* What attention calls (products.c), with any of them */
extern const pe_bf16 FN(bf16);

#endif
