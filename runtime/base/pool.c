/* pool.c - see pool.h.
 *
 * Jobs are taken by counting a ticket; the lock is for joining and leaving a round, and for sleep. Whoever
 * runs out of jobs looks for more for SPIN_NS before it sleeps: frames follow each other faster than that
 * in a pipeline that is busy. A sleeper that is woken wakes two more where there is work for them, so that
 * sixteen are awake after four steps and the thread that has the round pays for two. */
#include "runtime/base/pool.h"
#include "buffers/clock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

enum {
    LINE = 64,
    LOOKS = 32,        /* before the clock is asked */
    SPIN_NS = 20000,   /* a helper without work looks for it */
    SHARE_NS = 200000, /* a helper stays with a round while others have work */
    COUNT_BITS = 32,   /* of a ticket */
    WAKE_AT_ONCE = 2
};

struct helper {
    struct br_pool *pool;
    unsigned worker; /* that it would like to be, for the sake of caches */
    pthread_t thread;
};

struct br_pool {
    _Alignas(LINE) _Atomic uint64_t news; /* counts rounds that were begun or grew */
    _Atomic unsigned nrounds;             /* open */
    _Alignas(LINE) pthread_mutex_t lock;
    pthread_cond_t begin, end;
    struct br_round *rounds;
    unsigned asleep; /* helpers */
    bool quit, started;
    unsigned threads, nhelpers;
    cpu_set_t cpus;
    struct helper *helper; /* [threads - 1] */
};

static _Thread_local bool at_work; /* in a job */

static uint64_t taken_of(uint64_t ticket)
{
    return ticket & ((UINT64_C(1) << COUNT_BITS) - 1);
}

static bool has_jobs(const struct br_round *round)
{
    uint64_t ticket = atomic_load(&round->ticket);
    return taken_of(ticket) < ticket >> COUNT_BITS;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Does jobs of the round until there are none, or until `share` and others have had work for a while. */
static void work_off(struct br_round *round, unsigned worker, bool share)
{
    uint64_t ticket = atomic_load(&round->ticket), since = share ? br_clock_ns() : 0;
    at_work = true;
    while (taken_of(ticket) < ticket >> COUNT_BITS) {
        if (!atomic_compare_exchange_weak(&round->ticket, &ticket, ticket + 1)) continue;
        round->work(round->arg, (size_t)taken_of(ticket), worker);
        if (share && atomic_load_explicit(&round->pool->nrounds, memory_order_relaxed) > 1 &&
            br_clock_ns() - since > SHARE_NS)
            break;
        ticket = atomic_load(&round->ticket);
    }
    at_work = false;
}

/* --- helpers --- */

/* The round with jobs at which the fewest helpers are; NULL: there is nothing to do. */
static struct br_round *choose(struct br_pool *pool)
{
    struct br_round *best = NULL;
    for (struct br_round *r = pool->rounds; r != NULL; r = r->next)
        if (r->helpers + 1 < r->most && has_jobs(r) && (best == NULL || r->helpers < best->helpers)) best = r;
    return best;
}

/* A free worker of the round: `wanted` if it can be had. */
static unsigned join(struct br_round *round, unsigned wanted)
{
    if (wanted >= round->most || (round->taken[wanted / 64] >> wanted % 64 & 1) != 0)
        for (wanted = 1; (round->taken[wanted / 64] >> wanted % 64 & 1) != 0;) wanted++;
    round->taken[wanted / 64] |= UINT64_C(1) << wanted % 64;
    round->helpers++;
    atomic_store(&round->idle, false);
    return wanted;
}

/* The last thing that a helper does with a round: its thread may take it away once the lock is let go. */
static void leave(struct br_round *round, unsigned worker)
{
    round->taken[worker / 64] &= ~(UINT64_C(1) << worker % 64);
    if (--round->helpers > 0) return;
    if (round->waiting) pthread_cond_broadcast(&round->pool->end);
    atomic_store(&round->idle, true);
}

static void wake_some(struct br_pool *pool)
{
    for (unsigned i = 0; i < WAKE_AT_ONCE && i < pool->asleep; i++) pthread_cond_signal(&pool->begin);
}

/* Without the lock: whether there is news within a short time. */
static bool look_out(struct br_pool *pool, uint64_t news)
{
    for (uint64_t since = br_clock_ns(); br_clock_ns() - since < SPIN_NS;)
        for (unsigned i = 0; i < LOOKS; i++, relax())
            if (atomic_load_explicit(&pool->news, memory_order_relaxed) != news) return true;
    return false;
}

static void *help(void *arg)
{
    struct helper *h = arg;
    struct br_pool *pool = h->pool;
    bool looked = false;
    pthread_mutex_lock(&pool->lock);
    while (!pool->quit) {
        struct br_round *round = choose(pool);
        if (round != NULL) {
            unsigned worker = join(round, h->worker);
            if (choose(pool) != NULL) wake_some(pool);
            pthread_mutex_unlock(&pool->lock);
            uint64_t begin = br_clock_of(CLOCK_THREAD_CPUTIME_ID);
            work_off(round, worker, true);
            atomic_fetch_add_explicit(&round->helped_ns, br_clock_of(CLOCK_THREAD_CPUTIME_ID) - begin,
                                      memory_order_relaxed);
            pthread_mutex_lock(&pool->lock);
            leave(round, worker);
            looked = false;
        } else if (!looked) {
            uint64_t news = atomic_load(&pool->news);
            pthread_mutex_unlock(&pool->lock);
            looked = !look_out(pool, news);
            pthread_mutex_lock(&pool->lock);
        } else {
            pool->asleep++;
            pthread_cond_wait(&pool->begin, &pool->lock);
            pool->asleep--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* With the lock. If threads cannot be created, the pool works with those it has. */
static void start_helpers(struct br_pool *pool)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pool->started = true;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setaffinity_np(&attributes, sizeof pool->cpus, &pool->cpus);
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; pool->nhelpers + 1 < pool->threads; pool->nhelpers++) {
        struct helper *h = &pool->helper[pool->nhelpers];
        *h = (struct helper){.pool = pool, .worker = pool->nhelpers + 1};
        if (pthread_create(&h->thread, &attributes, help, h) != 0) break;
        pthread_setname_np(h->thread, "pool");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* --- the pool --- */

unsigned br_pool_default_threads(size_t ncpus)
{
    cpu_set_t set;
    if (ncpus == 0 && sched_getaffinity(0, sizeof set, &set) == 0) ncpus = (size_t)CPU_COUNT(&set);
    return ncpus < 1 ? 1 : ncpus > BR_POOL_MOST ? BR_POOL_MOST : (unsigned)ncpus;
}

bool br_pool_in_job(void)
{
    return at_work;
}

struct br_pool *br_pool_create(unsigned threads, const int64_t *cpu, size_t ncpus)
{
    struct br_pool *pool = aligned_alloc(LINE, sizeof *pool);
    if (pool == NULL) return NULL;
    *pool = (struct br_pool){.threads = threads};
    pool->helper = calloc(threads, sizeof *pool->helper);
    if (pool->helper == NULL) {
        free(pool);
        return NULL;
    }
    CPU_ZERO(&pool->cpus);
    for (size_t i = 0; i < ncpus; i++)
        if (cpu[i] >= 0 && cpu[i] < CPU_SETSIZE) CPU_SET((size_t)cpu[i], &pool->cpus);
    if (CPU_COUNT(&pool->cpus) == 0) sched_getaffinity(0, sizeof pool->cpus, &pool->cpus);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->end, NULL);
    return pool;
}

void br_pool_destroy(struct br_pool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->quit = true;
    atomic_fetch_add(&pool->news, 1);
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->nhelpers; i++) pthread_join(pool->helper[i].thread, NULL);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->end);
    pthread_mutex_destroy(&pool->lock);
    free(pool->helper);
    free(pool);
}

unsigned br_pool_threads(const struct br_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}

/* --- rounds --- */

void br_round_begin(struct br_round *round, struct br_pool *pool, unsigned most, size_t jobs,
                    br_pool_work *work, void *arg)
{
    unsigned threads = br_pool_threads(pool);
    *round = (struct br_round){.work = work, .arg = arg, .most = most > 0 && most < threads ? most : threads};
    atomic_init(&round->ticket, (uint64_t)jobs << COUNT_BITS);
    atomic_init(&round->idle, true);
    round->taken[0] = 1;
    if (round->most < 2) return;
    round->pool = pool;
    pthread_mutex_lock(&pool->lock);
    if (!pool->started) start_helpers(pool);
    round->next = pool->rounds;
    pool->rounds = round;
    atomic_fetch_add(&pool->nrounds, 1);
    atomic_fetch_add(&pool->news, 1);
    if (jobs > 0) wake_some(pool);
    pthread_mutex_unlock(&pool->lock);
}

void br_round_add(struct br_round *round, size_t more)
{
    atomic_fetch_add(&round->ticket, (uint64_t)more << COUNT_BITS);
    if (round->pool == NULL || more == 0) return;
    pthread_mutex_lock(&round->pool->lock);
    atomic_fetch_add(&round->pool->news, 1);
    wake_some(round->pool);
    pthread_mutex_unlock(&round->pool->lock);
}

void br_round_end(struct br_round *round)
{
    struct br_pool *pool = round->pool;
    work_off(round, 0, false);
    if (pool == NULL) return;
    for (uint64_t since = br_clock_ns(); !atomic_load(&round->idle) && br_clock_ns() - since < SPIN_NS;)
        relax();
    pthread_mutex_lock(&pool->lock);
    struct br_round **at = &pool->rounds;
    while (*at != round) at = &(*at)->next;
    *at = round->next;
    atomic_fetch_sub(&pool->nrounds, 1);
    round->waiting = true;
    while (round->helpers > 0) pthread_cond_wait(&pool->end, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
