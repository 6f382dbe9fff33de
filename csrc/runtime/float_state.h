/* float_state.h -- the register that controls a thread's floating-point arithmetic.
 *
 * Kernels run in a state of their own: they round to nearest and never trap, whatever the caller's state is. So results
 * do not depend on the thread that computed a block. Entries with operators of attention also flush subnormal numbers
 * to 0, because weights of far keys underflow, and one instruction on a subnormal number takes some hundred cycles on
 * many CPUs. The state is set around the kernels only. Python code, signal handlers included, never sees it.
 */
#ifndef PE_FLOAT_STATE_H
#define PE_FLOAT_STATE_H

#include <stdint.h>

typedef uint64_t pe_float_state;

#if defined(__SSE2__)
#include <xmmintrin.h>
static inline pe_float_state pe_float_get(void) { return _mm_getcsr(); }
static inline void pe_float_set(pe_float_state state) { _mm_setcsr((unsigned)state); }
/* All exceptions are masked. FLUSH_INPUTS | FLUSH_RESULTS: subnormal operands and subnormal results are 0. */
enum { PE_FLOAT_NEAREST = 0x1f80, FLUSH_INPUTS = 0x40, FLUSH_RESULTS = 0x8000 };
enum { PE_FLOAT_FLUSHING = PE_FLOAT_NEAREST | FLUSH_INPUTS | FLUSH_RESULTS };
#elif defined(__aarch64__)
static inline pe_float_state pe_float_get(void)
{
    pe_float_state state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return state;
}
static inline void pe_float_set(pe_float_state state) { __asm__ volatile("msr fpcr, %0" : : "r"(state) : "memory"); }
enum { PE_FLOAT_NEAREST = 0, PE_FLOAT_FLUSHING = 1 << 24 };
#else /* other machines, such as WebAssembly, have no such register, or none that C reaches */
static inline pe_float_state pe_float_get(void) { return 0; }
static inline void pe_float_set(pe_float_state state) { (void)state; }
enum { PE_FLOAT_NEAREST, PE_FLOAT_FLUSHING };
#endif

#endif
