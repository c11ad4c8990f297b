/* The threads that fill a frame: every job once in its own round, whether threads are awake, asleep or late.
 */
#include "formats/pieces/pool.h"
#include "stages/replay/replay.h"
#include "tests/stages/stage_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_JOBS = 300, SCRATCH = 5000 };

struct round {
    unsigned number;
    size_t jobs;
    unsigned plain[MOST_JOBS]; /* written by one job each: the pool orders that for the caller */
    atomic_uint calls[MOST_JOBS], wrong;
    bool slow;
};

static void work(void *arg, size_t job, void *scratch)
{
    struct round *r = arg;
    if (job >= r->jobs) {
        atomic_fetch_add(&r->wrong, 1);
        return;
    }
    /* nobody else has this scratch memory at the same time */
    memset(scratch, (int)(job & 255), SCRATCH);
    if (r->slow && job % 7 == 0) usleep(200);
    for (size_t i = 0; i < SCRATCH; i++)
        if (((unsigned char *)scratch)[i] != (job & 255)) atomic_fetch_add(&r->wrong, 1);
    r->plain[job] = r->number;
    atomic_fetch_add(&r->calls[job], 1);
}

static void test_rounds(void **state)
{
    static struct round r;
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct br_stage stage = {.threads = threads};
        struct replay_caller caller;
        replay_caller(&caller, &stage);
        struct pool *pool = pool_start(&caller.caller, threads, SCRATCH);
        assert_non_null(pool);
        for (r.number = 1; r.number <= 400; r.number++) {
            r.jobs = r.number % 50 == 0 ? MOST_JOBS : r.number % 9;
            r.slow = r.number % 100 == 0;
            for (size_t i = 0; i < r.jobs; i++) atomic_store(&r.calls[i], 0);
            pool_run(pool, r.jobs, work, &r);
            for (size_t i = 0; i < r.jobs; i++) {
                assert_int_equal(atomic_load(&r.calls[i]), 1);
                assert_int_equal(r.plain[i], r.number);
            }
            assert_int_equal(atomic_load(&r.wrong), 0);
            if (r.number % 80 == 0) usleep(1000); /* all fall asleep */
        }
        pool_stop(pool);
        br_pool_destroy(stage.pool);
    }
    pool_stop(NULL);
    struct br_stage stage = {.threads = 3};
    struct replay_caller caller;
    replay_caller(&caller, &stage);
    struct pool *unused = pool_start(&caller.caller, 3, 0);
    assert_non_null(unused);
    pool_stop(unused);
    br_pool_destroy(stage.pool);
}

/* In steps: jobs that are begun go on while the caller does something else, and more come. */
static void test_steps(void **state)
{
    static struct round r;
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        struct br_stage stage = {.threads = threads};
        struct replay_caller caller;
        replay_caller(&caller, &stage);
        struct pool *pool = pool_start(&caller.caller, threads, SCRATCH);
        assert_non_null(pool);
        for (r.number = 1; r.number <= 400; r.number++) {
            size_t first = r.number % 11, more = r.number % 7, last = r.number % 3;
            r.jobs = first + more + last;
            r.slow = r.number % 100 == 0;
            for (size_t i = 0; i < r.jobs; i++) atomic_store(&r.calls[i], 0);
            pool_begin(pool, first, work, &r);
            if (r.number % 40 == 0) usleep(500); /* they are done, and all are asleep */
            pool_add(pool, more);
            pool_add(pool, last);
            pool_end(pool);
            for (size_t i = 0; i < r.jobs; i++) {
                assert_int_equal(atomic_load(&r.calls[i]), 1);
                assert_int_equal(r.plain[i], r.number);
            }
            assert_int_equal(atomic_load(&r.wrong), 0);
        }
        r.jobs = MOST_JOBS; /* stopped without having been waited for */
        pool_begin(pool, r.jobs, work, &r);
        pool_stop(pool);
        br_pool_destroy(stage.pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds), cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
