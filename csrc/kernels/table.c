/* table.c -- this variant's kernel for each row of ops.def. */
#include "base/real.h"

#define TERM(name, fits, signature)
#define OP(name, ...) void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work);
#define DISTANCE(name, arrays, gradients) OP(name) OP(name##_vjp)
#define PAIR(name, arrays, gradients) OP(name) OP(name##_vjp)
#include "ops.def"
#undef OP

extern const pe_kernel FN(pe_kernels)[PE_COUNT];
const pe_kernel FN(pe_kernels)[PE_COUNT] = {
#define OP(name, ...) [PE_##name] = FN(name),
#include "ops.def"
};
