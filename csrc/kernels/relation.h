/* relation.h -- a table, the rows of it that the pairs of a tile take, and their products with a panel: what the values
 * and the gradients of content.h share. */
#ifndef PE_RELATION_H
#define PE_RELATION_H

#include "content.h"
#include "gemm.h"

/* Arrays of the TERM rows of ops.def, in their order */
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
    const int last = (int)(dim['b' - 'a'] / 2);
    const int64_t count = dim['r' - 'a'];
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
    real unused[WIDE] = {0};
    const pe_scores w = {.k = t->data + first * t->step, .k_step = t->step, .d = d, .q = pack, .s = out, .top = unused};
    (width == WIDE ? scores_wide : scores_narrow)(&w, n);
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

/* x[r][l] becomes x[r + l][l], and add[j] gets row n - 1 - j: a lane moves by the bits of its number, one after the
 * other, which costs a blend for each and no index. */
INLINE void skew(int width, real *restrict x, int n, real *restrict add)
{
    int rows = n + width - 1;
    for (int bit = 1; bit < width; bit *= 2) {
        rows -= bit;
        for (int r = 0; r < rows; r++) {
            real *row = x + r * width;
            SIMD
            for (int l = 0; l < width; l++) {
                const real stays = row[l], comes = row[l + bit * width];
                row[l] = l & bit ? comes : stays;
            }
        }
    }
    for (int j = 0; j < n; j++)
        for (int l = 0; l < width; l++)
            add[j * width + l] += x[(n - 1 - j) * width + l];
}

static NOINLINE void add_skewed(real *x, int n, int width, real *add)
{
    if (width == WIDE)
        skew(WIDE, x, n, add);
    else
        skew(LANES, x, n, add);
}

/* Products of a pack with every row that the panel's pairs need, RELS rows at a time, added where they belong. */
static NOINLINE void add_products(pe_content *c, const pe_table_rows *t, const pe_rows *r, int from, int to, int d,
                                  const real *pack, int width, const real *factor, real *add)
{
    int low, high;
    range(r, from, to, width, &low, &high);
    if (low == high && !factor) { /* all of the tile is beyond the table's end */
        products(t, low, 1, d, pack, width, c->products);
        for (int j = from; j < to; j++, add += width)
            for (int l = 0; l < width; l++)
                add[l] += c->products[l];
        return;
    }
    const int window = r->step == -1 && !factor;
    for (; low <= high; low += RELS) {
        const int n = (int)min_(RELS, high - low + 1);
        products(t, low, n, d, pack, width, c->products);
        if (!window)
            fetch(r, from, to, low, n, width, c->products, factor, add);
        for (int i = 0; window && i < to - from + width - 1; i++) {
            const int row = r->row[i - (to - 1)] - low;
            if (row >= 0 && row < n)
                memcpy(c->window + i * width, c->products + row * width, (size_t)width * sizeof(real));
        }
    }
    if (window)
        add_skewed(c->window, to - from, width, add);
}

/* The way back of skew: x[t][l] becomes dx[n - 1 - (t - l)][l], or 0 where there is no such key. */
INLINE void unskew(int width, const real *restrict dx, int n, real *restrict x)
{
    int rows = n;
    for (int j = 0; j < n; j++)
        memcpy(x + j * width, dx + (n - 1 - j) * width, (size_t)width * sizeof *x);
    memset(x + n * width, 0, (size_t)((width - 1) * width) * sizeof *x);
    for (int bit = 1; bit < width; bit *= 2) {
        rows += bit;
        for (int r = rows - 1; r >= 0; r--) {
            real *row = x + r * width;
            const real *before = r >= bit ? row - bit * width : row;
            const int there = r >= bit;
            SIMD
            for (int l = 0; l < width; l++) {
                const real stays = row[l], comes = there ? before[l] : 0;
                row[l] = l & bit ? comes : stays;
            }
        }
    }
}

/* w[row - low][lane] += dx factor, for the rows that are there; w is cleared before */
static NOINLINE void add_by_row(pe_content *c, const pe_rows *r, int from, int to, int low, int n, int width,
                                const real *dx, const real *factor, int clear, real *w)
{
    if (clear)
        memset(w, 0, (size_t)(n * width) * sizeof *w);
    if (r->step == -1 && !factor) {
        if (width == WIDE)
            unskew(WIDE, dx, to - from, c->window);
        else
            unskew(LANES, dx, to - from, c->window);
        for (int i = to - from + width - 2; i >= 0; i--) { /* keys in their order */
            const int row = r->row[i - (to - 1)] - low;
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

#endif
