/* explore.c -- the kernels for a page that has no Python: calls to fill and run from JavaScript.
 *
 * library.js does the work of python/bind.c, for dense arrays with at most one loop axis: it reads the signature of an
 * entry and sets lengths, operands and parameters, one function call each. Memory belongs to JavaScript too. It begins at
 * the address that pe_heap returns.
 */
#include "fits.h"

#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name))) name

/* The entries that the page calls, and their scratch. The linker leaves out what only other entries need. */
#define ENTRIES(R, bits)          \
    R(sinusoid, sinusoid, bits)   \
    R(rope_positions, rope, bits) \
    R(alibi, none, bits)          \
    R(kerple_log, none, bits)     \
    R(kerple_power, none, bits)   \
    R(t5, none, bits)             \
    R(fire, none, bits)           \
    R(sandwich, none, bits)       \
    R(attention, attention, bits) \
    R(logits, forward, bits)

#define DECLARE(name, layout, bits)                                      \
    void name##_base_##bits(const pe_call *, idx, idx, const pe_work *); \
    size_t layout##_scratch_base_##bits(const pe_call *);
#define KERNEL_OF(name, layout, bits) [PE_##name] = {name##_base_##bits, layout##_scratch_base_##bits},
ENTRIES(DECLARE, 32)
ENTRIES(DECLARE, 64)
size_t none_scratch_base_32(const pe_call *of) { return (void)of, 0; }
size_t none_scratch_base_64(const pe_call *of) { return (void)of, 0; }
static const pe_kernel kernels[2][PE_COUNT] = {{ENTRIES(KERNEL_OF, 32)}, {ENTRIES(KERNEL_OF, 64)}};
void plan_attention_base_32(pe_call *);
void plan_attention_base_64(pe_call *);

static const char *const signatures[PE_COUNT] = {
#define CALLABLE(name, signature, ...) [PE_##name] = #name " " signature,
#define OPERATOR(name, fits, signature) [PE_##name] = #name " " signature,
#include "ops.def"
};

static pe_call call;
static pe_operator operators[PE_OPERATORS];
static int entry;

extern char __heap_base;
const char *EXPORT(pe_heap)(void) { return &__heap_base; }
int EXPORT(pe_count)(void) { return PE_COUNT; }
const char *EXPORT(pe_signature)(int of) { return signatures[of]; }

void EXPORT(pe_begin)(int of, int narrays)
{
    entry = of;
    memset(&call, 0, sizeof call);
    memset(operators, 0, sizeof operators);
    for (int axis = 0; axis < PE_AXES; axis++)
        call.dim[axis] = -1;
    if (of == PE_rope_positions)
        call.dim['h' - 'A'] = 1; /* as rope_call.c does */
    call.narrays = narrays;
    call.operators = operators;
}

/* The arrays that follow belong to an operator of attention. */
void EXPORT(pe_begin_operator)(int of)
{
    operators[call.noperators].entry = of;
    for (int axis = 0; axis < PE_OWN_AXES; axis++)
        operators[call.noperators].dim[axis] = -1;
    call.noperators++;
}

/* A length of the call; a capital axis is a length of the last operator, if there is one. */
void EXPORT(pe_length)(int axis, idx length)
{
    idx *const dim = call.noperators && axis < PE_OWN_AXES ? operators[call.noperators - 1].dim : call.dim;
    dim[axis] = length;
}

/* Operand k of the call, or of its last operator: steps are those of the loop axis and of the named axes, in bytes. */
void EXPORT(pe_operand)(int k, char *data, int storage, idx loop, idx step0, idx step1, idx step2)
{
    const pe_array array = {
        .data = data, .core = {step0, step1, step2}, .loop = {loop}, .storage = (pe_storage)storage};
    if (call.noperators == 0) {
        call.array[k] = array;
        return;
    }
    operators[call.noperators - 1].array[k] = array;
}

/* The length of the only loop axis */
void EXPORT(pe_loop)(idx length)
{
    call.nloops = 1;
    call.shape[0] = length;
}

void EXPORT(pe_parameter)(int k, double value) { call.par[k] = value; }

/* The bytes of scratch; attention and logits are planned before. */
idx EXPORT(pe_scratch)(int is_double)
{
    call.plan.mode = entry == PE_logits ? PE_LOGITS : PE_ATTEND;
    if (entry == PE_logits) {
        call.D(e) = 0;
        call.par[A_PARTS] = 1;
    }
    if (entry == PE_logits || entry == PE_attention)
        (is_double ? plan_attention_base_64 : plan_attention_base_32)(&call);
    return (idx)kernels[is_double][entry].scratch(&call);
}

/* Run all units; return their number, negative if lengths or parameters do not fit. */
idx EXPORT(pe_run)(int is_double, char *scratch)
{
    const idx *const dim = call.dim;
    const double *const par = call.par;
    const pe_work work = {.scratch = scratch};
    idx units = -1;
    switch (entry) {
#define CALLABLE(name, signature, units_, ns, scratch_) \
    case PE_##name:                                     \
        units = (units_);                               \
        break;
#include "ops.def"
    default: break;
    }
    if (call.nloops)
        units *= call.shape[0];
    if (units > 0)
        kernels[is_double][entry].run(&call, 0, units, &work);
    return units;
}
