/* cache.h -- how much the last-level cache of a core holds. */
#ifndef PE_CACHE_H
#define PE_CACHE_H

#include <stddef.h>

/* In bytes. 32 MiB if the machine does not tell. */
ptrdiff_t pe_last_cache(void);

#endif
