/* stream.h -- non-temporal stores, which write whole lines to memory without reading them into the caches first.
 *
 *     memcpy(to, from, bytes);
 *
 * A plain store reads each line before it fills it, which is 1.5 times the traffic of a copy. C cannot express the
 * instruction. Without SSE2 stream_row is the memcpy.
 */
#ifndef PE_STREAM_H
#define PE_STREAM_H

#include "base/real.h"
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define PE_STREAMS 1

/* Stores of 16 bytes, the alignment of NumPy's arrays, reach the full bandwidth: the CPU combines them into lines. */
INLINE void stream_row(const char *from, char *to, idx bytes)
{
    if (((uintptr_t)to | (uintptr_t)bytes) & 15) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    for (idx i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

/* Streamed stores are not ordered with other stores: call this before another thread may read the rows. */
INLINE void stream_end(void) { _mm_sfence(); }

#else
#define PE_STREAMS 0
INLINE void stream_row(const char *from, char *to, idx bytes) { memcpy(to, from, (size_t)bytes); }
INLINE void stream_end(void) {}
#endif

#endif
