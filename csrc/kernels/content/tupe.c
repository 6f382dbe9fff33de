/* tupe.c -- TUPE (Ke et al. 2021, equation 7), a bias that is a product:   b_ij = pos_q_i . pos_k_j / sqrt(2 width)
 *
 * Column 0 may be reset to any_to_cls, and then row 0 to cls_to_any. The bias is added after the cap, by row and column,
 * whatever the positions are. The product takes CONTENT_PIECE channels at a time.
 */
#include "base/transpose.h"
#include "content/lookup.h"

#include <math.h>

enum { POS_Q, POS_K, CLS_TO_ANY, ANY_TO_CLS, D_POS_Q, D_POS_K, D_CLS, D_ANY };

static idx width_of(const pe_query_block *u, int term) { return u->call->term[term].D(P); }

static real factor_of(const pe_query_block *u, int term) { return (real)(1 / sqrt(2 * (double)width_of(u, term))); }

/* pos_q of a panel's queries from channel `first` on */
static pe_matrix panel_positions(const pe_query_block *u, const pe_panel *p, int term, idx first)
{
    pe_matrix rows = matrix_of(u, term, POS_Q);
    rows.data += (u->first + p->first) * rows.step + first * (idx)sizeof(real);
    return rows;
}

static int has_column_0(const pe_tile *t, const pe_panel_bias *visible, int term)
{
    return t->queries->term[term][ANY_TO_CLS].data && t->keys->first + visible->from == 0;
}

static int has_row_0(const pe_tile *t, const pe_panel *p, int term)
{
    return t->queries->term[term][CLS_TO_ANY].data && t->queries->first + p->first == 0;
}

static void after(pe_content *c, const pe_tile *t, const pe_panel *p, const pe_panel_bias *visible, int term, real *out)
{
    const pe_query_block *u = t->queries;
    const pe_matrix keys = matrix_of(u, term, POS_K);
    const int n = visible->to - visible->from;
    real unused_max[PANEL_LANES] = {0};
    memset(out, 0, (size_t)(n * p->width) * sizeof(real));
    for (idx first = 0; first < width_of(u, term); first += CONTENT_PIECE) {
        const int count = (int)min_(CONTENT_PIECE, width_of(u, term) - first);
        const pe_matrix q = panel_positions(u, p, term, first);
        pack_transposed(q.data, q.step, p->lanes, count, factor_of(u, term), p->width, c->pack);
        const pe_scores w = {.k = keys.data + (t->keys->first + visible->from) * keys.step + first * (idx)sizeof(real),
                             .k_step = keys.step,
                             .d = count,
                             .q = c->pack,
                             .bias = out,
                             .bias_step = p->width,
                             .s = out,
                             .m = unused_max};
        FN(scores)(&w, n, p->width);
    }
    if (has_column_0(t, visible, term)) {
        for (int l = 0; l < p->width; l++)
            out[l] = vector_of(u, term, ANY_TO_CLS)[0];
    }
    if (has_row_0(t, p, term)) {
        for (int j = 0; j < n; j++)
            out[j * p->width] = vector_of(u, term, CLS_TO_ANY)[0];
    }
}

/* The resets take their pairs' dS, which then is 0 for the product. */
static void resets_vjp(pe_content_vjp *b, const pe_tile *t, const pe_panel *p, const pe_panel_bias *visible, int term,
                       real *ds)
{
    double *d_cls = (double *)(void *)gradient_of(b, t->queries, term, D_CLS);
    double *d_any = (double *)(void *)gradient_of(b, t->queries, term, D_ANY);
    if (has_row_0(t, p, term)) {
        for (int j = 0; j < visible->to - visible->from; j++) {
            if (d_cls)
                *d_cls += (double)ds[j * p->width];
            ds[j * p->width] = 0;
        }
    }
    if (has_column_0(t, visible, term)) {
        for (int l = 0; l < p->width; l++) {
            if (d_any)
                *d_any += (double)ds[l];
            ds[l] = 0;
        }
    }
}

/* d pos_q_i += factor sum_j dS_ij pos_k_j,   d pos_k_j += factor sum_i dS_ij pos_q_i. The first gets its factor in
 * Python. */
static void after_vjp(pe_content_vjp *b, pe_content *c, const pe_tile *t, const pe_panel *p,
                      const pe_panel_bias *visible, int term, real *ds)
{
    const pe_query_block *u = t->queries;
    const int n = visible->to - visible->from, width = p->width;
    const idx first_key = t->keys->first + visible->from;
    const pe_array *dq = &u->term[term][D_POS_Q], *dk = &u->term[term][D_POS_K];
    const pe_matrix keys = matrix_of(u, term, POS_K);
    (void)c;
    resets_vjp(b, t, p, visible, term, ds);
    if (!dq->data || !dk->data)
        return;
    for (idx first = 0; first < width_of(u, term); first += CONTENT_PIECE) {
        const int count = (int)min_(CONTENT_PIECE, width_of(u, term) - first);
        const pe_matrix piece = {keys.data + first_key * keys.step + first * (idx)sizeof(real), keys.step};
        memset(b->sum, 0, (size_t)(count * width) * sizeof(real));
        FN(add_rows)(&piece, 0, n, count, width, ds, b->sum);
        for (int l = 0; l < p->lanes; l++) {
            real *to = (real *)(void *)(dq->data + u->head * dq->core[0] + (u->first + p->first + l) * dq->core[1]);
            for (int x = 0; x < count; x++)
                to[first + x] += b->sum[x * width + l];
        }
        const pe_matrix q = panel_positions(u, p, term, first);
        for (int l = 0; l < p->lanes; l++)
            FN(strip_row)
        ((const real *)(const void *)(q.data + l * q.step), count, factor_of(u, term), b->strips, PANEL_LANES, l);
        char *d_rows = gradient_of(b, u, term, D_POS_K) + first_key * dk->core[1];
        FN(add_outer_of_lanes)
        (0, p->lanes, width, ds, b->strips, PANEL_LANES, count, n, (real *)(void *)d_rows + first,
         dk->core[1] / (idx)sizeof(real));
    }
}

const pe_content_op FN(tupe_op) = {.after = after, .after_vjp = after_vjp};
