/* stream.h -- copy a row by non-temporal stores, which write cache lines to memory without reading them first.
 *
 *     memcpy(to, from, bytes);
 *
 * For a plain store the CPU first reads the line that it overwrites, so a copy moves 1.5 times the bytes. C has no
 * non-temporal store. Without SSE2, stream_row calls memcpy.
 */
#ifndef PE_STREAM_H
#define PE_STREAM_H

#include "base/real.h"
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#define PE_STREAMS 1

/* NumPy aligns arrays to 16 bytes. Stores of 16 bytes reach the full bandwidth, because the CPU combines them into
 * lines. */
INLINE void stream_row(const char *from, char *to, idx bytes)
{
    if (((uintptr_t)to | (uintptr_t)bytes) & 15) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    for (idx i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

/* Call this before another thread may read the rows: the CPU does not order non-temporal stores with other stores. */
INLINE void stream_end(void) { _mm_sfence(); }

#else
#define PE_STREAMS 0
INLINE void stream_row(const char *from, char *to, idx bytes) { memcpy(to, from, (size_t)bytes); }
INLINE void stream_end(void) {}
#endif

#endif
