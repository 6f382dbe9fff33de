/* lookup_keys.c -- the lookup of lookup.h for tables that multiply the keys:   s_ij += scale k_j . table[row_ij]
 *
 *     for (int j = 0; j < n; j++)
 *         for (int l = 0; l < width; l++)
 *             added[j][l] += scale * dot(k[j], table[row[j][l]]);
 *
 * Here each lane holds one key, not one query. One matrix product multiplies each table row with PANEL_LANES keys. So a
 * row is multiplied once for these keys instead of once per pair.
 */
#include "base/transpose.h"
#include "relative/lookup.h"

/* added[j][l] += scale x[l][j] for the keys from `first` on, one per lane of x */
static void add_by_query(const pe_content *c, const pe_query_block *queries, int first, int n, const real *x)
{
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const pe_lanes lanes = {x + p->first * PANEL_LANES, PANEL_LANES, n, p->width};
        unpack_transposed(lanes, c->scale, NULL, (char *)c->diagonals, p->width * (idx)sizeof *x);
        add_reals(c->added + score_offset(p, first), c->diagonals, n * p->width);
    }
}

void FN(key_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup)
{
    const pe_query_block *queries = view->queries;
    for (int first = 0; first < view->keys->n; first += PANEL_LANES) {
        const int n = (int)min_(PANEL_LANES, view->keys->n - first);
        const pe_row_map r = FN(rel_to_row_by_key)(c, view, lookup->map, first, n);
        pack_transposed(lines_from(view->k, first), n, c->d, 1, PANEL_LANES, c->pack);
        zero_reals(c->scratch, r.n * PANEL_LANES);
        FN(add_lookup)(c, matrix_of(view, lookup->table), &r, c->d, c->pack, NULL, c->scratch);
        add_by_query(c, queries, first, n, c->scratch);
    }
}

/* ---- gradient ---- */

/* x[l][j] = dx[j][l] for n keys from `first` on, one per lane */
static void read_by_key(const pe_query_block *queries, int first, int n, const real *dx, real *x)
{
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const pe_lines rows = lines_of(dx + score_offset(p, first), p->width);
        pack_transposed(rows, n, p->width, 1, PANEL_LANES, x + p->first * PANEL_LANES);
    }
}

/* dk += scale times the products of w[row][key] with the table rows from `low` on */
static void add_to_dk(pe_content_vjp *vjp, const pe_lines table, const pe_span *w, int low, pe_sums dk)
{
    pe_content *c = vjp->content;
    zero_reals(vjp->d_piece, c->d * PANEL_LANES);
    FN(add_rows)(table, low, w->to, c->d, PANEL_LANES, w->w, vjp->d_piece);
    unpack_transposed((pe_lanes){vjp->d_piece, PANEL_LANES, w->lanes, c->d}, c->scale, NULL, (char *)c->pack,
                      c->d * (idx)sizeof(real));
    for (int j = 0; j < w->lanes; j++)
        add_reals(dk.row + j * dk.step, c->pack + j * c->d, c->d);
}

/* d k_j += scale sum_i dx_ij table[row_ij],   d table[row_ij] += scale dx_ij k_j */
void FN(key_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                       const real *dx, pe_sums dk)
{
    pe_content *c = vjp->content;
    const pe_lines table = matrix_of(view, lookup->table);
    const pe_strips strips = {vjp->strips, PANEL_LANES, c->d};
    const pe_sums d_table = table_gradient(vjp, view, lookup->d_table);
    for (int first = from; first < to; first += PANEL_LANES) {
        const int n = (int)min_(PANEL_LANES, to - first);
        const pe_row_map r = FN(rel_to_row_by_key)(c, view, lookup->map, first, n);
        int low, high, nonfinite[PANEL_LANES];
        read_by_key(view->queries, first, n, dx, c->scratch);
        for (int j = 0; j < n; j++)
            nonfinite[j] = FN(strip_row)(line_at(view->k, first + j), c->d, c->scale, vjp->strips, PANEL_LANES, j);
        FN(row_range)(&r, &low, &high);
        for (; low <= high; low += TILE_RELS) {
            const int rows = (int)min_(TILE_RELS, high - low + 1);
            real *w = c->products;
            const pe_span span = {w, 0, n, PANEL_LANES, 0, rows};
            FN(sum_by_row)(c, &r, low, rows, c->scratch, w);
            add_to_dk(vjp, table, &span, low, sums_from(dk, first));
            if (!d_table.row)
                continue;
            for (int j = 0; j < n; j++) { /* the strips have 0 in place of nonfinite numbers */
                for (int i = j; nonfinite[j] && i < rows * PANEL_LANES; i += PANEL_LANES)
                    w[i] = w[i] == 0 ? 0 : (real)NAN;
            }
            add_outer_of_span(&span, &strips, sums_from(d_table, low));
        }
    }
}

/* ---- a table with a single row ---- */

/* sum[r] += the sum of dS over the queries of a panel, for keys r < n. Lanes without a query hold 0. */
static void sum_lanes(const real *w, int n, int width, real *sum)
{
    for (int r = 0; r < n; r += LANES) {
        vec acc[LANES];
        real sums[LANES];
        for (int i = 0; i < LANES; i++) {
            const real *row = w + min_(r + i, n - 1) * width;
            acc[i] = vec_load(row);
            if (width == PANEL_LANES)
                acc[i] = vec_add(acc[i], vec_load(row + LANES));
        }
        vec_store(sums, vec_sums(acc));
        add_reals(sum + r, sums, min_(LANES, n - r));
    }
}

/* d k_j += scale vector sum_i dx_ij,   d vector += scale k_j sum_i dx_ij,   where vector is the row of the table */
void FN(key_row_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                     const real *dx, pe_sums dk)
{
    const real *vector = vector_of(view, lookup->table);
    double *d_u = gradient_of(vjp, view, lookup->d_table);
    real sum[BLOCK_N] = {0};
    for (const pe_panel *p = view->queries->panel; p < view->queries->panel + view->queries->panels; p++)
        sum_lanes(dx + score_offset(p, from), to - from, p->width, sum);
    for (int j = from; j < to; j++) {
        const real *key = line_at(view->k, j), all = vjp->content->scale * sum[j - from];
        if (all == 0)
            continue;
        for (int k = 0; k < vjp->content->d; k++) {
            dk.row[j * dk.step + k] += all * vector[k];
            if (d_u)
                d_u[k] += (double)(all * key[k]);
        }
    }
}
