/* check_ranks.c - see check_ranks.h. */
#include "tools/beamring/check_ranks.h"

#include "runtime/ranks/hub.h"
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

/* The process that is rank `rank`: its exit status. */
static int be_rank(const struct arguments *a, unsigned rank, int fd, int printed,
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

int check_ranks(const struct arguments *a, int (*check)(const struct arguments *a, struct br_ranks *ranks))
{
    struct child *child = calloc(a->ranks, sizeof *child);
    int *fd = calloc(a->ranks, sizeof *fd), status = 0;
    struct hub *hub = NULL;
    struct br_error error = {0};
    unsigned made = 0;
    for (; child != NULL && fd != NULL && made < a->ranks; made++) {
        int pair[2];
        child[made].printed = memfd_create("check", MFD_CLOEXEC);
        if (child[made].printed < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) break;
        child[made].pid = fork();
        if (child[made].pid == 0) {
            for (unsigned i = 0; i < made; i++) close(fd[i]);
            close(pair[0]);
            _exit(be_rank(a, made, pair[1], child[made].printed, check));
        }
        close(pair[1]);
        fd[made] = pair[0];
        if (child[made].pid < 0) break;
    }
    if (made < a->ranks) {
        fprintf(stderr, "beamring check: --ranks: no more than %u processes can be made: %s\n", made,
                strerror(errno));
        for (unsigned i = 0; fd != NULL && i <= made && i < a->ranks; i++) close(fd[i]);
        status = 1;
    } else if (hub_create(&hub, a->ranks, fd, &error) != BR_OK) {
        fprintf(stderr, "beamring check: %s\n", error.text);
        status = 1;
    }
    for (unsigned i = 0; i < made; i++) {
        int how = 0;
        while (waitpid(child[i].pid, &how, 0) < 0 && errno == EINTR) continue;
        int exited = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
        if (status == 0) status = exited;
    }
    for (unsigned i = 0; i < made; i++)
        if (status == 0)
            show(i, a->ranks, child[i].printed);
        else
            close(child[i].printed);
    hub_destroy(hub, 1);
    free(child);
    free(fd);
    return status;
}
