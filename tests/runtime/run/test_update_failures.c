/* test_update_failures.c - updates for which the memory does not suffice, at every allocation that the
 * runtime makes of them: whoever asked hears of it, the old values stay, the run goes on, and nothing is left
 * over (which the sanitizers see). The arena is left alone: it ends the program. */
#include "runtime/config/arena.h"
#include "runtime/run/updates.h"
#include "tests/runtime/plugins/t_update.h"
#include "tests/runtime/run/run.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_br_arena_alloc(struct br_arena *arena, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_br_arena_alloc(struct br_arena *arena, size_t bytes);

/* This thread's allocations until one fails; below 0: none fails. */
static _Thread_local long left = -1;
static _Thread_local bool spared;

static bool fails(void)
{
    return !spared && left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

void *__wrap_br_arena_alloc(struct br_arena *arena, size_t bytes)
{
    spared = true;
    void *memory = __real_br_arena_alloc(arena, bytes);
    spared = false;
    return memory;
}

static const char pipeline[] = "pipeline:\n"
                               "  - {stage: t_source, samples: 1e12, out: a}\n"
                               "  - {stage: t_update, name: one, in: a, out: b}\n"
                               "  - {stage: t_update, name: two, in: b, out: c}\n"
                               "  - {stage: t_sink, in: c}\n";

/* BR_OK, or why it did not come to anything. */
static int ask(struct test_run *run, const char *text, long until, bool *applied)
{
    struct br_update_reply reply;
    struct br_config *config;
    struct br_error error = {0};
    *applied = false;
    left = until;
    int status = br_config_parse_value(&config, "request", text, strlen(text), &error);
    if (status == BR_OK) status = br_updates_submit(run->graph, config, br_config_root(config), true, &reply);
    bool was_hit = left < 0 && until >= 0;
    left = -1;
    if (status != BR_OK) return BR_E_NO_MEMORY;
    assert_non_null(reply.update);
    *applied = reply.outcome == BR_UPDATE_OK;
    if (!*applied) assert_int_equal(reply.update->state, BR_UPDATE_REJECTED);
    return was_hit ? BR_E_NO_MEMORY : BR_OK;
}

static void wait_until_applied(struct test_run *run, uint64_t count)
{
    for (unsigned i = 0; i < 60000; i++) {
        br_updates_tidy(run->graph);
        if (run->graph->state->updates->total[BR_UPDATE_APPLIED] == count) return;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    fail_msg("the update does not come to hold");
}

/* `add` is n in the one that comes through after n that did not. */
static void test_no_memory(void **state)
{
    (void)state;
    struct test_run run;
    uint64_t applied = 0;
    unsigned failures = 0;
    build_ok(&run, pipeline);
    assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
    while (atomic_load(&stage_called(&run, "two")->state->updates.taken) ==
           0) /* it shall meet the file's values */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    for (long n = 0;; n++) {
        char text[160];
        bool holds;
        snprintf(text, sizeof text,
                 "{id: u%ld, at: now, stages: {one: {add: %ld}, two: {add: %ld, refuse: -7}}}", n, n + 1,
                 n + 1);
        int status = ask(&run, text, n, &holds);
        if (holds) wait_until_applied(&run, ++applied);
        if (status == BR_OK) break;
        failures += !holds;
        assert_true(n < 1000);
    }
    assert_true(failures > 5);
    br_pipeline_drain(run.graph);
    finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_true(br_balance_ok(run.graph, stderr));
    br_updates_tidy(run.graph);
    /* The stages got the values of successful updates, the same in both of them. */
    const struct t_update *one = stage_called(&run, "one")->self, *two = stage_called(&run, "two")->self;
    assert_int_equal(one->nseen, applied + 1);
    assert_int_equal(two->nseen, applied + 1);
    for (unsigned i = 0; i < one->nseen; i++) {
        assert_int_equal(one->seen[i].first, two->seen[i].first);
        assert_int_equal(one->seen[i].add, two->seen[i].add);
        assert_true(i == 0 || one->seen[i].table == one->seen[i].add);
    }
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
