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

/* The strips of `channels` channels of each lane; a strip has room for `lanes` lanes. */
typedef struct {
    const real *x;
    int lanes, channels;
} pe_strips;

/* Rows to which a product is added, `step` numbers apart */
typedef struct {
    real *row;
    idx step;
} pe_sums;

INLINE int strip_width(int channels, int first) { return channels - first <= LANES ? LANES : PANEL_LANES; }

/* `channels` rounded up to whole vectors */
INLINE int strips_width(int channels) { return (channels + LANES - 1) / LANES * LANES; }

/* Add all channels of the rows from <= j < to. */
void FN(add_outer)(const pe_span *span, int spans, const pe_strips *x, int from, int to, pe_sums o);
/* The same for all panels of a block. w has the layout of the scores. */
void FN(add_outer_of_block)(const pe_query_block *queries, const real *w, const pe_strips *x, int from, int to,
                            pe_sums o);
/* The same for all rows of one span */
INLINE void add_outer_of_span(const pe_span *span, const pe_strips *x, pe_sums o)
{
    FN(add_outer)(span, 1, x, span->from, span->to, o);
}
/* Write scale * row as lane i of the strips, with 0 in place of numbers that are not finite; return whether there are
 * such numbers. */
int FN(strip_row)(const real *row, int n, real scale, real *restrict strips, int strip_lanes, int i);
/* Write the strips of an operand with one row per query. Bit i of the result: lane i has nonfinite numbers. */
uint64_t FN(strips_of)(const pe_query_block *queries, int operand, int n, real scale, real *restrict strips,
                       real *buffer);

#endif
