/* test_worker.c - what a stage's thread makes of failures below it. The linker puts the functions here in
 * the place of the real ones (--wrap), which fail when a test says so. */
#include "buffers/ring.h"
#include "tests/runtime/run/run.h"

#include <errno.h>

int __real_br_reader_release(struct br_reader *reader);
int __wrap_br_reader_release(struct br_reader *reader);
void __real_br_queue_error(const struct br_queue *queue, struct br_error *error);
void __wrap_br_queue_error(const struct br_queue *queue, struct br_error *error);
int __real_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set);
int __wrap_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set);

int __real_br_queue_acquire(struct br_queue *queue, struct br_frame **frame);
int __wrap_br_queue_acquire(struct br_queue *queue, struct br_frame **frame);

static bool no_slots;             /* the failing queue's fail, and not the releases */
static const char *failing_queue; /* whose releases fail, as where an event cannot be recorded; NULL: none */
static int affinity_error;

int __wrap_br_reader_release(struct br_reader *reader)
{
    int status = __real_br_reader_release(reader);
    bool fails = failing_queue != NULL && !no_slots && strcmp(reader->queue->name, failing_queue) == 0;
    return fails ? BR_E_DEVICE : status;
}

int __wrap_br_queue_acquire(struct br_queue *queue, struct br_frame **frame)
{
    if (no_slots && strcmp(queue->name, failing_queue) == 0) return BR_E_DEVICE;
    return __real_br_queue_acquire(queue, frame);
}

void __wrap_br_queue_error(const struct br_queue *queue, struct br_error *error)
{
    __real_br_queue_error(queue, error);
    if (failing_queue != NULL && strcmp(queue->name, failing_queue) == 0)
        br_fail(error, BR_E_DEVICE, "queue '%s': an event cannot be recorded", failing_queue);
}

int __wrap_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    return affinity_error != 0 ? affinity_error : __real_pthread_setaffinity_np(thread, size, set);
}

/* Whichever input of a stage cannot be released: the stage fails at its first frame, and says of which
 * queue. */
static void test_a_release_fails(void **state)
{
    (void)state;
    static const char *const queues[] = {"a", "b"};
    for (size_t i = 0; i < 2; i++) {
        struct test_run run;
        char expected[64];
        failing_queue = queues[i];
        build_ok(&run, "pipeline:\n"
                       "  - {stage: t_source, samples: 5000, out: a}\n"
                       "  - {stage: t_source, name: s, samples: 5000, out: b}\n"
                       "  - {stage: t_two, in: [a, b]}\n");
        start_and_finish(&run);
        failing_queue = NULL;
        assert_int_equal(run.status, BR_E_DEVICE);
        snprintf(expected, sizeof expected, "stage 't_two': queue '%s': an event cannot be recorded",
                 queues[i]);
        assert_string_equal(run.error.text, expected);
        assert_int_equal(totals(&run, "t_two").calls, 1);
        assert_true(br_balance_ok(run.graph, stderr));
        end(&run);
    }
}

/* Likewise a slot that a GPU does not give back: the stage says of which queue. */
static void test_a_slot_fails(void **state)
{
    (void)state;
    struct test_run run;
    failing_queue = "b";
    no_slots = true;
    build_ok(&run, "pipeline:\n  - {stage: t_source, samples: 5000, out: a}\n"
                   "  - {stage: t_pass, in: a, out: b}\n  - {stage: t_sink, in: b}\n");
    start_and_finish(&run);
    failing_queue = NULL;
    no_slots = false;
    assert_int_equal(run.status, BR_E_DEVICE);
    assert_string_equal(run.error.text, "stage 't_pass': queue 'b': an event cannot be recorded");
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* A stage that breaks the rules of frames is named, not the one that reads them; and nobody fails
 * silently. */
static void test_rules_of_frames(void **state)
{
    (void)state;
    static const struct {
        const char *param, *said;
    } cases[] = {{"longer: 1", "of 101 samples into 'b', whose frames have at most 100"},
                 {"back: 1", "from sample 99 on into 'b', before the end 100 of the one before"},
                 {"stopped: -5", "process failed with status -6 and gave no reason"},
                 {"stopped: 64", "process returned unknown bits"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_run run;
        char yaml[512];
        snprintf(yaml, sizeof yaml,
                 "pipeline:\n  - {stage: t_source, samples: 1000, frame_samples: 100, out: a}\n"
                 "  - {stage: t_pass, in: a, out: b, %s}\n  - {stage: t_sink, in: b}\n",
                 cases[i].param);
        build_ok(&run, yaml);
        start_and_finish(&run);
        assert_int_equal(run.status, BR_E_INTERNAL);
        if (strstr(run.error.text, cases[i].said) == NULL || strstr(run.error.text, "t_pass") == NULL)
            fail_msg("%s: %s", cases[i].param, run.error.text);
        assert_true(br_balance_ok(run.graph, stderr));
        end(&run);
    }
}

static void test_affinity_fails(void **state)
{
    (void)state;
    struct test_run run;
    char text[1024] = "";
    build_ok(&run, "affinity: [0]\npipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: a}\n");
    affinity_error = EPERM;
    start_and_finish(&run);
    affinity_error = 0;
    assert_int_equal(run.status, BR_OK);
    rewind(run.log_file);
    text[fread(text, 1, sizeof text - 1, run.log_file)] = '\0';
    assert_non_null(strstr(text, "t_sink: warning: affinity: Operation not permitted"));
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_release_fails),
        cmocka_unit_test(test_a_slot_fails),
        cmocka_unit_test(test_rules_of_frames),
        cmocka_unit_test(test_affinity_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
