/* mpi.c - see mpi.h. */
#include "runtime/ranks/mpi.h"

#include "buffers/clock.h"
#include "buffers/threads.h"

#include <mpi.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the thread looks without a pause after something has happened, while messages are under way (one
 * that goes through shared memory in pieces needs somebody who looks often) and while none are (where NCCL
 * carries the data, posts can wait), and how long it then sleeps. */
#define EAGER_NS  2000000u
#define LOITER_NS 100000u
#define NAP_NS    50000u

/* A call of MPI that takes longer does not return: Open MPI waits for mpirun to print what it has to say of a
 * lost connection, and mpirun is busy ending the job. */
#define HALT_NS 1000000000u

static struct mpi_host host;
static pthread_t thread;
static sem_t asked, answered; /* share; start and share */
static void *shared;
static size_t shared_bytes;
static bool ok; /* what was asked for */
static _Atomic bool halted, quit, finalizes;
static char why[MPI_MAX_ERROR_STRING + 100];

static pthread_mutex_t submitting = PTHREAD_MUTEX_INITIALIZER;
static struct br_message *first, **last = &first; /* submitted, not begun */

static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER; /* while MPI is called for messages: what follows */
static MPI_Comm comm, posts;                              /* posts come unasked for */
static struct br_message **message;                       /* [active], which have begun */
static MPI_Request *request;                              /* of each of them */
static int *done_at;
static int active, capacity;

static bool has_failed(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return false;
    MPI_Error_string(code, text, &length);
    snprintf(why, sizeof why, "%s: %s", call, text);
    return true;
}

static bool init(void)
{
    int level, rank, ranks, local;
    MPI_Comm machine;
    if (has_failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread")) return false;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_dup(comm, &posts);
    MPI_Comm_set_errhandler(posts, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &local);
    MPI_Comm_free(&machine);
    *host.rank = (unsigned)rank;
    *host.ranks = (unsigned)ranks;
    *host.local = (unsigned)local;
    return true;
}

/* Makes room for one more message under way. */
static bool has_room(void)
{
    if (active < capacity) return true;
    size_t more = 2 * (size_t)capacity + 64;
    struct br_message **m = realloc(message, more * sizeof(struct br_message *));
    if (m != NULL) message = m;
    MPI_Request *r = realloc(request, more * sizeof *r);
    if (r != NULL) request = r;
    int *d = realloc(done_at, more * sizeof *d);
    if (d != NULL) done_at = d;
    if (m != NULL && r != NULL && d != NULL) capacity = (int)more;
    if (active == capacity) snprintf(why, sizeof why, "no memory for %zu messages", more);
    return active < capacity;
}

/* Synchronous sends of data: one that is done has been received, so that nobody runs ahead of who is slow. */
static bool begin(struct br_message *m)
{
    int bytes = (int)m->bytes, peer = (int)m->peer, tag = (int)(m->channel & ~MPI_POST);
    if (!has_room()) return false;
    MPI_Request *r = &request[active];
    message[active++] = m;
    if (!m->sends) return !has_failed(MPI_Irecv(m->data, bytes, MPI_BYTE, peer, tag, comm, r), "MPI_Irecv");
    if (m->channel & MPI_POST)
        return !has_failed(MPI_Isend(m->data, bytes, MPI_BYTE, peer, tag, posts, r), "MPI_Isend");
    return !has_failed(MPI_Issend(m->data, bytes, MPI_BYTE, peer, tag, comm, r), "MPI_Issend");
}

static struct br_message *take_submitted(void)
{
    pthread_mutex_lock(&submitting);
    struct br_message *m = first;
    if (m != NULL) first = m->next;
    if (first == NULL) last = &first;
    pthread_mutex_unlock(&submitting);
    return m;
}

/* Begins to receive the posts that have arrived. */
static bool take_posts(void)
{
    for (;;) {
        MPI_Message found;
        MPI_Status of;
        int there, bytes;
        if (has_failed(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, posts, &there, &found, &of), "MPI_Improbe"))
            return false;
        if (!there) return true;
        MPI_Get_count(&of, MPI_BYTE, &bytes);
        struct br_message *m =
            host.expect(host.arg, (unsigned)of.MPI_SOURCE, (unsigned)of.MPI_TAG, (size_t)bytes);
        if (m == NULL) snprintf(why, sizeof why, "no memory for what rank %d says", of.MPI_SOURCE);
        if (m == NULL || !has_room()) return false;
        message[active] = m;
        if (has_failed(MPI_Imrecv(m->data, bytes, MPI_BYTE, &found, &request[active++]), "MPI_Imrecv"))
            return false;
    }
}

static bool is_sent_post(const struct br_message *m)
{
    return m->sends && (m->channel & MPI_POST);
}

/* How many messages are done; -1: a failure. */
static int finish(void)
{
    int n = 0, kept = 0;
    if (active == 0) return 0;
    if (has_failed(MPI_Testsome(active, request, &n, done_at, MPI_STATUSES_IGNORE), "MPI_Testsome"))
        return -1;
    if (n == MPI_UNDEFINED || n == 0) return 0;
    for (int i = 0; i < n; i++) {
        struct br_message *m = message[done_at[i]];
        if (is_sent_post(m))
            free(m);
        else
            __atomic_store_n(&m->done, 1, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < active; i++) {
        if (request[i] == MPI_REQUEST_NULL) continue;
        request[kept] = request[i];
        message[kept++] = message[i];
    }
    active = kept;
    return n;
}

/* Begins what was submitted, and looks what is done. How many there were; -1: a failure. */
static int work(void)
{
    struct br_message *m;
    int begun = 0;
    for (; (m = take_submitted()) != NULL; begun++)
        if (!begin(m)) return -1;
    int done = take_posts() ? finish() : -1;
    return done < 0 ? -1 : begun + done;
}

static void loop(void)
{
    uint64_t eager_until = 0;
    while (!quit) {
        pthread_mutex_lock(&calls); /* so that halt waits for it */
        int n = halted ? 0 : work();
        pthread_mutex_unlock(&calls);
        if (n < 0) halted = true;
        if (n != 0) host.happened(host.arg, n < 0 ? why : NULL);
        if (n > 0)
            eager_until = br_clock_ns() + (active > 0 ? EAGER_NS : LOITER_NS);
        else if (br_clock_ns() < eager_until)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
}

static void await(sem_t *event)
{
    while (sem_wait(event) != 0) continue;
}

static void *run(void *arg)
{
    ok = init();
    sem_post(&answered);
    if (!ok) return arg;
    await(&asked);
    ok = MPI_Bcast(shared, (int)shared_bytes, MPI_BYTE, 0, comm) == MPI_SUCCESS;
    sem_post(&answered);
    loop();
    if (finalizes && !halted) MPI_Finalize();
    return arg;
}

static const char *start(const struct mpi_host *h)
{
    host = *h;
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    int failure = br_thread_start(&thread, run, NULL);
    if (failure != 0) return strerror(failure);
    await(&answered);
    if (!ok) pthread_join(thread, NULL);
    return ok ? NULL : why;
}

static bool share(void *data, size_t bytes)
{
    shared = data;
    shared_bytes = bytes;
    sem_post(&asked);
    await(&answered);
    return ok;
}

static void submit(struct br_message *m)
{
    m->done = 0;
    m->next = NULL;
    pthread_mutex_lock(&submitting);
    *last = m;
    last = &m->next;
    pthread_mutex_unlock(&submitting);
}

static bool halt(void)
{
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, HALT_NS);
    halted = true;
    if (pthread_mutex_clocklock(&calls, CLOCK_MONOTONIC, &until) != 0) return false;
    pthread_mutex_unlock(&calls);
    return true;
}

static bool end(bool clean)
{
    struct br_message *m;
    if (!clean && !halt()) return false;
    finalizes = clean;
    quit = true;
    pthread_join(thread, NULL);
    while ((m = take_submitted()) != NULL)
        if (is_sent_post(m)) free(m);
    for (int i = 0; i < active; i++)
        if (is_sent_post(message[i])) free(message[i]);
    free(message);
    free(request);
    free(done_at);
    return true;
}

__attribute__((visibility("default")))
const struct mpi_plugin beamring_mpi = {start, share, submit, halt, end};
