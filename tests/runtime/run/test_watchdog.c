/* Which call has not returned: wherever in the pipeline its stage is. */
#include "buffers/clock.h"
#include "runtime/run/watchdog.h"
#include "tests/runtime/run/run.h"

#define S ((uint64_t)1000000000)

static void test_every_stage_is_found(void **state)
{
    (void)state;
    struct test_run run;
    if (br_clock_ns() < 100 * S) skip(); /* the machine has not run for as long as stages are to have hung */
    build_ok(&run, "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_pass, in: a, out: b}\n"
                   "  - {stage: t_sink, in: b}\n");
    struct br_hang hang;
    assert_false(br_watchdog_find(run.graph, 0, &hang));
    uint64_t now = br_clock_ns();
    for (size_t s = 0; s < run.graph->nstages; s++) {
        struct br_stage *stage = run.graph->order[s], *other = run.graph->order[(s + 1) % 3];
        atomic_store(&stage->state->process_since, now - 60 * S);
        assert_true(br_watchdog_find(run.graph, 30 * S, &hang));
        assert_ptr_equal(hang.stage, stage);
        assert_true(hang.since == now - 60 * S && !hang.gpu);
        assert_non_null(strstr(hang.text, "process has not returned for 6"));
        assert_false(br_watchdog_find(run.graph, 3600 * S, &hang));
        atomic_store(&other->state->process_since, now - 90 * S); /* the longest one counts */
        assert_true(br_watchdog_find(run.graph, 30 * S, &hang));
        assert_ptr_equal(hang.stage, other);
        atomic_store(&other->state->ended, true); /* what has ended hangs no more */
        assert_true(br_watchdog_find(run.graph, 30 * S, &hang));
        assert_ptr_equal(hang.stage, stage);
        atomic_store(&other->state->ended, false);
        atomic_store(&other->state->process_since, 0);
        atomic_store(&stage->state->process_since, 0);
    }
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_stage_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
