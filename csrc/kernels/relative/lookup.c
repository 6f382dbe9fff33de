/* lookup.c -- see lookup.h. For the keys from <= j < to of a panel, and x the vectors on its lanes:
 *
 *     for (int j = from; j < to; j++)
 *         for (int l = 0; l < width; l++)
 *             add[j][l] += factor[j][l] * dot(x[l], table[row[j][l]]);
 *
 * Many pairs share a row. So one matrix product multiplies each row of a tile with all x, and each pair gathers its
 * number from the product. If positions count up by one, lane l reads the products l rows further than lane 0. Then
 * blends shift the lanes, one blend per bit of l, and replace the gather; and the products that the next tile needs are
 * kept.
 */
#include "relative/lookup.h"

/* ---- table rows of pairs ---- */

/* The row index is clamped to the table, so that a bad map cannot read out of bounds. */
INLINE int row_of(const int64_t *map, int reach, int64_t rows, double rel)
{
    const int64_t row = map[(int)clamp_(rel, reach) + reach]; /* the conversion rounds towards zero */
    return (int)(row < 0 ? 0 : row < rows ? row : rows - 1);
}

/* Set the table rows of pairs: rel = sign (rows[j] - lanes[l]). If positions count up, each diagonal has one row. */
static void set_rows(pe_content *c, const pe_view *view, int operand, double sign, const double *rows,
                     const double *lanes, pe_row_map *r)
{
    const idx *dim = operator_of(view)->dim;
    const int64_t *map = (const int64_t *)(void *)operand_of(view, operand)->data;
    const int n = r->n, width = r->width, reach = (int)(D(B) / 2);
    const int64_t table_rows = D(R);
    int32_t *index = c->index;
    const int by_diagonal = key_positions(view->keys, view->queries, view->operator_index)->count_up
                            && query_positions(view->queries, view->operator_index)->count_up;
    r->row = by_diagonal ? index + n - 1 : index;
    r->step = by_diagonal ? -1 : width;
    if (by_diagonal) {
        const double last = rows[0] + (n - 1) - lanes[0]; /* rows[n - 1] may repeat the last query */
        for (int t = 0; t < n + width - 1; t++)
            index[t] = row_of(map, reach, table_rows, sign * (last - t));
        return;
    }
    for (int j = 0; j < n; j++) {
        for (int l = 0; l < width; l++)
            index[j * width + l] = row_of(map, reach, table_rows, sign * (rows[j] - lanes[l]));
    }
}

pe_row_map FN(rel_to_row)(pe_content *c, const pe_view *view, int operand, const pe_panel *p, int from, int to)
{
    const double *at_q = query_positions(view->queries, view->operator_index)->at;
    const double *at_k = key_positions(view->keys, view->queries, view->operator_index)->at;
    pe_row_map r = {.n = to - from, .width = p->width, .first = p->first};
    set_rows(c, view, operand, 1, at_k + from, at_q + p->first, &r);
    return r;
}

pe_row_map FN(rel_to_row_by_key)(pe_content *c, const pe_view *view, int operand, int first, int n)
{
    const double *at_q = query_positions(view->queries, view->operator_index)->at;
    const double *at_k = key_positions(view->keys, view->queries, view->operator_index)->at;
    pe_row_map r = {.n = view->queries->width, .width = PANEL_LANES, .first = -1};
    double lanes[PANEL_LANES];
    for (int l = 0; l < PANEL_LANES; l++)
        lanes[l] = at_k[first + min_(l, n - 1)];
    set_rows(c, view, operand, -1, at_q, lanes, &r);
    for (int t = r.n + n - 1; r.step == -1 && t < r.n + r.width - 1; t++) /* of lanes without a key */
        c->index[t] = c->index[t - 1];
    return r;
}

void FN(row_range)(const pe_row_map *r, int *low, int *high)
{
    const int by_diagonal = r->step == -1, n = by_diagonal ? 1 : r->n;
    const int width = by_diagonal ? r->n + r->width - 1 : r->width;
    const int32_t *row = by_diagonal ? diagonals_of(r) : r->row;
    int least = *row, most = *row;
    for (int i = 0; i < n * width; i++) {
        least = row[i] < least ? row[i] : least;
        most = row[i] > most ? row[i] : most;
    }
    *low = least;
    *high = most;
}

/* 1 if the rows of the diagonals increase by one each, -1 if they decrease by one each, else 0 */
static int direction(const int32_t *row, int count)
{
    const int step = count > 1 ? row[1] - row[0] : 1;
    int same = step == 1 || step == -1;
    SIMD_AND(same)
    for (int i = 0; i < count; i++)
        same &= row[i] == row[0] + step * i;
    return same ? step : 0;
}

/* ---- products with rows ---- */

void FN(multiply_rows)(pe_lines m, int first, int n, int d, const real *pack, int width, real *out)
{
    const pe_side side = {.b = pack, .width = width, .from = first, .to = first + n, .c = out};
    FN(scores)(m, d, &side, 1);
}

void FN(add_rows)(pe_lines m, int first, int n, int channels, int width, const real *w, real *o)
{
    const pe_side side = {.b = w, .width = width, .from = first, .to = first + n, .c = o};
    FN(values)(m, channels, &side, 1);
}

/* Products with the rows of the diagonals, which increase by one each (step 1) or decrease (step -1). The tile before
 * shares width - 1 of these rows: the lowest if rows increase with the keys, else the highest. c->kept holds their
 * products for each panel. */
static void rolling_products(pe_content *c, pe_lines table, const pe_row_map *r, int step, int d, const real *pack,
                             real *out)
{
    const int width = r->width, overlap = width - 1, fresh = r->n, up = step < 0, count = fresh + overlap;
    const int low = diagonals_of(r)[up ? count - 1 : 0];
    const size_t bytes = (size_t)(overlap * width) * sizeof(real);
    pe_kept_rows *last = &c->kept_rows[r->first / PANEL_LANES];
    real *kept = c->kept + r->first * PANEL_LANES;
    const pe_kept_rows now = {table.data, pack, c->plus_operator, up ? low : low + fresh};
    const int are_kept = last->table == now.table && last->pack == now.pack && last->plus_operator == now.plus_operator
                         && last->low == now.low;
    const int first = are_kept && up ? overlap : 0;
    FN(multiply_rows)(table, low + first, are_kept ? fresh : count, d, pack, width, out + first * width);
    if (are_kept)
        memcpy(up ? out : out + fresh * width, kept, bytes);
    *last = now;
    last->low = up ? low + fresh : low;
    memcpy(kept, up ? out + fresh * width : out, bytes);
}

/* ---- from rows to pairs, and back ---- */

/* Replace lane l of y[i] by lane l of y[i + l], or of y[i + LANES - 1 - l] if back. Each step shifts by one bit of l:
 * lanes with l & bit are taken from y[i + bit], the others from y[i], or the other way round if back. So it takes one
 * blend per bit and no gather. */
INLINE void move_lanes(vec *y, int back)
{
    UNROLL
    for (int bit = 1; bit < LANES; bit *= 2) {
        UNROLL
        for (int i = 0; i < 2 * (LANES - bit); i++)
            y[i] = back ? vec_mix(y[i + bit], y[i], bit) : vec_mix(y[i], y[i + bit], bit);
    }
}

/* add[j][l] += x[n - 1 - j + l][l]. Rows of x are `step` numbers apart, width or -width. Up to LANES rows beyond the
 * diagonals are loaded, but no pair uses them. */
static void add_skewed(const real *x, int step, int n, int width, real *add)
{
    for (int c = 0; c < width; c += LANES) {
        for (int o = 0; o < n; o += LANES) {
            vec y[2 * LANES];
            UNROLL
            for (int i = 0; i < 2 * LANES - 1; i++)
                y[i] = vec_load(x + (o + c + i) * step + c);
            move_lanes(y, 0);
            real *to = add + (n - 1 - o) * width + c;
            const int rows = (int)min_(LANES, n - o);
            for (int i = 0; i < rows; i++)
                vec_store(to - i * width, vec_add(vec_load(to - i * width), y[i]));
        }
    }
}

/* The transpose: x[t][l] = dx[n - 1 - (t - l)][l], or 0 if there is no such key */
static void unskew(const real *dx, int n, int width, real *x, int step)
{
    for (int c = 0; c < width; c += LANES) {
        for (int t = 0; t < n + width - 1; t += LANES) {
            vec y[2 * LANES];
            UNROLL
            for (int i = 0; i < 2 * LANES - 1; i++) {
                const int j = n - 1 - (t - c - (LANES - 1) + i);
                y[i] = j >= 0 && j < n ? vec_load(dx + j * width + c) : vec_set(0);
            }
            move_lanes(y, 1);
            const int rows = (int)min_(LANES, n + width - 1 - t);
            for (int i = 0; i < rows; i++)
                vec_store(x + (t + i) * step + c, y[i]);
        }
    }
}

/* add[j][l] += factor[j][l] product[row - low][l], for the pairs with low <= row < low + n */
static void gather(const pe_row_map *r, int low, int n, const real *restrict product, const real *restrict factor,
                   real *restrict add)
{
    const int width = r->width;
    const int32_t *row = r->row;
    for (int j = 0; j < r->n; j++, row += r->step, add += width, factor += factor ? width : 0) {
        SIMD
        for (int l = 0; l < width; l++) {
            const int t = row[l] - low, inside = (t >= 0) & (t < n);
            const real x = product[(inside ? t : 0) * width + l];
            add[l] += inside ? factor ? factor[l] * x : x : 0;
        }
    }
}

/* out[t] = product[row - low] for the diagonals t with low <= row < low + n */
static void copy_to_diagonals(const pe_row_map *r, int low, int n, const real *product, real *out)
{
    const int32_t *row = diagonals_of(r);
    for (int t = 0; t < r->n + r->width - 1; t++) {
        if (row[t] >= low && row[t] - low < n)
            memcpy(out + t * r->width, product + (row[t] - low) * r->width, (size_t)r->width * sizeof *out);
    }
}

void FN(add_lookup)(pe_content *c, pe_lines table, const pe_row_map *r, int d, const real *pack, const real *factor,
                    real *add)
{
    const int width = r->width;
    int low, high;
    FN(row_range)(r, &low, &high);
    if (low == high && !factor) { /* all pairs have the same row, for example beyond the end of a table */
        FN(multiply_rows)(table, low, 1, d, pack, width, c->products);
        for (int j = 0; j < r->n; j++, add += width)
            add_reals(add, c->products, width);
        return;
    }
    const int by_diagonal = r->step == -1 && !factor, count = r->n + width - 1;
    const int step = by_diagonal ? direction(diagonals_of(r), count) : 0;
    if (step) {
        real *x = c->products + LANES * width;
        if (r->first < 0)
            FN(multiply_rows)(table, low, count, d, pack, width, x);
        else
            rolling_products(c, table, r, step, d, pack, x);
        add_skewed(step > 0 ? x : x + (count - 1) * width, step * width, r->n, width, add);
        return;
    }
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(multiply_rows)(table, low, n, d, pack, width, c->products);
        if (by_diagonal)
            copy_to_diagonals(r, low, n, c->products, c->diagonals);
        else
            gather(r, low, n, c->products, factor, add);
    }
    if (by_diagonal)
        add_skewed(c->diagonals, width, r->n, width, add);
}

void FN(add_by_row)(const pe_row_map *r, int low, int n, const real *dx, const real *factor, real *w)
{
    const int width = r->width;
    const int32_t *row = r->row;
    for (int j = 0; j < r->n; j++, row += r->step, dx += width, factor += factor ? width : 0) {
        for (int l = 0; l < width; l++) {
            if (row[l] >= low && row[l] - low < n)
                w[(row[l] - low) * width + l] += factor ? factor[l] * dx[l] : dx[l];
        }
    }
}

void FN(sum_by_row)(pe_content *c, const pe_row_map *r, int low, int n, const real *dx, real *w)
{
    const int by_diagonal = r->step == -1, width = r->width, count = r->n + width - 1;
    const int32_t *row = by_diagonal ? diagonals_of(r) : NULL;
    const int step = by_diagonal && n == count ? direction(row, count) * width : 0;
    if (step) {
        unskew(dx, r->n, width, step > 0 ? w : w + (count - 1) * width, step);
        return;
    }
    zero_reals(w, n * width);
    if (!by_diagonal) {
        FN(add_by_row)(r, low, n, dx, NULL, w);
        return;
    }
    unskew(dx, r->n, width, c->diagonals, width);
    for (int t = count - 1; t >= 0; t--) { /* from the first key to the last */
        if (row[t] >= low && row[t] - low < n)
            add_reals(w + (row[t] - low) * width, c->diagonals + t * width, width);
    }
}
