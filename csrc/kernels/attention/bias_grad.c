/* bias_grad.c -- reduce a panel of dS to the gradients of position operators (bias_grad.h).
 *
 *     for (int j = from; j < to; j++)
 *         for (int l = 0; l < lanes; l++) {
 *             diagonals[j - l + offset] += ds[j][l];
 *             rows[l] += ds[j][l];    columns[j] += ds[j][l];
 *         }
 *
 * The diagonals cost most, because each lane of a vector belongs to a different one. From key to key, a diagonal moves
 * by one lane, so add_diagonals moves its load by one lane per key and adds the vectors without crossing lanes.
 */
#include "attention/bias_grad.h"

static const pe_position_operator *functions_of(const pe_query_block *queries, int t)
{
    return FN(position_operators)[queries->call->operators[t].entry];
}

/* Only an operator on positions has these gradients. */
static int has_gradient(const pe_query_block *queries, int t)
{
    return queries->call->operators[t].gradient[0].data != NULL;
}

/* Row i of an output of doubles, or NULL */
static double *output_row(const pe_query_block *queries, int operand, idx i)
{
    char *data = queries->batch_row.data[operand];
    return data ? (double *)(void *)(data + i * queries->call->array[operand].core[0]) : NULL;
}

void FN(bias_grad_clear)(const pe_query_block *queries, idx t)
{
    const pe_call *call = queries->call;
    double *diagonals = output_row(queries, A_DIAGONAL_SUMS, t), *columns = output_row(queries, A_COLUMN_SUMS, t);
    if (diagonals)
        memset(diagonals, 0, (size_t)(call->D(n) + call->D(m) - 1) * sizeof(double));
    if (columns)
        memset(columns, 0, (size_t)call->D(m) * sizeof(double));
}

/* Point g->into at the partial sums of this block of work. */
static void locate_gradients(pe_bias_grad *g, const pe_query_block *queries, const pe_work *work)
{
    g->has_distance_operators = g->has_pair_operators = 0;
    for (int t = 0; t < queries->call->noperators; t++) {
        const pe_array *gradient = queries->call->operators[t].gradient;
        g->has_distance_operators |= has_gradient(queries, t) && functions_of(queries, t)->distance_vjp;
        g->has_pair_operators |= has_gradient(queries, t) && functions_of(queries, t)->pairs_vjp;
        for (int k = 0; k < PE_OPERATOR_ARRAYS && gradient[k].data; k++) {
            g->into[t][k] = gradient[k];
            g->into[t][k].data += work->block * gradient[k].loop[0];
        }
    }
}

void FN(bias_grad_block)(pe_bias_grad *g, const pe_query_block *queries, idx t, const pe_work *work)
{
    memset(g->rows, 0, sizeof g->rows);
    g->diagonals = output_row(queries, A_DIAGONAL_SUMS, t);
    g->columns = output_row(queries, A_COLUMN_SUMS, t);
    g->has_rows = queries->batch_row.data[A_ROW_SUMS] != NULL;
    g->ds = queries->batch_row.data[A_DS];
    locate_gradients(g, queries, work);
}

/* ---- sums ---- */

/* out[j - lane] += ds. diagonal[t] sums the pairs with lane - key = t - (n - 1). A vector of diagonals is the sum of
 * one load per key, each load one lane after the load of the key before. `padded` has zeros on both sides of a key for
 * loads that begin before or end after its lanes. */
static void add_diagonals(double *restrict out, const real *restrict ds, int n, int width, int lanes,
                          real *restrict padded)
{
    real diagonal[TILE_RELS + LANES];
    const int padded_width = width + 2 * LANES;
    for (int j = 0; j < n; j++) {
        real *to = padded + j * padded_width;
        vec_store(to, vec_set(0));
        for (int l = 0; l < width; l += LANES)
            vec_store(to + LANES + l, vec_load(ds + j * width + l));
        vec_store(to + LANES + width, vec_set(0));
    }
    for (int t = 0; t < n + width - 1; t += LANES) {
        const int first = t - (n - 1); /* lane of key 0 in diagonal[t] */
        const int from = (int)max_(0, 1 - LANES - first), to = (int)min_(n, width - first);
        vec sum = vec_set(0);
        for (int j = from; j < to; j++)
            sum = vec_add(sum, vec_load(padded + j * padded_width + LANES + first + j));
        vec_store(diagonal + t, sum);
    }
    for (int t = 0; t < n + lanes - 1; t++)
        out[n - 1 - t] += (double)diagonal[t];
}

static void add_column_sums(double *restrict out, const real *ds, int n, int width)
{
    for (int j = 0; j < n; j++, ds += width) {
        real lane_sum[LANES];
        vec sum = vec_load(ds);
        for (int l = LANES; l < width; l += LANES)
            sum = vec_add(sum, vec_load(ds + l));
        vec_store(lane_sum, sum);
        double total = 0;
        for (int l = 0; l < LANES; l++)
            total += (double)lane_sum[l];
        out[j] += total;
    }
}

static void add_row_sums(double *restrict out, const real *ds, int n, int width)
{
    for (int l = 0; l < width; l += LANES) {
        real lane_sum[LANES];
        vec sum = vec_set(0);
        for (int j = 0; j < n; j++)
            sum = vec_add(sum, vec_load(ds + j * width + l));
        vec_store(lane_sum, sum);
        for (int c = 0; c < LANES; c++)
            out[l + c] += (double)lane_sum[c];
    }
}

static void add_ds(char *out, const pe_array *a, const real *ds, int n, const pe_panel *p)
{
    for (int l = 0; l < p->lanes; l++) {
        for (int j = 0; j < n; j++)
            *(real *)(void *)(out + l * a->core[1] + j * a->core[2]) += ds[j * p->width + l];
    }
}

/* ---- gradients of the operators' arrays ---- */

/* Add the gradients of operators on distance, for as many keys at a time as the buffers hold. */
static void add_distance_gradients(pe_bias_grad *g, const pe_view *v, const real *ds)
{
    const pe_query_block *queries = v->queries;
    const int width = v->panel->width, at_once = TILE_RELS / width;
    double rel[TILE_RELS], grad[TILE_RELS];
    for (int j = v->bias->from; j < v->bias->to; j += at_once) {
        const int rows = (int)min_(at_once, v->bias->to - j);
        for (int i = 0; i < rows * width; i++)
            grad[i] = (double)*ds++;
        for (int t = 0; t < queries->call->noperators; t++) {
            const pe_position_operator *functions = functions_of(queries, t);
            const pe_positions *at_k = key_positions(v->keys, queries, t), *at_q = query_positions(queries, t);
            if (!has_gradient(queries, t) || !functions->distance_vjp)
                continue;
            for (int r = 0; r < rows; r++) {
                for (int l = 0; l < width; l++)
                    rel[r * width + l] = at_k->at[j + r] - at_q->at[v->panel->first + l];
            }
            functions->distance_vjp(queries->operator_array[t], queries->call->operators[t].dim, queries->head, rel,
                                    rows * width, grad, g->into[t]);
        }
    }
}

static void add_pair_gradients(pe_bias_grad *g, const pe_view *v, const real *ds)
{
    const pe_query_block *queries = v->queries;
    const int from = v->bias->from, n = v->bias->to - from;
    double *grad = g->of.pairs;
    for (int i = 0; i < n * v->panel->width; i++)
        grad[i] = (double)ds[i];
    for (int t = 0; t < queries->call->noperators; t++) {
        const pe_position_operator *functions = functions_of(queries, t);
        const pe_pair_block block = pair_block_of(v->keys, queries, v->panel, t, from, n);
        if (has_gradient(queries, t) && functions->pairs_vjp)
            functions->pairs_vjp(queries->operator_array[t], queries->call->operators[t].dim, queries->head, &block,
                                 grad, g->into[t]);
    }
}

void FN(bias_grad_panel)(pe_bias_grad *g, const pe_view *v, const real *ds)
{
    const pe_query_block *queries = v->queries;
    const pe_panel *p = v->panel;
    const pe_array *of_ds = &queries->call->array[A_DS];
    const int n = v->bias->to - v->bias->from;
    const idx i = queries->first + p->first, j = v->keys->first + v->bias->from;
    if (g->diagonals)
        add_diagonals(g->diagonals + (j - i + queries->call->D(n) - 1), ds, n, p->width, p->lanes, g->of.padded);
    if (g->columns)
        add_column_sums(g->columns + j, ds, n, p->width);
    if (g->has_rows)
        add_row_sums(g->rows + p->first, ds, n, p->width);
    if (g->ds && of_ds->storage == PE_STORAGE)
        add_ds(g->ds + queries->head * of_ds->core[0] + i * of_ds->core[1] + j * of_ds->core[2], of_ds, ds, n, p);
    if (g->has_distance_operators)
        add_distance_gradients(g, v, ds);
    if (g->has_pair_operators)
        add_pair_gradients(g, v, ds);
}

void FN(bias_grad_write)(const pe_bias_grad *g, const pe_query_block *queries)
{
    double *rows = output_row(queries, A_ROW_SUMS, queries->head);
    if (rows)
        memcpy(rows + queries->first, g->rows, (size_t)queries->lanes * sizeof *rows);
}
