#include "stages/common/hdf5_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The last thing that a child sends: whoever died before has not sent it. */
struct verdict {
    int status;
    struct br_error error;
};

struct hdf5_pipe {
    int fd;
};

bool hdf5_send(struct hdf5_pipe *to, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = write(to->fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* The child: dies quietly, of what it is meant to die of, and not after its parent. */
static _Noreturn void work_as_child(hdf5_work *work, const void *arg, int fd, pid_t parent)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGXCPU, SIGPIPE};
    const struct rlimit seconds = {HDF5_SECONDS, HDF5_SECONDS + 5}, no_core = {0, 0};
    struct hdf5_pipe to = {fd};
    struct verdict verdict = {0};
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        signal(deadly[i], SIG_DFL);
        sigaddset(&mask, deadly[i]);
    }
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    /* What is said on the way down is no help. */
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    verdict.status = work(arg, &to, &verdict.error);
    _exit(hdf5_send(&to, &verdict, sizeof verdict) ? 0 : 1);
}

/* All that comes until the other end is closed. */
static int receive(int fd, char **data, size_t *bytes, const char *path, struct br_error *error)
{
    size_t room = 0;
    for (;;) {
        if (*bytes == room) {
            room = room == 0 ? 1 << 16 : 2 * room;
            char *more = realloc(*data, room);
            if (more == NULL)
                return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for what is read of it", path);
            *data = more;
        }
        ssize_t n = read(fd, *data + *bytes, room - *bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return br_fail(error, BR_E_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0) return BR_OK;
        *bytes += (size_t)n;
    }
}

/* How it ended; 0 when that is not known. */
static int wait_for_child(pid_t child)
{
    int how = 0;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR) return 0;
    return how;
}

/* What the child found, if it came to an end. */
static int judge(const char *data, size_t *bytes, int how, const char *path, struct br_error *error)
{
    struct verdict verdict;
    if (*bytes < sizeof verdict || (WIFEXITED(how) && WEXITSTATUS(how) != 0) || WIFSIGNALED(how))
        return br_fail(error, BR_E_FORMAT, "%s: the file is damaged: HDF5 did not survive reading it (%s)",
                       path,
                       !WIFSIGNALED(how)          ? "it gave up"
                       : WTERMSIG(how) == SIGXCPU ? "it did not come to an end"
                       : WTERMSIG(how) == SIGKILL ? "it was killed"
                                                  : strsignal(WTERMSIG(how)));
    *bytes -= sizeof verdict;
    memcpy(&verdict, data + *bytes, sizeof verdict);
    return verdict.status == BR_OK ? BR_OK : br_fail(error, verdict.status, "%s", verdict.error.text);
}

int hdf5_apart(hdf5_work *work, const void *arg, const char *path, void **result, size_t *bytes,
               struct br_error *error)
{
    int ends[2];
    char *data = NULL;
    *result = NULL;
    *bytes = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return br_fail(error, BR_E_IO, "%s: no pipe to read it through: %s", path, strerror(errno));
    H5open(); /* its tables are made here once, not by each child: 3 ms */
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        work_as_child(work, arg, ends[1], parent);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return br_fail(error, BR_E_IO, "%s: no process to read it with: %s", path, strerror(errno));
    }
    int status = receive(ends[0], &data, bytes, path, error);
    close(ends[0]); /* if that failed, the child's next write ends it */
    const int how = wait_for_child(child);
    if (status == BR_OK) status = judge(data, bytes, how, path, error);
    if (status == BR_OK) {
        *result = data;
    } else {
        free(data);
        *bytes = 0;
    }
    return status;
}
