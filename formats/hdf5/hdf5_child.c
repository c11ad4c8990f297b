#include "formats/hdf5/hdf5_child.h"

#include "buffers/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <poll.h>
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
#include <time.h>
#include <unistd.h>

/* The header of a request to the child; the argument follows. */
struct request {
    hdf5_work *work;
    size_t bytes;
};

/* The child answers with pieces, each a length and its bytes; then LAST and this struct. */
struct verdict {
    int status;
    struct br_error error;
};
#define LAST SIZE_MAX

struct hdf5_sink {
    int fd;
};

struct child {
    pid_t pid, parent; /* pid 0: none; parent: a forked process has a copy of this struct, too */
    int fd;
};

/* The child that waits for the next file. A reader takes it out of here. The load of a pipeline and an update
 * of a running one may read at the same time: each then has its own child, and neither waits for the
 * other. */
static struct {
    pthread_mutex_t mutex;
    struct child child;
} idle = {.mutex = PTHREAD_MUTEX_INITIALIZER};

unsigned hdf5_wall_seconds = HDF5_WALL_SECONDS;

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

/* Returns false if the other side has gone, or `deadline` (br_clock_ns; 0: none) has passed. */
static bool receive_all(int fd, void *data, size_t bytes, uint64_t deadline)
{
    for (char *at = data; bytes > 0;) {
        uint64_t now = deadline > 0 ? br_clock_ns() : 0;
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = deadline == 0    ? 1
                    : now < deadline ? poll(&wait, 1, (int)((deadline - now) / 1000000) + 1)
                                     : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
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

/* The child's end of the connection. */
enum { MINE = STDERR_FILENO + 1 };

/* Handles a signal that the connection is readable. If the parent has ended, the child ends too, whatever the
 * library waits for. (PR_SET_PDEATHSIG does not serve: it refers to the thread that forked.) */
static void on_io(int signal)
{
    struct pollfd end = {.fd = MINE, .events = POLLRDHUP};
    (void)signal;
    if (poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLRDHUP)) != 0) _exit(0);
}

/* Prepares the child: fatal signals kill it without output, it ends with the parent, and it closes all
 * descriptors of the parent. */
static void settle(int fd)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGPROF, SIGTERM};
    const struct rlimit no_core = {0, 0};
    const struct sigaction io = {.sa_handler = on_io, .sa_flags = SA_RESTART};
    sigset_t mask;
    sigfillset(&mask); /* interrupts from the terminal are for the parent */
    sigaction(SIGIO, &io, NULL);
    sigdelset(&mask, SIGIO);
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
    fcntl(MINE, F_SETOWN, getpid());
    fcntl(MINE, F_SETFL, O_ASYNC);
    on_io(SIGIO); /* it may have ended already */
}

static _Noreturn void serve(int fd)
{
    static const struct itimerval most = {{0, 0}, {HDF5_SECONDS, 0}}, none;
    struct hdf5_sink to = {MINE};
    const size_t last = LAST;
    struct request request;
    struct verdict verdict = {0};
    settle(fd);
    while (verdict.status == BR_OK && receive_all(to.fd, &request, sizeof request, 0)) {
        void *arg = malloc(request.bytes + 1);
        if (arg == NULL || !receive_all(to.fd, arg, request.bytes, 0)) break;
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

/* Called by HDF5 while it holds its lock, so that no other thread is inside the library when the child gets
 * its copy of it. The child continues from here, as the owner of the lock. */
static herr_t give_birth(hid_t class, const char *property, void *arg)
{
    struct birth *birth = arg;
    (void)class, (void)property;
    birth->pid = fork();
    if (birth->pid == 0) serve(birth->fd);
    return 1; /* the first property is enough */
}

static int begin_child(struct child *child, const char *path, struct br_error *error)
{
    int ends[2], first = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return br_fail(error, BR_E_IO, "%s: no connection to read it through: %s", path, strerror(errno));
    struct birth birth = {.pid = -1, .fd = ends[1]};
    H5Piterate(H5P_DATASET_CREATE, &first, give_birth, &birth);
    int why = errno;
    close(ends[1]);
    *child = (struct child){birth.pid > 0 ? birth.pid : 0, getpid(), ends[0]};
    if (child->pid > 0) return BR_OK;
    close(ends[0]);
    return br_fail(error, BR_E_IO, "%s: no process to read it with: %s", path, strerror(why));
}

/* Ends the child. Returns its status as waitpid does, or 0 if it is unknown. A child that waits for a hanging
 * disk cannot even be killed, so after a second this function no longer waits for it. */
static int end_child(struct child *child, bool at_once)
{
    int how = 0;
    pid_t ended = 0;
    if (child->pid == 0) return 0;
    close(child->fd);
    if (at_once) kill(child->pid, SIGKILL);
    for (int i = 0; i < 1000 && (ended == 0 || (ended < 0 && errno == EINTR)); i++) {
        ended = waitpid(child->pid, &how, WNOHANG);
        if (ended == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    child->pid = 0;
    return ended > 0 ? how : 0;
}

/* Forgets a child that belongs to another process, or that was killed since the last file: the next file must
 * not fail because of it. */
static void forget_lost(struct child *child)
{
    if (child->pid == 0 || (child->parent == getpid() && waitpid(child->pid, NULL, WNOHANG) == 0)) return;
    close(child->fd);
    child->pid = 0;
}

/* Takes the waiting child, if there is one. */
static struct child take_child(void)
{
    pthread_mutex_lock(&idle.mutex);
    forget_lost(&idle.child);
    struct child taken = idle.child;
    idle.child.pid = 0;
    pthread_mutex_unlock(&idle.mutex);
    return taken;
}

/* Lets the child wait for the next file, unless another child already waits. */
static void give_back(struct child *child)
{
    pthread_mutex_lock(&idle.mutex);
    forget_lost(&idle.child);
    if (idle.child.pid == 0) {
        idle.child = *child;
        child->pid = 0;
    }
    pthread_mutex_unlock(&idle.mutex);
    end_child(child, true);
}

void hdf5_apart_end(void)
{
    struct child child = take_child();
    end_child(&child, true);
}

/* Runs before the first use of the library. */
__attribute__((constructor)) static void load(void)
{
    H5dont_atexit();
}

/* Unloading a plugin loses its record of the child, so the child is ended first. If the lock is held, a
 * thread still reads: then the process is ending, and the child ends with it. */
__attribute__((destructor)) static void unload(void)
{
    if (pthread_mutex_trylock(&idle.mutex) != 0) return;
    forget_lost(&idle.child);
    end_child(&idle.child, true);
    pthread_mutex_unlock(&idle.mutex);
}

/* Appends the data from the child to *data, until the child sends its result. *gone: it died before, or
 * `deadline` has passed. */
static int take_result(const struct child *child, uint64_t deadline, char **data, size_t *bytes, bool *gone,
                       const char *path, struct br_error *error)
{
    struct verdict verdict;
    for (;;) {
        size_t more;
        *gone = !receive_all(child->fd, &more, sizeof more, deadline);
        if (*gone || more == LAST) break;
        char *longer = more <= SIZE_MAX - *bytes ? realloc(*data, *bytes + more + 1) : NULL;
        if (longer == NULL)
            return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for what is read of it", path);
        *data = longer;
        *gone = !receive_all(child->fd, *data + *bytes, more, deadline);
        if (*gone) break;
        *bytes += more;
    }
    if (!*gone) *gone = !receive_all(child->fd, &verdict, sizeof verdict, deadline);
    if (*gone) return BR_E_FORMAT;
    return verdict.status == BR_OK ? BR_OK : br_fail(error, verdict.status, "%s", verdict.error.text);
}

/* Reports that the child did not send a result. */
static int say_gone(struct child *child, uint64_t deadline, const char *path, struct br_error *error)
{
    const bool late = br_clock_ns() >= deadline;
    const int how = end_child(child, late);
    if (late)
        return br_fail(error, BR_E_IO,
                       "%s: reading it took more than %u s: the disk does not answer, or the file never ends",
                       path, hdf5_wall_seconds);
    return br_fail(error, BR_E_FORMAT, "%s: the file is damaged: HDF5 did not survive reading it (%s)", path,
                   !WIFSIGNALED(how)          ? "it gave up"
                   : WTERMSIG(how) == SIGPROF ? "it did not end"
                                              : strsignal(WTERMSIG(how)));
}

int hdf5_apart(hdf5_work *work, const void *arg, size_t arg_bytes, const char *path, void **result,
               size_t *bytes, struct br_error *error)
{
    const struct request request = {work, arg_bytes};
    const uint64_t deadline = br_clock_ns() + (uint64_t)hdf5_wall_seconds * 1000000000u;
    struct child child = take_child();
    char *data = NULL;
    bool gone = false;
    int status = BR_OK;
    *result = NULL;
    *bytes = 0;
    if (child.pid == 0) status = begin_child(&child, path, error);
    if (status != BR_OK) return status;
    if (send_all(child.fd, &request, sizeof request) && send_all(child.fd, arg, arg_bytes))
        status = take_result(&child, deadline, &data, bytes, &gone, path, error);
    else
        gone = true;
    if (gone)
        status = say_gone(&child, deadline, path, error);
    else if (status != BR_OK)
        end_child(&child, true); /* it may have left files open */
    else
        give_back(&child);
    if (status == BR_OK) {
        *result = data;
    } else {
        free(data);
        *bytes = 0;
    }
    return status;
}
