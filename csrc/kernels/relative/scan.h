/* scan.h -- the stage `scan`: sums of gates over the keys from the last one on.
 *
 *     gate_it = sigmoid(scale q_i . k_t) for the visible keys t whose position is not after the query's, else 0
 *     sum_ij  = sum of gate_it over t >= j
 *
 * All operators of a call share the gates. The forward pass visits tiles from the last to the first. The gradient has
 * two passes: the first sums all gates; the second visits tiles from the first to the last and subtracts the gates of
 * each tile. An operator sums in one order: c->passed[lane], then the gates from the last key of the panel to key j. In
 * float, sum_ij has the same bits in forward and gradient: gates are multiples of 2**-25, so their sums in double are
 * exact.
 */
#ifndef PE_SCAN_H
#define PE_SCAN_H

#include "relative/content.h"

/* First pass of the gradient: add the gates of a panel to c->passed. */
void FN(scan_count)(pe_content *c, const pe_view *view);
/* Before the operators of a panel: set c->gates, and c->passed to the sum of the gates of all keys after the tile. */
void FN(scan_panel)(pe_content *c, const pe_view *view);
/* After the operators of a panel: set c->passed for the next tile. */
void FN(scan_panel_end)(pe_content *c, const pe_view *view);
/* After the gradients of the operators: replace d s_ij / d sum_ij in vjp->d_gates by the gradient of scale q.k. */
void FN(scan_gates_vjp)(pe_content_vjp *vjp, const pe_view *view, const real *dx);

#endif
