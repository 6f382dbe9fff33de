/* deberta.c -- He et al. 2021 (DeBERTa), equation 4:
 *      s_ij += scale (q_i . rel_k[row_ij] + k_j . rel_q[row'_ij])
 *
 * Either table may be absent.
 */
#include "relative/content.h"

enum { REL_Q, REL_K, MAP, MAP_Q, D_REL_Q, D_REL_K };
static const pe_lookup k_table = {REL_K, MAP, D_REL_K}, q_table = {REL_Q, MAP_Q, D_REL_Q};

const pe_content_op FN(deberta_op) = {.query_table = &k_table, .key_table = &q_table};
