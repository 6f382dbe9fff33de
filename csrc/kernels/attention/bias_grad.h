/* bias_grad.h -- what the terms of attention get of dS, the gradient of the biased scores.
 *
 * dS exists one panel of a tile at a time. A term whose bias is a function of few numbers needs only sums of it, and
 * each sum is asked for by an output that is given:
 *     diagonals(t,l)  over j - i = t - (N - 1): all that depends on distance, where positions count up by one
 *     rows(h,n)       over the keys             columns(t,m)  over the queries
 *     pairs(h,n,m)    no sum: dS is added to it, with any strides
 *     terms(z)        gradients of the PAIR terms, and of DISTANCE terms at irregular positions, array behind array
 * Axis t has head_parts and block_parts of attention_vjp in it: what one unit adds up no other does.
 */
#ifndef PE_SUMS_H
#define PE_SUMS_H

#include "tile/tile.h"

enum { A_GRAD = A_LSE + 1, A_GRAD_LSE, A_DQ, A_DK, A_DV, A_DIAGONALS, A_ROWS, A_COLUMNS, A_PAIRS, A_TERMS };

typedef struct {
    double *diagonals, *columns, rows[BLOCK_M]; /* of one head, one block; NULL where nobody asks */
    char *pairs;
    int wants_rows, distances, both;
    pe_array into[PE_TERMS][PE_TERM_ARRAYS];
} pe_sums;

/* Zero where a unit begins: the rows `t` of diagonals and columns */
void FN(sums_clear)(const pe_queries *q, idx t);
void FN(sums_at)(pe_sums *s, const pe_queries *q, idx t, const pe_work *work);
/* ds is that of keys from <= j < to of the tile and a panel; 0 where a pair is masked and in lanes that are no query */
void FN(sums_add)(pe_sums *s, const pe_keys *k, const pe_queries *q, const pe_panel *p, int from, int to,
                  const real *ds);
void FN(sums_write)(const pe_sums *s, const pe_queries *q);

#endif
