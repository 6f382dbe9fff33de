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

/* added[j, l] += scale product[row - low, j], for the pairs with low <= row < low + rows */
static void gather_keys(const pe_content *c, const pe_query_block *queries, const pe_row_map *r, int first, int n,
                        int low, int rows)
{
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int j = 0; j < n; j++) {
            const int32_t *row = r->row + (first + j) * r->step + p->first;
            real *add = c->added + score_offset(p, first + j);
            SIMD
            for (int l = 0; l < p->width; l++) {
                const int t = row[l] - low, inside = (t >= 0) & (t < rows);
                const real x = c->products[(inside ? t : 0) * PANEL_LANES + j];
                add[l] += inside ? c->scale * x : 0;
            }
        }
    }
}

/* The same sum if each diagonal has one row (lookup.h). Row j of the transposed diagonals has the products of key j;
 * lane l reads number l + n - 1 - j of it. */
static void add_key_diagonals(const pe_content *c, const pe_query_block *queries, int first, int n)
{
    const int count = n + queries->width - 1;
    real *transposed = c->scratch;
    unpack_transposed(c->diagonals, PANEL_LANES, n, count, c->scale, NULL, (char *)transposed,
                      count * (idx)sizeof *transposed);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int j = 0; j < n; j++) {
            const real *x = transposed + j * count + (n - 1 - j) + p->first;
            add_reals(c->added + score_offset(p, first + j), x, p->width);
        }
    }
}

void FN(key_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup)
{
    const pe_query_block *queries = view->queries;
    const pe_lines table = matrix_of(view, lookup->table);
    const pe_row_map r = FN(rel_to_row)(c, view, lookup->map, 0, queries->width);
    const int by_diagonal = r.step == -1;
    for (int first = 0; first < view->keys->n; first += PANEL_LANES) {
        const int n = (int)min_(PANEL_LANES, view->keys->n - first);
        const int32_t *row = r.row - (first + n - 1); /* of the first diagonal */
        int low, high;
        pack_transposed(lines_from(view->k, first), n, c->d, 1, PANEL_LANES, c->pack);
        FN(row_range)(&r, first, first + n, queries->width, &low, &high);
        for (; low <= high; low += TILE_RELS) {
            const int rows = (int)min_(TILE_RELS, high - low + 1);
            FN(multiply_rows)(table, low, rows, c->d, c->pack, PANEL_LANES, c->products);
            if (by_diagonal)
                FN(copy_to_diagonals)(row, n + queries->width - 1, low, rows, PANEL_LANES, c->products, c->diagonals);
            else
                gather_keys(c, queries, &r, first, n, low, rows);
        }
        if (by_diagonal)
            add_key_diagonals(c, queries, first, n);
    }
}

/* ---- gradient: w[row - low][key] is the sum of dx over the lanes with this row ---- */

static void sum_pairs_by_row(const pe_query_block *queries, const pe_row_map *r, int first, int n, int low, int rows,
                             const real *dx, real *w)
{
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int j = 0; j < n; j++) {
            const int32_t *row = r->row + (first + j) * r->step + p->first;
            const real *x = dx + score_offset(p, first + j);
            for (int l = 0; l < p->width; l++) {
                if (row[l] >= low && row[l] - low < rows)
                    w[(row[l] - low) * PANEL_LANES + j] += x[l];
            }
        }
    }
}

/* The same sum if each diagonal has one row: the transpose of add_key_diagonals */
static void sum_diagonals_by_row(const pe_content *c, const pe_query_block *queries, const pe_row_map *r, int first,
                                 int n, int low, int rows, const real *dx, real *w)
{
    const int count = n + queries->width - 1;
    const int32_t *row = r->row - (first + n - 1);
    real *transposed = c->scratch;
    zero_reals(transposed, n * count);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int j = 0; j < n; j++)
            memcpy(transposed + j * count + (n - 1 - j) + p->first, dx + score_offset(p, first + j),
                   (size_t)p->width * sizeof *dx);
    }
    pack_transposed((pe_lines){(const char *)transposed, count * (idx)sizeof *transposed}, n, count, 1, PANEL_LANES,
                    c->diagonals);
    for (int i = 0; i < count; i++) {
        if (row[i] >= low && row[i] - low < rows)
            add_reals(w + (row[i] - low) * PANEL_LANES, c->diagonals + i * PANEL_LANES, PANEL_LANES);
    }
}

/* d k_j += scale sum_i dx_ij table[row_ij],   d table[row_ij] += scale dx_ij k_j */
void FN(key_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                       const real *dx, real *dk, int dk_step)
{
    const pe_query_block *queries = view->queries;
    pe_content *c = vjp->content;
    const pe_lines table = matrix_of(view, lookup->table);
    const pe_row_map r = FN(rel_to_row)(c, view, lookup->map, 0, queries->width);
    const idx d_step = gradient_step(view, lookup->d_table);
    real *d_table = gradient_of(vjp, view, lookup->d_table);
    for (int first = from; first < to; first += PANEL_LANES) {
        const int n = (int)min_(PANEL_LANES, to - first);
        int low, high, nonfinite[PANEL_LANES];
        FN(row_range)(&r, first, first + n, queries->width, &low, &high);
        for (int j = 0; j < n; j++)
            nonfinite[j] = FN(strip_row)(line_at(view->k, first + j), c->d, c->scale, vjp->strips, PANEL_LANES, j);
        for (; low <= high; low += TILE_RELS) {
            const int rows = (int)min_(TILE_RELS, high - low + 1);
            real *w = c->products;
            zero_reals(w, rows * PANEL_LANES);
            if (r.step == -1)
                sum_diagonals_by_row(c, queries, &r, first, n, low, rows, dx, w);
            else
                sum_pairs_by_row(queries, &r, first, n, low, rows, dx, w);
            zero_reals(vjp->d_piece, c->d * PANEL_LANES);
            FN(add_rows)(table, low, rows, c->d, PANEL_LANES, w, vjp->d_piece);
            unpack_transposed(vjp->d_piece, PANEL_LANES, n, c->d, c->scale, NULL, (char *)c->pack,
                              c->d * (idx)sizeof(real));
            for (int j = 0; j < n; j++)
                add_reals(dk + (first + j) * dk_step, c->pack + j * c->d, c->d);
            if (!d_table)
                continue;
            for (int j = 0; j < n; j++) { /* the strips have 0 in place of nonfinite numbers */
                for (int i = j; nonfinite[j] && i < rows * PANEL_LANES; i += PANEL_LANES)
                    w[i] = w[i] == 0 ? 0 : (real)NAN;
            }
            FN(add_outer_of_lanes)
            (0, n, PANEL_LANES, w, vjp->strips, PANEL_LANES, c->d, rows, d_table + low * d_step, d_step);
        }
    }
}

/* ---- a table with a single row ---- */

/* sum[r] += sum of the lanes of row r, for r < n. Lanes without a query hold 0. */
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
                     const real *dx, real *dk, int dk_step)
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
            dk[j * dk_step + k] += all * vector[k];
            if (d_u)
                d_u[k] += (double)(all * key[k]);
        }
    }
}
