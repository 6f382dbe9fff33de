/* transformer_xl.c -- Dai et al. 2019, section 3.3:   s_ij += scale (u . k_j + (q_i + v) . r[row_ij])
 *
 *     for each pair (i, j), with row = map[distance of i and j]:
 *         s[i][j] = scale * (dot(q[i] + u, k[j]) + dot(q[i] + v, r[row]));
 *
 * content.c adds u to the packed queries once per block, so the first product costs as much as q.k. The lookup
 * multiplies each row of r once per tile and panel of queries.
 */
#include "relative/content.h"

enum { R_TABLE, U, V, MAP, D_R, D_U, D_V };
static const pe_lookup r_table = {R_TABLE, MAP, D_R, V, D_V}, u_row = {.table = U, .d_table = D_U};

const pe_content_operator FN(transformer_xl_operator) = {.query_table = &r_table, .key_table = &u_row};
