/* scores.h -- the scores of a panel. Attention and its gradient call the same function, so they get the same bits.
 *
 *     s = scale q.k + content;   s = softcap tanh(s / softcap);   s += bias, -inf where masked
 *
 * The gradient recomputes scores instead of reading them: an N x M array would not fit the caches.
 */
#ifndef PE_SCORES_H
#define PE_SCORES_H

#include "relative/content.h"

/* Store a row of lanes in s for each visible key, and update the maximum m, unless it is NULL. `multiplier` holds the vectors that
 * multiply the keys (content.h). cap_slope, if not NULL, gets the derivative of the cap, if there is a cap. */
void FN(panel_scores)(pe_content *c, const pe_view *v, const real *multiplier, real *s, real *m, real *cap_slope);

/* The scores of all panels of a block, as panel_scores of each. Panel p has a bias, and stores at s + score_offset(p, 0). */
void FN(block_scores)(pe_content *c, pe_view v, const pe_panel_bias *bias, const real *multiplier, real *s, real *m);

/* Begin a block: pack its queries times scale in `q`, one per lane. With 16-bit products, they are multiplied by a power
 * of two, which is exact, and c->factor of the scores is the rest of the scale. */
void FN(begin_block)(pe_content *c, const pe_query_block *queries, real *copy, real *q);

/* Return a tile of keys as rows of reals; `panels` panels read it. */
pe_view FN(view_of_keys)(const pe_query_block *queries, const pe_key_tile *keys, int panels, real *copy);
/* Sum all gates of operators that scan the keys, before the first tile of a gradient. Returns 0 if the call was
 * stopped. */
int FN(count_gates)(pe_content *c, const pe_block_state *at, real *copy);

#endif
