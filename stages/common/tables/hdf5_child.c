#include "stages/common/tables/hdf5_child.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* To the child: this, and the argument. */
struct request {
    hdf5_work *work;
    size_t bytes;
};

/* From the child: lengths and so many bytes each; at the end LAST and this. */
struct verdict {
    int status;
    struct br_error error;
};
#define LAST SIZE_MAX

struct hdf5_sink {
    int fd;
};

static struct {
    pthread_mutex_t mutex; /* a pipeline that is loaded and an update of one that runs may read at a time */
    pid_t pid, parent;     /* 0: there is none; whose it is: a process that was forked has a copy of this */
    int fd;
} child = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* --- both sides ----------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* false: the other side has gone. */
static bool receive_all(int fd, void *data, size_t bytes)
{
    for (char *at = data; bytes > 0;) {
        ssize_t n = recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* --- the child ------------------------------------------------------------------------------------ */

bool hdf5_send(struct hdf5_sink *to, const void *data, size_t bytes)
{
    return send_all(to->fd, &bytes, sizeof bytes) && send_all(to->fd, data, bytes);
}

/* Dies quietly and of what it is meant to die of; keeps nothing of the parent's open. Returns its end of the
 * connection. */
static int settle(int fd)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGPROF, SIGTERM};
    const struct rlimit no_core = {0, 0};
    enum { MINE = STDERR_FILENO + 1 };
    sigset_t mask;
    sigfillset(&mask); /* an interrupt from the terminal is the parent's */
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        signal(deadly[i], SIG_DFL);
        sigdelset(&mask, deadly[i]);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    setrlimit(RLIMIT_CORE, &no_core);
    if (fd != MINE) dup2(fd, MINE);
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < MINE && nowhere >= 0; i++) dup2(nowhere, i);
    syscall(SYS_close_range, MINE + 1u, ~0u, 0u);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return MINE;
}

static _Noreturn void serve(int fd)
{
    static const struct itimerval most = {{0, 0}, {HDF5_SECONDS, 0}}, none;
    struct hdf5_sink to = {settle(fd)};
    const size_t last = LAST;
    struct request request;
    struct verdict verdict = {0};
    while (verdict.status == BR_OK && receive_all(to.fd, &request, sizeof request)) {
        void *arg = malloc(request.bytes + 1);
        if (arg == NULL || !receive_all(to.fd, arg, request.bytes)) break;
        setitimer(ITIMER_PROF, &most, NULL); /* its signal is deadly */
        verdict.status = request.work(arg, &to, &verdict.error);
        setitimer(ITIMER_PROF, &none, NULL);
        free(arg);
        if (!send_all(to.fd, &last, sizeof last) || !send_all(to.fd, &verdict, sizeof verdict)) break;
    }
    _exit(0);
}

/* --- the parent ----------------------------------------------------------------------------------- */

struct birth {
    pid_t pid;
    int fd;
};

/* Called by HDF5, which holds its lock meanwhile: so no other thread is within the library when the child
 * gets its copy of it. The child goes on from here, as the lock's owner. */
static herr_t give_birth(hid_t class, const char *property, void *arg)
{
    struct birth *birth = arg;
    (void)class, (void)property;
    birth->pid = fork();
    if (birth->pid == 0) serve(birth->fd);
    return 1; /* the first property is enough */
}

static int begin_child(const char *path, struct br_error *error)
{
    int ends[2], first = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return br_fail(error, BR_E_IO, "%s: no connection to read it through: %s", path, strerror(errno));
    struct birth birth = {.pid = -1, .fd = ends[1]};
    H5Piterate(H5P_DATASET_CREATE, &first, give_birth, &birth);
    child.pid = birth.pid;
    child.parent = getpid();
    close(ends[1]);
    child.fd = ends[0];
    if (child.pid > 0) return BR_OK;
    child.pid = 0;
    close(ends[0]);
    return br_fail(error, BR_E_IO, "%s: no process to read it with: %s", path, strerror(errno));
}

/* Returns how it ended, as waitpid does; 0 when that is not known. */
static int end_child(bool at_once)
{
    int how = 0;
    if (child.pid == 0) return 0;
    if (at_once) kill(child.pid, SIGKILL);
    close(child.fd);
    while (waitpid(child.pid, &how, 0) < 0)
        if (errno != EINTR) {
            how = 0;
            break;
        }
    child.pid = 0;
    return how;
}

/* Forgets one that is another process's, or that has been killed since the last file: that is not the
 * fault of the next one. */
static void forget_lost(void)
{
    if (child.pid == 0 || (child.parent == getpid() && waitpid(child.pid, NULL, WNOHANG) == 0)) return;
    close(child.fd);
    child.pid = 0;
}

void hdf5_apart_end(void)
{
    pthread_mutex_lock(&child.mutex);
    forget_lost();
    end_child(true);
    pthread_mutex_unlock(&child.mutex);
}

/* With a plugin that is unloaded goes what is known of the child. Where a thread still reads, the process
 * ends, and the child with it. */
__attribute__((destructor)) static void unload(void)
{
    if (pthread_mutex_trylock(&child.mutex) != 0) return;
    forget_lost();
    end_child(true);
    pthread_mutex_unlock(&child.mutex);
}

/* Adds what the child sends to *data, until it has come to a verdict. *gone: it died instead. */
static int take_result(char **data, size_t *bytes, bool *gone, const char *path, struct br_error *error)
{
    struct verdict verdict;
    for (;;) {
        size_t more;
        *gone = !receive_all(child.fd, &more, sizeof more);
        if (*gone || more == LAST) break;
        char *longer = more <= SIZE_MAX - *bytes ? realloc(*data, *bytes + more + 1) : NULL;
        if (longer == NULL)
            return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for what is read of it", path);
        *data = longer;
        *gone = !receive_all(child.fd, *data + *bytes, more);
        if (*gone) break;
        *bytes += more;
    }
    if (!*gone) *gone = !receive_all(child.fd, &verdict, sizeof verdict);
    if (*gone) return BR_E_FORMAT;
    return verdict.status == BR_OK ? BR_OK : br_fail(error, verdict.status, "%s", verdict.error.text);
}

static int run_apart(hdf5_work *work, const void *arg, size_t arg_bytes, const char *path, void **result,
                     size_t *bytes, struct br_error *error)
{
    const struct request request = {work, arg_bytes};
    char *data = NULL;
    bool gone = false;
    int status = BR_OK;
    *result = NULL;
    *bytes = 0;
    forget_lost();
    if (child.pid == 0) status = begin_child(path, error);
    if (status != BR_OK) return status;
    if (send_all(child.fd, &request, sizeof request) && send_all(child.fd, arg, arg_bytes))
        status = take_result(&data, bytes, &gone, path, error);
    else
        gone = true;
    if (gone) {
        const int how = end_child(false);
        status =
            br_fail(error, BR_E_FORMAT, "%s: the file is damaged: HDF5 did not survive reading it (%s)", path,
                    !WIFSIGNALED(how)          ? "it gave up"
                    : WTERMSIG(how) == SIGPROF ? "it did not come to an end"
                                               : strsignal(WTERMSIG(how)));
    } else if (status != BR_OK) {
        end_child(true); /* who knows what it has left open */
    }
    if (status == BR_OK) {
        *result = data;
    } else {
        free(data);
        *bytes = 0;
    }
    return status;
}

int hdf5_apart(hdf5_work *work, const void *arg, size_t arg_bytes, const char *path, void **result,
               size_t *bytes, struct br_error *error)
{
    pthread_mutex_lock(&child.mutex);
    int status = run_apart(work, arg, arg_bytes, path, result, bytes, error);
    pthread_mutex_unlock(&child.mutex);
    return status;
}
