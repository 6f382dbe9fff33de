/* bias_grad.h -- reduce dS, the gradient of the biased scores, to the gradients of position operators.
 *
 * dS exists one panel of a tile at a time. Most operators need only sums of dS. A sum is computed if the caller
 * passes its output:
 *     diagonals(t,l)  sum over the pairs with j - i = l - (N - 1), for toeplitz
 *     rows(h,n)       sum over the keys             columns(t,m)  sum over the queries
 *     ds(h,n,m)       dS itself, added to the output with any strides
 * The gradients of DISTANCE and PAIR operators are computed here, from dS and positions, if the caller passes them.
 * Axis t has a row for each head, or for each head and chunk of attention_vjp: no two units add to the same row.
 */
#ifndef PE_BIAS_GRAD_H
#define PE_BIAS_GRAD_H

#include "relative/content.h"

/* The reductions of one head and block of queries; NULL or 0 where the caller passes no output */
typedef struct {
    double *diagonals, *columns, rows[BLOCK_M];
    char *ds;
    int has_rows, has_distance_operators, has_pair_operators;
    pe_array into[PE_OPERATORS][PE_OPERATOR_ARRAYS]; /* partial sums of each operator's gradients */
    union {                                          /* buffers of one reduction */
        real padded[BLOCK_N * (PANEL_LANES + 2 * LANES)];
        double pairs[BLOCK_N * PANEL_LANES];
    } of;
} pe_bias_grad;

/* Zero row t of diagonals and columns, before its first block. */
void FN(bias_grad_clear)(const pe_query_block *queries, idx t);
/* Set what the panels of block t share. */
void FN(bias_grad_block)(pe_bias_grad *g, const pe_query_block *queries, idx t, const pe_work *work);
/* Reduce ds, which is dS of a panel. It is 0 for masked pairs and lanes without a query. */
void FN(bias_grad_panel)(pe_bias_grad *g, const pe_view *v, const real *ds);
/* Write the sums of the queries' rows; diagonals and columns are written at their place. */
void FN(bias_grad_write)(const pe_bias_grad *g, const pe_query_block *queries);

#endif
