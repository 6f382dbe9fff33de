/* table.c -- for each entry of ops.def, this variant's kernel and its scratch function.
 *
 *     ops.def:  OP(rope, ..., rope)   ->   [PE_rope] = {.run = rope_avx2_32, .scratch = rope_scratch_avx2_32}
 *
 * A variant is one instruction set and one type of real (base/real.h). PE_rope is the number of an entry, so a call
 * finds its kernel by one index, without comparing names.
 */
#include "attention/plan.h"
#include "base/layout.h"

#define CALLABLE(name, signature, units, ns, layout) \
    KERNEL(name);                                    \
    size_t FN(layout##_scratch)(const pe_call *call);
#include "ops.def"

/* The scratch sizes of the layouts `rows` (scratch_row in base/layout.h) and `none` */
size_t FN(rows_scratch)(const pe_call *call)
{
    return SCRATCH_ROWS * (size_t)scratch_row_length(call->dim) * sizeof(real);
}

size_t FN(none_scratch)(MAYBE_UNUSED const pe_call *call) { return 0; }

extern const pe_kernel FN(pe_kernels)[PE_COUNT];
const pe_kernel FN(pe_kernels)[PE_COUNT] = {
#define CALLABLE(name, signature, units, ns, layout) [PE_##name] = {.run = FN(name), .scratch = FN(layout##_scratch)},
#include "ops.def"
    [PE_attention].plan = FN(plan_attention),
    [PE_attention_vjp].plan = FN(plan_attention),
    [PE_logits].plan = FN(plan_attention),
    [PE_logits_vjp].plan = FN(plan_attention),
};
