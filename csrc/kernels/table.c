/* table.c -- this variant's kernel for each row of ops.def. */
#include "base/real.h"

#define CALLABLE(name, ...) void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work);
#include "ops.def"

extern const pe_kernel FN(pe_kernels)[PE_COUNT];
const pe_kernel FN(pe_kernels)[PE_COUNT] = {
#define CALLABLE(name, ...) [PE_##name] = FN(name),
#include "ops.def"
};
