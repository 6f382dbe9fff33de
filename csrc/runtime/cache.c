/* cache.c -- see cache.h. */
#define _POSIX_C_SOURCE 200809L /* otherwise -std=c11 hides sysconf */
#define _DARWIN_C_SOURCE        /* and sysctlbyname */
#include "runtime/cache.h"

#include <stdatomic.h>

#if defined(_WIN32)
#include <windows.h>
static ptrdiff_t measure(void)
{
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION information[1024];
    DWORD bytes = sizeof information;
    ptrdiff_t largest = 0;
    if (!GetLogicalProcessorInformation(information, &bytes))
        return 0;
    for (DWORD i = 0; i < bytes / sizeof *information; i++) {
        if (information[i].Relationship == RelationCache && (ptrdiff_t)information[i].Cache.Size > largest)
            largest = (ptrdiff_t)information[i].Cache.Size;
    }
    return largest;
}
#elif defined(__APPLE__)
#include <stdint.h>
#include <sys/sysctl.h>
static ptrdiff_t measure(void)
{
    static const char *const names[] = {"hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"};
    for (int i = 0; i < 3; i++) {
        int64_t size = 0;
        size_t length = sizeof size;
        if (sysctlbyname(names[i], &size, &length, NULL, 0) == 0 && size > 0)
            return (ptrdiff_t)size;
    }
    return 0;
}
#elif defined(__linux__)
#include <stdio.h>
#include <unistd.h>
/* The last cache of the first core. Linux lists it as a file. sysconf comes second: on AMD processors glibc returns the
 * sum of a package's last-level caches, of which a core uses one. */
static ptrdiff_t measure(void)
{
    long kilobytes = 0;
    for (int index = 7; index > 0; index--) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%ldK", &kilobytes) != 1)
            kilobytes = 0;
        if (file)
            fclose(file);
        if (kilobytes > 0)
            break;
    }
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (kilobytes <= 0)
        return (ptrdiff_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return (ptrdiff_t)kilobytes * 1024;
}
#else
static ptrdiff_t measure(void) { return 0; }
#endif

ptrdiff_t pe_last_cache(void)
{
    enum { MOST = 32 << 20 };
    static atomic_ptrdiff_t size;
    ptrdiff_t known = atomic_load_explicit(&size, memory_order_relaxed);
    if (known == 0) {
        known = measure();
        if (known <= 0 || known > MOST)
            known = MOST;
        atomic_store_explicit(&size, known, memory_order_relaxed);
    }
    return known;
}

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#include <cpuid.h>
static int is_intel(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
}
#else
static int is_intel(void) { return 0; }
#endif

int pe_has_slow_l3(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int answer;
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == UNKNOWN) {
        known = is_intel() ? YES : NO;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == YES;
}
