/* Reading in a process of its own: what it finds arrives, and whatever becomes of it, this process goes on
 * and knows. */
#include "formats/hdf5/hdf5_child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 3 << 20 };

static void fill(uint32_t *words, uint32_t seed)
{
    for (uint32_t i = 0; i < MANY; i++) words[i] = i * 2654435761u + seed;
}

static int sends_much(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    static uint32_t words[MANY];
    (void)error;
    fill(words, *(const uint32_t *)arg);
    return hdf5_send(to, words, 100) && hdf5_send(to, (char *)words + 100, sizeof words - 100) ? BR_OK
                                                                                               : BR_E_IO;
}

static int sends_nothing(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    (void)arg;
    (void)to;
    (void)error;
    return BR_OK;
}

static int fails(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    hdf5_send(to, "half", 4);
    return br_fail(error, BR_E_NO_MEMORY, "%s is too large", (const char *)arg);
}

/* Ends, with something sent that must not be taken for a result. */
static int dies(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    static char zeros[100000];
    (void)error;
    hdf5_send(to, zeros, sizeof zeros);
    fprintf(stderr, "this must not be seen\n");
    kill(getpid(), *(const int *)arg);
    return BR_OK;
}

static int leaves(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    (void)to;
    (void)error;
    _exit(*(const int *)arg);
    return BR_OK;
}

/* The limit is a timer; this is a shorter one. */
static int goes_on(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    static const struct itimerval soon = {{0, 0}, {0, 200000}};
    struct itimerval limit;
    (void)arg;
    (void)to;
    getitimer(ITIMER_PROF, &limit);
    if (limit.it_value.tv_sec < 1 || limit.it_value.tv_sec > HDF5_SECONDS)
        return br_fail(error, BR_E_INTERNAL, "there is no limit");
    setitimer(ITIMER_PROF, &soon, NULL);
    for (volatile unsigned i = 0; i < 2; i = 0) continue;
    return BR_OK;
}

static int tells_its_number(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const pid_t me = getpid();
    (void)error;
    return hdf5_send(to, &me, sizeof me) ? *(const int *)arg : BR_E_IO;
}

static int open_files(void)
{
    int count = 0;
    DIR *here = opendir("/proc/self/fd");
    while (readdir(here) != NULL) count++;
    closedir(here);
    return count;
}

/* Runs it in a child of its own; nothing is left behind. */
static int run(hdf5_work *work, const void *arg, size_t arg_bytes, void **result, size_t *bytes,
               struct br_error *error)
{
    hdf5_apart_end();
    int before = open_files();
    *error = (struct br_error){0};
    int status = hdf5_apart(work, arg, arg_bytes, "x.h5", result, bytes, error);
    if (status != BR_OK) {
        assert_null(*result);
        assert_int_equal(*bytes, 0);
        assert_int_equal(status, error->status);
    } else {
        hdf5_apart_end();
    }
    assert_int_equal(open_files(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
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
    assert_int_equal(run(sends_much, &seed, sizeof seed, &result, &bytes, &error), BR_OK);
    assert_int_equal(bytes, MANY * sizeof *want);
    assert_memory_equal(result, want, bytes);
    free(result);
    free(want);
    assert_int_equal(run(sends_nothing, "", 0, &result, &bytes, &error), BR_OK);
    assert_int_equal(bytes, 0);
    free(result);
    assert_int_equal(run(fails, "x.h5", 5, &result, &bytes, &error), BR_E_NO_MEMORY);
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
        assert_int_equal(run(dies, &signals[i], sizeof *signals, &result, &bytes, &error), BR_E_FORMAT);
        assert_non_null(strstr(error.text, "x.h5"));
        assert_non_null(strstr(error.text, "damaged"));
        assert_non_null(strstr(error.text, strsignal(signals[i])));
    }
    for (int code = 0; code < 2; code++) {
        assert_int_equal(run(leaves, &code, sizeof code, &result, &bytes, &error), BR_E_FORMAT);
        assert_non_null(strstr(error.text, "gave up"));
    }
    assert_int_equal(run(goes_on, "", 0, &result, &bytes, &error), BR_E_FORMAT);
    assert_non_null(strstr(error.text, "did not end"));
}

/* One child for file after file, until anything is wrong with one, or with the child. */
static void test_the_next_file(void **state)
{
    (void)state;
    void *result;
    size_t bytes;
    struct br_error error = {0};
    static const int good = BR_OK, bad = BR_E_FORMAT;
    pid_t first = 0, now;
    for (int i = 0; i < 6; i++) {
        if (i == 3)
            assert_int_equal(hdf5_apart(tells_its_number, &bad, sizeof bad, "x.h5", &result, &bytes, &error),
                             bad);
        if (i == 5) {
            kill(first, SIGKILL);
            waitpid(first, NULL, 0);
        }
        assert_int_equal(hdf5_apart(tells_its_number, &good, sizeof good, "x.h5", &result, &bytes, NULL),
                         BR_OK);
        assert_int_equal(bytes, sizeof now);
        memcpy(&now, result, sizeof now);
        free(result);
        assert_true(now != getpid());
        if (i == 0 || i == 3 || i == 5)
            assert_true(now != first);
        else
            assert_int_equal(now, first);
        first = now;
    }
    hdf5_apart_end();
    assert_int_equal(kill(now, 0), -1);
}

/* A process that was forked leaves its parent's child alone, and has one of its own. */
static void test_another_process(void **state)
{
    (void)state;
    void *result;
    size_t bytes;
    pid_t first, later;
    static const int good = BR_OK;
    assert_int_equal(hdf5_apart(tells_its_number, &good, sizeof good, "x.h5", &result, &bytes, NULL), BR_OK);
    memcpy(&first, result, sizeof first);
    free(result);
    pid_t fork_of_this = fork();
    if (fork_of_this == 0) {
        bool own = hdf5_apart(tells_its_number, &good, sizeof good, "x.h5", &result, &bytes, NULL) == BR_OK &&
                   memcmp(result, &first, sizeof first) != 0;
        hdf5_apart_end();
        _exit(own ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(fork_of_this, &how, 0), fork_of_this);
    assert_int_equal(how, 0);
    assert_int_equal(hdf5_apart(tells_its_number, &good, sizeof good, "x.h5", &result, &bytes, NULL), BR_OK);
    memcpy(&later, result, sizeof later);
    free(result);
    assert_int_equal(later, first);
    hdf5_apart_end();
}

/* --- other threads --- */

static int uses_the_library(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    (void)error;
    bool good = list >= 0 && H5Pclose(list) >= 0 && hdf5_send(to, arg, sizeof(int));
    return good ? BR_OK : BR_E_IO;
}

static atomic_bool enough;

/* Is nearly always within the library, as a stage may be that writes files while an update reads one. */
static void *keeps_it_busy(void *arg)
{
    while (!atomic_load(&enough)) {
        hid_t list = H5Pcreate(H5P_FILE_ACCESS);
        H5Pset_alignment(list, 0, 4096);
        H5Pclose(list);
    }
    return arg;
}

static void *reads(void *arg)
{
    for (int i = 0; i < 60; i++) {
        void *result;
        size_t bytes;
        assert_int_equal(hdf5_apart(uses_the_library, &i, sizeof i, "x.h5", &result, &bytes, NULL), BR_OK);
        assert_int_equal(bytes, sizeof i);
        assert_memory_equal(result, &i, sizeof i);
        free(result);
        if (i % 2 == 0) hdf5_apart_end();
    }
    return arg;
}

static void test_other_threads(void **state)
{
    hbool_t safe = 0;
    (void)state;
    if (H5is_library_threadsafe(&safe) < 0 || !safe) skip();
    pthread_t busy[2], reader[2];
    alarm(120); /* a child that waits for a lock of a thread that it does not have waits for ever */
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&busy[i], NULL, keeps_it_busy, NULL), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&reader[i], NULL, reads, NULL), 0);
    for (int i = 0; i < 2; i++) pthread_join(reader[i], NULL);
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++) pthread_join(busy[i], NULL);
    alarm(0);
    hdf5_apart_end();
}

/* Says who it is, and then waits for ever, as for a disk that does not answer. */
static int hangs(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const pid_t me = getpid();
    (void)to;
    (void)error;
    if (write(*(const int *)arg, &me, sizeof me) == sizeof me)
        for (;;) pause();
    return BR_OK;
}

/* In the child there is nothing open of the parent: so a pipe by its name. */
static int hangs_at(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const int pipe = open(arg, O_WRONLY);
    return hangs(&pipe, to, error);
}

struct hanging {
    const char *pipe;
    int status;
    struct br_error error;
};

static void *reads_what_hangs(void *arg)
{
    struct hanging *h = arg;
    void *result;
    size_t bytes;
    h->status = hdf5_apart(hangs_at, h->pipe, strlen(h->pipe) + 1, "x.h5", &result, &bytes, &h->error);
    return NULL;
}

/* A file that does not come to an end is refused after the limit, and its child is gone; others are read
 * meanwhile. */
static void test_the_clock(void **state)
{
    char path[] = "/tmp/beamring-child-XXXXXX";
    struct hanging hanging = {.pipe = path};
    pthread_t thread;
    pid_t child;
    (void)state;
    assert_true(mkdtemp(path) != NULL && rmdir(path) == 0 && mkfifo(path, 0600) == 0);
    for (int round = 0; round < 2; round++) {
        hdf5_wall_seconds = round == 0 ? 1000000 : 1;
        hanging.error = (struct br_error){0};
        assert_int_equal(pthread_create(&thread, NULL, reads_what_hangs, &hanging), 0);
        int fd = open(path, O_RDONLY);
        assert_int_equal(read(fd, &child, sizeof child), sizeof child);
        for (int i = 0; round == 0 && i < 3; i++) {
            struct br_error error;
            void *result;
            size_t bytes;
            assert_int_equal(hdf5_apart(uses_the_library, &i, sizeof i, "y.h5", &result, &bytes, &error),
                             BR_OK);
            free(result);
        }
        if (round == 0) assert_int_equal(kill(child, SIGKILL), 0);
        pthread_join(thread, NULL);
        assert_int_equal(hanging.status, round == 0 ? BR_E_FORMAT : BR_E_IO);
        if (round == 1) assert_non_null(strstr(hanging.error.text, "x.h5: reading it took more than 1 s"));
        assert_true(kill(child, 0) != 0 && errno == ESRCH);
        close(fd);
    }
    hdf5_wall_seconds = HDF5_WALL_SECONDS;
    unlink(path);
    hdf5_apart_end();
}

/* A process that is killed while it reads takes the child with it, whichever thread has forked it. */
static void test_a_killed_parent(void **state)
{
    char path[] = "/tmp/beamring-child-XXXXXX";
    pid_t child;
    (void)state;
    assert_true(mkdtemp(path) != NULL && rmdir(path) == 0 && mkfifo(path, 0600) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct hanging hanging = {.pipe = path};
        pthread_t thread;
        pthread_create(&thread, NULL, reads_what_hangs, &hanging);
        for (;;) pause();
    }
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, &child, sizeof child), sizeof child);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(read(fd, &child, 1), 0); /* until the child's end is closed: it is gone */
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_the_next_file),  cmocka_unit_test(test_another_process),
        cmocka_unit_test(test_other_threads),  cmocka_unit_test(test_the_clock),
        cmocka_unit_test(test_a_killed_parent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
