/* test_updates.c - updates from their request to the values that a stage met. Frames of 64 samples. */
#include "runtime/run/updates.h"
#include "tests/runtime/plugins/t_update.h"
#include "tests/runtime/run/run.h"

static const char pipeline[] = "pipeline:\n"
                               "  - {stage: t_source, samples: 64000, out: a}\n"
                               "  - {stage: t_update, name: one, in: a, out: b, fixed: 5, refuse: 13}\n"
                               "  - {stage: t_update, name: two, in: b, out: c, refuse: 13}\n"
                               "  - {stage: t_sink, in: c}\n";

static struct br_update_reply ask(struct test_run *run, const char *text)
{
    struct br_update_reply reply;
    struct br_config *config;
    struct br_error error = {0};
    assert_int_equal(br_config_parse_value(&config, "request", text, strlen(text), &error), BR_OK);
    assert_int_equal(br_updates_submit(run->graph, config, br_config_root(config), true, &reply), BR_OK);
    assert_non_null(reply.update);
    return reply;
}

static struct br_update_reply ask_well(struct test_run *run, const char *text)
{
    struct br_update_reply reply = ask(run, text);
    if (reply.outcome != BR_UPDATE_OK) fail_msg("%s: %s", text, reply.update->why);
    return reply;
}

static const struct br_update *called(const struct test_run *run, const char *id)
{
    const struct br_update *u = run->graph->state->updates->newest;
    while (u != NULL && strcmp(u->id, id) != 0) u = u->older;
    assert_non_null(u);
    return u;
}

static const struct t_update *stage(struct test_run *run, const char *name)
{
    return stage_called(run, name)->self;
}

static void run_to_end(struct test_run *run)
{
    start_and_finish(run);
    assert_int_equal(run->status, BR_OK);
    assert_true(br_balance_ok(run->graph, stderr));
    br_updates_tidy(run->graph);
}

/* The stage met `add` from the frame at `first` on, as its n-th values. */
static void assert_met(struct test_run *run, const char *name, unsigned n, uint64_t first, int64_t add)
{
    const struct t_update *u = stage(run, name);
    assert_true(u->nseen > n);
    assert_int_equal(u->seen[n].first, first);
    assert_int_equal(u->seen[n].add, add);
    if (n > 0) assert_int_equal(u->seen[n].table, add);
}

static void test_applied_at_a_frame(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    struct br_update_reply reply =
        ask_well(&run, "{\"id\": \"x\", \"at\": {\"sample\": 641}, "
                       "\"stages\": {\"one\": {\"add\": 7}, \"two\": {\"add\": 8}}}");
    assert_int_equal(reply.update->state, BR_UPDATE_SCHEDULED);
    assert_int_equal(reply.update->sample, 641);
    run_to_end(&run);
    assert_met(&run, "one", 0, 0, 0);
    assert_met(&run, "one", 1, 704, 7); /* the first frame that begins at or after it */
    assert_met(&run, "two", 1, 704, 8);
    assert_int_equal(stage(&run, "one")->nseen, 2);
    assert_int_equal(stage(&run, "one")->seen[1].fixed, 5);
    assert_int_equal(called(&run, "x")->state, BR_UPDATE_APPLIED);
    assert_int_equal(called(&run, "x")->held_from, 704);
    end(&run);
}

/* A stage takes updates in the order of their samples only; the refusal says from where on it takes one. */
static void test_before_one_that_is_scheduled(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    ask_well(&run, "{id: late, at: {sample: 1280}, stages: {one: {refuse: 99}}}");
    struct br_update_reply reply =
        ask(&run, "{id: early, at: {sample: 1279}, stages: {two: {add: 3}, one: {add: 3}}}");
    assert_int_equal(reply.outcome, BR_UPDATE_LATE);
    assert_int_equal(reply.earliest, 1280);
    assert_non_null(strstr(reply.update->why, "stage 'one' has update 'late' scheduled for sample 1280"));
    assert_int_equal(ask(&run, "{at: now, stages: {one: {add: 3}}}").outcome, BR_UPDATE_LATE);
    ask_well(&run, "{id: other, at: {sample: 640}, stages: {two: {add: 2}}}"); /* a stage without one */
    reply = ask_well(&run, "{id: early, at: {sample: 1280}, stages: {two: {add: 3}, one: {add: 3}}}");
    assert_int_equal(reply.earliest, 1280);
    ask_well(&run, "{id: last, at: {sample: 1920}, stages: {one: {add: 4}}}");
    run_to_end(&run);
    assert_met(&run, "one", 1, 1280, 3);
    assert_met(&run, "one", 2, 1920, 4);
    assert_int_equal(stage(&run, "one")->nseen, 3);
    assert_int_equal(stage(&run, "one")->refuse, 99);
    assert_met(&run, "two", 1, 640, 2);
    assert_met(&run, "two", 2, 1280, 3);
    assert_int_equal(called(&run, "late")->state, BR_UPDATE_SUPERSEDED);
    assert_int_equal(called(&run, "early")->state, BR_UPDATE_APPLIED);
    end(&run);
}

static enum br_update_outcome cancel(struct test_run *run, const char *id)
{
    struct br_update_reply reply;
    struct br_error error = {0};
    br_updates_cancel(run->graph, id, &reply, &error);
    assert_int_equal(reply.outcome == BR_UPDATE_OK, error.status == BR_OK);
    return reply.outcome;
}

/* The last one of its stages goes; one with another one behind it stays until that one is cancelled. */
static void test_cancelled(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    ask_well(&run, "{id: early, at: {sample: 640}, stages: {one: {add: 3}}}");
    ask_well(&run, "{id: mid, at: {sample: 1280}, stages: {one: {add: 9}, two: {add: 8}}}");
    ask_well(&run, "{id: late, at: {sample: 1920}, stages: {two: {refuse: 99}}}");
    assert_int_equal(cancel(&run, "nobody"), BR_UPDATE_UNKNOWN);
    assert_int_equal(cancel(&run, "mid"), BR_UPDATE_CONFLICT);
    assert_int_equal(called(&run, "mid")->state, BR_UPDATE_SCHEDULED);
    assert_int_equal(cancel(&run, "late"), BR_UPDATE_OK);
    assert_int_equal(cancel(&run, "mid"), BR_UPDATE_OK);
    assert_int_equal(cancel(&run, "mid"), BR_UPDATE_UNKNOWN);
    assert_int_equal(called(&run, "mid")->state, BR_UPDATE_CANCELLED);
    assert_int_equal(run.graph->state->updates->total[BR_UPDATE_SCHEDULED], 1);
    ask_well(&run, "{id: end, at: {sample: 1300}, stages: {two: {add: 4}}}");
    run_to_end(&run);
    assert_met(&run, "one", 1, 640, 3);
    assert_int_equal(stage(&run, "one")->nseen, 2);
    assert_met(&run, "two", 1, 1344, 4);
    assert_int_equal(stage(&run, "two")->nseen, 2);
    assert_int_equal(cancel(&run, "early"), BR_UPDATE_CONFLICT);
    end(&run);
}

static void test_the_same_sample_again(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    ask_well(&run, "{id: a, at: {sample: 640}, stages: {one: {add: 1}}}");
    ask_well(&run, "{id: b, at: {sample: 640}, stages: {one: {add: 2}}}");
    run_to_end(&run);
    assert_met(&run, "one", 1, 640, 2);
    assert_int_equal(stage(&run, "one")->nseen, 2);
    assert_int_equal(called(&run, "a")->state, BR_UPDATE_SUPERSEDED);
    assert_int_equal(called(&run, "b")->state, BR_UPDATE_APPLIED);
    end(&run);
}

static void test_all_stages_or_none(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    static const struct {
        const char *text, *why;
        enum br_update_outcome outcome;
    } bad[] = {
        {"{at: {sample: 64}, stages: {one: {add: 1}, two: {add: 13}}}", "told to refuse 13",
         BR_UPDATE_FAILED},
        {"{at: {sample: 64}, stages: {one: {add: 1}, two: {add: 666}}}",
         "request:1:55: stage 'two': add: 666", BR_UPDATE_WRONG},
        {"{at: {sample: 64}, stages: {one: {add: 1}, two: {fixed: 1}}}", "request:1:50: stage",
         BR_UPDATE_WRONG},
        {"{at: {sample: 64}, stages: {one: {add: 1}, three: {add: 1}}}", "did you mean", BR_UPDATE_WRONG},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct br_update_reply reply = ask(&run, bad[i].text);
        assert_int_equal(reply.outcome, bad[i].outcome);
        assert_int_equal(reply.update->state, BR_UPDATE_REJECTED);
        if (i != 3 && strstr(reply.update->why, bad[i].why) == NULL) fail_msg("%s", reply.update->why);
    }
    run_to_end(&run);
    assert_int_equal(stage(&run, "one")->nseen, 1);
    assert_int_equal(stage(&run, "two")->nseen, 1);
    assert_int_equal(run.graph->state->updates->total[BR_UPDATE_REJECTED], 4);
    end(&run);
}

static void test_late(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    atomic_store(&stage_called(&run, "one")->state->updates.taken, 640);
    struct br_update_reply reply =
        ask(&run, "{id: x, at: {sample: 639}, stages: {one: {add: 1}, two: {add: 1}}}");
    assert_int_equal(reply.outcome, BR_UPDATE_LATE);
    assert_int_equal(reply.earliest, 640);
    reply = ask_well(&run, "{id: x, at: {sample: 640}, stages: {one: {add: 1}, two: {add: 1}}}");
    assert_int_equal(reply.earliest, 640);
    reply =
        ask_well(&run, "{at: now, stages: {one: {add: 2}, two: {add: 2}}}"); /* at the same sample, then */
    assert_int_equal(reply.update->sample, 640);
    run_to_end(&run);
    assert_met(&run, "one", 1, 640, 2);
    assert_met(&run, "two", 0, 0, 0);
    assert_met(&run, "two", 1, 640, 2);
    end(&run);
}

static void test_the_same_id(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline);
    const char *text = "{id: x, at: {sample: 640}, stages: {one: {add: 1}}}";
    const struct br_update *first = ask_well(&run, text).update;
    struct br_update_reply reply = ask(&run, text);
    assert_int_equal(reply.outcome, BR_UPDATE_OK);
    assert_true(reply.repeated);
    assert_ptr_equal(reply.update, first);
    assert_int_equal(ask(&run, "{id: x, at: {sample: 640}, stages: {one: {add: 2}}}").outcome,
                     BR_UPDATE_CONFLICT);
    assert_int_equal(ask(&run, "{id: x, at: {sample: 641}, stages: {one: {add: 1}}}").outcome,
                     BR_UPDATE_CONFLICT);
    run_to_end(&run);
    assert_met(&run, "one", 1, 640, 1);
    assert_int_equal(ask(&run, "{id: y, stages: {one: {add: 2}}}").outcome,
                     BR_UPDATE_CONFLICT); /* it has ended */
    end(&run);
}

static void test_many_pending(void **state)
{
    (void)state;
    enum { MANY = 100 };
    struct test_run run;
    char text[120];
    build_ok(&run, pipeline);
    for (int n = 1; n <= MANY; n++) {
        snprintf(text, sizeof text, "{id: u%d, at: {sample: %d}, stages: {one: {add: %d}}}", n, 128 * n,
                 n * 1000);
        ask_well(&run, text);
    }
    assert_int_equal(run.graph->state->updates->total[BR_UPDATE_SCHEDULED], MANY);
    run_to_end(&run);
    assert_int_equal(stage(&run, "one")->nseen, MANY + 1);
    for (unsigned n = 1; n <= MANY; n++) assert_met(&run, "one", n, 128 * n, n * 1000);
    assert_int_equal(run.graph->state->updates->total[BR_UPDATE_APPLIED], MANY);
    end(&run);
}

/* While the pipeline runs: each of many updates of now holds in both stages from the same sample on. */
static void test_now(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 1e12, out: a}\n"
                   "  - {stage: t_update, name: one, in: a, out: b}\n"
                   "  - {stage: t_update, name: two, in: b, out: c}\n"
                   "  - {stage: t_sink, in: c}\n");
    assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
    for (int i = 1; i <= 100; i++) {
        char text[120];
        snprintf(text, sizeof text, "{id: u%d, at: now, stages: {one: {add: %d}, two: {add: %d}}}", i, i, i);
        while (atomic_load(&stage_called(&run, "two")->state->updates.taken) == 0) continue;
        ask_well(&run, text);
        br_updates_tidy(run.graph);
        while (called(&run, "u1")->state == BR_UPDATE_SCHEDULED) br_updates_tidy(run.graph);
    }
    while (run.graph->state->updates->total[BR_UPDATE_SCHEDULED] > 0) br_updates_tidy(run.graph);
    br_pipeline_drain(run.graph);
    finish(&run);
    assert_int_equal(run.status, BR_OK);
    const struct t_update *one = stage(&run, "one"), *two = stage(&run, "two");
    assert_int_equal(one->nseen, two->nseen);
    assert_true(one->nseen > 2);
    for (unsigned n = 1; n < one->nseen; n++) {
        assert_int_equal(one->seen[n].first, two->seen[n].first);
        assert_int_equal(one->seen[n].add, two->seen[n].add);
    }
    assert_int_equal(one->seen[one->nseen - 1].add, 100);
    end(&run);
}

static void test_unix_time(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, pipeline); /* 1 us a sample, sample 0 at the epoch */
    struct br_update_reply reply = ask_well(&run, "{at: {time_ns: 640001}, stages: {one: {add: 1}}}");
    assert_int_equal(reply.update->sample, 641);
    assert_int_equal(ask_well(&run, "{at: {time_ns: 1280000}, stages: {one: {add: 2}}}").update->sample,
                     1280);
    run_to_end(&run);
    assert_met(&run, "one", 1, 704, 1);
    assert_met(&run, "one", 2, 1280, 2);
    end(&run);
}

/* --- a source, which has no input whose samples could count: those of its output do ------------------ */

static const char source[] = "pipeline:\n"
                             "  - {stage: t_makes, name: one, out: a}\n"
                             "  - {stage: t_update, name: two, in: a, out: b}\n"
                             "  - {stage: t_sink, in: b, check: false}\n";

static void test_source(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, source);
    ask_well(&run, "{id: x, at: {sample: 641}, stages: {one: {add: 7}, two: {add: 8}}}");
    ask_well(&run, "{id: y, at: {time_ns: 1280001}, stages: {one: {add: 9}}}"); /* 1 us a sample */
    struct br_update_reply reply = ask(&run, "{id: z, at: {sample: 900}, stages: {one: {add: 666}}}");
    assert_int_equal(reply.outcome, BR_UPDATE_WRONG);
    assert_non_null(strstr(reply.update->why, "request:1:48: stage 'one': add: 666"));
    ask_well(&run, "{id: far, at: {sample: 6400}, stages: {one: {add: 3}}}"); /* behind its end */
    run_to_end(&run);
    assert_met(&run, "one", 0, 0, 0);
    assert_met(&run, "one", 1, 641, 7);
    assert_met(&run, "one", 2, 1281, 9);
    assert_met(&run, "two", 1, 704, 8);
    assert_int_equal(stage(&run, "one")->nseen, 3);
    assert_int_equal(called(&run, "x")->state, BR_UPDATE_APPLIED);
    assert_int_equal(called(&run, "y")->held_from, 1281);
    assert_int_equal(called(&run, "far")->state, BR_UPDATE_SCHEDULED);
    char held[400];
    const struct br_stage *sink = stage_called(&run, "t_sink");
    assert_true(br_stage_follows_updates(stage_called(&run, "two")));
    br_stage_updates_held(sink, 1280, held, sizeof held);
    assert_non_null(strstr(held, "one:641:"));
    assert_non_null(strstr(held, "two:704:"));
    br_stage_updates_held(stage_called(&run, "two"), 1281, held, sizeof held);
    assert_ptr_equal(strstr(held, "one:1281:"), held);
    br_stage_updates_begun(sink, 0, 704, held, sizeof held);
    assert_ptr_equal(strstr(held, "one:641:"), held);
    assert_null(strchr(held, ','));
    end(&run);
}

/* A source says how far it has come by asking, and what holds "now" holds from there on. */
static void test_source_that_has_come_far(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, source);
    struct br_stage *one = stage_called(&run, "one");
    assert_int_equal(br_stage_next_update(one, 640), 640);
    struct br_update_reply reply = ask(&run, "{id: x, at: {sample: 639}, stages: {one: {add: 1}}}");
    assert_int_equal(reply.outcome, BR_UPDATE_LATE);
    assert_int_equal(reply.earliest, 640);
    reply = ask_well(&run, "{at: now, stages: {two: {add: 2}, one: {add: 2}}}");
    assert_int_equal(reply.update->sample, 640);
    assert_int_equal(br_stage_next_update(one, 640), 640); /* that one begins behind it */
    assert_int_equal(br_stage_next_update(one, 700), 640);
    assert_int_equal(atomic_load(&one->state->updates.taken), 700);
    run_to_end(&run);
    assert_met(&run, "one", 1, 640, 2);
    assert_met(&run, "two", 1, 640, 2);
    end(&run);
}

static void test_source_in_the_file(void **state)
{
    (void)state;
    struct test_run run;
    char text[600];
    snprintf(text, sizeof text,
             "%supdates: [{at: {sample: 0}, stages: {one: {add: 4}}}, "
             "{at: {sample: 100}, stages: {one: {add: 5}}}]\n",
             source);
    build_ok(&run, text);
    run_to_end(&run);
    assert_met(&run, "one", 0, 0, 4);
    assert_met(&run, "one", 1, 100, 5);
    end(&run);
}

/* While it runs, with a stage behind it: all updates of now hold in both from the same sample on. */
static void test_source_now(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_makes, name: one, samples: 1e12, out: a}\n"
                   "  - {stage: t_update, name: two, in: a, out: b}\n"
                   "  - {stage: t_sink, in: b, check: false}\n");
    assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
    while (atomic_load(&stage_called(&run, "two")->state->updates.taken) == 0) continue;
    for (int i = 1; i <= 50; i++) {
        char text[120];
        snprintf(text, sizeof text, "{id: u%d, at: now, stages: {one: {add: %d}, two: {add: %d}}}", i, i, i);
        ask_well(&run, text);
    }
    while (br_updates_tidy(run.graph), run.graph->state->updates->total[BR_UPDATE_SCHEDULED] > 0) continue;
    br_pipeline_drain(run.graph);
    finish(&run);
    assert_int_equal(run.status, BR_OK);
    const struct t_update *one = stage(&run, "one"), *two = stage(&run, "two");
    assert_int_equal(one->nseen, two->nseen);
    for (unsigned n = 1; n < one->nseen; n++) {
        assert_int_equal(one->seen[n].first, two->seen[n].first);
        assert_int_equal(one->seen[n].add, two->seen[n].add);
    }
    assert_int_equal(one->seen[one->nseen - 1].add, 50);
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_applied_at_a_frame),
        cmocka_unit_test(test_before_one_that_is_scheduled),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_the_same_sample_again),
        cmocka_unit_test(test_all_stages_or_none),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_the_same_id),
        cmocka_unit_test(test_many_pending),
        cmocka_unit_test(test_now),
        cmocka_unit_test(test_unix_time),
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_source_that_has_come_far),
        cmocka_unit_test(test_source_in_the_file),
        cmocka_unit_test(test_source_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
