/* scores.h -- the scores of a panel, computed alike by attention and, again, by its gradient.
 *
 *     s = scale q.k + content;   s = softcap tanh(s / softcap);   s += bias, -inf where masked
 */
#ifndef PE_SCORES_H
#define PE_SCORES_H

#include "content/content.h"

/* s gets a row of lanes for each visible key, m its maximum with what was there. `multiplier` is what multiplies the
 * keys of the block (content.h). cap_slope, if not NULL, gets d s / d (the score before the cap), if there is one. */
void FN(panel_scores)(pe_content *c, const pe_view *v, const real *multiplier, real *s, real *m, real *cap_slope);

/* The stored rows of keys or values from `first` on */
INLINE const char *stored_rows(const pe_query_block *u, int operand, idx first)
{
    const pe_array *a = &u->call->array[operand];
    return u->row.data[operand] + u->kv_head * a->core[0] + first * a->core[1];
}

#endif
