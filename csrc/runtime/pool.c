/* pool.c -- a small pool of sleeping workers.
 *
 * The caller fixes the units of a block, so the result of a block does not depend on the number of threads. The calling
 * thread takes part. Workers are started by the first call that is worth them. They sleep on a condition variable:
 * spinning workers made calls 30 times slower on shared cores. A forked child forgets them. A second caller does not
 * wait for the pool; it runs its own blocks alone.
 */
#define _POSIX_C_SOURCE 200809L /* otherwise -std=c11 hides threads and signals */
#include "runtime/pool.h"
#include "runtime/cpu.h"
#include "runtime/float_state.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <process.h>
#include <windows.h>
typedef SRWLOCK mutex;
typedef CONDITION_VARIABLE cond;
#define MUTEX_INIT SRWLOCK_INIT
#define COND_INIT CONDITION_VARIABLE_INIT
static void lock(mutex *m) { AcquireSRWLockExclusive(m); }
static void unlock(mutex *m) { ReleaseSRWLockExclusive(m); }
static void sleep_on(cond *c, mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
static void sleep_50_ms(cond *c, mutex *m) { SleepConditionVariableSRW(c, m, 50, 0); }
static void wake_all(cond *c) { WakeAllConditionVariable(c); }
static void worker(void);
static void __cdecl enter(void *unused)
{
    (void)unused;
    worker();
}
static int start_thread(void) { return _beginthread(enter, 0, NULL) != (uintptr_t)-1; }
#else
#include <pthread.h>
#include <signal.h>
#include <time.h>
typedef pthread_mutex_t mutex;
typedef pthread_cond_t cond;
#define MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define COND_INIT PTHREAD_COND_INITIALIZER
static void lock(mutex *m) { pthread_mutex_lock(m); }
static void unlock(mutex *m) { pthread_mutex_unlock(m); }
static void sleep_on(cond *c, mutex *m) { pthread_cond_wait(c, m); }
static void sleep_50_ms(cond *c, mutex *m)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(c, m, &until);
}
static void wake_all(cond *c) { pthread_cond_broadcast(c); }
static void worker(void);
static void *enter(void *unused)
{
    (void)unused;
    worker();
    return NULL;
}
static int start_thread(void)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all); /* Python's threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int started = pthread_create(&thread, NULL, enter, NULL) == 0 && pthread_detach(thread) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}
#endif

static const double worth_waking_ns = 300e3; /* below, waking a worker takes longer than it saves */

typedef struct {
    const pe_job *job;
    pe_call for_workers; /* a copy of job->call whose stop() does not touch Python */
    idx blocks;
    atomic_ptrdiff_t next_block;
    atomic_int stopped;
} shared_job;

static struct {
    mutex lock;
    cond wake, idle;
    shared_job *job;     /* NULL: no job to join */
    unsigned generation; /* number of the job */
    int busy, workers;   /* 1 if a caller has the pool; threads that exist */
    int wanted, running; /* workers that may still join the job; workers that run it */
} pool = {.lock = MUTEX_INIT, .wake = COND_INIT, .idle = COND_INIT};

static atomic_int threads = 1;
static atomic_int forks; /* of this process's ancestors */

/* ---- scratch, kept between calls: the page faults of fresh 100 KB cost as much as several tiles ---- */

enum { SPARES = 8, LARGEST_SPARE = 1 << 22 };

static struct {
    mutex lock;
    void *memory[SPARES];
    size_t size[SPARES];
} spare = {.lock = MUTEX_INIT};

void *pe_scratch_take(size_t *size)
{
    void *found = NULL;
    lock(&spare.lock);
    for (int i = 0; i < SPARES; i++) {
        if (spare.memory[i] && spare.size[i] >= *size) {
            found = spare.memory[i];
            *size = spare.size[i];
            spare.memory[i] = NULL;
            break;
        }
    }
    unlock(&spare.lock);
    return found ? found : malloc(*size);
}

void pe_scratch_give(void *memory, size_t size)
{
    lock(&spare.lock);
    for (int i = 0; i < SPARES; i++) {
        if (!spare.memory[i] && size <= LARGEST_SPARE) {
            spare.memory[i] = memory;
            spare.size[i] = size;
            memory = NULL;
            break;
        }
    }
    unlock(&spare.lock);
    free(memory);
}

/* ---- blocks ---- */

static void end_products(const pe_call *call)
{
    if (call->products && call->products->end)
        call->products->end();
}

/* Take blocks until none is left. A thread without memory for its scratch leaves its blocks to the others. */
static void run_blocks(shared_job *s, const pe_call *call)
{
    enum { ALIGN = 64, ON_STACK = 4096 };
    const pe_job *job = s->job;
    size_t size = job->scratch + ALIGN;
    char stack[ON_STACK];
    char *memory = size <= ON_STACK ? stack : pe_scratch_take(&size);
    if (!memory)
        return;
    pe_work work = {.scratch = memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN, .slow_l3 = pe_has_slow_l3()};
    const pe_float_state callers = pe_float_get();
    pe_float_set(job->flush ? PE_FLOAT_FLUSHING : PE_FLOAT_NEAREST);
    if (call->products && call->products->begin)
        call->products->begin();
    while (!atomic_load_explicit(&s->stopped, memory_order_relaxed)) {
        work.block = atomic_fetch_add(&s->next_block, 1);
        if (work.block >= s->blocks)
            break;
        const idx begin = work.block * job->block, end = begin + job->block;
        job->kernel->run(call, begin, min_(end, job->units), &work);
        if (call->stop && call->stop(call))
            atomic_store(&s->stopped, 1);
    }
    end_products(call);
    pe_float_set(callers);
    if (memory != stack)
        pe_scratch_give(memory, size);
}

static int workers_stop(const pe_call *call)
{
    return atomic_load_explicit(&((shared_job *)call->watch)->stopped, memory_order_relaxed);
}

static void worker(void)
{
    unsigned seen = 0;
    lock(&pool.lock);
    for (;;) {
        while (!pool.job || pool.generation == seen || pool.wanted == 0)
            sleep_on(&pool.wake, &pool.lock);
        shared_job *s = pool.job;
        seen = pool.generation;
        pool.wanted--;
        pool.running++;
        unlock(&pool.lock);
        run_blocks(s, &s->for_workers);
        lock(&pool.lock);
        if (--pool.running == 0)
            wake_all(&pool.idle);
    }
}

/* Take the pool unless another caller has it, and give it as many workers as can be started, `wanted` at most. */
static int take_pool(int wanted)
{
    lock(&pool.lock);
    const int taken = !pool.busy;
    pool.busy = 1;
    while (taken && pool.workers < wanted && start_thread())
        pool.workers++;
    unlock(&pool.lock);
    return taken;
}

static void offer(shared_job *s, int wanted)
{
    s->for_workers = *s->job->call;
    s->for_workers.stop = workers_stop;
    s->for_workers.watch = s;
    lock(&pool.lock);
    pool.job = s;
    pool.wanted = wanted;
    pool.generation++;
    wake_all(&pool.wake);
    unlock(&pool.lock);
}

/* Wait for the workers that joined. stop() may take the interpreter's lock: never while this thread holds the
 * pool's. */
static void withdraw(shared_job *s)
{
    const pe_call *call = s->job->call;
    lock(&pool.lock);
    pool.job = NULL;
    pool.wanted = 0;
    while (pool.running) {
        sleep_50_ms(&pool.idle, &pool.lock);
        unlock(&pool.lock);
        if (call->stop && call->stop(call))
            atomic_store(&s->stopped, 1);
        lock(&pool.lock);
    }
    pool.busy = 0;
    unlock(&pool.lock);
    end_products(call); /* stop() leaves them begun, as it finds them between blocks */
}

/* A handler of signals may fork this process during the call. The blocks that the workers had taken are lost in the
 * child. */
int pe_run(const pe_job *job)
{
    const int forks_before = atomic_load(&forks);
    shared_job s = {.job = job, .blocks = BLOCKS(job->units, job->block)};
    const int wanted = (int)min_(s.blocks, atomic_load(&threads)) - 1;
    const int helped = wanted > 0 && job->ns * (double)job->units > worth_waking_ns && take_pool(wanted);
    if (helped)
        offer(&s, wanted);
    run_blocks(&s, job->call);
    if (helped)
        withdraw(&s);
    if (helped && atomic_load(&forks) != forks_before)
        return PE_FORKED;
    if (atomic_load(&s.stopped))
        return PE_STOPPED;
    return atomic_load(&s.next_block) < s.blocks ? PE_NO_MEMORY : PE_DONE;
}

#ifndef _WIN32
/* A forked child has this memory but none of the threads, and locks that no thread opens. An entry of `spare` may be
 * half written: the child gives up all of them. */
static void forget_workers(void)
{
    memset(spare.memory, 0, sizeof spare.memory);
    pool.lock = spare.lock = (mutex)MUTEX_INIT;
    pool.wake = pool.idle = (cond)COND_INIT;
    pool.job = NULL;
    pool.busy = pool.workers = pool.wanted = pool.running = 0;
    atomic_fetch_add(&forks, 1);
}
#endif

int pe_pool_init(void)
{
#ifndef _WIN32
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&registered))
        return pthread_atfork(NULL, NULL, forget_workers) == 0 ? 0 : -1;
#endif
    return 0;
}

int pe_threads(void) { return atomic_load(&threads); }
void pe_set_threads(int n) { atomic_store(&threads, n); }
