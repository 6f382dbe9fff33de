/* fail_malloc.c -- make one allocation of a process fail: gcc -shared -fPIC fail_malloc.c -o fail_malloc.so
 *
 * Preloaded, it replaces the allocators of glibc. fail_after(n, begin, end) lets n allocations pass, on any thread,
 * that code between two addresses requests, and fails the next one; fail_never() ends this and returns 1 if one has
 * failed. See allocations.py.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_int armed, failed;
static atomic_long left;
static char *first, *last; /* of the code whose allocations fail */

void fail_after(long n, char *begin, char *end)
{
    first = begin;
    last = end;
    atomic_store(&failed, 0);
    atomic_store(&left, n);
    atomic_store(&armed, 1);
}

int fail_never(void)
{
    atomic_store(&armed, 0);
    return atomic_load(&failed);
}

static int denied(const char *caller)
{
    if (!atomic_load(&armed) || caller < first || caller >= last || atomic_fetch_sub(&left, 1) != 0)
        return 0;
    atomic_store(&failed, 1);
    errno = ENOMEM;
    return 1;
}

#define CALLER __builtin_return_address(0)
void *malloc(size_t size) { return denied(CALLER) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return denied(CALLER) ? NULL : __libc_calloc(count, size); }
void *realloc(void *memory, size_t size) { return denied(CALLER) ? NULL : __libc_realloc(memory, size); }
void *memalign(size_t alignment, size_t size) { return denied(CALLER) ? NULL : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return denied(CALLER) ? NULL : __libc_memalign(alignment, size); }
int posix_memalign(void **memory, size_t alignment, size_t size)
{
    void *found = denied(CALLER) ? NULL : __libc_memalign(alignment, size);
    if (!found)
        return ENOMEM;
    *memory = found;
    return 0;
}
