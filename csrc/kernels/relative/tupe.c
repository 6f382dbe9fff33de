/* tupe.c -- TUPE (Ke et al. 2021, equation 7), a bias that is a product:   b_ij = pos_q_i . pos_k_j / sqrt(2 width)
 *
 * Column 0 may be reset to any_to_cls, and then row 0 to cls_to_any. The bias is added after the cap, by row and
 * column, whatever the positions are. The product takes CONTENT_PIECE channels at a time.
 */
#include "base/transpose.h"
#include "relative/lookup.h"

#include <math.h>

enum { POS_Q, POS_K, CLS_TO_ANY, ANY_TO_CLS, D_POS_Q, D_POS_K, D_CLS, D_ANY };

static idx width_of(const pe_view *v) { return v->queries->call->term[v->term].D(P); }
static real factor_of(const pe_view *v) { return (real)(1 / sqrt(2 * (double)width_of(v))); }

static idx first_key(const pe_view *v) { return v->keys->first + v->visible->from; }
static idx first_query(const pe_view *v) { return v->queries->first + v->panel->first; }

/* pos_q of a panel's queries, or pos_k of its keys, from channel `first` on */
static pe_matrix positions(const pe_view *v, int operand, idx row, idx first)
{
    pe_matrix rows = matrix_of(v, operand);
    rows.data += row * rows.step + first * (idx)sizeof(real);
    return rows;
}

static int has_column_0(const pe_view *v) { return operand_of(v, ANY_TO_CLS)->data && first_key(v) == 0; }
static int has_row_0(const pe_view *v) { return operand_of(v, CLS_TO_ANY)->data && first_query(v) == 0; }

static void after(pe_content *c, const pe_view *v, real *out)
{
    const int n = v->visible->to - v->visible->from, width = v->panel->width;
    real unused_max[PANEL_LANES] = {0};
    zero_reals(out, n * width);
    for (idx first = 0; first < width_of(v); first += CONTENT_PIECE) {
        const int count = (int)min_(CONTENT_PIECE, width_of(v) - first);
        const pe_matrix q = positions(v, POS_Q, first_query(v), first), k = positions(v, POS_K, first_key(v), first);
        pack_transposed(q.data, q.step, v->panel->lanes, count, factor_of(v), width, c->pack);
        FN(scores)(&(pe_scores){k.data, k.step, count, c->pack, out, width, out, unused_max}, n, width);
    }
    if (has_column_0(v)) {
        for (int l = 0; l < width; l++)
            out[l] = vector_of(v, ANY_TO_CLS)[0];
    }
    if (has_row_0(v)) {
        for (int j = 0; j < n; j++)
            out[j * width] = vector_of(v, CLS_TO_ANY)[0];
    }
}

/* The resets take their pairs' dS, which then is 0 for the product. */
static void resets_vjp(pe_content_vjp *b, const pe_view *v, real *ds)
{
    const int width = v->panel->width;
    double *d_cls = gradient_of(b, v, D_CLS), *d_any = gradient_of(b, v, D_ANY);
    if (has_row_0(v)) {
        for (int j = 0; j < v->visible->to - v->visible->from; j++) {
            if (d_cls)
                *d_cls += (double)ds[j * width];
            ds[j * width] = 0;
        }
    }
    if (has_column_0(v)) {
        for (int l = 0; l < width; l++) {
            if (d_any)
                *d_any += (double)ds[l];
            ds[l] = 0;
        }
    }
}

/* d pos_q_i += factor sum_j dS_ij pos_k_j,   d pos_k_j += factor sum_i dS_ij pos_q_i. The first gets its factor in
 * Python. */
static void after_vjp(pe_content_vjp *b, const pe_view *v, real *ds)
{
    const int n = v->visible->to - v->visible->from, width = v->panel->width, lanes = v->panel->lanes;
    const pe_array *dq = operand_of(v, D_POS_Q);
    const idx step = gradient_step(v, D_POS_K);
    real *dk = gradient_of(b, v, D_POS_K);
    resets_vjp(b, v, ds);
    if (!dq->data || !dk)
        return;
    for (idx first = 0; first < width_of(v); first += CONTENT_PIECE) {
        const int count = (int)min_(CONTENT_PIECE, width_of(v) - first);
        const pe_matrix q = positions(v, POS_Q, first_query(v), first), k = positions(v, POS_K, first_key(v), first);
        zero_reals(b->d_piece, count * width);
        FN(add_rows)(&k, 0, n, count, width, ds, b->d_piece);
        for (int l = 0; l < lanes; l++) {
            const real *query = (const real *)(const void *)(q.data + l * q.step);
            char *row = dq->data + v->queries->head * dq->core[0] + (first_query(v) + l) * dq->core[1];
            for (int x = 0; x < count; x++)
                ((real *)(void *)row)[first + x] += b->d_piece[x * width + l];
            FN(strip_row)(query, count, factor_of(v), b->strips, PANEL_LANES, l);
        }
        real *to = dk + first_key(v) * step + first;
        FN(add_outer_of_lanes)(0, lanes, width, ds, b->strips, PANEL_LANES, count, n, to, step);
    }
}

const pe_content_op FN(tupe_op) = {.after = after, .after_vjp = after_vjp};
