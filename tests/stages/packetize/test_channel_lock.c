/* Locks on a destination's channels, by several processes at once. */
#include "stages/packetize/channel_lock.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/beamring-channels-XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL || setenv("XDG_RUNTIME_DIR", directory, 1) != 0;
}

/* Fails where a file was left behind. */
static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

#define TAKE(lock, error, ...)                                                                               \
    channel_lock_take(lock, "127.0.0.1:9", (const int64_t[]){__VA_ARGS__},                                   \
                      sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), error)

static void channels_of_others(void **state)
{
    (void)state;
    struct file_lock one = {.fd = -1}, two = {.fd = -1}, elsewhere = {.fd = -1};
    struct br_error error = {0};
    const int64_t five = 5;
    assert_int_equal(TAKE(&one, &error, 7, 3, 5, 4), BR_OK);
    assert_int_equal(TAKE(&two, &error, 1, 2, 9, 7, 8), BR_E_INVALID);
    assert_non_null(strstr(error.text, "some of the channels 7 to 9"));
    assert_int_equal(two.fd, -1);
    error = (struct br_error){0};
    assert_int_equal(TAKE(&two, &error, 6, 1, 2, 0), BR_OK);
    assert_int_equal(channel_lock_take(&elsewhere, "127.0.0.1:10", &five, 1, &error), BR_OK);
    assert_string_not_equal(one.path, elsewhere.path);
    assert_string_equal(error.text, "");
    file_lock_release(&one);
    assert_int_equal(one.fd, -1);
    struct stat there;
    assert_int_equal(stat(two.path, &there), 0); /* it is still needed */
    assert_int_equal(TAKE(&one, &error, 3, 4, 5, 7), BR_OK);
    file_lock_release(&one);
    file_lock_release(&two);
    file_lock_release(&two);
    assert_int_equal(stat(two.path, &there), -1);
    file_lock_release(&elsewhere);
}

/* If the lock's file cannot be opened or created, the state is unknown and the message says so. */
static void no_file(void **state)
{
    (void)state;
    struct file_lock lock = {.fd = -1};
    struct br_error error = {0};
    char path[128];
    const int64_t channel = 1;
    snprintf(path, sizeof path, "%s/beamring-frb-node-x.lock", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(channel_lock_take(&lock, "x", &channel, 1, &error), BR_E_IO);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(lock.fd, -1);
    assert_int_equal(rmdir(path), 0);
}

/* Senders that come and go: one that has channels of its own is never refused, and of two that want the same
 * one never both have it. */
static void comings_and_goings(void **state)
{
    (void)state;
    enum { OWN = 3, SHARING = 5, ROUNDS = 1000 };
    atomic_int *seen =
        mmap(NULL, 3 * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    atomic_int *holders = seen, *refused = seen + 1, *both = seen + 2;
    pid_t child[OWN + SHARING];
    for (int i = 0; i < OWN + SHARING; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] != 0) continue;
        const bool shares = i >= OWN;
        for (int round = 0; round < ROUNDS; round++) {
            struct file_lock lock = {.fd = -1};
            int status = TAKE(&lock, NULL, shares ? 100 : 2 * i);
            if (status != BR_OK) {
                if (!shares) atomic_fetch_add(refused, 1);
                continue;
            }
            if (shares && atomic_fetch_add(holders, 1) != 0) atomic_fetch_add(both, 1);
            for (int n = 0; shares && n < 5; n++) sched_yield(); /* lets another one make the mistake */
            if (shares) atomic_fetch_sub(holders, 1);
            file_lock_release(&lock);
        }
        _exit(0);
    }
    for (int i = 0; i < OWN + SHARING; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(atomic_load(refused), 0);
    assert_int_equal(atomic_load(both), 0);
    munmap(seen, 3 * sizeof *seen);
}

/* In a folder for everybody somebody else may have put a link to a file of the user's there. */
static void links_are_not_followed(void **state)
{
    (void)state;
    struct file_lock lock = {.fd = -1};
    struct br_error error = {0};
    char target[128];
    struct stat there;
    assert_int_equal(TAKE(&lock, &error, 1), BR_OK); /* says the path */
    file_lock_release(&lock);
    snprintf(target, sizeof target, "%s/target", directory);
    assert_int_equal(symlink(target, lock.path), 0);
    assert_int_equal(TAKE(&lock, &error, 1), BR_E_IO);
    assert_non_null(strstr(error.text, "is a symbolic link"));
    assert_int_equal(lock.fd, -1);
    assert_int_equal(stat(target, &there), -1);
    assert_int_equal(unlink(lock.path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(channels_of_others),
                                       cmocka_unit_test(links_are_not_followed), cmocka_unit_test(no_file),
                                       cmocka_unit_test(comings_and_goings)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
