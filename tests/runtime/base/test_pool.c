/* The pipeline's threads: every job once, each worker at one job at a time, several rounds at once that share
 * the helpers, and helpers that sleep when there is nothing to do. */
#include "buffers/clock.h"
#include "runtime/base/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_JOBS = 2000, THREADS = 4 };

struct jobs {
    struct br_pool *pool;
    size_t count;
    unsigned most, number;
    atomic_uint each;          /* sleeps so many us */
    unsigned plain[MOST_JOBS]; /* written by one job each: the pool orders that for the caller */
    atomic_uint calls[MOST_JOBS], busy[BR_POOL_MOST];
    atomic_uint wrong, helped, together, most_together;
};

static void work(void *arg, size_t job, unsigned worker)
{
    struct jobs *r = arg;
    unsigned limit = r->most > 0 ? r->most : br_pool_threads(r->pool);
    if (worker >= limit || atomic_fetch_add(&r->busy[worker], 1) != 0) atomic_fetch_add(&r->wrong, 1);
    if (job >= r->count || !br_pool_in_job()) atomic_fetch_add(&r->wrong, 1);
    unsigned together = atomic_fetch_add(&r->together, 1) + 1, most = atomic_load(&r->most_together);
    while (together > most && !atomic_compare_exchange_weak(&r->most_together, &most, together)) continue;
    if (worker > 0) atomic_fetch_add(&r->helped, 1);
    unsigned each = atomic_load(&r->each);
    if (each > 0) usleep(each);
    r->plain[job] = r->number;
    atomic_fetch_add(&r->calls[job], 1);
    atomic_fetch_sub(&r->together, 1);
    atomic_fetch_sub(&r->busy[worker], 1);
}

static void clear(struct jobs *r, size_t count)
{
    r->count = count;
    for (size_t i = 0; i < MOST_JOBS; i++) atomic_store(&r->calls[i], 0);
    atomic_store(&r->helped, 0);
    atomic_store(&r->most_together, 0);
}

static void check(struct jobs *r)
{
    assert_int_equal(atomic_load(&r->wrong), 0);
    for (size_t i = 0; i < r->count; i++) {
        assert_int_equal(atomic_load(&r->calls[i]), 1);
        assert_int_equal(r->plain[i], r->number);
    }
}

static void test_rounds(void **state)
{
    struct jobs *r = calloc(1, sizeof *r);
    (void)state;
    for (unsigned threads = 1; threads <= 9; threads += 2) {
        r->pool = br_pool_create(threads, NULL, 0);
        assert_non_null(r->pool);
        for (r->number = 1; r->number <= 200; r->number++) {
            struct br_round round;
            size_t more = r->number % 7;
            r->most = r->number % 5;
            clear(r, r->number % 50 == 0 ? MOST_JOBS : r->number % 9);
            size_t first = r->count;
            r->count += r->count < MOST_JOBS ? more : 0;
            br_round_begin(&round, r->pool, r->most, first, work, r);
            if (r->number % 40 == 0) usleep(1000); /* the helpers have done it, and are asleep */
            if (r->count > first) br_round_add(&round, more);
            br_round_end(&round);
            assert_false(br_pool_in_job());
            check(r);
        }
        br_pool_destroy(r->pool);
    }
    free(r);
}

/* As a stage does: one round after the other. */
static void *have_rounds(void *arg)
{
    struct jobs *r = arg;
    for (r->number = 1; r->number <= 100; r->number++) {
        struct br_round round;
        clear(r, (r->number * 37) % 300);
        br_round_begin(&round, r->pool, 0, r->count, work, r);
        br_round_end(&round);
        for (size_t i = 0; i < r->count; i++)
            if (atomic_load(&r->calls[i]) != 1 || r->plain[i] != r->number) atomic_fetch_add(&r->wrong, 1);
    }
    return NULL;
}

static void test_stages_at_once(void **state)
{
    enum { STAGES = 5 };
    struct jobs *stage = calloc(STAGES, sizeof *stage);
    struct br_pool *pool = br_pool_create(THREADS, NULL, 0);
    pthread_t thread[STAGES];
    (void)state;
    for (int i = 0; i < STAGES; i++) {
        stage[i].pool = pool;
        assert_int_equal(pthread_create(&thread[i], NULL, have_rounds, &stage[i]), 0);
    }
    for (int i = 0; i < STAGES; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < STAGES; i++) assert_int_equal(atomic_load(&stage[i].wrong), 0);
    br_pool_destroy(pool);
    free(stage);
}

/* All helpers are at work for one round when another one begins: it gets its part of them, and does not have
 * to wait for the end of the first. */
static void test_sharing(void **state)
{
    struct jobs *first = calloc(2, sizeof *first), *second = first + 1;
    struct br_round rounds[2];
    (void)state;
    first->pool = second->pool = br_pool_create(5, NULL, 0);
    atomic_store(&first->each, 1000);
    atomic_store(&second->each, 1000);
    clear(first, MOST_JOBS);
    clear(second, 100);
    br_round_begin(&rounds[0], first->pool, 0, first->count, work, first);
    while (atomic_load(&first->together) < 4) usleep(100);
    br_round_begin(&rounds[1], second->pool, 0, second->count, work, second);
    br_round_end(&rounds[1]);
    check(second);
    size_t done = 0;
    for (size_t i = 0; i < first->count; i++) done += atomic_load(&first->calls[i]);
    assert_true(done < first->count);
    assert_true(atomic_load(&second->helped) > 0);
    assert_in_range(atomic_load(&second->most_together), 2, 3); /* two of the four helpers, and its own */
    atomic_store(&first->each, 0);
    br_round_end(&rounds[0]);
    check(first);
    assert_in_range(atomic_load(&first->most_together), 4, 5);
    br_pool_destroy(first->pool);
    free(first);
}

static uint64_t processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nothing to do costs nothing, whether rounds are open or not. */
static void test_idle(void **state)
{
    struct jobs *r = calloc(1, sizeof *r);
    struct br_round round;
    (void)state;
    r->pool = br_pool_create(16, NULL, 0);
    clear(r, 100);
    for (int open = 0; open < 2; open++) {
        br_round_begin(&round, r->pool, 0, r->count, work, r);
        if (!open) br_round_end(&round);
        usleep(100000);
        uint64_t before = processor_ns();
        usleep(300000);
        assert_true(processor_ns() - before < 2000000);
        if (open) br_round_end(&round);
    }
    br_pool_destroy(r->pool);
    free(r);
}

static void count_cpus(void *arg, size_t job, unsigned worker)
{
    cpu_set_t set;
    (void)job;
    if (worker == 0) {
        usleep(1000); /* so that helpers get some */
        return;
    }
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1 || !CPU_ISSET(0, &set))
        atomic_fetch_add((atomic_uint *)arg, 1u << 16);
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static void test_affinity(void **state)
{
    static const int64_t cpus[] = {0};
    atomic_uint seen = 0;
    struct br_round round;
    (void)state;
    assert_int_equal(br_pool_default_threads(3), 3);
    assert_int_equal(br_pool_default_threads(100000), BR_POOL_MOST);
    assert_true(br_pool_default_threads(0) >= 1);
    struct br_pool *pool = br_pool_create(3, cpus, 1);
    while (atomic_load(&seen) == 0) {
        br_round_begin(&round, pool, 0, 10, count_cpus, &seen);
        br_round_end(&round);
    }
    assert_int_equal(atomic_load(&seen) >> 16, 0);
    br_pool_destroy(pool);
    br_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds), cmocka_unit_test(test_stages_at_once),
                                       cmocka_unit_test(test_sharing), cmocka_unit_test(test_idle),
                                       cmocka_unit_test(test_affinity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
