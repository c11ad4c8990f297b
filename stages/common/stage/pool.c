#include "stages/common/stage/pool.h"
#include "buffers/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    MOST = 64,
    LINE = 64,
    LOOKS = 64,         /* at the ticket before the clock is asked */
    POLITE_NS = 25000,  /* after that the processor is offered to others, who may keep it for milliseconds:
                           frames  follow each other faster when all goes well */
    LINGER_NS = 100000, /* a helper looks for work that long: to wake one that sleeps costs a third of it */
};

/* Nobody waits for a helper that has not begun: jobs are taken one by one, and a round is over when those
 * taken are done. So a helper that wakes late, or whose processor is busy, costs nothing.
 *
 * The ticket holds the round's jobs above the number of those taken. A helper takes one by counting it; if it
 * succeeds, the round is not over before its job is, and `work` and `arg` are those of the round. */
struct pool {
    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) atomic_size_t done; /* jobs of the round */
    _Alignas(LINE) pool_work *work;
    void *arg;
    unsigned helpers; /* threads beside the caller's */
    size_t scratch;
    char *memory;        /* [helpers + 1][scratch] */
    atomic_uint asleep;  /* helpers */
    atomic_bool waiting; /* the caller sleeps until the jobs are done */
    atomic_bool quit;
    pthread_t thread[MOST];
    unsigned started;
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
};

enum { COUNT_BITS = 32 };

static uint64_t taken_of(uint64_t ticket)
{
    return ticket & ((UINT64_C(1) << COUNT_BITS) - 1);
}

static uint64_t jobs_of(uint64_t ticket)
{
    return ticket >> COUNT_BITS;
}

static bool has_jobs(struct pool *pool)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    return taken_of(ticket) < jobs_of(ticket);
}

unsigned pool_threads(unsigned wanted)
{
    if (wanted > 0) return wanted < MOST ? wanted : MOST;
    cpu_set_t set;
    int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return processors < 2 ? 1 : processors < 4 ? 2 : processors < 16 ? (unsigned)processors / 2 : 8;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void work_off(struct pool *pool, void *scratch)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    while (taken_of(ticket) < jobs_of(ticket)) {
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        pool->work(pool->arg, (size_t)taken_of(ticket), scratch);
        size_t done = atomic_fetch_add(&pool->done, 1) + 1;
        ticket = atomic_load(&pool->ticket);
        if (done == jobs_of(ticket) && atomic_load(&pool->waiting)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->end);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

/* Waits for jobs, first by looking. False: there will be none any more. */
static bool wait_for_work(struct pool *pool)
{
    for (uint64_t since = br_clock_ns(), waited = 0; waited < LINGER_NS; waited = br_clock_ns() - since) {
        for (unsigned i = 0; i < LOOKS; i++, relax())
            if (has_jobs(pool)) return true;
        if (atomic_load(&pool->quit)) return false;
        if (waited > POLITE_NS) sched_yield();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->asleep, 1);
    while (!has_jobs(pool) && !atomic_load(&pool->quit)) pthread_cond_wait(&pool->begin, &pool->lock);
    atomic_fetch_sub(&pool->asleep, 1);
    pthread_mutex_unlock(&pool->lock);
    return !atomic_load(&pool->quit);
}

static void *helper(void *arg)
{
    struct pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    char *scratch = pool->memory + ++pool->started * pool->scratch;
    pthread_mutex_unlock(&pool->lock);
    while (wait_for_work(pool)) work_off(pool, scratch);
    return NULL;
}

struct pool *pool_start(unsigned threads, size_t scratch)
{
    struct pool *pool = aligned_alloc(LINE, sizeof *pool);
    if (pool == NULL) return NULL;
    *pool = (struct pool){.scratch = (scratch + 4095) / 4096 * 4096};
    pool->memory = aligned_alloc(4096, (pool->scratch > 0 ? pool->scratch : 4096) * threads);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->end, NULL);
    bool good = pool->memory != NULL;
    while (good && pool->helpers + 1 < threads) {
        good = pthread_create(&pool->thread[pool->helpers], NULL, helper, pool) == 0;
        if (good) pool->helpers++;
    }
    if (good) return pool;
    pool_stop(pool);
    return NULL;
}

void pool_stop(struct pool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->quit, true);
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->helpers; i++) pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->end);
    pthread_mutex_destroy(&pool->lock);
    free(pool->memory);
    free(pool);
}

/* Until the jobs that helpers took are done: soon, unless one lost its processor. */
static void wait_for_jobs(struct pool *pool)
{
    size_t jobs = (size_t)jobs_of(atomic_load(&pool->ticket));
    for (uint64_t since = br_clock_ns(), waited = 0; waited < LINGER_NS; waited = br_clock_ns() - since) {
        for (unsigned i = 0; i < LOOKS; i++, relax())
            if (atomic_load(&pool->done) == jobs) return;
        if (waited > POLITE_NS) sched_yield();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->waiting, true);
    while (atomic_load(&pool->done) < jobs) pthread_cond_wait(&pool->end, &pool->lock);
    atomic_store(&pool->waiting, false);
    pthread_mutex_unlock(&pool->lock);
}

static void wake_helpers(struct pool *pool)
{
    if (atomic_load(&pool->asleep) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
}

void pool_begin(struct pool *pool, size_t jobs, pool_work *work, void *arg)
{
    pool->work = work;
    pool->arg = arg;
    atomic_store(&pool->done, 0);
    atomic_store(&pool->ticket, (uint64_t)jobs << COUNT_BITS);
    if (jobs > 0) wake_helpers(pool);
}

void pool_add(struct pool *pool, size_t more)
{
    atomic_fetch_add(&pool->ticket, (uint64_t)more << COUNT_BITS);
    if (more > 0) wake_helpers(pool);
}

void pool_end(struct pool *pool)
{
    work_off(pool, pool->memory);
    wait_for_jobs(pool);
}

void pool_run(struct pool *pool, size_t jobs, pool_work *work, void *arg)
{
    if (pool->helpers == 0 || jobs < 2) {
        for (size_t job = 0; job < jobs; job++) work(arg, job, pool->memory);
        return;
    }
    pool_begin(pool, jobs, work, arg);
    pool_end(pool);
}
