/* lookup.h -- a table, the rows of it that the pairs of a tile take, and their products with a panel: what the values
 * and the gradients of content.h share. */
#ifndef PE_RELATION_H
#define PE_RELATION_H

#include "content/content.h"
#include "tile/gemm.h"
#include "base/transpose.h"
#include <math.h>

/* Arrays of the CONTENT rows of ops.def, in their order */
enum { SHAW_K, SHAW_V, SHAW_ROWS, SHAW_DK, SHAW_DV };
enum { XL_R, XL_U, XL_V, XL_ROWS, XL_DR, XL_DU, XL_DV };
enum { DEBERTA_Q, DEBERTA_K, DEBERTA_ROWS, DEBERTA_Q_ROWS, DEBERTA_DQ, DEBERTA_DK };
enum { COPE_TABLE, COPE_D };
enum { TUPE_Q, TUPE_K, TUPE_CLS_TO_ANY, TUPE_ANY_TO_CLS, TUPE_DQ, TUPE_DK, TUPE_D_CLS, TUPE_D_ANY };

/* ---- which row of its table a pair takes ---- */

/* and it is one of the table's, whatever the caller wrote there */
INLINE int row_of(const int64_t *rows, int last, int64_t count, double rel)
{
    const double inside = rel < -last ? -last : rel > last ? last : rel;
    const int64_t row = rows[(int)inside + last]; /* the conversion cuts towards zero */
    return (int)(row < 0 ? 0 : row < count ? row : count - 1);
}

/* Rows for all keys of the tile and some lanes. Where positions count up by one they are a window: number t belongs
 * to lane - key = t - (n - 1). */
static NOINLINE pe_rows rows_of(pe_content *c, const pe_array *map, const idx *dim, const pe_queries *u,
                                const pe_keys *k, int first, int lanes)
{
    const int64_t *rows = (const int64_t *)(void *)map->data;
    const int last = (int)(D(B) / 2);
    const int64_t count = D(R);
    if (u->even && k->even) {
        const int n = k->n + u->width - 1;
        const double most = k->position[k->n - 1] - u->position[0];
        for (int t = 0; t < n && c->held != rows; t++) /* for all panels at once */
            c->index[t] = row_of(rows, last, count, most - t);
        c->held = rows;
        return (pe_rows){c->index + k->n - 1 + first, -1};
    }
    c->held = NULL;
    for (int j = 0; j < k->n; j++)
        for (int l = 0; l < lanes; l++)
            c->index[j * lanes + l] = row_of(rows, last, count, k->position[j] - u->position[first + l]);
    return (pe_rows){c->index, lanes};
}

static NOINLINE void range(const pe_rows *r, int from, int to, int lanes, int *low, int *high)
{
    const int window = r->step == -1, count = window ? to - from + lanes - 1 : lanes;
    int least = r->row[from * r->step], most = least;
    for (int j = window ? to - 1 : from; j < to; j++)
        for (int l = 0; l < count; l++) {
            const int x = r->row[j * r->step + l];
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
    *low = least;
    *high = most;
}

/* ---- products with a table ---- */

typedef struct {
    const char *data;
    idx step;
} pe_table_rows;

INLINE pe_table_rows table_of(const pe_queries *u, int term, int array)
{
    const pe_array *a = &u->term[term][array];
    return (pe_table_rows){a->data + u->head * a->core[0], a->core[1]};
}

static NOINLINE void products(const pe_table_rows *t, int first, int n, int d, const real *pack, int width, real *out)
{
    real unused[PANEL_LANES] = {0};
    const pe_scores w = {.k = t->data + first * t->step, .k_step = t->step, .d = d, .q = pack, .s = out, .top = unused};
    (width == PANEL_LANES ? scores_wide : scores_narrow)(&w, n);
}

/* add[j, l] += factor[j, l] product[row - low, l], for the rows that are there */
static NOINLINE void fetch(const pe_rows *r, int from, int to, int low, int n, int width, const real *restrict product,
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

/* Lane l of y[i] becomes that of y[i + l], or of y[i + LANES - 1 - l]: it moves by the bits of its number, one after the
 * other, which costs a blend for each and no index. */
INLINE void move_by(vec *y, int bit, int back)
{
    UNROLL
    for (int i = 0; i < 2 * (LANES - bit); i++)
        y[i] = back ? vec_mix(y[i + bit], y[i], bit) : vec_mix(y[i], y[i + bit], bit);
}

INLINE void move_lanes(vec *y, int back)
{
    move_by(y, 1, back);
    if (LANES > 2)
        move_by(y, LANES > 2 ? 2 : 1, back);
    if (LANES > 4)
        move_by(y, LANES > 4 ? 4 : 1, back);
    if (LANES > 8)
        move_by(y, LANES > 8 ? 8 : 1, back);
}

/* Rows of a window to the pairs: add[j][l] += x[n - 1 - j + l][l], x having rows in steps of +-width. The last LANES rows
 * that are read may be beyond the window: no pair takes them. */
static NOINLINE void add_skewed(const real *x, int step, int n, int width, real *add)
{
    for (int c = 0; c < width; c += LANES)
        for (int o = 0; o < n; o += LANES) {
            vec y[2 * LANES];
            UNROLL
            for (int i = 0; i < 2 * LANES - 1; i++)
                y[i] = vec_load(x + (o + c + i) * step + c);
            move_lanes(y, 0);
            real *at = add + (n - 1 - o) * width + c;
            for (int i = 0; i < LANES && o + i < n; i++)
                vec_store(at - i * width, vec_add(vec_load(at - i * width), y[i]));
        }
}

/* The way back: x[t][l] = dx[n - 1 - (t - l)][l], or 0 where there is no such key */
static NOINLINE void unskew(const real *dx, int n, int width, real *x, int step)
{
    for (int c = 0; c < width; c += LANES)
        for (int t = 0; t < n + width - 1; t += LANES) {
            vec y[2 * LANES];
            UNROLL
            for (int i = 0; i < 2 * LANES - 1; i++) {
                const int j = n - 1 - (t - c - (LANES - 1) + i);
                y[i] = j >= 0 && j < n ? vec_load(dx + j * width + c) : vec_set(0);
            }
            move_lanes(y, 1);
            for (int i = 0; i < LANES && t + i < n + width - 1; i++)
                vec_store(x + (t + i) * step + c, y[i]);
        }
}

/* +1 or -1 where the rows of a window follow each other, up or down; else 0 */
static NOINLINE int direction(const int32_t *row, int count)
{
    const int step = count > 1 ? row[1] - row[0] : 1;
    int same = step == 1 || step == -1;
    SIMD_AND(same)
    for (int i = 0; i < count; i++)
        same &= row[i] == row[0] + step * i;
    return same ? step : 0;
}

/* window[i] = product[row_i - low], for the rows that are there */
static NOINLINE void window_of(const int32_t *row, int count, int low, int n, int width, const real *product,
                               real *window)
{
    for (int i = 0; i < count; i++)
        if (row[i] >= low && row[i] - low < n)
            memcpy(window + i * width, product + (row[i] - low) * width, (size_t)width * sizeof *window);
}

/* Products with a window's rows, low .. low + count - 1. Where tiles follow each other, width - 1 of them were there for
 * the tile before: at the low end if rows go up with the keys, else at the high end. */
static NOINLINE void rolling_products(pe_content *c, const pe_table_rows *t, int low, int count, int up, int d,
                                      const real *pack, const pe_panel *p, real *out)
{
    const int width = p->width, shared = width - 1, other = count - shared;
    const size_t bytes = (size_t)(shared * width) * sizeof(real);
    pe_kept *of = &c->of[p->first / LANES];
    real *kept = c->kept + p->first * PANEL_LANES;
    const pe_kept now = {t->data, pack, c->vector, up ? low : low + other};
    const int there = of->table == now.table && of->pack == now.pack && of->vector == now.vector && of->low == now.low;
    const int first = there && up ? shared : 0;
    products(t, low + first, there ? other : count, d, pack, width, out + first * width);
    if (there)
        memcpy(up ? out : out + other * width, kept, bytes);
    *of = now;
    of->low = up ? low + other : low;
    memcpy(kept, up ? out + other * width : out, bytes);
}

/* Products of a pack with every row that the panel's pairs need, TILE_RELS rows at a time, added where they belong. */
static NOINLINE void add_products(pe_content *c, const pe_table_rows *t, const pe_rows *r, int from, int to, int d,
                                  const real *pack, const pe_panel *p, const real *factor, real *add)
{
    const int width = p->width;
    int low, high;
    range(r, from, to, width, &low, &high);
    if (low == high && !factor) { /* all of the tile is beyond the table's end */
        products(t, low, 1, d, pack, width, c->products);
        for (int j = from; j < to; j++, add += width)
            for (int l = 0; l < width; l++)
                add[l] += c->products[l];
        return;
    }
    const int window = r->step == -1 && !factor, count = to - from + width - 1;
    const int32_t *row = r->row - (to - 1); /* of the window */
    const int step = window ? direction(row, count) * width : 0;
    if (step) {
        real *x = c->products + LANES * width;
        rolling_products(c, t, low, count, step < 0, d, pack, p, x);
        add_skewed(step > 0 ? x : x + (count - 1) * width, step, to - from, width, add);
        return;
    }
    for (; low <= high; low += TILE_RELS) {
        const int n = (int)min_(TILE_RELS, high - low + 1);
        products(t, low, n, d, pack, width, c->products);
        if (!window)
            fetch(r, from, to, low, n, width, c->products, factor, add);
        else
            window_of(row, count, low, n, width, c->products, c->window);
    }
    if (window)
        add_skewed(c->window, width, to - from, width, add);
}

/* o[c][lane] += sum_row table[row][c] w[row][lane] */
static NOINLINE void add_table(const pe_table_rows *t, int first, int n, int channels, int width, const real *w,
                               real *o)
{
    real one[PANEL_LANES];
    for (int l = 0; l < width; l++)
        one[l] = 1;
    const pe_values x = {.v = t->data + first * t->step, .v_step = t->step, .n = n, .p = w, .factor = one, .o = o};
    (width == PANEL_LANES ? values_wide : values_narrow)(&x, channels);
}

/* w[row - low][lane] += dx factor, for the rows that are there; w is cleared before */
static NOINLINE void add_by_row(pe_content *c, const pe_rows *r, int from, int to, int low, int n, int width,
                                const real *dx, const real *factor, int clear, real *w)
{
    const int window = r->step == -1 && !factor, count = to - from + width - 1;
    const int32_t *row_at = r->row - (to - 1);
    const int step = window && clear && n == count ? direction(row_at, count) * width : 0;
    if (step) {
        unskew(dx, to - from, width, step > 0 ? w : w + (count - 1) * width, step);
        return;
    }
    if (clear)
        memset(w, 0, (size_t)(n * width) * sizeof *w);
    if (window) {
        unskew(dx, to - from, width, c->window, width);
        for (int i = count - 1; i >= 0; i--) { /* keys in their order */
            const int row = row_at[i] - low;
            for (int l = 0; l < width && row >= 0 && row < n; l++)
                w[row * width + l] += c->window[i * width + l];
        }
        return;
    }
    for (int j = from; j < to; j++, dx += width, factor += factor ? width : 0) {
        const int32_t *row = r->row + j * r->step;
        for (int l = 0; l < width; l++)
            if (row[l] >= low && row[l] - low < n)
                w[(row[l] - low) * width + l] += factor ? factor[l] * dx[l] : dx[l];
    }
}

INLINE const real *vector_of(const pe_queries *u, int term, int array)
{
    const pe_array *a = &u->term[term][array];
    return (const real *)(const void *)(a->data + u->head * a->core[0]);
}

/* TUPE's positions of a panel's queries, from column `piece` on, and the factor of their products */
INLINE pe_table_rows positions_of(const pe_queries *u, const pe_panel *p, int term, idx piece)
{
    pe_table_rows rows = table_of(u, term, TUPE_Q);
    rows.data += (u->first + p->first) * rows.step + piece * (idx)sizeof(real);
    return rows;
}

INLINE real position_factor(const pe_queries *u, int term)
{
    return (real)(1 / sqrt(2 * (double)u->call->term[term].D(P)));
}

#endif
