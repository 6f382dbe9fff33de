/* scores.h -- the scores of a panel. Attention and its gradient call the same function, so they get the same bits.
 *
 *     s = scale q.k + content;   s = softcap tanh(s / softcap);   s += bias, -inf where masked
 *
 * The gradient recomputes scores instead of reading them: an N x M array would not fit the caches.
 */
#ifndef PE_SCORES_H
#define PE_SCORES_H

#include "relative/content.h"

/* Store a row of scores, one per lane, for each key in v->bias->from .. to. If m is not NULL, update each lane's
 * maximum in it. `multiplier` are the vectors that multiply the keys: the packed queries, to which operators may have
 * added (content.h). cap_slope, if not NULL, gets the derivative of the cap, if there is a cap. */
void FN(panel_scores)(pe_content *c, const pe_view *v, const real *multiplier, real *s, real *m, real *cap_slope);

/* The scores of all panels of a block, as panel_scores of each. Panel p takes bias[p], stores at s + score_offset(p, 0)
 * and updates m from m + p->first on. */
void FN(block_scores)(pe_content *c, pe_view v, const pe_panel_bias *bias, const real *multiplier, real *s, real *m);

/* Begin a block: pack its queries times scale in `q`, one per lane. 16-bit operands are packed times a power of
 * two, which is exact, and the scores take c->factor, the rest of the scale. Logits are not scaled, but the gates of a
 * scan are. */
void FN(begin_block)(pe_content *c, const pe_query_block *queries, real *copy, real *q);

/* Return a tile of keys as rows of reals, in `copy` if they are stored otherwise. `panels` panels will read it. */
pe_view FN(view_of_keys)(const pe_query_block *queries, const pe_key_tile *keys, int panels, real *copy);
/* Before the first tile of a gradient: sum the gates of all keys in c->passed, for the stage `scan` (content.h).
 * Returns 0 if the call was stopped. */
int FN(sum_gates)(pe_content *c, const pe_block_state *at, real *copy);

#endif
