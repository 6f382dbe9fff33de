/* tupe.c -- TUPE (Ke et al. 2021, equation 7):   b_ij = pos_q_i . pos_k_j / sqrt(2 P), with P channels
 *
 *     for each pair (i, j):
 *         s[i][j] += dot(pos_q[i], pos_k[j]) / sqrt(2 * P);
 *
 * If given, any_to_cls replaces b_i0 and cls_to_any replaces b_0j, including b_00. i and j are indices, not positions.
 * The bias is added after the cap. The matrix product of queries and keys (product.h) computes it, CONTENT_PIECE channels
 * at a time.
 */
#include "base/transpose.h"
#include "relative/pieces.h"

#include <math.h>

enum { POS_Q, POS_K, CLS_TO_ANY, ANY_TO_CLS, D_POS_Q, D_POS_K, D_CLS, D_ANY };

static real factor_of(const pe_view *v) { return (real)(1 / sqrt(2 * (double)channels_of(v))); }
static idx first_key(const pe_view *v) { return v->keys->first + v->bias->from; }

static int has_column_0(const pe_view *v) { return operand_of(v, ANY_TO_CLS)->data && first_key(v) == 0; }
static int has_row_0(const pe_view *v) { return operand_of(v, CLS_TO_ANY)->data && first_query(v) == 0; }

static void after(pe_content *c, const pe_view *v, real *out)
{
    const int n = v->bias->to - v->bias->from, width = v->panel->width;
    zero_reals(out, n * width);
    for (idx first = 0; first < channels_of(v); first += CONTENT_PIECE) {
        const int count = piece_channels(v, first);
        const pe_matrix q = piece_of(v, POS_Q, first_query(v), first), k = piece_of(v, POS_K, first_key(v), first);
        pack_transposed(q.data, q.step, v->panel->lanes, count, factor_of(v), width, c->pack);
        const pe_side side = {.b = c->pack, .width = width, .to = n, .add = out, .step = width, .c = out};
        FN(scores)(k.data, k.step, count, &side, 1);
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

/* Add dS of the replaced pairs to the gradients of cls_to_any and any_to_cls, and set it to 0 for the product. */
static void resets_vjp(pe_content_vjp *b, const pe_view *v, real *ds)
{
    const int width = v->panel->width;
    double *d_cls = gradient_of(b, v, D_CLS), *d_any = gradient_of(b, v, D_ANY);
    if (has_row_0(v)) {
        for (int j = 0; j < v->bias->to - v->bias->from; j++) {
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

/* d pos_q_i += factor sum_j dS_ij pos_k_j,   d pos_k_j += factor sum_i dS_ij pos_q_i. Python multiplies
 * d pos_q by the factor. */
static void after_vjp(pe_content_vjp *b, const pe_view *v, real *ds)
{
    const int n = v->bias->to - v->bias->from, width = v->panel->width, lanes = v->panel->lanes;
    const idx step = gradient_step(v, D_POS_K);
    real *dk = gradient_of(b, v, D_POS_K);
    resets_vjp(b, v, ds);
    if (!operand_of(v, D_POS_Q)->data || !dk)
        return;
    for (idx first = 0; first < channels_of(v); first += CONTENT_PIECE) {
        const int count = piece_channels(v, first);
        const pe_matrix k = piece_of(v, POS_K, first_key(v), first);
        zero_reals(b->d_piece, count * width);
        FN(add_rows)(&k, 0, n, count, width, ds, b->d_piece);
        piece_vjp(b, v, POS_Q, D_POS_Q, first, factor_of(v));
        real *to = dk + first_key(v) * step + first;
        FN(add_outer_of_lanes)(0, lanes, width, ds, b->strips, PANEL_LANES, count, n, to, step);
    }
}

const pe_content_op FN(tupe_op) = {.after = after, .after_vjp = after_vjp};
