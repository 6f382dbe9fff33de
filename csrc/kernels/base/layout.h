/* layout.h -- the pieces of a kernel's scratch, stated once.
 *
 * A kernel with scratch has a struct of its pieces and one function that carves them, in the order of their use:
 *
 *     typedef struct { real *pack, *copy; } gram_pieces;
 *     static size_t gram_layout(gram_pieces *s, const idx *dim, const double *par, char *memory)
 *     {
 *         pe_carver c = {memory, 0};
 *         s->pack = carve_reals(&c, BLOCK_M * D(d));
 *         s->copy = carve_reals(&c, BLOCK_M * D(d));
 *         return c.used;
 *     }
 *     SCRATCH(gram)
 *
 * The kernel calls gram_layout(&s, call->dim, call->par, work->scratch). SCRATCH(gram) defines FN(gram_scratch), which is
 * called for the size: the same function without memory. The last column of the row in ops.def is then `gram`.
 */
#ifndef PE_LAYOUT_H
#define PE_LAYOUT_H

#include "base/real.h"

typedef struct {
    char *memory; /* NULL: only count */
    size_t used;
} pe_carver;

/* The next bytes, aligned to a cache line; NULL if there is no memory. A negative length counts as 0. */
INLINE void *carve_bytes(pe_carver *c, idx bytes)
{
    char *at = c->memory ? c->memory + c->used : NULL;
    c->used += (size_t)(max_(bytes, 0) + 63) / 64 * 64;
    return at;
}

INLINE real *carve_reals(pe_carver *c, idx n) { return carve_bytes(c, n * (idx)sizeof(real)); }
INLINE double *carve_doubles(pe_carver *c, idx n) { return carve_bytes(c, n * (idx)sizeof(double)); }

#define SCRATCH(name)                                            \
    size_t FN(name##_scratch)(const idx *dim, const double *par) \
    {                                                            \
        name##_pieces counted;                                   \
        return name##_layout(&counted, dim, par, NULL);          \
    }

#endif
