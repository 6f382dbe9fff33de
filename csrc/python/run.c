/* run.c -- run a checked call on the pool, without the interpreter's lock, and turn its end into an exception. */
#include "python/bind.h"

#include <string.h>
#include <time.h>

#include "runtime/dispatch.h"
#include "runtime/float_state.h"
#include "runtime/pool.h"

/* Signals reach the main thread, which looks for them between blocks, and inside long ones when the kernel asks.
 * Another thread must not ask for the interpreter's lock in the middle of a call: when the interpreter ends, the
 * request ends the thread, while workers still use what is on its stack. */
typedef struct {
    PyThreadState *released;
    pe_float_state callers_floats;
    double next_look;
    int interrupted;
} watch;

static const double look_period = 0.05;

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Return whether this thread is the main thread; -1 with an exception. */
static int is_main_thread(const pe_table *table)
{
    PyObject *thread = PyObject_CallObject(table->main_thread, NULL);
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    const unsigned long number = ident ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    return PyErr_Occurred() ? -1 : number == PyThread_get_thread_ident();
}

static int interrupted(const pe_call *call)
{
    watch *w = call->watch;
    if (w->interrupted)
        return 1;
    const double now = seconds(), wait = w->next_look - now;
    if (wait > 0 && wait <= look_period) /* longer: the clock was set back */
        return 0;
    w->next_look = now + look_period;
    const pe_float_state kernels_floats = pe_float_get();
    pe_float_set(w->callers_floats);
    if (call->products && call->products->end)
        call->products->end();
    PyEval_RestoreThread(w->released);
    w->interrupted = PyErr_CheckSignals() < 0;
    w->released = PyEval_SaveThread();
    w->callers_floats = pe_float_get();
    pe_float_set(kernels_floats);
    if (call->products && call->products->begin)
        call->products->begin();
    return w->interrupted;
}

/* Run a job whose outputs are summed over the loops. A block adds to partial sums of its own, which the kernel finds at
 * data + block * loop[0]. They are added up in the order of the blocks, so the number of threads does not matter. */
static int run_summed(const pe_job *job, const pe_sum *summed, int count, idx all)
{
    const idx blocks = BLOCKS(job->units, job->block);
    const size_t size = (size_t)(all * blocks + 1) * sizeof(double); /* + 1: NULL means no memory */
    size_t taken = size;
    double *const sums = pe_scratch_take(&taken), *sum = sums;
    if (!sums)
        return PE_NO_MEMORY;
    memset(sums, 0, size);
    for (int k = 0; k < count; sum += summed[k++].length) {
        summed[k].array->data = (char *)sum;
        summed[k].array->loop[0] = all * (idx)sizeof *sums;
    }
    const int status = pe_run(job);
    sum = sums;
    for (int k = 0; k < count && status == PE_DONE; sum += summed[k++].length) {
        double *result = summed[k].result;
        const idx length = summed[k].length;
        memset(result, 0, (size_t)length * sizeof *result);
        for (idx block = 0; block < blocks; block++) {
            for (idx i = 0; i < length; i++)
                result[i] += sum[block * all + i];
        }
    }
    pe_scratch_give(sums, taken);
    return status;
}

/* Units of a block: some 100 us, so that threads share evenly. If each block has sums of its own, there are at most
 * MOST_BLOCKS, and fewer, but not below FEWEST_BLOCKS, if their sums would be more than MOST_SUMS numbers (32 MiB). */
static idx units_of_block(const pe_job *job, idx sums)
{
    static const double block_ns = 100e3;
    enum { MOST_BLOCKS = 64, FEWEST_BLOCKS = 4, MOST_SUMS = 1 << 22 };
    idx block = job->ns >= block_ns ? 1 : (idx)(block_ns / (job->ns + 1)) + 1;
    /* Blocks share the splitting of keys and values, if each thread gets a few of them. The bits of sums depend on the
     * blocks, so the number of threads must not choose these. */
    if (job->call->products && sums == 0) {
        const idx share = job->units / (4 * pe_threads()), together = share < MOST_TOGETHER ? share : MOST_TOGETHER;
        block = block > together ? block : together;
    }
    if (sums == 0)
        return block;
    const idx affordable = MOST_SUMS / sums;
    const idx blocks = affordable > MOST_BLOCKS ? MOST_BLOCKS : affordable < FEWEST_BLOCKS ? FEWEST_BLOCKS : affordable;
    return job->units > block * blocks ? BLOCKS(job->units, blocks) : block;
}

int pe_run_call(const pe_binding *b, int number, pe_call *call)
{
    return pe_run_summed(b, number, call, b->summed, b->nsummed);
}

int pe_run_summed(const pe_binding *b, int number, pe_call *call, const pe_sum *summed, int count)
{
    const pe_signature *entry = &b->table->entry[number];
    static const double worth_releasing_ns = 10e3;
    const int isa = pe_isa(); /* of the kernel and of the products */
    pe_job job = {.kernel = pe_kernel_of(isa, number, b->is_double), .call = call};
    idx sums = 0;
    for (int k = 0; k < count; k++)
        sums += summed[k].length;
    pe_entry_costs(number, call->dim, call->par, &job.units, &job.ns);
    if (job.units < 0) {
        PyErr_Format(PyExc_ValueError, "%s: an array has lengths that do not fit; expected those of %s", b->function,
                     entry->text);
        return -1;
    }
    for (int d = 0; d < call->nloops; d++)
        job.units *= call->shape[d];
    if (!b->writes || (job.units == 0 && sums == 0)) /* 2**56 loops without a column are no work */
        return 0;
    if (pe_rehearses())
        return 0;
    const pe_storage storage = call->array[0].storage; /* of q, if the entry has operators of attention */
    const int is_16_bit = entry->has_operators && (storage == PE_BF16 || storage == PE_F16);
    call->products = is_16_bit ? pe_products_of(isa) : NULL;
    if (job.kernel->plan)
        job.kernel->plan(call);
    job.block = units_of_block(&job, sums);
    job.scratch = job.kernel->scratch(call);

    job.flush = entry->has_operators;
    call->stop = NULL; /* of an earlier run */
    watch w = {0};
    const int release = job.ns * (double)job.units > worth_releasing_ns;
    if (release) {
        const int is_main = is_main_thread(b->table);
        if (is_main < 0)
            return -1;
        call->stop = is_main ? interrupted : NULL;
        call->watch = &w;
        w.callers_floats = pe_float_get();
        w.next_look = seconds() + look_period;
        w.released = PyEval_SaveThread();
    }
    const int status = sums > 0 ? run_summed(&job, summed, count, sums) : pe_run(&job);
    if (release)
        PyEval_RestoreThread(w.released);
    if (status == PE_NO_MEMORY)
        PyErr_NoMemory();
    if (status == PE_FORKED)
        PyErr_Format(PyExc_RuntimeError,
                     "%s: the process was forked during the call, and its threads are in the parent; "
                     "expected no fork in a signal handler",
                     b->function);
    return status == PE_DONE ? 0 : -1;
}

int pe_run_init(pe_table *table)
{
    PyObject *threading = PyImport_ImportModule("threading");
    table->main_thread = threading ? PyObject_GetAttrString(threading, "main_thread") : NULL;
    Py_XDECREF(threading);
    return table->main_thread ? 0 : -1;
}
