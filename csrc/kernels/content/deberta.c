/* deberta.c -- He et al. 2021 (DeBERTa), equation 4:
 *      s_ij += scale (q_i . rel_k[row_ij] + k_j . rel_q[row'_ij])
 *
 * Either table may be absent.
 */
#include "content/lookup.h"

enum { REL_Q, REL_K, MAP, MAP_Q, D_REL_Q, D_REL_K };
static const pe_lookup k_table = {REL_K, MAP, D_REL_K}, q_table = {REL_Q, MAP_Q, D_REL_Q};

static int has(const pe_view *v, int table) { return operand_of(v, table)->data != NULL; }

static void panel(pe_content *c, const pe_view *v, real *add)
{
    if (has(v, REL_K))
        FN(add_query_lookup)(c, v, &k_table, c->q + v->panel->first * c->d, add);
}

static void panels_vjp(pe_content_vjp *b, const pe_view *v, int (*seen)[2], const real *dx)
{
    if (has(v, REL_K))
        FN(query_lookup_vjp)(b, v, seen, &k_table, dx, b->q_rows, b->dq);
}

static void keys(pe_content *c, const pe_view *v)
{
    if (has(v, REL_Q))
        FN(add_key_lookup)(c, v, &q_table);
}

static void keys_vjp(pe_content_vjp *b, const pe_view *v, int from, int to, const real *dx, real *dk, int dk_step)
{
    if (has(v, REL_Q))
        FN(key_lookup_vjp)(b, v, from, to, &q_table, dx, dk, dk_step);
}

const pe_content_op FN(deberta_op) = {
    .keys = keys,
    .panel = panel,
    .panels_vjp = panels_vjp,
    .keys_vjp = keys_vjp,
};
