#include "stages/replay/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

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
 * The ticket holds the round above the number of jobs not taken yet. A helper takes one by counting it down;
 * if it succeeds, the round is not over before its job is, and `work`, `arg` and `jobs` are those of the
 * round. */
struct pool {
    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) atomic_size_t done; /* jobs of the round */
    _Alignas(LINE) void (*work)(void *arg, size_t job, void *scratch);
    void *arg;
    size_t jobs;
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

static uint64_t left_of(uint64_t ticket)
{
    return ticket & ((UINT64_C(1) << COUNT_BITS) - 1);
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

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void work_off(struct pool *pool, void *scratch)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    while (left_of(ticket) > 0) {
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1)) continue;
        size_t jobs = pool->jobs;
        pool->work(pool->arg, jobs - (size_t)left_of(ticket), scratch);
        if (atomic_fetch_add(&pool->done, 1) + 1 == jobs && atomic_load(&pool->waiting)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->end);
            pthread_mutex_unlock(&pool->lock);
        }
        ticket = atomic_load(&pool->ticket);
    }
}

/* Waits for jobs, first by looking. False: there will be none any more. */
static bool wait_for_work(struct pool *pool)
{
    for (uint64_t since = now_ns(), waited = 0; waited < LINGER_NS; waited = now_ns() - since) {
        for (unsigned i = 0; i < LOOKS; i++, relax())
            if (left_of(atomic_load(&pool->ticket)) > 0) return true;
        if (atomic_load(&pool->quit)) return false;
        if (waited > POLITE_NS) sched_yield();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->asleep, 1);
    while (left_of(atomic_load(&pool->ticket)) == 0 && !atomic_load(&pool->quit))
        pthread_cond_wait(&pool->begin, &pool->lock);
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
    for (uint64_t since = now_ns(), waited = 0; waited < LINGER_NS; waited = now_ns() - since) {
        for (unsigned i = 0; i < LOOKS; i++, relax())
            if (atomic_load(&pool->done) == pool->jobs) return;
        if (waited > POLITE_NS) sched_yield();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->waiting, true);
    while (atomic_load(&pool->done) < pool->jobs) pthread_cond_wait(&pool->end, &pool->lock);
    atomic_store(&pool->waiting, false);
    pthread_mutex_unlock(&pool->lock);
}

void pool_run(struct pool *pool, size_t jobs, void (*work)(void *arg, size_t job, void *scratch), void *arg)
{
    if (pool->helpers == 0 || jobs < 2) {
        for (size_t job = 0; job < jobs; job++) work(arg, job, pool->memory);
        return;
    }
    pool->work = work;
    pool->arg = arg;
    pool->jobs = jobs;
    atomic_store(&pool->done, 0);
    uint64_t round = (atomic_load(&pool->ticket) >> COUNT_BITS) + 1;
    atomic_store(&pool->ticket, round << COUNT_BITS | (uint64_t)jobs);
    if (atomic_load(&pool->asleep) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->begin);
        pthread_mutex_unlock(&pool->lock);
    }
    work_off(pool, pool->memory);
    wait_for_jobs(pool);
}
