/* relative_key_query.c -- Huang et al. 2020, method 4:   s_ij += scale (q_i . table[row_ij] + k_j . table[row_ij])
 *
 *     for each pair (i, j), with row = map[distance of i and j]:
 *         s[i][j] += scale * dot(q[i] + k[j], table[row]);
 *
 * The lookup multiplies the table with q and with k separately, each row once per tile and panel (of queries, or of
 * keys) instead of once per pair.
 */
#include "relative/content.h"

enum { TABLE, MAP, D_TABLE };
static const pe_lookup table = {.table = TABLE, .map = MAP, .d_table = D_TABLE};

const pe_content_op FN(relative_key_query_op) = {.query_table = &table, .key_table = &table};
