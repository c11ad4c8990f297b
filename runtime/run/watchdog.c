/* watchdog.c - see watchdog.h. */
#include "runtime/run/watchdog.h"

#include "buffers/clock.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The stage on a GPU whose output is behind all others': what it has enqueued holds the rest up. NULL:
 * none is late. Streams wait for each other in both directions, for frames and for slots, so that the
 * oldest frame decides; of two stages with the same one the producer comes first in the order. */
static const struct br_stage *holds_up(const struct br_graph *graph)
{
    const struct br_stage *late = NULL, *busy = NULL;
    uint64_t oldest = UINT64_MAX, first;
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = graph->order[s];
        if (stage->state->gpu.handle == NULL) continue;
        for (unsigned i = 0; i < stage->nout; i++)
            if (br_queue_oldest_unready(stage->out[i].queue, &first) && first < oldest) {
                oldest = first;
                late = stage;
            }
        if (busy == NULL && br_gpu_stream_query(&stage->state->gpu, NULL) == 0) busy = stage;
    }
    return late != NULL ? late : busy;
}

/* Keeps the call that began first. */
static void consider(struct br_hang *hang, const struct br_stage *stage, uint64_t since, bool gpu,
                     const char *call, const char *queue)
{
    if (since == 0 || (hang->stage != NULL && hang->since <= since)) return;
    hang->stage = stage;
    hang->since = since;
    hang->gpu = gpu;
    snprintf(hang->text, sizeof hang->text, "%s%s%s%s", call, queue != NULL ? " '" : "",
             queue != NULL ? queue : "", queue != NULL ? "'" : "");
}

bool br_watchdog_find(const struct br_graph *graph, uint64_t limit_ns, struct br_hang *hang)
{
    *hang = (struct br_hang){0};
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = graph->order[s];
        if (atomic_load(&stage->state->ended)) continue;
        consider(hang, stage, atomic_load_explicit(&stage->state->process_since, memory_order_relaxed),
                 stage->device >= 0, "process", NULL);
        for (unsigned i = 0; i < stage->nin; i++)
            consider(hang, stage, br_reader_gpu_wait_since(stage->in[i].reader), true,
                     "cudaEventQuery, for a frame of queue", stage->in[i].edge->name);
        for (unsigned i = 0; i < stage->nout; i++)
            consider(hang, stage, br_queue_gpu_wait_since(stage->out[i].queue), true,
                     "cudaEventQuery, for a slot of queue", stage->out[i].name);
    }
    uint64_t now = br_clock_ns();
    if (hang->stage == NULL || now < hang->since || now - hang->since <= limit_ns) return false;
    char call[sizeof hang->text];
    double seconds = (double)(now - hang->since) * 1e-9;
    memcpy(call, hang->text, sizeof call);
    const struct br_stage *waits = hang->stage, *late = hang->gpu ? holds_up(graph) : NULL;
    if (late != NULL && strncmp(call, "process", 7) != 0) {
        hang->stage = late;
        snprintf(hang->text, sizeof hang->text,
                 "its work on cuda:%d does not end: stage '%.64s' has waited for %.1f s (%.256s)",
                 late->device, waits->name, seconds, call);
    } else {
        snprintf(hang->text, sizeof hang->text, "%.256s has not returned for %.1f s", call, seconds);
    }
    return true;
}

bool br_watchdog_gpus_idle(const struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++)
        if (graph->stage[s].state->gpu.handle != NULL &&
            br_gpu_stream_query(&graph->stage[s].state->gpu, NULL) == 0)
            return false;
    return true;
}

/* For a driver that hangs too. */
enum { LAST_RESORT_S = 20 };

static void last_resort(int signal)
{
    static const char text[] = "beamring: error: leaving takes too long; the process ends here\n";
    (void)signal;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(1);
    _exit(1);
}

void br_watchdog_leave(struct br_graph *graph)
{
    if (!graph->state->embedded) signal(SIGALRM, last_resort);
    if (!graph->state->embedded) alarm(LAST_RESORT_S);
    graph->state->left_behind = true;
    uint64_t now = br_clock_ns();
    bool named = false;
    if (!atomic_load(&graph->state->prepared)) {
        const struct br_stage *starting = atomic_load(&graph->state->starting);
        br_log(graph->log, BR_LOG_ERROR, starting != NULL ? starting->name : NULL,
               "start has not returned; the run ends without it");
        return;
    }
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = graph->order[s];
        if (atomic_load(&stage->state->ended)) continue;
        uint64_t since = atomic_load(&stage->state->process_since);
        br_log(graph->log, BR_LOG_ERROR, stage->name,
               "process has not returned for %.1f s; the run ends without it",
               since > 0 && now > since ? (double)(now - since) * 1e-9 : 0);
        named = true;
    }
    const struct br_stage *late = named ? NULL : holds_up(graph);
    if (late != NULL)
        br_log(graph->log, BR_LOG_ERROR, late->name,
               "its work on cuda:%d does not end; the run ends without it", late->device);
    for (size_t s = graph->nstages; s-- > 0;) {
        struct br_stage *stage = graph->order[s];
        if (!stage->state->start_called || stage->type->stop == NULL || stage->device >= 0 ||
            !atomic_load(&stage->state->ended))
            continue;
        stage->state->start_called = false;
        if (stage->type->stop(stage, stage->self) != BR_OK)
            br_log(graph->log, BR_LOG_ERROR, stage->name, "%s", stage->state->error.text);
    }
}
