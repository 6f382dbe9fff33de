/* dispatch.c -- the table of variants, and the choice of one that this CPU runs (cpu.h).
 *
 * A variant is a compiled table of kernels, and maybe instructions for products of 16-bit operands, which attention
 * uses. Only the compiled variants with the vectors that the instructions need contain them. The emulation is not
 * listed and never chosen unless it is asked for by name.
 *
 * The build passes the variants as -DPE_VARIANTS="V(base) V(avx2) V(avx512)", slowest first.
 */
#define _GNU_SOURCE /* syscall */
#include "runtime/dispatch.h"

#include <stdatomic.h>

#include "runtime/cpu.h"
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifndef PE_VARIANTS
#define PE_VARIANTS V(base)
#endif

#define V(isa)                                                                               \
    extern const pe_kernel pe_kernels_##isa##_32[PE_COUNT], pe_kernels_##isa##_64[PE_COUNT]; \
    extern const pe_products *const pe_products_of_##isa##_32[PE_PRODUCTS];
PE_VARIANTS
#undef V

static const struct {
    const char *name;
    const pe_kernel *kernels[2];
    const pe_products *const *products;
} compiled[] = {
#define V(isa) {#isa, {pe_kernels_##isa##_32, pe_kernels_##isa##_64}, pe_products_of_##isa##_32},
    PE_VARIANTS
#undef V
};
static const char *const products_name[PE_PRODUCTS] = {"avx512bf16", "amx", "amx-emulated"};
enum { COMPILED = sizeof compiled / sizeof *compiled, VARIANTS = COMPILED + PE_PRODUCTS };

static atomic_int active = -1;
static _Thread_local int rehearsals; /* begun on this thread and not ended */

#if defined(__linux__) && defined(__x86_64__)
/* Linux enables the tiles of AMX for a process that asks. Signal frames then grow by 8 KB for good, so nothing but a
 * call that multiplies in tiles asks. The answer is no if a thread has an alternate signal stack that is too small. */
static int is_permitted(int products)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18, UNKNOWN = 0, YES, NO };
    static atomic_int answer;
    if (products != PE_AMX)
        return 1;
    if (atomic_load(&answer) == UNKNOWN)
        atomic_store(&answer, syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 ? YES : NO);
    return atomic_load(&answer) == YES;
}
#else
static int is_permitted(int products)
{
    (void)products;
    return 1;
}
#endif

/* The best compiled variant with these products, or -1. Each call of a function needs it, and in a virtual machine the
 * probe takes 20 times as long as a small call. So the first answer is kept. */
static int kernels_for(int products)
{
    enum { UNKNOWN = 0, OFFSET = 2 };
    static atomic_int known[PE_PRODUCTS];
    const int answer = atomic_load_explicit(&known[products], memory_order_relaxed);
    if (answer != UNKNOWN)
        return answer - OFFSET;
    int best = COMPILED - 1;
    while (best >= 0 && !(compiled[best].products[products] && pe_cpu_runs(compiled[best].name)))
        best--;
    atomic_store_explicit(&known[products], best + OFFSET, memory_order_relaxed);
    return best;
}

static int compiled_of(int isa) { return isa < COMPILED ? isa : kernels_for(isa - COMPILED); }

int pe_isa_count(void) { return VARIANTS; }
const char *pe_isa_name(int isa) { return isa < COMPILED ? compiled[isa].name : products_name[isa - COMPILED]; }
int pe_isa_listed(int isa) { return isa - COMPILED != PE_AMX_EMULATED && pe_isa_usable(isa); }

int pe_isa_usable(int isa)
{
    if (isa < COMPILED)
        return pe_cpu_runs(compiled[isa].name);
    return isa - COMPILED == PE_AMX_EMULATED || (pe_cpu_runs(pe_isa_name(isa)) && kernels_for(isa - COMPILED) >= 0);
}

void pe_set_isa(int isa) { atomic_store(&active, isa); }

const pe_products *pe_products_of(int isa)
{
    const int products = isa - COMPILED;
    return products >= 0 && is_permitted(products) ? compiled[compiled_of(isa)].products[products] : NULL;
}

void pe_begin_rehearsal(void) { rehearsals++; }
void pe_end_rehearsal(void) { rehearsals--; }
int pe_rehearses(void) { return rehearsals > 0; }

int pe_isa(void)
{
    int isa = atomic_load_explicit(&active, memory_order_relaxed);
    if (isa < 0) {
        int best = VARIANTS - 1;
        while (!pe_isa_listed(best))
            best--;
        /* Another thread may have chosen a variant meanwhile; its choice stays. */
        isa = -1;
        if (atomic_compare_exchange_strong(&active, &isa, best))
            isa = best;
    }
    return isa;
}

const pe_kernel *pe_kernel_of(int isa, int entry, int is_double)
{
    return &compiled[compiled_of(isa)].kernels[is_double][entry];
}
