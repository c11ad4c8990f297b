/* Reading in a process of its own: what it finds arrives, and whatever becomes of it, this process goes on
 * and knows. */
#include "stages/common/hdf5_apart.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 3 << 20 };

static void fill(uint32_t *words, uint32_t seed)
{
    for (uint32_t i = 0; i < MANY; i++) words[i] = i * 2654435761u + seed;
}

static int sends_much(const void *arg, struct hdf5_pipe *to, struct br_error *error)
{
    static uint32_t words[MANY];
    (void)error;
    fill(words, *(const uint32_t *)arg);
    return hdf5_send(to, words, 100) && hdf5_send(to, (char *)words + 100, sizeof words - 100) ? BR_OK
                                                                                               : BR_E_IO;
}

static int sends_nothing(const void *arg, struct hdf5_pipe *to, struct br_error *error)
{
    (void)arg;
    (void)to;
    (void)error;
    return BR_OK;
}

static int fails(const void *arg, struct hdf5_pipe *to, struct br_error *error)
{
    hdf5_send(to, "half", 4);
    return br_fail(error, BR_E_NO_MEMORY, "%s is too large", (const char *)arg);
}

/* Ends, with something sent that must not be taken for a result. */
static int dies(const void *arg, struct hdf5_pipe *to, struct br_error *error)
{
    static char zeros[100000];
    (void)error;
    hdf5_send(to, zeros, sizeof zeros);
    fprintf(stderr, "this must not be seen\n");
    kill(getpid(), *(const int *)arg);
    return BR_OK;
}

static int leaves(const void *arg, struct hdf5_pipe *to, struct br_error *error)
{
    (void)to;
    (void)error;
    _exit(*(const int *)arg);
    return BR_OK;
}

static int goes_on(const void *arg, struct hdf5_pipe *to, struct br_error *error)
{
    const struct rlimit soon = {1, 2};
    (void)arg;
    (void)to;
    (void)error;
    setrlimit(RLIMIT_CPU, &soon);
    for (volatile unsigned i = 0; i < 2; i = 0) continue;
    return BR_OK;
}

static int open_files(void)
{
    int count = 0;
    DIR *here = opendir("/proc/self/fd");
    while (readdir(here) != NULL) count++;
    closedir(here);
    return count;
}

/* Runs it; nothing is left behind. */
static int run(hdf5_work *work, const void *arg, void **result, size_t *bytes, struct br_error *error)
{
    int before = open_files();
    *error = (struct br_error){0};
    int status = hdf5_apart(work, arg, "x.h5", result, bytes, error);
    assert_int_equal(open_files(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    if (status != BR_OK) {
        assert_null(*result);
        assert_int_equal(*bytes, 0);
        assert_int_equal(status, error->status);
    }
    return status;
}

static void test_results(void **state)
{
    (void)state;
    void *result;
    size_t bytes;
    struct br_error error;
    const uint32_t seed = 7;
    uint32_t *want = malloc(MANY * sizeof *want);
    fill(want, seed);
    assert_int_equal(run(sends_much, &seed, &result, &bytes, &error), BR_OK);
    assert_int_equal(bytes, MANY * sizeof *want);
    assert_memory_equal(result, want, bytes);
    free(result);
    free(want);
    assert_int_equal(run(sends_nothing, NULL, &result, &bytes, &error), BR_OK);
    assert_int_equal(bytes, 0);
    free(result);
    assert_int_equal(run(fails, "x.h5", &result, &bytes, &error), BR_E_NO_MEMORY);
    assert_string_equal(error.text, "x.h5 is too large");
}

static void test_deaths(void **state)
{
    (void)state;
    void *result;
    size_t bytes;
    struct br_error error;
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGKILL, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(run(dies, &signals[i], &result, &bytes, &error), BR_E_FORMAT);
        assert_non_null(strstr(error.text, "x.h5"));
        assert_non_null(strstr(error.text, "damaged"));
        assert_non_null(strstr(error.text, signals[i] == SIGKILL ? "killed" : strsignal(signals[i])));
    }
    for (int code = 0; code < 2; code++) {
        assert_int_equal(run(leaves, &code, &result, &bytes, &error), BR_E_FORMAT);
        assert_non_null(strstr(error.text, "gave up"));
    }
    assert_int_equal(run(goes_on, NULL, &result, &bytes, &error), BR_E_FORMAT);
    assert_non_null(strstr(error.text, "did not come to an end"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_deaths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
