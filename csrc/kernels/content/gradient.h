/* gradient.h -- where gradients of content.h's arrays go, and the product that takes them there. */
#ifndef PE_GRADIENT_H
#define PE_GRADIENT_H

#include "content/content_vjp.h"
#include "tile/outer.h"
#include "content/lookup.h"

INLINE char *gradient_of(const pe_content_vjp *b, const pe_queries *u, int term, int array)
{
    const pe_array *a = &u->term[term][array];
    return a->data ? a->data + b->t * a->core[0] : NULL;
}

/* o[row][c] += sum over some lanes of w[row][lane] x[lane][c] */
static NOINLINE void add_outer_rows(int first, int lanes, int width, const real *w, const real *strips, int room,
                                    int channels, int rows, real *o, idx o_step)
{
    const pe_span alone = {w, first, lanes, width, 0, rows};
    add_outer(&alone, 1, strips, room, channels, 0, rows, o, o_step);
}

INLINE idx row_step(const pe_queries *u, int term, int array) { return u->term[term][array].core[1]; }

#endif
