/* table.c -- this variant's kernel and scratch for each row of ops.def. */
#include "base/real.h"
#include "scratch.h"

#define CALLABLE(name, signature, units, ns, layout)                             \
    void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work); \
    size_t FN(layout##_scratch)(const idx *dim, const double *par);
#include "ops.def"

/* Kernels whose scratch is a formula: a kernel with a layout function (base/layout.h) has no line here. */
#define FORMULA(name, bytes)                                     \
    size_t FN(name##_scratch)(const idx *dim, const double *par) \
    {                                                            \
        (void)dim, (void)par;                                    \
        return (size_t)(bytes);                                  \
    }
FORMULA(none, 0)
FORMULA(sinusoid, SINUSOID_SCRATCH)
FORMULA(recurrent, RECURRENT_SCRATCH)
FORMULA(recurrent_vjp, RECURRENT_VJP_SCRATCH)
FORMULA(floater, FLOATER_SCRATCH)
FORMULA(floater_vjp, FLOATER_VJP_SCRATCH)
FORMULA(rope, 8 * (3 * D(d) + D(t)))
FORMULA(rope_given, 8 * (3 * D(d) + 2 * D(e)))
FORMULA(rope_vjp, 8 * (3 * D(d) + 2 * D(t) + 2 * D(e)))
FORMULA(rope_table_vjp, 8 * (3 * D(d) + 2 * D(t)))
FORMULA(convolution, CONVOLUTION_SCRATCH)
FORMULA(hierarchical, 8 * 3 * D(d))
FORMULA(merge, 8 * 3 * D(d))
FORMULA(complex_order, COMPLEX_ORDER_SCRATCH)
FORMULA(standard, 16 * D(d))

extern const pe_kernel FN(pe_kernels)[PE_COUNT];
const pe_kernel FN(pe_kernels)[PE_COUNT] = {
#define CALLABLE(name, signature, units, ns, layout) [PE_##name] = {FN(name), FN(layout##_scratch)},
#include "ops.def"
};
