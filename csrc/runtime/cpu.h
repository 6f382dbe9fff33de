/* cpu.h -- what this CPU and its operating system can run. */
#ifndef PE_CPU_H
#define PE_CPU_H

int pe_cpu_runs(const char *isa);
const char *pe_cpu_best(void); /* the fastest variant of setup.py that runs here, compiled or not */
/* Return 1 on Intel, where rope is faster if it keeps its table in L2. */
int pe_has_slow_l3(void);

#endif
