/* dispatch.c -- the CPU probe and the table of variants.
 *
 * The build passes the variants as -DPE_VARIANTS="V(base) V(avx2) V(avx512)", slowest first. The probe tests exactly
 * the CPU features that the flags of a variant let the compiler use, and that the operating system saves the registers
 * (XCR0). __builtin_cpu_supports would not do: it does not link everywhere and does not look at XCR0.
 */
#include "runtime/dispatch.h"

#include <stdatomic.h>
#include <string.h>

#ifndef PE_VARIANTS
#define PE_VARIANTS V(base)
#endif

#define V(isa) extern const pe_kernel pe_kernels_##isa##_32[PE_COUNT], pe_kernels_##isa##_64[PE_COUNT];
PE_VARIANTS
#undef V

static const struct {
    const char *name;
    const pe_kernel *kernels[2];
} variants[] = {
#define V(isa) {#isa, {pe_kernels_##isa##_32, pe_kernels_##isa##_64}},
    PE_VARIANTS
#undef V
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static atomic_int active = -1;

#ifdef _MSC_VER
#define PER_THREAD __declspec(thread)
#else
#define PER_THREAD _Thread_local
#endif
/* The variant of a public call that runs several kernels, on the thread of the call, and how many calls hold it */
static PER_THREAD int held, holders;
static PER_THREAD int kernel_holders;

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#include <cpuid.h>

static int has(unsigned word, unsigned bits) { return (word & bits) == bits; }

static int cpu_has(const char *isa)
{
    unsigned a, b, c, d, leaf1c, leaf7b, ext1c, low, high;
    if (!__get_cpuid(1, &a, &b, &leaf1c, &d) || !has(leaf1c, bit_OSXSAVE | bit_AVX))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &leaf7b, &c, &d) || !has(low, 0x6))
        return 0;
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
static int cpu_has(const char *isa)
{
    (void)isa;
    return 0;
}
#endif

int pe_isa_count(void) { return VARIANTS; }
const char *pe_isa_name(int isa) { return variants[isa].name; }
int pe_isa_usable(int isa) { return strcmp(variants[isa].name, "base") == 0 || cpu_has(variants[isa].name); }
void pe_set_isa(int isa) { atomic_store(&active, isa); }

void pe_hold_isa(void)
{
    held = pe_isa();
    holders++;
}

void pe_release_isa(void) { holders--; }

void pe_hold_kernels(void) { kernel_holders++; }
void pe_release_kernels(void) { kernel_holders--; }
int pe_holds_kernels(void) { return kernel_holders > 0; }

int pe_isa(void)
{
    if (holders > 0)
        return held;
    int isa = atomic_load_explicit(&active, memory_order_relaxed);
    if (isa < 0) {
        int best = VARIANTS - 1;
        while (!pe_isa_usable(best))
            best--;
        /* Another thread may have chosen a variant meanwhile; its choice stays. */
        isa = -1;
        if (atomic_compare_exchange_strong(&active, &isa, best))
            isa = best;
    }
    return isa;
}

const pe_kernel *pe_kernel_of(int op, int is_double) { return &variants[pe_isa()].kernels[is_double][op]; }
