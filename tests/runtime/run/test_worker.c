/* test_worker.c - what a stage's thread makes of failures below it. The linker puts the functions here in
 * the place of the real ones (--wrap), which fail when a test says so. */
#include "tests/runtime/run/run.h"

#include <errno.h>

int __real_br_reader_release(struct br_reader *reader);
int __wrap_br_reader_release(struct br_reader *reader);
void __real_br_queue_error(const struct br_queue *queue, struct br_error *error);
void __wrap_br_queue_error(const struct br_queue *queue, struct br_error *error);
int __real_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set);
int __wrap_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set);

static const char *failing_queue; /* whose releases fail, as where an event cannot be recorded; NULL: none */
static int affinity_error;

int __wrap_br_reader_release(struct br_reader *reader)
{
    int status = __real_br_reader_release(reader);
    bool fails = failing_queue != NULL && strcmp(br_queue_name(br_reader_queue(reader)), failing_queue) == 0;
    return fails ? BR_E_DEVICE : status;
}

void __wrap_br_queue_error(const struct br_queue *queue, struct br_error *error)
{
    __real_br_queue_error(queue, error);
    if (failing_queue != NULL && strcmp(br_queue_name(queue), failing_queue) == 0)
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
        cmocka_unit_test(test_affinity_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
