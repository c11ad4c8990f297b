#include "stages/replay/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST = 64 };

struct pool {
    unsigned helpers; /* threads beside the caller's */
    size_t scratch;
    char *memory; /* [helpers + 1][scratch] */
    pthread_t thread[MOST];
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    unsigned round;   /* counts calls of pool_run */
    unsigned working; /* helpers that have not ended this round */
    unsigned started;
    bool quit;
    /* of the round */
    void (*work)(void *arg, size_t job, void *scratch);
    void *arg;
    size_t jobs;
    atomic_size_t next;
};

unsigned pool_threads(unsigned wanted)
{
    if (wanted > 0) return wanted < MOST ? wanted : MOST;
    cpu_set_t set;
    int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return processors < 2 ? 1 : processors < 4 ? 2 : processors < 16 ? (unsigned)processors / 2 : 8;
}

static void work_off(struct pool *pool, void *scratch)
{
    for (size_t job; (job = atomic_fetch_add(&pool->next, 1)) < pool->jobs;)
        pool->work(pool->arg, job, scratch);
}

static void *helper(void *arg)
{
    struct pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    char *scratch = pool->memory + ++pool->started * pool->scratch;
    for (unsigned seen = 0;;) {
        while (pool->round == seen && !pool->quit) pthread_cond_wait(&pool->begin, &pool->lock);
        if (pool->quit) break;
        seen = pool->round;
        pthread_mutex_unlock(&pool->lock);
        work_off(pool, scratch);
        pthread_mutex_lock(&pool->lock);
        if (--pool->working == 0) pthread_cond_signal(&pool->end);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct pool *pool_start(unsigned threads, size_t scratch)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->scratch = (scratch + 4095) / 4096 * 4096;
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
    pool->quit = true;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->helpers; i++) pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->end);
    pthread_mutex_destroy(&pool->lock);
    free(pool->memory);
    free(pool);
}

void pool_run(struct pool *pool, size_t jobs, void (*work)(void *arg, size_t job, void *scratch), void *arg)
{
    if (pool->helpers == 0 || jobs < 2) {
        for (size_t job = 0; job < jobs; job++) work(arg, job, pool->memory);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->work = work;
    pool->arg = arg;
    pool->jobs = jobs;
    atomic_store(&pool->next, 0);
    pool->working = pool->helpers;
    pool->round++;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    work_off(pool, pool->memory);
    pthread_mutex_lock(&pool->lock);
    while (pool->working > 0) pthread_cond_wait(&pool->end, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
