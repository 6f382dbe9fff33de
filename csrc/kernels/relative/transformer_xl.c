/* transformer_xl.c -- Dai et al. 2019, section 3.3:   s_ij += scale (u . k_j + (q_i + v) . r[row_ij])
 *
 * u is added to the packed queries that multiply the keys. Packed queries plus v are kept for the block, for the
 * operator that came last. The maps of operators on one call may differ, their vectors too.
 */
#include "relative/lookup.h"

enum { R_TABLE, U, V, MAP, D_R, D_U, D_V };
static const pe_lookup r_table = {R_TABLE, MAP, D_R};

/* pack[k][lane] += scale x[k] */
static void add_vector(const real *x, real scale, int d, int width, real *pack)
{
    for (int k = 0; k < d; k++) {
        for (int l = 0; l < width; l++)
            pack[k * width + l] += scale * x[k];
    }
}

static void add_to_queries(const pe_content *c, const pe_view *v, int vector, real *packed)
{
    for (const pe_panel *p = v->queries->panel; p < v->queries->panel + v->queries->panels; p++) {
        add_vector(vector_of(v, vector), c->scale, c->d, p->width, packed + p->first * c->d);
    }
}

static void queries(const pe_content *c, const pe_view *v, real *multiplier) { add_to_queries(c, v, U, multiplier); }

static void panel(pe_content *c, const pe_view *v, real *add)
{
    if (c->shifted_term != v->term) {
        memcpy(c->shifted, c->q, (size_t)(v->queries->width * c->d) * sizeof(real));
        add_to_queries(c, v, V, c->shifted);
        c->shifted_term = v->term;
    }
    FN(add_query_lookup)(c, v, &r_table, c->shifted + v->panel->first * c->d, add);
}

/* ---- gradient ---- */

/* dq += what the table gave, and d v = the sum of it over the queries: kept apart until here for operator
 * shifted_term, which is v->term. */
static void finish_shifted(pe_content_vjp *b, const pe_view *v)
{
    const int d = b->content->d;
    double *d_v = gradient_of(b, v, D_V);
    for (const pe_panel *p = v->queries->panel; p < v->queries->panel + v->queries->panels; p++) {
        for (int k = 0; k < d; k++) {
            const idx at = p->first * d + k * p->width;
            double sum = 0;
            for (int l = 0; l < p->lanes; l++) {
                b->dq[at + l] += b->shifted_dq[at + l];
                sum += (double)b->shifted_dq[at + l];
            }
            if (d_v)
                d_v[k] += (double)b->content->scale * sum;
        }
    }
    b->shifted_term = -1;
}

static void block_vjp(pe_content_vjp *b, const pe_view *v)
{
    if (b->shifted_term == v->term)
        finish_shifted(b, v);
}

/* Strips of q + v, and zeros for the gradient of q + v, unless they are there already. */
static void begin_shifted(pe_content_vjp *b, const pe_view *v)
{
    const pe_query_block *u = v->queries;
    const pe_content *c = b->content;
    const real *vector = vector_of(v, V);
    if (b->shifted_term == v->term)
        return;
    if (b->shifted_term >= 0)
        finish_shifted(b, &(pe_view){.term = b->shifted_term, .queries = u});
    b->shifted_term = v->term;
    zero_reals(b->shifted_dq, u->width * c->d);
    for (int first = 0; first < c->d; first += PANEL_LANES) {
        const int width = strip_width(c->d, first), count = (int)min_(width, c->d - first);
        real shift[PANEL_LANES] = {0};
        for (int k = 0; k < count; k++)
            shift[k] = c->scale * vector[first + k];
        for (int i = first * BLOCK_M; i < first * BLOCK_M + u->lanes * width; i += width) {
            for (int k = 0; k < width; k++)
                b->shifted[i + k] = b->q_rows[i + k] + shift[k];
        }
    }
}

static void panels_vjp(pe_content_vjp *b, const pe_view *v, int (*seen)[2], const real *dx)
{
    begin_shifted(b, v);
    FN(query_lookup_vjp)(b, v, seen, &r_table, dx, b->shifted, b->shifted_dq);
}

/* sum[r] += the lanes of row r of n; lanes that are no query hold 0 */
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

/* d k_j += scale u sum_i dx_ij,   d u += scale k_j sum_i dx_ij */
static void keys_vjp(pe_content_vjp *b, const pe_view *v, int from, int to, const real *dx, real *dk, int dk_step)
{
    const real *vector = vector_of(v, U);
    double *d_u = gradient_of(b, v, D_U);
    real sum[BLOCK_N] = {0};
    for (const pe_panel *p = v->queries->panel; p < v->queries->panel + v->queries->panels; p++) {
        sum_lanes(dx + p->first * BLOCK_N + from * p->width, to - from, p->width, sum);
    }
    for (int j = from; j < to; j++) {
        const real *key = (const real *)(const void *)(v->k + j * v->k_step);
        const real all = b->content->scale * sum[j - from];
        if (all == 0)
            continue;
        for (int k = 0; k < b->content->d; k++) {
            dk[j * dk_step + k] += all * vector[k];
            if (d_u)
                d_u[k] += (double)(all * key[k]);
        }
    }
}

const pe_content_op FN(transformer_xl_op) = {
    .queries = queries, .panel = panel, .panels_vjp = panels_vjp, .keys_vjp = keys_vjp, .block_vjp = block_vjp};
