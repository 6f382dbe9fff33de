/* gated_distance.c -- a bias by distance with gates for each query:   b_ij = gates_i . table[row_ij]
 *
 *     for each pair (i, j), with row = map[distance of i and j]:
 *         s[i][j] += dot(gates[i], table[row]);
 *
 * With one gate per query, this is the gated relative position bias of WavLM (Chen et al. 2022, section 3.2). The bias
 * is added after the cap. The lookup multiplies each table row once per tile and panel, CONTENT_PIECE gates at a time.
 */
#include "base/transpose.h"
#include "relative/pieces.h"

enum { GATES, TABLE, MAP, D_GATES, D_TABLE };

/* The lookup identifies the products that it keeps for the next tile by the table's address. Python copies the table of
 * each operator, so two operators do not share an address. */
static void after(pe_content *c, const pe_view *view, real *out)
{
    const pe_panel *p = view->panel;
    const pe_row_map r = rows_of_view(c, view, MAP);
    zero_reals(out, r.n * r.width);
    for (idx first = 0; first < channels_of(view); first += CONTENT_PIECE) {
        const int count = piece_channels(view, first);
        const pe_lines gates = piece_of(view, GATES, first_query(view), first);
        pack_transposed(gates, p->lanes, count, 1, p->width, c->pack);
        FN(add_lookup)(c, piece_of(view, TABLE, 0, first), &r, count, c->pack, NULL, out);
    }
}

/* d gates_i += sum_r w_ri table[r],   d table[r] += sum_i w_ri gates_i,   for the gates from `first` on. w_ri is
 * the sum of dS_ij over the keys j with row_ij = r, for n rows from `low` on, one query per lane. */
static void rows_vjp(pe_content_vjp *vjp, const pe_view *view, idx first, int low, int n, const real *w)
{
    const pe_panel *p = view->panel;
    const int count = piece_channels(view, first);
    const pe_span rows = {w, 0, p->lanes, p->width, 0, n};
    const pe_sums d_table = sums_from(table_gradient(vjp, view, D_TABLE), low);
    zero_reals(vjp->d_piece, count * p->width);
    FN(add_rows)(piece_of(view, TABLE, 0, first), low, n, count, p->width, w, vjp->d_piece);
    piece_vjp(vjp, view, GATES, D_GATES, first, 1);
    add_outer_of_span(&rows, &(pe_strips){vjp->strips, PANEL_LANES, count},
                      (pe_sums){d_table.row + first, d_table.step});
}

static void after_vjp(pe_content_vjp *vjp, const pe_view *view, real *ds)
{
    pe_content *c = vjp->content;
    int low, high;
    if (!operand_of(view, D_GATES)->data || !operand_of(view, D_TABLE)->data)
        return;
    const pe_row_map r = rows_of_view(c, view, MAP);
    FN(row_range)(&r, &low, &high);
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(sum_by_row)(c, &r, low, n, ds, c->products);
        for (idx first = 0; first < channels_of(view); first += CONTENT_PIECE)
            rows_vjp(vjp, view, first, low, n, c->products);
    }
}

const pe_content_operator FN(gated_distance_operator) = {.after = after, .after_vjp = after_vjp};
