/* tupe.c -- TUPE (Ke et al. 2021, equation 7):   b_ij = pos_q_i . pos_k_j / sqrt(2 P), with P channels
 *
 *     for each pair (i, j):
 *         s[i][j] += dot(pos_q[i], pos_k[j]) / sqrt(2 * P);
 *
 * If given, any_to_cls replaces b_i0 and cls_to_any replaces b_0j, including b_00. i and j are indices, not positions.
 * The bias is added after the cap. The matrix product of queries and keys (product.h) computes it, CONTENT_PIECE
 * channels at a time.
 */
#include "base/transpose.h"
#include "relative/pieces.h"

#include <math.h>

enum { POS_Q, POS_K, CLS_TO_ANY, ANY_TO_CLS, D_POS_Q, D_POS_K, D_CLS, D_ANY };

static real factor_of(const pe_view *view) { return (real)(1 / sqrt(2 * (double)channels_of(view))); }
static idx first_key(const pe_view *view) { return view->keys->first + view->bias->from; }

static int has_column_0(const pe_view *view) { return operand_of(view, ANY_TO_CLS)->data && first_key(view) == 0; }
static int has_row_0(const pe_view *view) { return operand_of(view, CLS_TO_ANY)->data && first_query(view) == 0; }

static void after(pe_content *c, const pe_view *view, real *out)
{
    const int n = view->bias->to - view->bias->from, width = view->panel->width;
    zero_reals(out, n * width);
    for (idx first = 0; first < channels_of(view); first += CONTENT_PIECE) {
        const int count = piece_channels(view, first);
        const pe_lines q = piece_of(view, POS_Q, first_query(view), first),
                       k = piece_of(view, POS_K, first_key(view), first);
        pack_transposed(q, view->panel->lanes, count, factor_of(view), width, c->pack);
        const pe_side side = {.b = c->pack, .width = width, .to = n, .add = out, .step = width, .c = out};
        FN(scores)(k, count, &side, 1);
    }
    if (has_column_0(view)) {
        for (int l = 0; l < width; l++)
            out[l] = vector_of(view, ANY_TO_CLS)[0];
    }
    if (has_row_0(view)) {
        for (int j = 0; j < n; j++)
            out[j * width] = vector_of(view, CLS_TO_ANY)[0];
    }
}

/* Add dS of the replaced pairs to the gradients of cls_to_any and any_to_cls, and set it to 0 for the product. */
static void resets_vjp(pe_content_vjp *vjp, const pe_view *view, real *ds)
{
    const int width = view->panel->width;
    double *d_cls = gradient_of(vjp, view, D_CLS), *d_any = gradient_of(vjp, view, D_ANY);
    if (has_row_0(view)) {
        for (int j = 0; j < view->bias->to - view->bias->from; j++) {
            if (d_cls)
                *d_cls += (double)ds[j * width];
            ds[j * width] = 0;
        }
    }
    if (has_column_0(view)) {
        for (int l = 0; l < width; l++) {
            if (d_any)
                *d_any += (double)ds[l];
            ds[l] = 0;
        }
    }
}

/* d pos_q_i += factor sum_j dS_ij pos_k_j,   d pos_k_j += factor sum_i dS_ij pos_q_i. Python multiplies
 * d pos_q by the factor. */
static void after_vjp(pe_content_vjp *vjp, const pe_view *view, real *ds)
{
    const int n = view->bias->to - view->bias->from, width = view->panel->width;
    const pe_span rows = {ds, 0, view->panel->lanes, width, 0, n};
    const pe_sums dk = table_gradient(vjp, view, D_POS_K);
    resets_vjp(vjp, view, ds);
    if (!operand_of(view, D_POS_Q)->data || !dk.row)
        return;
    for (idx first = 0; first < channels_of(view); first += CONTENT_PIECE) {
        const int count = piece_channels(view, first);
        const pe_lines k = piece_of(view, POS_K, first_key(view), first);
        zero_reals(vjp->d_piece, count * width);
        FN(add_rows)(k, 0, n, count, width, ds, vjp->d_piece);
        piece_vjp(vjp, view, POS_Q, D_POS_Q, first, factor_of(view));
        const pe_sums to = {sums_from(dk, first_key(view)).row + first, dk.step};
        add_outer_of_span(&rows, &(pe_strips){vjp->strips, PANEL_LANES, count}, to);
    }
}

const pe_content_operator FN(tupe_operator) = {.after = after, .after_vjp = after_vjp};
