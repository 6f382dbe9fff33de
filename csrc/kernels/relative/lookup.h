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

/* The table row of key j and lane l is row[j * step + l]. step is -1 if each diagonal has one row. */
typedef struct {
    const int32_t *row;
    int step;
} pe_row_map;

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

/* The distance in numbers between two rows of the gradient of a table */
INLINE idx gradient_step(const pe_view *view, int operand)
{
    return operand_of(view, operand)->core[1] / (idx)sizeof(real);
}

/* The table rows of all keys of the tile and the lanes first <= l < first + lanes */
pe_row_map FN(rel_to_row)(pe_content *c, const pe_view *view, int map, int first, int width);
/* Set low and high to the least and the largest row of the keys from <= j < to. */
void FN(row_range)(const pe_row_map *r, int from, int to, int width, int *low, int *high);

/* out[row][lane] = sum_d m[first + row][d] pack[d][lane], row < n */
void FN(multiply_rows)(pe_lines m, int first, int n, int d, const real *pack, int width, real *out);
/* o[c][lane] += sum_row m[first + row][c] w[row][lane] */
void FN(add_rows)(pe_lines m, int first, int n, int channels, int width, const real *w, real *o);

/* add[j][lane] += factor[j][lane] (x . table[row]) for the keys from <= j < to of a panel. The first row of add and of
 * factor is key `from`. x is the vector of the lane in `pack`; factor NULL is 1. */
void FN(add_lookup)(pe_content *c, pe_lines table, const pe_row_map *r, int from, int to, int d, const real *pack,
                    const pe_panel *p, const real *factor, real *add);
/* The transpose: w[row - low][lane] += factor[j][lane] dx[j][lane], for low <= row < low + n. dx, too, begins with key
 * `from`. w is cleared first if `clear`. */
void FN(sum_by_row)(pe_content *c, const pe_row_map *r, int from, int to, int low, int n, int width, const real *dx,
                    const real *factor, int clear, real *w);
/* out[i] = product[row[i] - low] for the diagonals i < count with low <= row[i] < low + n */
void FN(copy_to_diagonals)(const int32_t *row, int count, int low, int n, int width, const real *product, real *out);

/* ---- the members of a pe_content_operator that are tables: values and gradients, called by content.c ---- */

/* query_table (lookup_queries.c): add to the scores of a panel; gradient of all panels. FN(content_end_vjp) is there
 * too. */
void FN(query_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, real *add);
void FN(query_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int (*seen)[2],
                         const real *dx);
/* packed += scale x, where the operand x is a vector for each head */
void FN(add_to_queries)(const pe_content *c, const pe_view *view, int operand, real *packed);

/* key_table (lookup_keys.c): add to c->added; the gradient for the keys from <= j < to, whose rows are dk */
void FN(key_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup);
void FN(key_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                       const real *dx, real *dk, int dk_step);
/* The gradient of a key_table with a single row. FN(content_multiplier) adds this row to the queries. */
void FN(key_row_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int from, int to,
                     const real *dx, real *dk, int dk_step);

/* values (lookup_values.c): add to the output; add to g.v; the gradient of the table from the weights of a panel */
void FN(value_table_output)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *weights, real *o);
void FN(value_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, const real *g, real *add);
void FN(value_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, const real *weights);

#endif
