#include "formats/pieces/pool.h"

#include <stdlib.h>

enum { PAGE = 4096 };

struct pool {
    struct caller *caller;
    unsigned threads;
    size_t scratch;
    char *memory; /* [threads][scratch] */
    pool_work *work;
    void *arg;
    bool begun;
};

unsigned pool_threads(struct caller *caller, unsigned wanted)
{
    unsigned all = caller->run->threads(caller->owner);
    if (wanted == 0) wanted = all < 4 ? 2 : all < 16 ? all / 2 : 8;
    return wanted < all ? wanted : all;
}

struct pool *pool_start(struct caller *caller, unsigned threads, size_t scratch)
{
    struct pool *pool = malloc(sizeof *pool);
    if (pool == NULL) return NULL;
    *pool =
        (struct pool){.caller = caller, .threads = threads, .scratch = (scratch + PAGE - 1) / PAGE * PAGE};
    pool->memory = aligned_alloc(PAGE, (pool->scratch > 0 ? pool->scratch : PAGE) * threads);
    if (pool->memory != NULL) return pool;
    free(pool);
    return NULL;
}

void pool_stop(struct pool *pool)
{
    if (pool == NULL) return;
    if (pool->begun) pool_end(pool);
    free(pool->memory);
    free(pool);
}

static void do_job(void *arg, size_t job, unsigned worker)
{
    struct pool *pool = arg;
    pool->work(pool->arg, job, pool->memory + worker * pool->scratch);
}

void pool_begin(struct pool *pool, size_t jobs, pool_work *work, void *arg)
{
    pool->work = work;
    pool->arg = arg;
    pool->begun = true;
    pool->caller->run->parallel_begin(pool->caller->owner, pool->threads, jobs, do_job, pool);
}

void pool_add(struct pool *pool, size_t more)
{
    pool->caller->run->parallel_add(pool->caller->owner, more);
}

void pool_end(struct pool *pool)
{
    pool->caller->run->parallel_end(pool->caller->owner);
    pool->begun = false;
}

void pool_run(struct pool *pool, size_t jobs, pool_work *work, void *arg)
{
    pool_begin(pool, jobs, work, arg);
    pool_end(pool);
}
