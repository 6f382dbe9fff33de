/* shaw.c -- Shaw et al. 2018, equations 3 to 5:   s_ij += scale q_i . rel_k[row_ij],   o_i += sum_j p_ij rel_v[row_ij]
 *
 *     for each pair (i, j), with row = map[distance of i and j]:
 *         s[i][j] += scale * dot(q[i], rel_k[row]);
 *         o[i] += p[i][j] * rel_v[row];
 *
 * lookup_queries.c and lookup_values.c multiply each table row once per tile and panel instead of once per pair.
 */
#include "relative/content.h"

enum { REL_K, REL_V, MAP, D_REL_K, D_REL_V };
static const pe_lookup rel_k = {.table = REL_K, .map = MAP, .d_table = D_REL_K};
static const pe_lookup rel_v = {.table = REL_V, .map = MAP, .d_table = D_REL_V};

const pe_content_operator FN(shaw_operator) = {.query_table = &rel_k, .values = &rel_v};
