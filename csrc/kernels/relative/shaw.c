/* shaw.c -- Shaw et al. 2018, equations 3 to 5:   s_ij += scale q_i . rel_k[row_ij],   o_i += sum_j p_ij rel_v[row_ij] */
#include "relative/content.h"

enum { REL_K, REL_V, MAP, D_REL_K, D_REL_V };
static const pe_lookup k_table = {REL_K, MAP, D_REL_K}, v_table = {REL_V, MAP, D_REL_V};

const pe_content_op FN(shaw_op) = {.query_table = &k_table, .values = &v_table};
