/* lookup_values.c -- the lookup of lookup.h for tables that are added to the values:   o_i += sum_j p_ij table[row_ij]
 *
 *     for (int j = from; j < to; j++)
 *         for (int l = 0; l < width; l++)
 *             o[l] += p[j][l] * table[row[j][l]];
 *
 * Lane l holds a query, and o[l] and a row of the table have e channels. The weights of a lane are first summed by
 * table row, so one matrix product with the rows replaces a vector addition for each query and key.
 */
#include "relative/lookup.h"

/* Sum the weights by row, TILE_RELS rows per pass. If vjp is NULL, multiply the sums with the rows and add to o; else
 * with the cotangents of vjp, and add to d_table, whose rows are `step` numbers apart. */
static void add_by_row(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *weights, real *o,
                       const pe_content_vjp *vjp, real *d_table, idx step)
{
    const int from = view->bias->from, to = view->bias->to;
    const pe_panel *p = view->panel;
    const pe_lines table = matrix_of(view, lookup->table);
    const pe_row_map r = FN(rel_to_row)(c, view, lookup->map, p->first, p->width);
    real *sums = c->products;
    int low, high;
    FN(row_range)(&r, from, to, p->width, &low, &high);
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(sum_by_row)(c, &r, from, to, low, n, p->width, weights, NULL, 1, sums);
        if (vjp)
            FN(add_outer_of_lanes)
        (p->first, p->lanes, p->width, sums, vjp->g_rows, BLOCK_M, c->e, n, d_table + low * step, step);
        else FN(add_rows)(table, low, n, c->e, p->width, sums, o);
    }
}

void FN(value_table_output)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *weights, real *o)
{
    add_by_row(c, view, lookup, weights, o, NULL, NULL, 0);
}

/* d_table[row_ij] += p_ij g_i for all pairs, if the caller wants this gradient */
void FN(value_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, const real *weights)
{
    real *d_table = gradient_of(vjp, view, lookup->d_table);
    if (d_table)
        add_by_row(vjp->content, view, lookup, weights, NULL, vjp, d_table, gradient_step(view, lookup->d_table));
}

/* The gradient of the weights:   add_ij += g_i . table[row_ij] */
void FN(value_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *g, real *add)
{
    const pe_lines table = matrix_of(view, lookup->table);
    const pe_row_map r = FN(rel_to_row)(c, view, lookup->map, view->panel->first, view->panel->width);
    FN(add_lookup)(c, table, &r, view->bias->from, view->bias->to, c->e, g, view->panel, NULL, add);
}
