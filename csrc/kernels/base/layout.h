/* layout.h -- divide a kernel's scratch memory into arrays: one list gives both the size and the addresses.
 *
 * A kernel with scratch declares a struct of pointers, and LAYOUT carves the arrays from the scratch memory:
 *
 *     typedef struct {
 *         real *pack, *copy;
 *     } example_state;
 *
 *     LAYOUT(example)
 *     {
 *         s->pack = carve_reals(c, BLOCK_M * D(d));
 *         s->copy = carve_reals(c, BLOCK_M * D(d));
 *     }
 *
 * The kernel calls example_begin(call, work) for the struct. FN(example_scratch) returns the size: it runs the same
 * list without memory. The entry of the kernel in ops.def names `example` as its layout.
 */
#ifndef PE_LAYOUT_H
#define PE_LAYOUT_H

#include "base/real.h"

typedef struct {
    char *memory; /* NULL if only the size is counted */
    size_t used;
} pe_carver;

/* The address of the next bytes, aligned to a cache line; NULL without memory. A negative length counts as 0. */
INLINE void *carve_bytes(pe_carver *c, idx bytes)
{
    char *at = c->memory ? c->memory + c->used : NULL;
    c->used += (size_t)(max_(bytes, 0) + 63) / 64 * 64;
    return at;
}

INLINE real *carve_reals(pe_carver *c, idx n) { return carve_bytes(c, n * (idx)sizeof(real)); }
INLINE double *carve_doubles(pe_carver *c, idx n) { return carve_bytes(c, n * (idx)sizeof(double)); }

#define PE_CARVE(name)                                                                        \
    static void name##_carve(name##_state *s, pe_carver *c, MAYBE_UNUSED const pe_call *call, \
                             MAYBE_UNUSED const idx *dim)
#define LAYOUT(name)                                                           \
    PE_CARVE(name);                                                            \
    static name##_state name##_begin(const pe_call *call, const pe_work *work) \
    {                                                                          \
        name##_state s;                                                        \
        name##_carve(&s, &(pe_carver){work->scratch, 0}, call, call->dim);     \
        return s;                                                              \
    }                                                                          \
    size_t FN(name##_scratch)(const pe_call *call)                             \
    {                                                                          \
        name##_state s;                                                        \
        pe_carver c = {NULL, 0};                                               \
        name##_carve(&s, &c, call, call->dim);                                 \
        return c.used;                                                         \
    }                                                                          \
    PE_CARVE(name)

enum { SCRATCH_ROWS = 3 };
INLINE idx scratch_row_length(const idx *dim) { return BLOCKS(D(d), VECTOR_PADDING) * VECTOR_PADDING; }
/* Row i < SCRATCH_ROWS of the scratch of a kernel whose layout is `rows`: d reals, for a copy of an operand */
INLINE real *scratch_row(const pe_call *call, const pe_work *work, int i)
{
    return (real *)work->scratch + i * scratch_row_length(call->dim);
}

/* For a kernel whose scratch is one struct at work->scratch */
#define SCRATCH_STRUCT(name, type) \
    size_t FN(name##_scratch)(MAYBE_UNUSED const pe_call *call) { return sizeof(type); }

#endif
