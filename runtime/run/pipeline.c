/* pipeline.c - starting and ending what a graph describes. */
#include "runtime/run/pipeline.h"
#include "runtime/run/updates.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

/* Calls stop of every stage whose start was called; the first failure is kept in the stage. */
static void stop_stages(struct br_graph *graph)
{
    for (size_t s = graph->nstages; s-- > 0;) {
        struct br_stage *stage = graph->order[s];
        if (!stage->state->start_called || stage->type->stop == NULL) continue;
        bool failed_before = stage->state->error.status != BR_OK;
        if (stage->device >= 0) br_gpu_use(stage->device, NULL);
        int status = stage->type->stop(stage, stage->self);
        if (status != BR_OK)
            br_fail(&stage->state->error, status, "stopping failed with status %d and gave no reason",
                    status);
        if (status != BR_OK && !failed_before)
            br_log(graph->log, BR_LOG_ERROR, stage->name, "%s", stage->state->error.text);
        stage->state->start_called = false;
    }
}

/* Once all stages are stopped. */
static void end_pool(struct br_graph *graph)
{
    br_pool_destroy(graph->state->pool);
    graph->state->pool = NULL;
}

/* Threads of GPU stages only enqueue work: microseconds for a frame that takes milliseconds. Spread over
 * idle processors each would be woken from deep sleep to cold caches for every frame, at several times the
 * cost of the work; on one processor, `home`, only the first one is. There they are batch threads: one
 * that is woken waits until the one that woke it sleeps, where it else would interrupt it every other
 * time, which costs two more changes of threads. `affinity:` in the YAML goes before. */
static bool lives_at_home(const struct br_stage *stage)
{
    /* what feeds reads: it does work */
    return stage->device >= 0 && !stage->feeds && stage->affinity.count == 0;
}

/* The calling thread's processors, and those that are not `home`. A thread that computes at home would hold
 * up the GPU stages' threads, which cannot leave and, as batch threads, do not interrupt it. False where
 * nobody lives there, or processors are few: each is needed. */
static bool find_others(struct br_graph *graph, cpu_set_t *all, cpu_set_t *others)
{
    enum { MANY = 8 };
    bool any = false;
    for (size_t s = 0; s < graph->nstages; s++) any = any || lives_at_home(&graph->stage[s]);
    if (graph->state->home < 0) graph->state->home = sched_getcpu();
    if (!any || graph->state->home < 0 || sched_getaffinity(0, sizeof *all, all) != 0) return false;
    *others = *all;
    CPU_CLR((size_t)graph->state->home, others);
    return CPU_COUNT(others) >= MANY;
}

/* Keeps the calling thread off `home`, and the threads that it creates, until its affinity is `before` again.
 * False: nothing has changed. */
static bool leave_home(struct br_graph *graph, cpu_set_t *before)
{
    cpu_set_t others;
    return find_others(graph, before, &others) && sched_setaffinity(0, sizeof others, &others) == 0;
}

void br_pipeline_keep_away(struct br_graph *graph, pthread_t thread)
{
    cpu_set_t all, others;
    if (find_others(graph, &all, &others)) pthread_setaffinity_np(thread, sizeof others, &others);
}

static void set_affinity(struct br_stage *stage, int home)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (stage->affinity.count == 0) {
        if (!lives_at_home(stage) || home < 0) return;
        CPU_SET((size_t)home, &set);
        int error = pthread_setaffinity_np(stage->state->thread, sizeof set, &set);
        if (error != 0)
            br_stage_warn(stage, "its thread cannot be kept on CPU %d with those of the other GPU stages: %s",
                          home, strerror(error));
        error = pthread_setschedparam(stage->state->thread, SCHED_BATCH, &(struct sched_param){0});
        if (error != 0) br_stage_warn(stage, "its thread cannot be a batch thread: %s", strerror(error));
        return;
    }
    for (size_t i = 0; i < stage->affinity.count; i++)
        if (stage->affinity.value[i] < CPU_SETSIZE) CPU_SET((size_t)stage->affinity.value[i], &set);
    int error = pthread_setaffinity_np(stage->state->thread, sizeof set, &set);
    if (error != 0) br_stage_warn(stage, "affinity: %s; the thread runs on any CPU", strerror(error));
}

static int start_threads(struct br_graph *graph, struct br_error *error)
{
    /* Signals are for the main thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = BR_OK;
    for (size_t s = 0; s < graph->nstages && status == BR_OK; s++) {
        struct br_stage *stage = graph->order[s];
        int failure = pthread_create(&stage->state->thread, NULL, br_worker, stage);
        if (failure != 0) {
            status =
                br_fail(error, BR_E_NO_MEMORY, "stage '%s': no thread: %s", stage->name, strerror(failure));
            break;
        }
        stage->state->has_thread = true;
        char name[16];
        snprintf(name, sizeof name, "%s", stage->name);
        pthread_setname_np(stage->state->thread, name);
        set_affinity(stage, graph->state->home);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void join(struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        if (graph->stage[s].state->has_thread) pthread_join(graph->stage[s].state->thread, NULL);
        graph->stage[s].state->has_thread = false;
    }
}

/* A stream for every stage on a GPU, known to its queues before they make their events. */
static int make_streams(struct br_graph *graph, struct br_error *error)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        if (stage->device < 0) continue;
        int status = br_gpu_stream_create(&stage->state->gpu, stage->device, error);
        if (status != BR_OK) {
            br_error_context(error, "stage '%s'", stage->name);
            return status;
        }
        for (unsigned i = 0; i < stage->nin; i++)
            br_reader_set_stream(stage->in[i].reader, &stage->state->gpu);
        for (unsigned i = 0; i < stage->nout; i++)
            br_queue_set_stream(stage->out[i].queue, &stage->state->gpu);
    }
    return BR_OK;
}

/* Waits for what is enqueued; a failure that shows only now belongs to the stage. */
static void wait_for_gpus(struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = graph->order[s];
        struct br_error error = {0},
                        *into = stage->state->error.status == BR_OK ? &stage->state->error : &error;
        if (stage->state->gpu.handle == NULL || br_gpu_stream_wait(&stage->state->gpu, into) == BR_OK)
            continue;
        struct br_stage *nobody = NULL;
        if (atomic_compare_exchange_strong(&graph->state->first_failed, &nobody, stage))
            br_log(graph->log, BR_LOG_ERROR, stage->name, "%s", stage->state->error.text);
    }
}

/* Signals are for the main thread, and for none that a stage makes: these inherit the mask. The others, which
 * nobody handles, end the process as ever. */
static int start_stages(struct br_graph *graph, struct br_error *error)
{
    static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    sigset_t mask, before;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) sigaddset(&mask, handled[i]);
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    int status = BR_OK;
    for (size_t s = 0; s < graph->nstages && status == BR_OK; s++) {
        struct br_stage *stage = graph->order[s];
        if (stage->type->start == NULL && stage->type->stop == NULL) continue;
        stage->state->start_called = true;
        atomic_store(&graph->state->starting, stage);
        if (stage->device >= 0) br_gpu_use(stage->device, NULL);
        if (stage->type->start != NULL) status = stage->type->start(stage, stage->self);
        if (status != BR_OK) {
            br_fail(&stage->state->error, status, "it could not start (status %d) and gave no reason",
                    status);
            br_fail(error, status, "stage '%s': %s", stage->name, stage->state->error.text);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

int br_pipeline_prepare(struct br_graph *graph, struct br_error *error)
{
    if (graph->gpu_wanted && graph->ngpus == 0)
        br_log(graph->log, BR_LOG_NOTE, NULL, "%s: all stages run on the CPU", graph->no_gpu.text);
    int status = make_streams(graph, error);
    if (status != BR_OK) return status;
    graph->state->pool = br_pool_create(graph->threads, graph->cpus.value, graph->cpus.count);
    if (graph->state->pool == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %u threads", graph->threads);
    for (size_t s = 0; s < graph->nstages && status == BR_OK; s++)
        for (unsigned i = 0; i < graph->order[s]->nout && status == BR_OK; i++)
            status = br_queue_seal(graph->order[s]->out[i].queue, error);
    if (status != BR_OK) {
        br_error_context(error, "the pipeline's queues need %.1f MiB",
                         (double)br_graph_bytes(graph) / (1 << 20));
        return status;
    }
    cpu_set_t before;
    bool left = leave_home(graph, &before);
    status = start_stages(graph, error);
    if (left) sched_setaffinity(0, sizeof before, &before);
    if (status == BR_OK) atomic_store(&graph->state->prepared, true);
    if (status != BR_OK) stop_stages(graph);
    if (status != BR_OK) end_pool(graph);
    return status;
}

int br_pipeline_launch(struct br_graph *graph, struct br_error *error)
{
    cpu_set_t before;
    bool left = leave_home(graph, &before);
    int status = br_updates_start(graph, error);
    if (status == BR_OK) {
        status = start_threads(graph, error);
        if (status != BR_OK) br_pipeline_abort(graph);
        if (status != BR_OK) join(graph);
    }
    if (left) sched_setaffinity(0, sizeof before, &before);
    if (status != BR_OK) stop_stages(graph);
    if (status != BR_OK) end_pool(graph);
    return status;
}

int br_pipeline_start(struct br_graph *graph, struct br_error *error)
{
    int status = br_pipeline_prepare(graph, error);
    return status == BR_OK ? br_pipeline_launch(graph, error) : status;
}

void br_pipeline_drain(struct br_graph *graph)
{
    pthread_mutex_lock(&graph->state->mutex);
    graph->state->stop_signalled = true;
    atomic_store(&graph->state->stopping, true);
    pthread_cond_broadcast(&graph->state->wake);
    pthread_mutex_unlock(&graph->state->mutex);
}

void br_pipeline_abort(struct br_graph *graph)
{
    size_t nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) br_queue_abort(br_graph_edge(graph, i)->queue);
    br_pipeline_drain(graph); /* after: a stage that wakes from its sleep shall not go on to the next frame */
}

bool br_pipeline_ended(const struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++)
        if (!atomic_load(&graph->stage[s].state->ended)) return false;
    return true;
}

int br_pipeline_finish(struct br_graph *graph, struct br_error *error)
{
    join(graph);
    wait_for_gpus(graph);
    br_updates_close(graph);
    stop_stages(graph);
    end_pool(graph);
    const struct br_stage *first = atomic_load(&graph->state->first_failed);
    if (first != NULL)
        return br_fail(error, first->state->error.status, "stage '%s': %s", first->name,
                       first->state->error.text);
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = graph->order[s];
        if (stage->state->error.status != BR_OK)
            return br_fail(error, stage->state->error.status, "stage '%s': %s", stage->name,
                           stage->state->error.text);
    }
    return BR_OK;
}
