/* lookup_queries.c -- the lookup of lookup.h for tables that multiply the queries:
 *
 *     for (int j = from; j < to; j++)
 *         for (int l = 0; l < width; l++)
 *             add[j][l] += scale * dot(q[l] + vector, table[row[j][l]]);
 *
 * lookup.c multiplies each row once per tile and panel. c->q_plus keeps q + vector of the last operator for all tiles
 * of a block.
 */
#include "relative/lookup.h"

#include <limits.h>

void FN(add_to_queries)(const pe_content *c, const pe_view *view, int operand, real *packed)
{
    const real *x = vector_of(view, operand);
    for (const pe_panel *p = view->queries->panel; p < view->queries->panel + view->queries->panels; p++) {
        real *pack = packed + p->first * c->d;
        for (int k = 0; k < c->d; k++) {
            for (int l = 0; l < p->width; l++)
                pack[k * p->width + l] += c->scale * x[k];
        }
    }
}

/* The packed queries of the block, plus the vector if there is one */
static const real *packed_queries(pe_content *c, const pe_view *view, const pe_lookup *lookup)
{
    if (!lookup->vector)
        return c->q;
    if (c->plus_operator != view->operator_index) {
        memcpy(c->q_plus, c->q, (size_t)(view->queries->width * c->d) * sizeof(real));
        FN(add_to_queries)(c, view, lookup->vector, c->q_plus);
        c->plus_operator = view->operator_index;
    }
    return c->q_plus;
}

void FN(query_table_scores)(pe_content *c, const pe_view *view, const pe_lookup *lookup, real *add)
{
    const pe_lines table = matrix_of(view, lookup->table);
    const pe_row_map r = rows_of_view(c, view, lookup->map);
    const real *pack = packed_queries(c, view, lookup) + view->panel->first * c->d;
    FN(add_lookup)(c, table, &r, c->d, pack, NULL, add);
}

/* ---- gradient ---- */

/* d_q_plus is the gradient of q + vector, without the factor scale. Add d_q_plus to dq, and scale times its sum over
 * the queries to d vector. */
void FN(content_end_vjp)(pe_content_vjp *vjp, const pe_query_block *queries)
{
    const int d = vjp->content->d;
    const pe_view view = {.operator_index = vjp->plus_operator, .queries = queries};
    if (vjp->plus_operator < 0)
        return;
    const pe_content_operator *stages = FN(content_operators)[operator_of(&view)->entry];
    double *d_vector = gradient_of(vjp, &view, stages->query_table->d_vector);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        for (int k = 0; k < d; k++) {
            const idx at = p->first * d + k * p->width;
            double sum = 0;
            for (int l = 0; l < p->lanes; l++) {
                vjp->dq[at + l] += vjp->d_q_plus[at + l];
                sum += (double)vjp->d_q_plus[at + l];
            }
            if (d_vector)
                d_vector[k] += (double)vjp->content->scale * sum;
        }
    }
    vjp->plus_operator = -1;
}

/* Set q_plus_rows to the strips of q + vector and d_q_plus to 0, unless they belong to this operator already. */
static void begin_q_plus(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup)
{
    const pe_query_block *queries = view->queries;
    pe_content *c = vjp->content;
    const real *vector = vector_of(view, lookup->vector);
    if (vjp->plus_operator == view->operator_index)
        return;
    FN(content_end_vjp)(vjp, queries);
    vjp->plus_operator = view->operator_index;
    zero_reals(vjp->d_q_plus, queries->width * c->d);
    for (int first = 0; first < c->d; first += PANEL_LANES) {
        const int width = strip_width(c->d, first), count = (int)min_(width, c->d - first);
        real scaled[PANEL_LANES] = {0};
        for (int k = 0; k < count; k++)
            scaled[k] = c->scale * vector[first + k];
        for (int i = first * BLOCK_M; i < first * BLOCK_M + queries->lanes * width; i += width) {
            for (int k = 0; k < width; k++)
                vjp->q_plus_rows[i + k] = vjp->q_rows[i + k] + scaled[k];
        }
    }
}

/* Operands of the gradient:   dq += dS table,   d_table += dS strips */
typedef struct {
    pe_lines table;
    pe_strips strips;
    real *dq;
    pe_sums d_table;
} lookup_gradient;

/* Sum dS of a panel by table row, w[row][lane], and add the product w table to dq. If the panel's buffer in by_row
 * holds all rows, return its span, and the caller adds the products of all panels with the strips to d_table. Otherwise
 * add the product here. */
static pe_span panel_by_row(pe_content_vjp *vjp, const pe_panel *p, const pe_row_map *r, const real *dx,
                            const lookup_gradient *to)
{
    const int width = p->width, d = vjp->content->d, most = BY_ROW - 2 * MARGIN;
    real *buffer = vjp->by_row + p->first * BY_ROW, *w = buffer + MARGIN * width;
    int low, high;
    FN(row_range)(r, &low, &high);
    const int fits = high - low < most;
    const pe_span span = {w - low * width, p->first, p->lanes, width, low, fits ? high + 1 : low};
    for (; low <= high; low += most) {
        const int n = (int)min_(most, high - low + 1);
        const pe_span rows = {w, p->first, p->lanes, width, 0, n};
        FN(sum_by_row)(vjp->content, r, low, n, dx, w);
        FN(add_rows)(to->table, low, n, d, width, w, to->dq + p->first * d);
        if (to->d_table.row && !fits)
            add_outer_of_span(&rows, &to->strips, sums_from(to->d_table, low));
        if (fits) {
            zero_reals(buffer, MARGIN * width);
            zero_reals(w + n * width, MARGIN * width);
        }
    }
    return span;
}

void FN(query_table_vjp)(pe_content_vjp *vjp, const pe_view *view, const pe_lookup *lookup, int (*seen)[2],
                         const real *dx)
{
    const int has_vector = lookup->vector != 0;
    if (has_vector)
        begin_q_plus(vjp, view, lookup);
    const lookup_gradient to = {matrix_of(view, lookup->table),
                                {has_vector ? vjp->q_plus_rows : vjp->q_rows, BLOCK_M, vjp->content->d},
                                has_vector ? vjp->d_q_plus : vjp->dq,
                                table_gradient(vjp, view, lookup->d_table)};
    pe_span span[PANELS];
    int spans = 0, low = INT_MAX, high = INT_MIN;
    for (int i = 0; i < view->queries->panels; i++) {
        const pe_panel *p = &view->queries->panel[i];
        if (seen[i][0] >= seen[i][1])
            continue;
        const pe_row_map r = FN(rel_to_row)(vjp->content, view, lookup->map, p, seen[i][0], seen[i][1]);
        span[spans] = panel_by_row(vjp, p, &r, dx + score_offset(p, seen[i][0]), &to);
        low = (int)min_(low, span[spans].from);
        high = (int)max_(high, span[spans].to);
        spans += span[spans].from < span[spans].to;
    }
    if (to.d_table.row && spans)
        FN(add_outer)(span, spans, &to.strips, low, high, to.d_table);
}
