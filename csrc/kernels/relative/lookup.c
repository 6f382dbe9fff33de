/* lookup.c -- see lookup.h. */
#include "relative/lookup.h"

#include <limits.h>

/* ---- table rows of pairs ---- */

/* The row index is clamped to the table, so that a bad map cannot read out of bounds. */
INLINE int row_of(const int64_t *map, int reach, int64_t rows, double rel)
{
    const int64_t row = map[(int)clamp_(rel, reach) + reach]; /* the conversion cuts towards zero */
    return (int)(row < 0 ? 0 : row < rows ? row : rows - 1);
}

/* A window serves all panels of the block, and all operators with the same map. Number t of it belongs to lane - key =
 * t - (n - 1). */
pe_row_map FN(rel_to_row)(pe_content *c, const pe_view *v, int operand, int first, int lanes)
{
    const pe_query_block *u = v->queries;
    const pe_key_tile *k = v->keys;
    const idx *dim = u->call->term[v->term].dim;
    const int64_t *map = (const int64_t *)(void *)operand_of(v, operand)->data;
    const int reach = (int)(D(B) / 2);
    const int64_t rows = D(R);
    const pe_positions *at_q = query_positions(u, v->term), *at_k = key_positions(k, u, v->term);
    if (at_q->count_up && at_k->count_up) {
        const int n = k->n + u->width - 1;
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
        for (int l = 0; l < lanes; l++)
            c->index[j * lanes + l] = row_of(map, reach, rows, at_k->at[j] - at_q->at[first + l]);
    }
    return (pe_row_map){c->index, lanes};
}

void FN(row_range)(const pe_row_map *r, int from, int to, int lanes, int *low, int *high)
{
    const int window = r->step == -1, count = window ? to - from + lanes - 1 : lanes;
    int least = r->row[from * r->step], most = least;
    for (int j = window ? to - 1 : from; j < to; j++) {
        for (int l = 0; l < count; l++) {
            const int x = r->row[j * r->step + l];
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
    }
    *low = least;
    *high = most;
}

/* +1 or -1 if each row of a window follows the one before, up or down; else 0 */
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

void FN(multiply_rows)(const pe_matrix *m, int first, int n, int d, const real *pack, int width, real *out)
{
    real unused_max[PANEL_LANES] = {0};
    const pe_scores w = {
        .k = m->data + first * m->step, .k_step = m->step, .d = d, .q = pack, .s = out, .m = unused_max};
    FN(scores)(&w, n, width);
}

void FN(add_rows)(const pe_matrix *m, int first, int n, int channels, int width, const real *w, real *o)
{
    real one[PANEL_LANES];
    for (int l = 0; l < width; l++)
        one[l] = 1;
    const pe_values x = {.v = m->data + first * m->step, .v_step = m->step, .n = n, .p = w, .alpha = one, .o = o};
    FN(values)(&x, channels, width);
}

/* Products with a window's rows low ... low + count. The tile before had width - 1 of them: at the low end if rows go
 * up with the keys, else at the high end. They are kept for each panel. */
static void rolling_products(pe_content *c, const pe_matrix *table, int low, int count, int up, int d, const real *pack,
                             const pe_panel *p, real *out)
{
    const int width = p->width, shared = width - 1, fresh = count - shared;
    const size_t bytes = (size_t)(shared * width) * sizeof(real);
    pe_kept_rows *last = &c->kept_rows[p->first / PANEL_LANES];
    real *kept = c->kept + p->first * PANEL_LANES;
    const pe_kept_rows now = {table->data, pack, c->shifted_term, up ? low : low + fresh};
    const int are_kept = last->table == now.table && last->pack == now.pack && last->shifted_term == now.shifted_term
                         && last->low == now.low;
    const int first = are_kept && up ? shared : 0;
    FN(multiply_rows)(table, low + first, are_kept ? fresh : count, d, pack, width, out + first * width);
    if (are_kept)
        memcpy(up ? out : out + fresh * width, kept, bytes);
    *last = now;
    last->low = up ? low + fresh : low;
    memcpy(kept, up ? out + fresh * width : out, bytes);
}

/* ---- from rows to pairs, and back ---- */

/* One step of a skew: lane l of y[i] becomes that of y[i + bit] (or of y[i], if back) for the lanes whose number has
 * the bit, and the other way round for the rest. */
INLINE void move_by(vec *y, int bit, int back)
{
    UNROLL
    for (int i = 0; i < 2 * (LANES - bit); i++)
        y[i] = back ? vec_mix(y[i + bit], y[i], bit) : vec_mix(y[i], y[i + bit], bit);
}

/* Lane l of y[i] becomes that of y[i + l], or of y[i + LANES - 1 - l] if back. Each lane shifts by its own index, one
 * bit per step: one blend per bit, no gather. */
INLINE void move_lanes(vec *y, int back)
{
    UNROLL
    for (int bit = 1; bit < LANES; bit *= 2)
        move_by(y, bit, back);
}

/* add[j][l] += x[n - 1 - j + l][l], the rows of x in steps of +-width. The last LANES rows that are read may lie beyond
 * the window; no pair takes them. */
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

/* The inverse: x[t][l] = dx[n - 1 - (t - l)][l], or 0 if there is no such key */
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

/* add[j, l] += factor[j, l] product[row - low, l], for the rows low ... low + n */
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

void FN(copy_to_window)(const int32_t *row, int count, int low, int n, int width, const real *product, real *window)
{
    for (int i = 0; i < count; i++) {
        if (row[i] >= low && row[i] - low < n)
            memcpy(window + i * width, product + (row[i] - low) * width, (size_t)width * sizeof *window);
    }
}

void FN(add_lookup)(pe_content *c, const pe_matrix *table, const pe_row_map *r, int from, int to, int d,
                    const real *pack, const pe_panel *p, const real *factor, real *add)
{
    const int width = p->width;
    int low, high;
    FN(row_range)(r, from, to, width, &low, &high);
    if (low == high && !factor) { /* all pairs take one row, as beyond the end of a table */
        FN(multiply_rows)(table, low, 1, d, pack, width, c->products);
        for (int j = from; j < to; j++, add += width)
            add_reals(add, c->products, width);
        return;
    }
    const int window = r->step == -1 && !factor, count = to - from + width - 1;
    const int32_t *row = r->row - (to - 1); /* of the window */
    const int step = window ? direction(row, count) * width : 0;
    if (step) {
        real *x = c->products + LANES * width;
        rolling_products(c, table, low, count, step < 0, d, pack, p, x);
        add_skewed(step > 0 ? x : x + (count - 1) * width, step, to - from, width, add);
        return;
    }
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        FN(multiply_rows)(table, low, n, d, pack, width, c->products);
        if (window)
            FN(copy_to_window)(row, count, low, n, width, c->products, c->window);
        else
            gather(r, from, to, low, n, width, c->products, factor, add);
    }
    if (window)
        add_skewed(c->window, width, to - from, width, add);
}

void FN(sum_by_row)(pe_content *c, const pe_row_map *r, int from, int to, int low, int n, int width, const real *dx,
                    const real *factor, int clear, real *w)
{
    const int window = r->step == -1 && !factor, count = to - from + width - 1;
    const int32_t *row_at = r->row - (to - 1);
    const int step = window && clear && n == count ? direction(row_at, count) * width : 0;
    if (step) {
        unskew(dx, to - from, width, step > 0 ? w : w + (count - 1) * width, step);
        return;
    }
    if (clear)
        zero_reals(w, n * width);
    if (window) {
        unskew(dx, to - from, width, c->window, width);
        for (int i = count - 1; i >= 0; i--) { /* keys in their order */
            const int row = row_at[i] - low;
            if (row >= 0 && row < n)
                add_reals(w + row * width, c->window + i * width, width);
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

/* ---- tables that multiply the queries ---- */

void FN(add_query_lookup)(pe_content *c, const pe_view *v, const pe_lookup *lookup, const real *pack, real *add)
{
    const pe_matrix table = matrix_of(v, lookup->table);
    const pe_row_map r = FN(rel_to_row)(c, v, lookup->map, v->panel->first, v->panel->width);
    FN(add_lookup)(c, &table, &r, v->visible->from, v->visible->to, c->d, pack, v->panel, NULL, add);
}

void FN(add_nonfinite_queries)(const pe_content_vjp *b, const pe_panel *p, const real *w, int n, real *rows, idx step)
{
    const pe_content *c = b->content;
    const real *q = c->q + p->first * c->d;
    for (int l = 0; l < p->lanes; l++) {
        if (b->nonfinite_q >> (p->first + l) & 1)
            FN(add_nonfinite)(q + l, p->width, 1, c->d, w + l, w + l, p->width, n, rows, step);
    }
}

/* The gradients that dS of a query lookup is added to: dq by the table, and d_table by the strips */
typedef struct {
    pe_matrix table;
    const real *strips;
    real *dq, *d_table;
    idx d_step;
} lookup_gradient;

/* dS of a panel summed by table row, w[row][lane]: to dq, and to d_table at once if there are more rows than a slot of
 * by_row holds. Else the returned span describes the slot, and the caller adds it with those of the other panels. */
static pe_span panel_by_row(pe_content_vjp *b, const pe_panel *p, const pe_row_map *r, const int *seen, const real *dx,
                            const lookup_gradient *to)
{
    const int width = p->width, d = b->content->d, most = BY_ROW - 2 * MARGIN;
    real *slot = b->by_row + p->first * BY_ROW, *w = slot + MARGIN * width;
    int low, high;
    FN(row_range)(r, seen[0], seen[1], width, &low, &high);
    const int fits = high - low < most;
    const pe_span span = {w - low * width, p->first, p->lanes, width, low, fits ? high + 1 : low};
    for (; low <= high; low += most) {
        const int n = (int)min_(most, high - low + 1);
        real *rows = to->d_table ? to->d_table + low * to->d_step : NULL;
        FN(sum_by_row)(b->content, r, seen[0], seen[1], low, n, width, dx, NULL, 1, w);
        FN(add_rows)(&to->table, low, n, d, width, w, to->dq + p->first * d);
        if (rows && !fits)
            FN(add_outer_of_lanes)(p->first, p->lanes, width, w, to->strips, BLOCK_M, d, n, rows, to->d_step);
        if (rows)
            FN(add_nonfinite_queries)(b, p, w, n, rows, to->d_step);
        if (fits) {
            zero_reals(slot, MARGIN * width);
            zero_reals(w + n * width, MARGIN * width);
        }
    }
    return span;
}

void FN(query_lookup_vjp)(pe_content_vjp *b, const pe_view *v, int (*seen)[2], const pe_lookup *lookup, const real *dx,
                          const real *strips, real *dq)
{
    const lookup_gradient to = {matrix_of(v, lookup->table), strips, dq, gradient_of(b, v, lookup->d_table),
                                gradient_step(v, lookup->d_table)};
    pe_span span[PANELS];
    int spans = 0, low = INT_MAX, high = INT_MIN;
    for (int i = 0; i < v->queries->panels; i++) {
        const pe_panel *p = &v->queries->panel[i];
        if (seen[i][0] >= seen[i][1])
            continue;
        const pe_row_map r = FN(rel_to_row)(b->content, v, lookup->map, p->first, p->width);
        span[spans] = panel_by_row(b, p, &r, seen[i], dx + p->first * BLOCK_N + seen[i][0] * p->width, &to);
        low = (int)min_(low, span[spans].from);
        high = (int)max_(high, span[spans].to);
        spans += span[spans].from < span[spans].to;
    }
    if (to.d_table && spans)
        FN(add_outer)(span, spans, strips, BLOCK_M, b->content->d, low, high, to.d_table, to.d_step);
}

void FN(query_table_panel)(pe_content *c, const pe_view *v, real *add)
{
    const pe_lookup *lookup = operator_of(v)->query_table;
    if (operand_of(v, lookup->table)->data)
        FN(add_query_lookup)(c, v, lookup, c->q + v->panel->first * c->d, add);
}

void FN(query_table_vjp)(pe_content_vjp *b, const pe_view *v, int (*seen)[2], const real *dx)
{
    const pe_lookup *lookup = operator_of(v)->query_table;
    if (operand_of(v, lookup->table)->data)
        FN(query_lookup_vjp)(b, v, seen, lookup, dx, b->q_rows, b->dq);
}
