/* Ranks without MPI: posts of each reach all others, whole and in order; all have what all give, if only
 * nothing; a rank that dies is named. */
#include "runtime/ranks/ranks.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 5, POSTS = 60, CHANNELS = 2, LARGE = 300000 };

static size_t size_of(unsigned from, unsigned channel, unsigned i)
{
    return i % 20 == 7 ? LARGE : 1 + (from * 31 + channel * 7 + i * 13) % 500;
}

static unsigned char byte_of(unsigned from, unsigned channel, unsigned i, size_t at)
{
    return (unsigned char)(from * 71 + channel * 37 + i * 5 + at);
}

static bool say_all(struct br_ranks *ranks, unsigned me)
{
    unsigned char *data = malloc(LARGE);
    struct br_error error = {0};
    bool ok = data != NULL;
    for (unsigned i = 0; ok && i < POSTS; i++)
        for (unsigned c = 0; ok && c < CHANNELS; c++) {
            size_t bytes = size_of(me, c, i);
            for (size_t k = 0; k < bytes; k++) data[k] = byte_of(me, c, i, k);
            ok = br_ranks_post(ranks, c, data, bytes, &error) == BR_OK;
        }
    free(data);
    return ok;
}

/* Whether the next posts of `from`, as many as there are, are those that it sent. */
static bool hear(struct br_ranks *ranks, unsigned from, unsigned channel, unsigned *next)
{
    const unsigned char *post;
    size_t bytes;
    while ((post = br_ranks_next_post(ranks, channel, from, &bytes)) != NULL) {
        bool ok = *next < POSTS && bytes == size_of(from, channel, *next);
        for (size_t k = 0; ok && k < bytes; k++) ok = post[k] == byte_of(from, channel, *next, k);
        if (!ok) fprintf(stderr, "post %u of rank %u, channel %u is another one\n", *next, from, channel);
        if (!ok) return false;
        br_ranks_drop_post(ranks, channel, from);
        ++*next;
    }
    return true;
}

static bool hear_all(struct br_ranks *ranks, unsigned me)
{
    unsigned next[RANKS][CHANNELS] = {0};
    struct br_error error;
    for (unsigned left = 1; left > 0;) {
        uint64_t seen = br_ranks_events(ranks);
        left = 0;
        for (unsigned r = 0; r < RANKS; r++)
            for (unsigned c = 0; c < CHANNELS && r != me; c++) {
                if (!hear(ranks, r, c, &next[r][c])) return false;
                left += POSTS - next[r][c];
            }
        if (left > 0 && br_ranks_await(ranks, seen, 1000000000, &error) != BR_OK) {
            fprintf(stderr, "rank %u: %s\n", me, error.text);
            return false;
        }
    }
    size_t bytes;
    return br_ranks_next_post(ranks, 0, me, &bytes) == NULL; /* its own go to the others only */
}

/* Each rank gives as many bytes as its number says: rank 0 none. */
static bool gather_all(struct br_ranks *ranks, unsigned me)
{
    unsigned char mine[RANKS];
    struct br_ranks_part *part;
    struct br_error error = {0};
    memset(mine, (int)me, sizeof mine);
    bool ok = br_ranks_gather(ranks, mine, me, &part, &error) == BR_OK;
    for (unsigned r = 0; ok && r < RANKS; r++) {
        ok = part[r].bytes == r;
        for (unsigned k = 0; ok && k < r; k++) ok = part[r].data[k] == r;
    }
    if (!ok) fprintf(stderr, "rank %u has not what all gave: %s\n", me, error.text);
    free(part);
    return ok;
}

/* In a process of its own: the exit status. */
static int be_rank(unsigned me, const char *address, unsigned dies)
{
    char text[16];
    struct br_ranks *ranks;
    struct br_log log;
    struct br_error error = {0};
    snprintf(text, sizeof text, "%u", me);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%u", RANKS);
    setenv("RANKS", text, 1);
    br_log_init(&log, stderr, BR_LOG_NOTE);
    if (br_ranks_start_join(&ranks, address, &log, &error) != BR_OK) {
        fprintf(stderr, "rank %u: %s\n", me, error.text);
        return 3;
    }
    int status = br_ranks_agree(ranks, 1, &error);
    if (me == dies) raise(SIGKILL);
    if (dies < RANKS) {
        char named[32];
        snprintf(named, sizeof named, "rank %u has ended", dies);
        /* It may die before all others have heard that all agree. */
        while (status == BR_OK) {
            bool told =
                br_ranks_post(ranks, 0, &me, sizeof me, NULL) == BR_OK; /* none waits for who is gone */
            status = br_ranks_await(ranks, br_ranks_events(ranks), told ? 1000000 : 1000000000, &error);
        }
        return br_ranks_leave(ranks, 1) == 1 && strstr(error.text, named) != NULL ? 0 : 5;
    }
    bool ok = status == BR_OK && gather_all(ranks, me) && say_all(ranks, me) && hear_all(ranks, me);
    return br_ranks_leave(ranks, ok ? 0 : 6);
}

/* Runs a job at a port that this process holds until the end, so that nobody else takes it. */
static void run(unsigned dies)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof a;
    char address[32];
    pid_t pid[RANKS];
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &length), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(a.sin_port));
    fflush(NULL);
    for (unsigned r = 0; r < RANKS; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0) _exit(be_rank(r, address, dies));
    }
    for (unsigned r = 0; r < RANKS; r++) {
        int status = -1;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (r == dies)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    close(fd);
}

static void test_all_are_heard(void **state)
{
    (void)state;
    run(RANKS);
}

static void test_who_dies_is_named(void **state)
{
    (void)state;
    run(3);
    run(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_are_heard),
                                       cmocka_unit_test(test_who_dies_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
