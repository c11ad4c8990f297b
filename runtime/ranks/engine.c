/* engine.c - see engine.h. */
#include "runtime/ranks/engine.h"

#include "buffers/clock.h"
#include "buffers/threads.h"
#include "runtime/base/beside.h"
#include "runtime/ranks/mpi_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long it looks without a pause after something has happened, while messages are under way (one that goes
 * through shared memory in pieces needs somebody who looks often) and while none are (where NCCL carries the
 * data, posts can wait), and how long it then sleeps. */
#define EAGER_NS  2000000u
#define LOITER_NS 100000u
#define NAP_NS    50000u

/* A call of MPI that takes longer does not return: Open MPI waits for mpirun to print what it has to say of a
 * lost connection, and mpirun is busy ending the job. */
#define HALT_NS 1000000000u

struct engine {
    const struct mpi_plugin *mpi;
    void (*happened)(void *arg, const char *failure);
    struct br_message *(*expect)(void *arg, unsigned from, unsigned channel, size_t bytes);
    void *arg;
    pthread_t thread;
    pthread_mutex_t calls; /* while MPI is called for messages; before `mutex` */
    pthread_mutex_t mutex; /* all that follows */
    pthread_cond_t answered;
    struct br_message *first, **last; /* submitted, not begun */
    struct engine_self *self;
    void *share; /* asked for by engine_share */
    size_t share_bytes;
    bool begun, ok, quit, clean, halted, hangs;
    char why[500];
};

static const char no_plugin[] =
    "this beamring was built without MPI (%s); install libopenmpi-dev and openmpi-bin and build it again";

static bool load(struct engine *engine)
{
    const char *reason;
    /* Global: Open MPI's own plugins look for its symbols. */
    void *library = br_open_beside("runtime", "beamring_mpi.so", RTLD_NOW | RTLD_GLOBAL, &reason);
    if (library != NULL) engine->mpi = dlsym(library, "beamring_mpi");
    if (engine->mpi != NULL) return true;
    if (reason != NULL)
        snprintf(engine->why, sizeof engine->why,
                 "MPI is not there: install openmpi-bin and libopenmpi3 (%.300s)", reason);
    else
        snprintf(engine->why, sizeof engine->why, no_plugin, "there is no beamring_mpi.so");
    return false;
}

static void fail(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->halted = true;
    pthread_mutex_unlock(&engine->mutex);
    engine->happened(engine->arg, engine->why);
}

/* The next message that was submitted, or NULL. *halted: nothing may be done any more. */
static struct br_message *take(struct engine *engine, bool *halted)
{
    pthread_mutex_lock(&engine->mutex);
    struct br_message *m = engine->halted ? NULL : engine->first;
    *halted = engine->halted;
    if (m != NULL) engine->first = m->next;
    if (engine->first == NULL) engine->last = &engine->first;
    pthread_mutex_unlock(&engine->mutex);
    return m;
}

static void is_done(void *message)
{
    __atomic_store_n(&((struct br_message *)message)->done, 1, __ATOMIC_RELEASE);
}

/* Begins to receive the posts that have arrived. How many; -1: a failure. */
static int take_posts(struct engine *engine)
{
    unsigned from, channel;
    size_t bytes;
    int found, n = 0;
    while ((found = engine->mpi->look(&from, &channel, &bytes, engine->why, sizeof engine->why)) > 0) {
        struct br_message *m = engine->expect(engine->arg, from, channel, bytes);
        if (m == NULL) snprintf(engine->why, sizeof engine->why, "no memory for what rank %u says", from);
        if (m == NULL || !engine->mpi->fetch(m->data, bytes, m, engine->why, sizeof engine->why)) return -1;
        n++;
    }
    return found < 0 ? -1 : n;
}

/* Begins what was submitted, and looks what is done; true when there was any. `*left`: messages under way.
 * With `calls` held, so that engine_halt waits for them. */
static bool work(struct engine *engine, int *left)
{
    struct br_message *m;
    bool any = false, halted;
    int n;
    while ((m = take(engine, &halted)) != NULL) {
        any = true;
        if (!engine->mpi->begin(m->sends, m->data, m->bytes, m->peer, m->channel, m, engine->why,
                                sizeof engine->why)) {
            fail(engine);
            return true;
        }
    }
    if (halted) return any;
    if (take_posts(engine) < 0 ||
        (n = engine->mpi->done(is_done, left, engine->why, sizeof engine->why)) < 0) {
        fail(engine);
        return true;
    }
    return any || n > 0;
}

static void nap(uint64_t eager_until)
{
    if (br_clock_ns() < eager_until)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

static void loop(struct engine *engine)
{
    uint64_t eager_until = 0;
    int left = 0;
    pthread_mutex_lock(&engine->mutex);
    while (!engine->quit) {
        if (engine->share != NULL) {
            engine->ok = engine->mpi->share(engine->share, engine->share_bytes);
            engine->share = NULL;
            pthread_cond_broadcast(&engine->answered);
        }
        pthread_mutex_unlock(&engine->mutex);
        pthread_mutex_lock(&engine->calls);
        bool any = work(engine, &left);
        pthread_mutex_unlock(&engine->calls);
        if (any) eager_until = br_clock_ns() + (left > 0 ? EAGER_NS : LOITER_NS);
        if (any) engine->happened(engine->arg, NULL);
        if (!any) nap(eager_until);
        pthread_mutex_lock(&engine->mutex);
    }
    bool finalize = engine->clean && !engine->halted;
    pthread_mutex_unlock(&engine->mutex);
    if (finalize) engine->mpi->finalize();
}

static void *run(void *arg)
{
    struct engine *engine = arg;
    bool ok = load(engine) && engine->mpi->init(&engine->self->rank, &engine->self->ranks,
                                                &engine->self->local, engine->why, sizeof engine->why);
    pthread_mutex_lock(&engine->mutex);
    engine->begun = true;
    engine->ok = ok;
    pthread_cond_broadcast(&engine->answered);
    pthread_mutex_unlock(&engine->mutex);
    if (ok) loop(engine);
    return NULL;
}

int engine_create(struct engine **result, struct engine_self *self,
                  void (*happened)(void *arg, const char *failure),
                  struct br_message *(*expect)(void *arg, unsigned from, unsigned channel, size_t bytes),
                  void *arg, struct br_error *error)
{
    struct engine *engine = *result = calloc(1, sizeof *engine);
    if (engine == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for MPI");
    engine->happened = happened;
    engine->expect = expect;
    engine->arg = arg;
    engine->self = self;
    engine->last = &engine->first;
    pthread_mutex_init(&engine->calls, NULL);
    pthread_mutex_init(&engine->mutex, NULL);
    pthread_cond_init(&engine->answered, NULL);
    int failure = br_thread_start(&engine->thread, run, engine);
    if (failure != 0) {
        free(engine);
        *result = NULL;
        return br_fail(error, BR_E_NO_MEMORY, "no thread for MPI: %s", strerror(failure));
    }
    pthread_mutex_lock(&engine->mutex);
    while (!engine->begun) pthread_cond_wait(&engine->answered, &engine->mutex);
    bool ok = engine->ok;
    pthread_mutex_unlock(&engine->mutex);
    if (ok) return BR_OK;
    int status = br_fail(error, BR_E_INVALID, "--mpi: %s", engine->why);
    pthread_join(engine->thread, NULL);
    free(engine);
    *result = NULL;
    return status;
}

int engine_share(struct engine *engine, void *data, size_t bytes, struct br_error *error)
{
    pthread_mutex_lock(&engine->mutex);
    engine->share_bytes = bytes;
    engine->share = data;
    while (engine->share != NULL) pthread_cond_wait(&engine->answered, &engine->mutex);
    bool ok = engine->ok;
    pthread_mutex_unlock(&engine->mutex);
    return ok ? BR_OK : br_fail(error, BR_E_IO, "--mpi: MPI_Bcast failed");
}

void engine_submit(struct engine *engine, struct br_message *message)
{
    pthread_mutex_lock(&engine->mutex);
    message->next = NULL;
    *engine->last = message;
    engine->last = &message->next;
    pthread_mutex_unlock(&engine->mutex);
}

bool engine_halt(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->halted = true;
    pthread_mutex_unlock(&engine->mutex);
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, HALT_NS);
    bool hangs = pthread_mutex_clocklock(&engine->calls, CLOCK_MONOTONIC, &until) != 0;
    if (!hangs) pthread_mutex_unlock(&engine->calls);
    pthread_mutex_lock(&engine->mutex);
    engine->hangs = hangs;
    pthread_mutex_unlock(&engine->mutex);
    return !hangs;
}

bool engine_hangs(struct engine *engine)
{
    if (engine == NULL) return false;
    pthread_mutex_lock(&engine->mutex);
    bool hangs = engine->hangs;
    pthread_mutex_unlock(&engine->mutex);
    return hangs;
}

bool engine_destroy(struct engine *engine, bool clean)
{
    if (engine == NULL) return true;
    if (!clean && !engine_halt(engine)) return false;
    pthread_mutex_lock(&engine->mutex);
    engine->clean = clean;
    engine->quit = true;
    pthread_mutex_unlock(&engine->mutex);
    pthread_join(engine->thread, NULL);
    pthread_cond_destroy(&engine->answered);
    pthread_mutex_destroy(&engine->mutex);
    pthread_mutex_destroy(&engine->calls);
    free(engine);
    return true;
}
