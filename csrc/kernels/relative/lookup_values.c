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

void FN(value_table_output)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *weights, real *o)
{
    const pe_row_map r = rows_of_view(c, view, lookup->map);
    int low, high;
    FN(row_range)(&r, &low, &high);
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(sum_by_row)(c, &r, low, n, weights, c->products);
        FN(add_rows)(matrix_of(view, lookup->table), low, n, c->e, r.width, c->products, o);
    }
}

/* d_table[row_ij] += p_ij g_i for all pairs, if the caller wants this gradient */
void FN(value_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, const real *weights)
{
    pe_content *c = vjp->content;
    const pe_panel *p = view->panel;
    const pe_strips strips = {vjp->g_rows, BLOCK_M, c->e};
    const pe_sums d_table = table_gradient(vjp, view, lookup->d_table);
    int low, high;
    if (!d_table.row)
        return;
    const pe_row_map r = rows_of_view(c, view, lookup->map);
    FN(row_range)(&r, &low, &high);
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        const pe_span rows = {c->products, p->first, p->lanes, p->width, 0, n};
        FN(sum_by_row)(c, &r, low, n, weights, c->products);
        add_outer_of_span(&rows, &strips, sums_from(d_table, low));
    }
}

/* The gradient of the weights:   add_ij += g_i . table[row_ij] */
void FN(value_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *g, real *add)
{
    const pe_row_map r = rows_of_view(c, view, lookup->map);
    FN(add_lookup)(c, matrix_of(view, lookup->table), &r, c->e, g, NULL, add);
}
