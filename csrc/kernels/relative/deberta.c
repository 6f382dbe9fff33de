/* deberta.c -- He et al. 2021 (DeBERTa), equation 4:   s_ij += scale (q_i . rel_k[row_ij] + k_j . rel_q[row'_ij])
 *
 *     for each pair (i, j), with row = map[distance of i and j], row' = map_q[distance of i and j]:
 *         s[i][j] += scale * (dot(q[i], rel_k[row]) + dot(k[j], rel_q[row']));
 *
 * Either table may be absent. The lookup multiplies each table row once per tile and panel (of queries, or of keys)
 * instead of once per pair.
 */
#include "relative/content.h"

enum { REL_Q, REL_K, MAP, MAP_Q, D_REL_Q, D_REL_K };
static const pe_lookup k_table = {.table = REL_K, .map = MAP, .d_table = D_REL_K};
static const pe_lookup q_table = {.table = REL_Q, .map = MAP_Q, .d_table = D_REL_Q};

const pe_content_operator FN(deberta_operator) = {.query_table = &k_table, .key_table = &q_table};
