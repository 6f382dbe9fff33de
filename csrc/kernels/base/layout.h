/* layout.h -- the pieces of a kernel's scratch, stated once, for its size and for its use.
 *
 * A kernel with scratch has a struct of its pieces, and one function that carves them from a block of memory:
 *
 *     typedef struct {
 *         real *pack, *copy;
 *     } gram_state;
 *
 *     LAYOUT(gram)
 *     {
 *         s->pack = carve_reals(c, BLOCK_M * D(d));
 *         s->copy = carve_reals(c, BLOCK_M * D(d));
 *     }
 *
 * The kernel gets its pieces from gram_begin(call, work). FN(gram_scratch) is their size: the same function without
 * memory. The last column of the row in ops.def is then `gram`.
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

#define PE_CARVE(name) \
    static void name##_carve(name##_state *s, pe_carver *c, MAYBE_UNUSED const idx *dim, MAYBE_UNUSED const double *par)
#define LAYOUT(name)                                                            \
    PE_CARVE(name);                                                             \
    static name##_state name##_begin(const pe_call *call, const pe_work *work)  \
    {                                                                           \
        name##_state s;                                                         \
        name##_carve(&s, &(pe_carver){work->scratch, 0}, call->dim, call->par); \
        return s;                                                               \
    }                                                                           \
    size_t FN(name##_scratch)(const idx *dim, const double *par)                \
    {                                                                           \
        name##_state s;                                                         \
        pe_carver c = {NULL, 0};                                                \
        name##_carve(&s, &c, dim, par);                                         \
        return c.used;                                                          \
    }                                                                           \
    PE_CARVE(name)

/* Scratch that is one struct: the kernel uses work->scratch as it is. */
#define SCRATCH_STRUCT(name, type) \
    size_t FN(name##_scratch)(MAYBE_UNUSED const idx *dim, MAYBE_UNUSED const double *par) { return sizeof(type); }

#endif
