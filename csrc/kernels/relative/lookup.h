/* lookup.h -- lookup of relative embeddings: scores and gradients of tables with one row per distance.
 *
 *     s_ij += x_i . table[row_ij],   row_ij = map[min(max(rel, -B), B) + B],   rel cut towards zero
 *
 * map(b) has b = 2 B + 1 entries. One matrix product multiplies the vectors x of a panel with the table rows of this
 * tile, TILE_RELS rows at a time, and each pair reads its number from the product. If positions count up by one, each
 * diagonal of a tile has one row: lane l of key j reads the row of diagonal n - 1 - j + l.
 */
#ifndef PE_LOOKUP_H
#define PE_LOOKUP_H

#include "relative/content.h"
#include "tile/outer.h"
#include "tile/panel.h"

/* Rows of a buffer for dS summed by table row: consecutive rows, and MARGIN rows on both sides */
enum { BY_ROW = BLOCK_N + PANEL_LANES + 2 * MARGIN };

/* The table rows of n keys and the lanes of a panel: that of key j and lane l is row[j * step + l]. step is -1 if each
 * diagonal has one row; the rows of the diagonals then begin at diagonals_of. */
typedef struct {
    const int32_t *row;
    int step, n, width, first; /* first: lane of the block at which the panel begins; -1: the lanes are keys */
} pe_row_map;

INLINE const int32_t *diagonals_of(const pe_row_map *r) { return r->row - (r->n - 1); }

INLINE const pe_array *operand_of(const pe_view *view, int operand)
{
    return &view->queries->operator_array[view->operator_index][operand];
}

/* The rows of this head; the first axis of the operand is heads */
INLINE pe_lines matrix_of(const pe_view *view, int operand)
{
    const pe_array *a = operand_of(view, operand);
    return (pe_lines){a->data + view->queries->head * a->core[0], a->core[1]};
}

INLINE const real *vector_of(const pe_view *view, int operand)
{
    return (const real *)(const void *)matrix_of(view, operand).data;
}

/* A gradient at this head and chunk, an index of its first axis t; NULL if the caller does not need it */
INLINE void *gradient_of(const pe_content_vjp *vjp, const pe_view *view, int operand)
{
    const pe_array *a = operand_of(view, operand);
    return a->data ? a->data + vjp->table_row * a->core[0] : NULL;
}

/* The gradient of a table */
INLINE pe_sums table_gradient(const pe_content_vjp *vjp, const pe_view *view, int operand)
{
    return (pe_sums){gradient_of(vjp, view, operand), operand_of(view, operand)->core[1] / (idx)sizeof(real)};
}
INLINE pe_sums sums_from(pe_sums o, idx first) { return (pe_sums){o.row + first * o.step, o.step}; }

/* The table rows of the keys from <= j < to and the lanes of a panel */
pe_row_map FN(rel_to_row)(pe_content *c, const pe_view *view, int map, const pe_panel *p, int from, int to);
/* The same with the roles exchanged: the lanes are n keys from `first` on, and row j is query j of the block. */
pe_row_map FN(rel_to_row_by_key)(pe_content *c, const pe_view *view, int map, int first, int n);
/* The same for the panel and the keys of a view */
INLINE pe_row_map rows_of_view(pe_content *c, const pe_view *view, int map)
{
    return FN(rel_to_row)(c, view, map, view->panel, view->bias->from, view->bias->to);
}
/* Set low and high to the least and the largest row. */
void FN(row_range)(const pe_row_map *r, int *low, int *high);

/* out[row][lane] = sum_d m[first + row][d] pack[d][lane], row < n */
void FN(multiply_rows)(pe_lines m, int first, int n, int d, const real *pack, int width, real *out);
/* o[c][lane] += sum_row m[first + row][c] w[row][lane] */
void FN(add_rows)(pe_lines m, int first, int n, int channels, int width, const real *w, real *o);

/* add[j][lane] += factor[j][lane] (x . table[row]). x is the vector of d channels of the lane in `pack`; factor NULL
 * is 1. */
void FN(add_lookup)(pe_content *c, pe_lines table, const pe_row_map *r, int d, const real *pack, const real *factor,
                    real *add);
/* The transpose: w[row - low][lane] = sum of dx[j][lane] over the keys with this row, for low <= row < low + n */
void FN(sum_by_row)(pe_content *c, const pe_row_map *r, int low, int n, const real *dx, real *w);
/* w[row - low][lane] += factor[j][lane] dx[j][lane]; factor NULL is 1 */
void FN(add_by_row)(const pe_row_map *r, int low, int n, const real *dx, const real *factor, real *w);

/* ---- the members of a pe_content_operator that are tables: values and gradients, called by content.c ---- */

/* query_table (lookup_queries.c): add to the scores of a panel; gradient of all panels. FN(content_end_vjp) is there
 * too. */
void FN(query_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, real *add);
void FN(query_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int (*seen)[2],
                         const real *dx);
/* packed += scale x, where the operand x is a vector for each head */
void FN(add_to_queries)(const pe_content *c, const pe_view *view, int operand, real *packed);

/* key_table (lookup_keys.c): add to c->added; the gradient for the keys from <= j < to; dk: key j */
void FN(key_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup);
void FN(key_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                       const real *dx, pe_sums dk);
/* The gradient of a key_table with a single row. FN(content_multiplier) adds this row to the queries. */
void FN(key_row_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                     const real *dx, pe_sums dk);

/* values (lookup_values.c): add to the output; add to g.v; the gradient of the table from the weights of a panel */
void FN(value_table_output)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *weights, real *o);
void FN(value_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *g, real *add);
void FN(value_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, const real *weights);

#endif
