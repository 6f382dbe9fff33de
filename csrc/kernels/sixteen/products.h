/* products.h -- the matrix products of attention for 16-bit operands, in instructions that multiply bfloat16 numbers.
 *
 *     c[row][lane] = sum over passes of  sum_k a[row][k] b[k][lane]        a: bfloat16, b: pairs of bfloat16, c: float
 *
 *     scores   a = keys, read in place      b = packed queries    row = key,      k = channel
 *     values   a = values, transposed       b = weights           row = channel,  k = key
 *
 * A number that bfloat16 does not represent is a sum of `parts`: x = p0 + p1 + ..., each the bfloat16 number nearest to
 * what the parts before it leave (for weights, ties are rounded away from 0, and numbers beyond 0x1.ffp127 are
 * truncated). Two parts represent every float16 exactly, and a float with a relative error of 2**-17; three represent a
 * float exactly, unless a part underflows or overflows. Codes of int8 are bfloat16 numbers; their scales multiply the
 * scores of a key and the weights of a value. A pass multiplies a part of a by a part of b. Passes of two small parts
 * are left out.
 *
 *     b[k / 2][lane]:   k = 0, 1   [ q0[0] q0[1] | q1[0] q1[1] | ... ]      low and high half of a 32-bit word
 *                       k = 2, 3   [ q0[2] q0[3] | q1[2] q1[3] | ... ]
 */
#ifndef PE_PRODUCTS_H
#define PE_PRODUCTS_H

#include "base/half.h"
#include "tile/sixteen.h"

enum { MOST_PASSES = 5 };

typedef struct {
    const char *a;
    const uint32_t *b;
} pe_pass;

/* `rows` and `depth`, the numbers k, are multiples of CHUNK; `width` is LANES or 2 LANES. */
typedef struct pe_product {
    int rows, depth, width, passes;
    pe_pass pass[MOST_PASSES];
    idx row_step, chunk_step; /* bytes from a row of a to the next, and from a chunk of a row to the next */
    real *c;
} pe_product;

/* The implementations sum in different orders: for each c,
 *     amx            even = odd = 0;   for each pair of a chunk: even += a0 b0, odd += a1 b1;   c += even + odd
 *     avx512bf16     for each pair:    c += a1 b1;   c += a0 b0
 * Each += of a product is one fused multiply-add. Subnormal operands and results are 0. The emulation has the bits of
 * amx, on every machine. */
extern const pe_products FN(products_amx), FN(products_avx512bf16), FN(products_emulated);

/* They are assembly with target attributes, in the variant that has their vectors. */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__) && PE_REAL == 32
#define PE_HAS_UNITS 1
#else
#define PE_HAS_UNITS 0
#endif

/* What attention calls (products.c), with any of them */
extern const pe_sixteen FN(sixteen);

#endif
