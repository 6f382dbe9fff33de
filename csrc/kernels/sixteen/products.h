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
 *
 * AMX sums CHUNK products before it adds them to c. So the chunks of keys are the same for every query: they begin at
 * the first key of a tile, and a masked key has weight 0.
 */
#ifndef PE_PRODUCTS_H
#define PE_PRODUCTS_H

#include "base/half.h"
#include "tile/panel.h"

/* One AMX instruction sums products over CHUNK numbers k. Numbers of rows are multiples of CHUNK, too. */
enum { CHUNK = 32, MOST_PARTS = 3, MOST_PASSES = 5 };

INLINE idx whole_chunks(idx n) { return BLOCKS(n, CHUNK) * CHUNK; }

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
#define PE_HAS_AMX 1
#define PE_HAS_AVX512BF16 1
#else
#define PE_HAS_AMX 0
#define PE_HAS_AVX512BF16 0
#endif

/* ---- a call with such operands ---- */

/* Rows of keys or values as bfloat16: part p of row j is at part[p] + j * step. Rows and columns beyond the operand are
 * 0, up to whole chunks. */
typedef struct {
    const char *part[MOST_PARTS];
    int parts;
    idx step;
    const real *scale; /* of each row of codes, or NULL */
} pe_parts;

INLINE int parts_of(pe_storage storage) { return storage == PE_F16 ? 2 : 1; }
INLINE int is_sixteen(pe_storage storage) { return storage == PE_F16 || storage == PE_BF16; }

/* Return whether attention multiplies the operands as 16-bit numbers, and its weights in that many parts. */
INLINE int has_sixteen(const pe_call *call, int weight_parts)
{
    const pe_storage q = call->array[A_Q].storage, k = call->array[A_K].storage, v = call->array[A_V].storage;
    return call->products && weight_parts != 0 && is_sixteen(q) && (is_sixteen(k) || k == PE_I8)
           && (is_sixteen(v) || v == PE_I8)
           && max_(max_(parts_of(q), weight_parts), max_(parts_of(k), parts_of(v))) <= call->products->most_parts;
}

/* Operands of the products of a tile with a block of queries. The queries of a panel begin at word
 * q + p->first * words_of_lane. */
typedef struct {
    pe_parts keys, values; /* values are transposed */
    uint32_t *q;
    int q_parts;
    idx words_of_lane;
    real *key; /* memory for a key if a block is computed again, else NULL: scores that are NaN are then computed in
                  real, because the parts of an infinite product may be infinities of both signs */
} pe_sixteen;

/* Numbers of 16 bits in the parts of a tile of rows */
INLINE idx parts_size(idx width) { return 2 * BLOCK_N * (whole_chunks(width) + CHUNK); }
/* Split n rows of a tile; `copy` has parts_size(width) numbers, `scale` BLOCK_N, `row` width. bfloat16 rows are read
 * in place if they are whole chunks. With `finite`, nonfinite numbers are 0. */
pe_parts FN(split_rows)(pe_rows stored, int n, int width, int finite, uint16_t *copy, real *scale, real *row);
/* Transpose these rows: chunk j / CHUNK has whole_chunks(width) rows of CHUNK keys; step is the bytes of a chunk. */
pe_parts FN(transpose_rows)(const pe_parts *rows, int n, int width, uint16_t *out);
/* Split x[j][lane]. Part p has pairs of rows from word p * words_of(n, width) on. */
INLINE idx words_of(int n, int width) { return whole_chunks(n) / 2 * width; }
void FN(split_lanes)(const real *x, int n, int width, int parts, uint32_t *out);
/* The same for strips (outer.h) of BLOCK_M lanes, of which `lanes` are queries: pairs of queries */
void FN(split_strips)(const real *strips, int lanes, int channels, int parts, uint32_t *out);

/* ---- the products of product.h and outer.h ---- */

/* s[j][lane] = sum_d rows[from + j][d] x[d][lane] for n rows. The panel x is split; s has space for whole chunks. */
void FN(scores_of_parts)(const pe_products *unit, const pe_parts *rows, int from, int n, int d, const uint32_t *x,
                         int x_parts, int width, real *s);

/* The products of weights split them first. Memory: parts * words_of(BLOCK_N, PANEL_LANES) words, parts * BLOCK_N *
 * BLOCK_M numbers of `rows`, which add_outer_of_parts needs, and whole chunks of rows of sums, BLOCK_N at least. */
typedef struct {
    const pe_products *unit;
    int parts; /* of a weight */
    uint32_t *words;
    uint16_t *rows;
    real *sums;
} pe_weight_products;
/* o[c][lane] = o[c][lane] alpha[lane] + sum_j columns[c][from + j] w[j][lane] for n keys and e columns; alpha is 1 if
 * NULL. A weight is multiplied by the scale of its row first. */
void FN(add_values_of_parts)(const pe_weight_products *t, const pe_parts *columns, int from, int n, int e, int width,
                             const real *w, const real *alpha, real *o);
/* o[j][c] += sum_lane w[j][lane] x[lane][c] for all panels of a block and the rows from <= j < to, where `from` is a
 * multiple of CHUNK. w has the layout of the scores, x is split by split_strips. */
void FN(add_outer_of_parts)(const pe_weight_products *t, const pe_query_block *queries, const real *w,
                            const uint32_t *x, int x_parts, int channels, int from, int to, real *o, idx o_step);

#endif
