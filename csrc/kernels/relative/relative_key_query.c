/* relative_key_query.c -- Huang et al. 2020, method 4: one table, which queries and keys read.
 *
 *     for each pair (i, j), with row = map[rel], rel = position of key j - position of query i:
 *         s[i][j] += scale * dot(q[i] + k[j], table[row]);
 *
 * The lookup multiplies each row that a tile needs once with a panel of queries and once with a panel of keys, instead
 * of once per pair.
 */
#include "relative/content.h"

enum { TABLE, MAP, D_TABLE };
static const pe_lookup lookup = {.table = TABLE, .map = MAP, .d_table = D_TABLE};

const pe_content_operator FN(relative_key_query_operator) = {.query_table = &lookup, .key_table = &lookup};
