/* check_ranks.c - see check_ranks.h. */
#include "tools/beamring/check_ranks.h"

#include "runtime/ranks/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    pid_t pid;
    int printed; /* a file in memory */
};

/* The process that is rank `rank`, with its sockets to others: its exit status. */
static int be_rank(const struct arguments *a, unsigned rank, const int *fd, int printed,
                   int (*check)(const struct arguments *a, struct br_ranks *ranks))
{
    struct br_ranks *ranks;
    struct br_log log;
    struct br_error error = {0};
    br_log_init(&log, stderr, BR_LOG_NOTE);
    log.rank = (int)rank;
    if (dup2(printed, STDOUT_FILENO) < 0 ||
        br_ranks_start_on(&ranks, rank, a->ranks, fd, &log, &error) != BR_OK) {
        fprintf(stderr, "beamring check: rank %u: %s\n", rank,
                error.text[0] != '\0' ? error.text : strerror(errno));
        return 1;
    }
    int status = check(a, ranks);
    fflush(stdout);
    status = br_ranks_leave(ranks, status);
    br_log_destroy(&log);
    return status;
}

static void show(unsigned rank, unsigned ranks, int printed)
{
    char text[65536];
    ssize_t n;
    printf("%srank %u of %u\n\n", rank > 0 ? "\n" : "", rank, ranks);
    lseek(printed, 0, SEEK_SET);
    while ((n = read(printed, text, sizeof text)) > 0) fwrite(text, 1, (size_t)n, stdout);
    close(printed);
}

/* Begins a process for each rank, rank 0 last, which has the other ends of all sockets. False, with errno: no
 * more processes can be made. */
static bool begin(const struct arguments *a, struct child *child, int *fd,
                  int (*check)(const struct arguments *a, struct br_ranks *ranks))
{
    for (unsigned r = a->ranks; r-- > 0;) {
        int pair[2] = {-1, -1};
        child[r].printed = memfd_create("check", MFD_CLOEXEC);
        if (child[r].printed < 0) return false;
        if (r > 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
        fd[r] = pair[0];
        child[r].pid = fork();
        if (child[r].pid == 0) {
            for (unsigned i = r; r > 0 && i < a->ranks; i++) close(fd[i]);
            _exit(be_rank(a, r, r > 0 ? &pair[1] : fd, child[r].printed, check));
        }
        if (r > 0) close(pair[1]);
        if (child[r].pid < 0) return false;
    }
    return true;
}

int check_ranks(const struct arguments *a, int (*check)(const struct arguments *a, struct br_ranks *ranks))
{
    struct child *child = calloc(a->ranks, sizeof *child);
    int *fd = calloc(a->ranks, sizeof *fd), status = 0;
    for (unsigned r = 0; fd != NULL && r < a->ranks; r++) fd[r] = -1;
    if (child == NULL || fd == NULL || !begin(a, child, fd, check)) {
        fprintf(stderr, "beamring check: --ranks: not as many as %u processes can be made: %s\n", a->ranks,
                strerror(errno));
        status = 1;
    }
    for (unsigned r = 0; fd != NULL && r < a->ranks; r++)
        if (fd[r] >= 0) close(fd[r]); /* where rank 0 has not begun, the others end */
    for (unsigned r = 0; child != NULL && r < a->ranks; r++) {
        int how = 0;
        if (child[r].pid <= 0) continue;
        while (waitpid(child[r].pid, &how, 0) < 0 && errno == EINTR) continue;
        int exited = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
        if (status == 0) status = exited;
    }
    for (unsigned r = 0; status == 0 && r < a->ranks; r++) show(r, a->ranks, child[r].printed);
    free(child);
    free(fd);
    return status;
}
