/* cpu.c -- the CPU probe.
 *
 * The probe tests exactly the CPU features that the flags of a variant in setup.py let the compiler use, and that the
 * operating system saves the registers (XCR0). __builtin_cpu_supports would not do: it does not link everywhere and
 * does not look at XCR0.
 *
 * With PE_PROBE this file is a program that prints the best variant of this CPU. setup.py compiles and runs the program
 * before it compiles the kernels.
 */
#include "runtime/cpu.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static int is_intel(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
}

static int has(unsigned word, unsigned bits) { return (word & bits) == bits; }

int pe_cpu_runs(const char *isa)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512_BF16 = 1 << 5, XCR0_TILES = 0x60000 };
    unsigned a, b, c, d, leaf1c, leaf7b, leaf7d, leaf71a, ext1c, low, high;
    if (strcmp(isa, "base") == 0)
        return 1;
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
int pe_cpu_runs(const char *isa) { return strcmp(isa, "base") == 0; }
#endif

const char *pe_cpu_best(void) { return pe_cpu_runs("avx512") ? "avx512" : pe_cpu_runs("avx2") ? "avx2" : "base"; }

int pe_has_slow_l3(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int answer;
    if (atomic_load_explicit(&answer, memory_order_relaxed) == UNKNOWN)
        atomic_store_explicit(&answer, is_intel() ? YES : NO, memory_order_relaxed);
    return atomic_load_explicit(&answer, memory_order_relaxed) == YES;
}

#ifdef PE_PROBE
#include <stdio.h>

int main(void) { return puts(pe_cpu_best()) < 0; }
#endif
