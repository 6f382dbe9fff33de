/* pool.h -- run a kernel over the units of a call, on as many threads as are worth it. */
#ifndef PE_POOL_H
#define PE_POOL_H

#include "posenc.h"

typedef struct {
    const pe_kernel *kernel;
    const pe_call *call;
    idx units, block; /* block: units of a work item; with sums, it must not depend on the number of threads */
    double ns;        /* rough nanoseconds for each of them */
    size_t scratch;   /* bytes per thread */
    int flush;        /* 1 if subnormal numbers are 0 in the kernel */
} pe_job;

enum { PE_DONE, PE_STOPPED, PE_NO_MEMORY, PE_FORKED };

int pe_pool_init(void); /* before any call: prepares for forks */
int pe_run(const pe_job *job);
/* Memory that is kept between calls: at least *size bytes, which becomes their number. NULL if there are none. */
void *pe_scratch_take(size_t *size);
void pe_scratch_give(void *memory, size_t size);
int pe_threads(void);
void pe_set_threads(int n);

#endif
