/* pieces.h -- an operator's vectors of P channels, one for each query, multiplied CONTENT_PIECE channels at a time.
 *
 *     for (first = 0; first < P; first += CONTENT_PIECE)
 *         add the product, or its gradient, of the channels first <= c < min(first + CONTENT_PIECE, P)
 *
 * P has no upper bound, so scratch buffers have CONTENT_PIECE channels instead of P.
 */
#ifndef PE_PIECES_H
#define PE_PIECES_H

#include "relative/lookup.h"

INLINE idx channels_of(const pe_view *view) { return operator_of(view)->D(P); }
INLINE int piece_channels(const pe_view *view, idx first)
{
    return (int)min_(CONTENT_PIECE, channels_of(view) - first);
}
INLINE idx first_query(const pe_view *view) { return view->queries->first + view->panel->first; }

/* An operand from row `row` and channel `first` on */
INLINE pe_lines piece_of(const pe_view *view, int operand, idx row, idx first)
{
    const pe_lines rows = lines_from(matrix_of(view, operand), row);
    return (pe_lines){rows.data + first * (idx)sizeof(real), rows.step};
}

/* Add vjp->d_piece, the gradient of the vectors of a panel, to the rows of d_operand. Write the vectors times scale as
 * strips to vjp->strips. */
INLINE void piece_vjp(pe_content_vjp *vjp, const pe_view *view, int operand, int d_operand, idx first, real scale)
{
    const pe_array *d = operand_of(view, d_operand);
    const pe_lines x = piece_of(view, operand, first_query(view), first);
    const int count = piece_channels(view, first);
    for (int l = 0; l < view->panel->lanes; l++) {
        real *to = as_reals(entry_at(d, d->data, view->queries->head, first_query(view) + l)) + first;
        for (int c = 0; c < count; c++)
            to[c] += vjp->d_piece[c * view->panel->width + l];
        FN(strip_row)(line_at(x, l), count, scale, vjp->strips, PANEL_LANES, l);
    }
}

#endif
