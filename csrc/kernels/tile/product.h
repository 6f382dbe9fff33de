/* product.h -- the two matrix products of attention. Each SIMD lane holds one query. Keys and values are read in place,
 * with any row stride, and each number is broadcast to all lanes. (outer.h has the third product, of the gradient.)
 *
 *     scores   c[j][lane]  = sum_d k[j][d] b[d][lane] (+ bias)      max[lane] = max(max[lane], c[j][lane])
 *     values   c[d][lane]  = c[d][lane] alpha[lane] + sum_j v[j][d] b[j][lane]
 *
 * A panel is one vector of lanes or two. Each lane sums in the order of d or j, for any panel and micro-tile. So the
 * result of a query does not depend on the other queries of the call.
 *
 * On AVX-512, two panels that are multiplied with the same rows are one product: 6 rows x 4 vectors need 10 loads for
 * 24 products, 8 rows x 2 vectors 10 loads for 16.
 */
#ifndef PE_PRODUCT_H
#define PE_PRODUCT_H

#include "base/vec.h"

/* Accumulators of the micro-kernel: 8 rows x 2 vectors of AVX-512's 32 registers, 6 x 2 of AVX2's 16, 4 x 2 elsewhere;
 * the other registers hold two vectors of b and the broadcast number. A panel of one vector has micro-tiles of twice
 * the rows, because six sums do not hide the latency of FMA. Two panels have micro-tiles of 6 rows x 4 vectors. */
enum { SUMS = VEC_BYTES == 64 ? 16 : VEC_BYTES == 32 ? 12 : 8 };
enum { TWO_PANELS = VEC_BYTES == 64, TWO_PANEL_ROWS = 6, MOST_SUMS = 4 * TWO_PANEL_ROWS };

/* Computes the rows from j on of a product w, whose sums are one micro-tile: rows x cols vectors in registers. */
typedef void pe_micro_kernel(int rows, int cols, int panels, const void *w, int j);

/* Call `kernel` for the rows from <= j < to, SUMS / cols rows at a time. The rest is split into micro-tiles of 8, 4, 2
 * and 1 rows, because a padded one would read beyond the last row. Each call passes a constant number of rows, so that
 * the compiler keeps the sums in registers. */
INLINE void in_micro_tiles(pe_micro_kernel *kernel, int cols, const void *w, int from, int to)
{
    const int rows = SUMS / cols;
    int j = from;
    for (; to - j >= rows; j += rows)
        kernel(rows, cols, 1, w, j);
    if (rows > 8 && to - j >= 8) {
        kernel(8, cols, 1, w, j);
        j += 8;
    }
    if (rows > 4 && to - j >= 4) {
        kernel(4, cols, 1, w, j);
        j += 4;
    }
    if (to - j >= 2) {
        kernel(2, cols, 1, w, j);
        j += 2;
    }
    if (to - j >= 1)
        kernel(1, cols, 1, w, j);
}

/* The same for two panels of two vectors, 6 or 4 rows at a time. Returns the first row that is left. If two rows would
 * be left, one micro-tile of 6 becomes two of 4, because sums of two rows do not hide the latency of FMA. */
INLINE int in_two_panels(pe_micro_kernel *kernel, const void *w, int from, int to)
{
    const int fours = (to - from) % TWO_PANEL_ROWS == 2 && to - from >= 8 ? 2 : (to - from) % TWO_PANEL_ROWS >= 4;
    int j = from;
    for (; to - j >= TWO_PANEL_ROWS + 4 * fours; j += TWO_PANEL_ROWS)
        kernel(TWO_PANEL_ROWS, 2, 2, w, j);
    for (int i = 0; i < fours; i++, j += 4)
        kernel(4, 2, 2, w, j);
    return j;
}

/* One panel of a product. In `scores` the rows are keys, and c begins with row `from`; in `values` the sum runs over
 * these keys, and b begins with key `from`. */
typedef struct {
    const real *b;     /* queries or weights, `width` numbers for each channel or key */
    int width;         /* LANES or 2 LANES */
    int from, to;      /* the keys */
    const real *add;   /* scores: the bias of key `from`; NULL: none */
    int step;          /* from the bias of a key to that of the next */
    real *max;         /* scores: NULL if not needed */
    const real *alpha; /* values: NULL for 1 */
    real *c;
} pe_side;

/* Multiply keys of d channels with the queries of some panels. */
void FN(scores)(pe_lines k, int d, const pe_side *side, int sides);
/* Multiply e channels of values with the weights of some panels. */
void FN(values)(pe_lines v, int e, const pe_side *side, int sides);

#endif
