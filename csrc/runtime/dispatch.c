/* dispatch.c -- the CPU probe and the table of variants.
 *
 * A variant is a compiled table of kernels, and maybe instructions for products of 16-bit operands, which attention
 * uses. Only the compiled variants with the vectors that the instructions need contain them. The emulation is not
 * listed and never chosen unless it is asked for by name.
 *
 * The build passes the variants as -DPE_VARIANTS="V(base) V(avx2) V(avx512)", slowest first. The probe tests exactly
 * the CPU features that the flags of a variant let the compiler use, and that the operating system saves the registers
 * (XCR0). __builtin_cpu_supports would not do: it does not link everywhere and does not look at XCR0.
 */
#define _GNU_SOURCE /* syscall */
#include "runtime/dispatch.h"

#include <stdatomic.h>
#include <string.h>
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

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static int is_intel(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
}

static int has(unsigned word, unsigned bits) { return (word & bits) == bits; }

static int cpu_has(const char *isa)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512_BF16 = 1 << 5, XCR0_TILES = 0x60000 };
    unsigned a, b, c, d, leaf1c, leaf7b, leaf7d, leaf71a, ext1c, low, high;
    if (!__get_cpuid(1, &a, &b, &leaf1c, &d) || !has(leaf1c, bit_OSXSAVE | bit_AVX))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &leaf7b, &c, &leaf7d) || !has(low, 0x6))
        return 0;
    if (strcmp(isa, "amx") == 0)
        return has(leaf7d, AMX_BF16 | AMX_TILE) && has(low, XCR0_TILES);
    if (strcmp(isa, "avx512bf16") == 0) /* on Intel it is slower than FMA */
        return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && __get_cpuid_count(7, 1, &leaf71a, &b, &c, &d)
               && has(leaf71a, AVX512_BF16);
    const int avx2 = has(leaf1c, bit_FMA | bit_F16C) && has(leaf7b, bit_AVX2);
    if (strcmp(isa, "avx2") == 0)
        return avx2;
    /* x86-64-v4, the psABI level, includes the features of the lower levels. */
    if (!__get_cpuid(0x80000001, &a, &b, &ext1c, &d))
        return 0;
    return avx2 && has(low, 0xe6) && has(ext1c, bit_LZCNT) && has(leaf1c, bit_MOVBE | bit_POPCNT | bit_SSE4_2)
           && has(leaf7b, bit_BMI | bit_BMI2 | bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL);
}
#else
static int is_intel(void) { return 0; }
static int cpu_has(const char *isa)
{
    (void)isa;
    return 0;
}
#endif

int pe_has_slow_l3(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int answer;
    if (atomic_load_explicit(&answer, memory_order_relaxed) == UNKNOWN)
        atomic_store_explicit(&answer, is_intel() ? YES : NO, memory_order_relaxed);
    return atomic_load_explicit(&answer, memory_order_relaxed) == YES;
}

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

static int runs(int variant) { return strcmp(compiled[variant].name, "base") == 0 || cpu_has(compiled[variant].name); }

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
    while (best >= 0 && !(compiled[best].products[products] && runs(best)))
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
        return runs(isa);
    return isa - COMPILED == PE_AMX_EMULATED || (cpu_has(pe_isa_name(isa)) && kernels_for(isa - COMPILED) >= 0);
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
