/* outer.h -- the third product of the gradient: from a block of queries to the keys or values of a tile, or to a table.
 *
 *     o[j][c]  +=  sum over spans and lanes of   w[j][lane] x[lane][c]
 *
 * Channels stand on SIMD lanes. A strip holds x[lane][c .. c + width) for one lane after the other; its width is two
 * vectors, or one in the last strip if that is enough. Every number of o sums over the lanes in their order, whatever
 * the row block is. Each span is summed on its own and then added.
 */
#ifndef PE_OUTER_H
#define PE_OUTER_H

#include "tile/gemm.h"
#include "tile/tile.h"

/* Weights of the rows from <= j < to for some lanes. A row block may read over both ends, unless all spans end there
 * too: MARGIN rows of zeros must lie on each side. */
typedef struct {
    const real *w; /* of row 0, which need not exist */
    int first, lanes, width, from, to;
} pe_span;

enum { MARGIN = SUMS - 1 };

INLINE int strip_width(int channels, int first) { return channels - first <= LANES ? LANES : PANEL_LANES; }

/* The channels and those that fill up the last vector */
INLINE int strips_width(int channels) { return (channels + LANES - 1) / LANES * LANES; }

/* All channels of rows from <= j < to; x are strips of `strip_lanes` lanes. */
void FN(add_outer)(const pe_span *span, int spans, const real *x, int strip_lanes, int channels, int from, int to,
                   real *o, idx o_step);
/* The panels of a block, whose weights w lie as its scores do; all of them have rows from <= j < to. */
void FN(add_outer_of_block)(const pe_query_block *queries, const real *w, const real *x, int channels, int from, int to,
                            real *o, idx o_step);
/* The same for n rows of weights w and lanes first ... of one panel */
void FN(add_outer_of_lanes)(int first, int lanes, int width, const real *w, const real *x, int strip_lanes,
                            int channels, int n, real *o, idx o_step);
/* Write scale * row as lane i of the strips, with 0 in place of numbers that are not finite; return whether there are
 * such numbers. */
int FN(strip_row)(const real *row, int n, real scale, real *restrict strips, int strip_lanes, int i);
/* The product of one lane with the numbers that strip_row left out: o[j][c] += w[j] scale x[c] for the rows j < n whose
 * weight `seen` is not 0. Numbers of x, weights and rows of o are their steps apart. */
void FN(add_nonfinite)(const real *x, int x_step, real scale, int channels, const real *seen, const real *w, int w_step,
                       int n, real *o, idx o_step);
/* The rows of an operand that has one for each query; the lanes that have nonfinite numbers are returned. */
uint64_t FN(strips_of)(const pe_query_block *queries, int operand, int n, real scale, real *restrict strips,
                       real *buffer);

#endif
