/* deberta.c -- He et al. 2021 (DeBERTa), equation 4:
 *      s_ij += scale (q_i . rel_k[row_ij] + k_j . rel_q[row'_ij])
 *
 * Either table may be absent.
 */
#include "relative/lookup.h"

enum { REL_Q, REL_K, MAP, MAP_Q, D_REL_Q, D_REL_K };
static const pe_lookup k_table = {REL_K, MAP, D_REL_K}, q_table = {REL_Q, MAP_Q, D_REL_Q};

const pe_content_op FN(deberta_op) = {.panel = FN(query_table_panel),
                                      .panels_vjp = FN(query_table_vjp),
                                      .query_table = &k_table,
                                      .keys = FN(key_table_scores),
                                      .keys_vjp = FN(key_table_vjp),
                                      .key_table = &q_table};
