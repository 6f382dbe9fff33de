/* outer.h -- the third matrix product of the gradient: a block of queries adds to keys, values or table rows.
 *
 *     o[j][c]  +=  sum over spans and lanes of   w[j][lane] x[lane][c]
 *
 * `lane` is the number of a query; here a SIMD register holds channels. A strip holds x[lane][c .. c + width) of all
 * lanes, one after the other. width is two vectors, or one in the last strip if the rest fits. Each number of o sums
 * over spans and lanes in their order, for any micro-tile, and the sum is then added to o.
 */
#ifndef PE_OUTER_H
#define PE_OUTER_H

#include "tile/product.h"
#include "tile/tile.h"

/* Weights w[j][lane] of the rows from <= j < to and some lanes. A micro-tile of up to SUMS rows reads them from each
 * span that has one of them. So if the spans of a call have different rows, the caller puts MARGIN rows of zeros before
 * and after each span (panel_by_row). */
typedef struct {
    const real *w; /* address of row 0, which may be outside the array */
    int first, lanes, width, from, to;
} pe_span;

enum { MARGIN = SUMS - 1 };

INLINE int strip_width(int channels, int first) { return channels - first <= LANES ? LANES : PANEL_LANES; }

/* `channels` rounded up to whole vectors */
INLINE int strips_width(int channels) { return (channels + LANES - 1) / LANES * LANES; }

/* Add all channels of the rows from <= j < to. x are strips of `strip_lanes` lanes. */
void FN(add_outer)(const pe_span *span, int spans, const real *x, int strip_lanes, int channels, int from, int to,
                   real *o, idx o_step);
/* The same for all panels of a block and the rows from <= j < to. w has the layout of the scores. */
void FN(add_outer_of_block)(const pe_query_block *queries, const real *w, const real *x, int channels, int from, int to,
                            real *o, idx o_step);
/* The same for n rows of one span with the lanes first <= l < first + lanes */
void FN(add_outer_of_lanes)(int first, int lanes, int width, const real *w, const real *x, int strip_lanes,
                            int channels, int n, real *o, idx o_step);
/* Write scale * row as lane i of the strips, with 0 in place of numbers that are not finite; return whether there are
 * such numbers. */
int FN(strip_row)(const real *row, int n, real scale, real *restrict strips, int strip_lanes, int i);
/* Write the strips of an operand with one row per query. Bit i of the result: lane i has nonfinite numbers. */
uint64_t FN(strips_of)(const pe_query_block *queries, int operand, int n, real scale, real *restrict strips,
                       real *buffer);

#endif
