/* relative_key_query.c -- Huang et al. 2020, method 4:   s_ij += scale (q_i . table[row_ij] + k_j . table[row_ij]) */
#include "content/lookup.h"

enum { TABLE, MAP, D_TABLE };
static const pe_lookup table = {TABLE, MAP, D_TABLE};

static void panel(pe_content *c, const pe_view *v, real *add)
{
    FN(add_query_lookup)(c, v, &table, c->q + v->panel->first * c->d, add);
}

static void panels_vjp(pe_content_vjp *b, const pe_view *v, int (*seen)[2], const real *dx)
{
    FN(query_lookup_vjp)(b, v, seen, &table, dx, b->q_rows, b->dq);
}

static void keys(pe_content *c, const pe_view *v) { FN(add_key_lookup)(c, v, &table); }

static void keys_vjp(pe_content_vjp *b, const pe_view *v, int from, int to, const real *dx, real *dk, int dk_step)
{
    FN(key_lookup_vjp)(b, v, from, to, &table, dx, dk, dk_step);
}

const pe_content_op FN(relative_key_query_op) = {
    .panel = panel,
    .panels_vjp = panels_vjp,
    .keys = keys,
    .keys_vjp = keys_vjp,
};
