/* stream.h -- stores that leave no trace in the caches, where the machine has them. C has no word for these. */
#ifndef PE_STREAM_H
#define PE_STREAM_H

#include "base/real.h"
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define PE_STREAMS 1

/* NumPy aligns to 16 bytes, and stores of 16 bytes reach the full bandwidth: the machine collects whole lines. */
INLINE void stream_row(const char *from, char *to, idx bytes)
{
    if (((uintptr_t)to | (uintptr_t)bytes) & 15) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    for (idx i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

/* Before anybody else may read: streamed stores are not ordered otherwise. */
INLINE void stream_end(void) { _mm_sfence(); }

#else
#define PE_STREAMS 0
INLINE void stream_row(const char *from, char *to, idx bytes) { memcpy(to, from, (size_t)bytes); }
INLINE void stream_end(void) {}
#endif

#endif
