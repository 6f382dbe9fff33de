/* scan.h -- the stage `scan`: sums of gates along the keys, for operators that count from the last key.
 *
 *     gate_it = sigmoid(scale q_i . k_t) for the visible keys t whose position is not after the query's, else 0
 *     sum_ij  = sum of gate_it over t >= j
 *
 * All operators of a call that count share the gates. The forward visits tiles and keys from the last one to the first.
 * The gradient has two passes: the first sums all gates, the second visits tiles in ascending order and takes the gates
 * of each tile away. So sum_ij has the same bits in both, if they are sums of the same numbers in the same order: for
 * the keys of a panel from the last to the first, c->passed[lane] plus the gates.
 */
#ifndef PE_SCAN_H
#define PE_SCAN_H

#include "relative/content.h"

/* First pass of the gradient: add the gates of a panel to c->passed. */
void FN(scan_count)(pe_content *c, const pe_view *v);
/* Before the operators of a panel: set c->gates, and c->passed to the sum of the gates behind the tile. */
void FN(scan_panel)(pe_content *c, const pe_view *v);
/* After them: c->passed for the next tile */
void FN(scan_panel_end)(pe_content *c, const pe_view *v);
/* After the gradients of the operators: b->d_gates holds d s_ij / d sum_ij, and becomes the gradient of scale q.k. */
void FN(scan_gates_vjp)(pe_content_vjp *b, const pe_view *v, const real *dx);

#endif
