/* dispatch.h -- the compiled variants of the kernels and the one in use. */
#ifndef PE_DISPATCH_H
#define PE_DISPATCH_H

#include "posenc.h"

int pe_isa_count(void);
const char *pe_isa_name(int isa);
int pe_isa_usable(int isa); /* compiled in, and this CPU and operating system can run it */
int pe_isa_listed(int isa); /* usable, and not for tests alone */
int pe_isa(void);
void pe_set_isa(int isa);
/* The instructions of a variant that multiply 16-bit operands, or NULL; may ask the system to permit them */
const pe_products *pe_products_of(int isa);
/* Between the two, calls of this thread check their operands and run no kernel: the shapes of results cost no work. */
void pe_begin_rehearsal(void);
void pe_end_rehearsal(void);
int pe_rehearses(void);
const pe_kernel *pe_kernel_of(int isa, int entry, int is_double);

#endif
