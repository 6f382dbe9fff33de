/* scores.h -- the scores of a panel. Attention and its gradient call the same function, so they get the same bits.
 *
 *     s = scale q.k + content;   s = softcap tanh(s / softcap);   s += bias, -inf where masked
 *
 * The gradient recomputes scores instead of reading them: an N x M array would not fit the caches.
 */
#ifndef PE_SCORES_H
#define PE_SCORES_H

#include "relative/content.h"

/* s gets a row of lanes for each visible key, and m its maximum. `multiplier` are the vectors that multiply the keys
 * (content.h). cap_slope, if not NULL, gets d s / d (the score before the cap), if there is one. */
void FN(panel_scores)(pe_content *c, const pe_view *v, const real *multiplier, real *s, real *m, real *cap_slope);

/* A tile of keys as rows of reals, which `panels` panels read */
pe_view FN(view_of_keys)(const pe_query_block *queries, const pe_key_tile *keys, int panels, real *copy);
/* Before the tiles of a gradient: sum all gates of operators that count along the keys. Returns 0 if the call was
 * stopped. */
int FN(count_gates)(pe_content *c, const pe_block_state *at, real *copy);

#endif
