/* test_pipeline.c - running pipelines: delivery, drains, failures at every point, aborts, losses, the
 * balance. */
#include "tests/runtime/run/run.h"

#include <time.h>
#include <unistd.h>

static void pause_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static void test_delivery(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 100003, frame_samples: 61, out: a}\n"
                   "  - {stage: t_pass, in: a, out: b}\n"
                   "  - {stage: t_pass, name: second, in: b, out: c}\n"
                   "  - {stage: t_pair, in: c, out: d}\n"
                   "  - {stage: t_sink, in: d}\n"
                   "  - {stage: t_sink, name: other, in: d}\n");
    start_and_finish(&run);
    assert_string_equal(run.error.text, "");
    assert_int_equal(run.status, BR_OK);
    assert_int_equal(totals(&run, "t_sink").in_samples, 100003);
    assert_int_equal(totals(&run, "other").in_samples, 100003);
    assert_int_equal(totals(&run, "t_pair").in_frames, (100003 + 60) / 61);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

static void test_two_inputs(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 5000, out: a}\n"
                   "  - {stage: t_source, name: s, samples: 5000, out: b}\n"
                   "  - {stage: t_two, in: [a, b]}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* An output that may be left out: without it, and with a reader that gets the same samples. */
static void test_optional_outputs(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 5000, out: a}\n"
                   "  - {stage: t_copies, in: a, out: b}\n"
                   "  - {stage: t_sink, in: b}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_OK);
    end(&run);
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 5000, out: a}\n"
                   "  - {stage: t_copies, in: a, out: [b, c]}\n"
                   "  - {stage: t_two, in: [b, c]}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_int_equal(totals(&run, "t_two").in_samples, 5000);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* One stage of a chain fails: what came before is delivered downstream, everybody ends, the message names
 * the stage. */
static void failing(const char *yaml, const char *stage, uint64_t delivered)
{
    struct test_run run;
    build_ok(&run, yaml);
    start_and_finish(&run);
    assert_int_not_equal(run.status, BR_OK);
    char expected[64];
    snprintf(expected, sizeof expected, "stage '%s': told to fail", stage);
    assert_memory_equal(run.error.text, expected, strlen(expected));
    assert_int_equal(totals(&run, "t_sink").in_samples, delivered);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

static void test_failures(void **state)
{
    (void)state;
    failing("pipeline:\n  - {stage: t_source, samples: 100000, fail_at: 6400, out: a}\n  - {stage: t_pass, "
            "in: a, out: b}\n"
            "  - {stage: t_sink, in: b}\n",
            "t_source", 6400);
    failing("pipeline:\n  - {stage: t_source, samples: 100000, out: a}\n  - {stage: t_pass, fail_at: 6400, "
            "in: a, out: b}\n"
            "  - {stage: t_sink, in: b}\n",
            "t_pass", 6400);
    failing("pipeline:\n  - {stage: t_source, samples: 100000000000, out: a}\n  - {stage: t_pair, in: a, "
            "out: b}\n"
            "  - {stage: t_sink, fail_at: 12800, in: b}\n",
            "t_sink", 12800);
    /* The neighbour of a failed reader drains: an endless source is asked to stop. */
    struct test_run run;
    build_ok(&run, "pipeline:\n  - {stage: t_source, samples: 100000000000, out: a}\n  - {stage: t_sink, "
                   "fail_at: 640, in: a}\n"
                   "  - {stage: t_sink, name: healthy, in: a}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_E_IO);
    assert_int_equal(totals(&run, "healthy").in_samples, totals(&run, "t_source").out_samples);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

static void test_broken_promises(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run,
             "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_pass, nothing: true, in: a, out: b}\n"
             "  - {stage: t_sink, in: b}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_E_INTERNAL);
    assert_non_null(strstr(run.error.text, "t_pass"));
    end(&run);
    /* A loss that is none: the balance says so. */
    build_ok(&run,
             "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_pass, lose_at: 64, in: a, out: b}\n"
             "  - {stage: t_sink, in: b}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_false(br_balance_ok(run.graph, NULL));
    end(&run);
}

/* Jobs within a job, or before others are ended, with one thread and with several: the run fails, and says
 * why. */
static void test_jobs_misused(void **state)
{
    static const char *const how[] = {"nested", "twice"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct test_run run;
        char yaml[256];
        snprintf(yaml, sizeof yaml,
                 "threads: %d\npipeline:\n  - {stage: t_source, out: a}\n"
                 "  - {stage: t_pass, %s: true, in: a, out: b}\n  - {stage: t_sink, in: b}\n",
                 i < 2 ? 1 : 4, how[i % 2]);
        build_ok(&run, yaml);
        start_and_finish(&run);
        assert_int_equal(run.status, BR_E_INTERNAL);
        assert_string_equal(
            run.error.text,
            "stage 't_pass': process began jobs while it had some already, or from within a job");
        assert_true(br_balance_ok(run.graph, stderr));
        end(&run);
    }
}

static void test_start_and_stop_fail(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run,
             "pipeline:\n  - {stage: t_source, fail_start: true, out: a}\n  - {stage: t_sink, in: a}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_E_IO);
    assert_string_equal(run.error.text, "stage 't_source': told not to start");
    end(&run);
    build_ok(&run, "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, fail_stop: true, in: a}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_E_IO);
    assert_string_equal(run.error.text, "stage 't_sink': told not to stop");
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

static void test_drain(void **state)
{
    (void)state;
    for (int ignore = 0; ignore < 2; ignore++) {
        struct test_run run;
        build_ok(&run,
                 ignore
                     ? "pipeline:\n  - {stage: t_source, samples: 100000000000, ignore_stop: true, out: a}\n"
                       "  - {stage: t_pair, in: a, out: b}\n  - {stage: t_sink, in: b}\n"
                     : "pipeline:\n  - {stage: t_source, samples: 100000000000, out: a}\n"
                       "  - {stage: t_pair, in: a, out: b}\n  - {stage: t_sink, in: b}\n");
        assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
        pause_ms(20);
        br_pipeline_drain(run.graph);
        finish(&run);
        assert_int_equal(run.status, BR_OK);
        assert_true(totals(&run, "t_sink").in_samples > 0);
        assert_int_equal(totals(&run, "t_sink").in_samples, totals(&run, "t_source").out_samples);
        assert_true(br_balance_ok(run.graph, stderr));
        end(&run);
    }
}

/* A sink that would sleep for minutes wakes up, everything ends at once, and what was in flight counts as
 * discarded. */
static void test_abort(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n  - {stage: t_source, samples: 100000000000, out: a}\n  - {stage: t_pass, in: "
                   "a, out: b}\n"
                   "  - {stage: t_sink, pause_us: 300000000, in: b}\n");
    assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
    while (totals(&run, "t_source").out_frames < 4) pause_ms(1);
    assert_false(br_pipeline_ended(run.graph));
    br_pipeline_abort(run.graph);
    finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_true(totals(&run, "t_sink").in_samples < totals(&run, "t_source").out_samples);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* A slow reader that may drop holds nobody up; what it lost is counted, and what it got was not torn. */
static void test_drop(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n  - {stage: t_source, samples: 2000000, out: a}\n  - {stage: t_sink, in: a}\n"
                   "  - {stage: t_sink, name: slow, pause_us: 200, in: {from: a, policy: drop}}\n");
    start_and_finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_int_equal(totals(&run, "t_sink").in_samples, 2000000);
    struct br_reader_counters slow;
    br_reader_get_counters(stage_called(&run, "slow")->in[0].reader, &slow);
    assert_true(slow.dropped_samples > 0 && slow.delivered_samples > 0);
    assert_int_equal(slow.dropped_samples + slow.delivered_samples, 2000000);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

static void test_reports(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, "pipeline:\n  - {stage: t_source, samples: 6400, out: a}\n  - {stage: t_pass, lose_at: "
                   "64, in: a, out: b}\n"
                   "  - {stage: t_sink, name: 'the \"end\"', in: b}\n");
    start_and_finish(&run);
    struct br_run_times times = br_run_times(run.graph, 0, 2000000000);
    assert_true(times.wall_s == 2 && times.stream_s > 0.0063999 && times.stream_s < 0.0064001);
    char text[16384];
    FILE *file = tmpfile();
    br_report_text(run.graph, &times, file);
    br_report_json(run.graph, &times, 1, file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_non_null(strstr(text, "lost 64 samples (other): for a reason"));
    assert_non_null(strstr(text, "DOES NOT ADD UP"));
    assert_non_null(strstr(text, "\"balanced\": false"));
    assert_non_null(strstr(text, "\"the \\\"end\\\"\""));
    assert_non_null(strstr(text, "\"other\": 64"));
    br_report_progress(run.graph, &times, text, sizeof text);
    assert_non_null(strstr(text, "lost 64"));
    end(&run);
}

/* Lines for people fit into 120 columns, whatever the names and the numbers. */
static void test_report_width(void **state)
{
    (void)state;
    struct test_run run;
    char line[1024];
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, name: a_source_with_quite_a_long_name, samples: 640, out: "
                   "a_queue_with_quite_a_long_name}\n"
                   "  - {stage: t_pass, lose_at: 64, name: a_stage_with_quite_a_long_name, in: "
                   "a_queue_with_quite_a_long_name, out: b}\n"
                   "  - {stage: t_sink, name: a_sink_with_quite_a_long_name, in: b}\n");
    start_and_finish(&run);
    br_stage_count_saturated(stage_called(&run, "a_source_with_quite_a_long_name"), UINT64_MAX / 2);
    stage_called(&run, "a_source_with_quite_a_long_name")->state->counters.busy_ns =
        86400000000000; /* a day */
    struct br_run_times times = br_run_times(run.graph, 0, 2000000000);
    FILE *file = tmpfile();
    br_report_text(run.graph, &times, file);
    rewind(file);
    bool brief = false;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strlen(line) > 121) fail_msg("%zu columns: %s", strlen(line) - 1, line);
        brief |= strstr(line, " 9.223 E ") != NULL;
    }
    assert_true(brief);
    fclose(file);
    end(&run);
}

/* Every reason has a counter of its own, and one that this runtime does not know counts as "other". */
static void test_losses(void **state)
{
    (void)state;
    struct test_run run;
    char yaml[2048] = "pipeline:\n  - {stage: t_source, samples: 6400, out: q0}\n", text[16384];
    for (unsigned i = 0; i <= BR_LOSS_COUNT; i++) {
        size_t used = strlen(yaml);
        snprintf(yaml + used, sizeof yaml - used,
                 "  - {stage: t_pass, name: p%u, lose_at: 64, lose_as: %u, in: q%u, out: q%u}\n", i,
                 i < BR_LOSS_COUNT ? i : 1000000, i, i + 1);
    }
    size_t used = strlen(yaml);
    snprintf(yaml + used, sizeof yaml - used, "  - {stage: t_sink, in: q%u}\n", BR_LOSS_COUNT + 1);
    build_ok(&run, yaml);
    start_and_finish(&run);
    FILE *file = tmpfile();
    struct br_run_times times = br_run_times(run.graph, 0, 1000000000);
    br_report_json(run.graph, &times, 0, file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (unsigned i = 0; i <= BR_LOSS_COUNT; i++) {
        char name[8], expected[64];
        unsigned reason = i < BR_LOSS_COUNT ? i : BR_LOST_OTHER;
        snprintf(name, sizeof name, "p%u", i);
        for (unsigned k = 0; k < BR_LOSS_COUNT; k++)
            assert_int_equal(br_stage_lost(stage_called(&run, name), k), k == reason ? 64 : 0);
        snprintf(expected, sizeof expected, "\"lost\": {\"%s\": 64}", br_losses[reason].name);
        assert_non_null(strstr(text, expected));
    }
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delivery),
        cmocka_unit_test(test_two_inputs),
        cmocka_unit_test(test_optional_outputs),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_broken_promises),
        cmocka_unit_test(test_jobs_misused),
        cmocka_unit_test(test_start_and_stop_fail),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_report_width),
        cmocka_unit_test(test_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
