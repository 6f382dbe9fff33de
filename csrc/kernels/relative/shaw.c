/* shaw.c -- Shaw et al. 2018, equations 3 to 5:   s_ij += scale q_i . rel_k[row_ij],   o_i += sum_j p_ij rel_v[row_ij] */
#include "relative/lookup.h"

enum { REL_K, REL_V, MAP, D_REL_K, D_REL_V };
static const pe_lookup keys_table = {REL_K, MAP, D_REL_K};

/* Weights summed by row, TILE_RELS rows at a time, and then multiplied by the rows. */
static void values(pe_content *c, const pe_view *v, const real *weights, real *o)
{
    const int from = v->visible->from, to = v->visible->to, width = v->panel->width;
    const pe_matrix table = matrix_of(v, REL_V);
    const pe_row_map r = FN(rel_to_row)(c, v, MAP, v->panel->first, width);
    int low, high;
    FN(row_range)(&r, from, to, width, &low, &high);
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(sum_by_row)(c, &r, from, to, low, n, width, weights, NULL, 1, c->products);
        FN(add_rows)(&table, low, n, c->e, width, c->products, o);
    }
}

/* d rel_v[row_ij] += p_ij g_i */
static void values_vjp(pe_content_vjp *b, const pe_view *v, const real *weights)
{
    const int from = v->visible->from, to = v->visible->to;
    const pe_panel *p = v->panel;
    pe_content *c = b->content;
    const idx step = gradient_step(v, D_REL_V);
    real *d_table = gradient_of(b, v, D_REL_V);
    int low, high;
    if (!d_table)
        return;
    const pe_row_map r = FN(rel_to_row)(c, v, MAP, p->first, p->width);
    FN(row_range)(&r, from, to, p->width, &low, &high);
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        real *rows = d_table + low * step;
        FN(sum_by_row)(c, &r, from, to, low, n, p->width, weights, NULL, 1, c->products);
        FN(add_outer_of_lanes)(p->first, p->lanes, p->width, c->products, b->g_rows, BLOCK_M, c->e, n, rows, step);
    }
}

/* g_i . d o_i / d p_ij:   add g_i . rel_v[row_ij] */
static void value_scores(pe_content *c, const pe_view *v, const real *g, real *add)
{
    const pe_matrix table = matrix_of(v, REL_V);
    const pe_row_map r = FN(rel_to_row)(c, v, MAP, v->panel->first, v->panel->width);
    FN(add_lookup)(c, &table, &r, v->visible->from, v->visible->to, c->e, g, v->panel, NULL, add);
}

const pe_content_op FN(shaw_op) = {.panel = FN(query_table_panel),
                                   .panels_vjp = FN(query_table_vjp),
                                   .query_table = &keys_table,
                                   .values = values,
                                   .values_operand = REL_V,
                                   .value_scores = value_scores,
                                   .values_vjp = values_vjp};
