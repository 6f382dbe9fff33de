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

/* If positions count up, each diagonal has one row: number t is the row of all pairs with lane - key = t - (k->n - 1).
 * All panels of a block, and all operators with the same map and positions, read the same rows. */
pe_row_map FN(rel_to_row)(pe_content *c, const pe_view *view, int operand, int first, int width)
{
    const pe_query_block *queries = view->queries;
    const pe_key_tile *k = view->keys;
    const idx *dim = queries->call->operators[view->operator_index].dim;
    const int64_t *map = (const int64_t *)(void *)operand_of(view, operand)->data;
    const int reach = (int)(D(B) / 2);
    const int64_t rows = D(R);
    const pe_positions *at_q = query_positions(queries, view->operator_index),
                       *at_k = key_positions(k, queries, view->operator_index);
    if (at_q->count_up && at_k->count_up) {
        const int n = k->n + queries->width - 1;
        const double last = at_k->at[k->n - 1] - at_q->at[0];
        if (c->index_map != map || c->index_positions != at_k) {
            for (int i = 0; i < n; i++)
                c->index[i] = row_of(map, reach, rows, last - i);
        }
        c->index_map = map;
        c->index_positions = at_k;
        return (pe_row_map){c->index + k->n - 1 + first, -1};
    }
    c->index_map = NULL;
    for (int j = 0; j < k->n; j++) {
        for (int l = 0; l < width; l++)
            c->index[j * width + l] = row_of(map, reach, rows, at_k->at[j] - at_q->at[first + l]);
    }
    return (pe_row_map){c->index, width};
}

void FN(row_range)(const pe_row_map *r, int from, int to, int width, int *low, int *high)
{
    const int by_diagonal = r->step == -1, count = by_diagonal ? to - from + width - 1 : width;
    int least = r->row[from * r->step], most = least;
    for (int j = by_diagonal ? to - 1 : from; j < to; j++) {
        for (int l = 0; l < count; l++) {
            const int x = r->row[j * r->step + l];
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
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

/* Products with the rows low <= r < low + count of the diagonals. The tile before shares width - 1 of these rows: the
 * lowest if rows increase with the keys, else the highest. c->kept holds their products for each panel. */
static void rolling_products(pe_content *c, pe_lines table, int low, int count, int up, int d, const real *pack,
                             const pe_panel *p, real *out)
{
    const int width = p->width, overlap = width - 1, fresh = count - overlap;
    const size_t bytes = (size_t)(overlap * width) * sizeof(real);
    pe_kept_rows *last = &c->kept_rows[p->first / PANEL_LANES];
    real *kept = c->kept + p->first * PANEL_LANES;
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

/* add[j, l] += factor[j, l] product[row - low, l], for the pairs with low <= row < low + n */
static void gather(const pe_row_map *r, int from, int to, int low, int n, int width, const real *restrict product,
                   const real *restrict factor, real *restrict add)
{
    for (int j = from; j < to; j++, add += width, factor += factor ? width : 0) {
        const int32_t *row = r->row + j * r->step;
        SIMD
        for (int l = 0; l < width; l++) {
            const int t = row[l] - low, inside = (t >= 0) & (t < n);
            const real x = product[(inside ? t : 0) * width + l];
            add[l] += inside ? factor ? factor[l] * x : x : 0;
        }
    }
}

void FN(copy_to_diagonals)(const int32_t *row, int count, int low, int n, int width, const real *product, real *out)
{
    for (int i = 0; i < count; i++) {
        if (row[i] >= low && row[i] - low < n)
            memcpy(out + i * width, product + (row[i] - low) * width, (size_t)width * sizeof *out);
    }
}

void FN(add_lookup)(pe_content *c, pe_lines table, const pe_row_map *r, int from, int to, int d, const real *pack,
                    const pe_panel *p, const real *factor, real *add)
{
    const int width = p->width;
    int low, high;
    FN(row_range)(r, from, to, width, &low, &high);
    if (low == high && !factor) { /* all pairs have the same row, for example beyond the end of a table */
        FN(multiply_rows)(table, low, 1, d, pack, width, c->products);
        for (int j = from; j < to; j++, add += width)
            add_reals(add, c->products, width);
        return;
    }
    const int by_diagonal = r->step == -1 && !factor, count = to - from + width - 1;
    const int32_t *row = r->row - (to - 1); /* of the first diagonal */
    const int step = by_diagonal ? direction(row, count) * width : 0;
    if (step) {
        real *x = c->products + LANES * width;
        rolling_products(c, table, low, count, step < 0, d, pack, p, x);
        add_skewed(step > 0 ? x : x + (count - 1) * width, step, to - from, width, add);
        return;
    }
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(multiply_rows)(table, low, n, d, pack, width, c->products);
        if (by_diagonal)
            FN(copy_to_diagonals)(row, count, low, n, width, c->products, c->diagonals);
        else
            gather(r, from, to, low, n, width, c->products, factor, add);
    }
    if (by_diagonal)
        add_skewed(c->diagonals, width, to - from, width, add);
}

void FN(sum_by_row)(pe_content *c, const pe_row_map *r, int from, int to, int low, int n, int width, const real *dx,
                    const real *factor, int clear, real *w)
{
    const int by_diagonal = r->step == -1 && !factor, count = to - from + width - 1;
    const int32_t *row_at = r->row - (to - 1);
    const int step = by_diagonal && clear && n == count ? direction(row_at, count) * width : 0;
    if (step) {
        unskew(dx, to - from, width, step > 0 ? w : w + (count - 1) * width, step);
        return;
    }
    if (clear)
        zero_reals(w, n * width);
    if (by_diagonal) {
        unskew(dx, to - from, width, c->diagonals, width);
        for (int i = count - 1; i >= 0; i--) { /* from the first key to the last */
            const int row = row_at[i] - low;
            if (row >= 0 && row < n)
                add_reals(w + row * width, c->diagonals + i * width, width);
        }
        return;
    }
    for (int j = from; j < to; j++, dx += width, factor += factor ? width : 0) {
        const int32_t *row = r->row + j * r->step;
        for (int l = 0; l < width; l++) {
            if (row[l] >= low && row[l] - low < n)
                w[(row[l] - low) * width + l] += factor ? factor[l] * dx[l] : dx[l];
        }
    }
}
