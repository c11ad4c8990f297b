/* worker.c - one stage's thread: waits for frames, calls process, does what it says. All waiting and all shutdown logic of a
 * pipeline is here, so that no stage contains any. */
#include "runtime/pipeline.h"

#include <string.h>
#include <time.h>

/* A source that ignores br_stage_stopping() is ended by the runtime after this many further calls. */
enum { PATIENCE = 2 };

struct worker {
    struct br_stage *stage;
    const struct br_frame *in[BR_MAX_PORTS];
    bool in_ended[BR_MAX_PORTS];
    struct br_frame *out[BR_MAX_PORTS];
    bool shares;          /* out[0] is in[0]'s memory */
    unsigned after_stop;  /* calls of a source since it was asked to end */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Brings a frame to every input that has none and has not ended. BR_E_STOPPED after an abort. */
static int fetch_inputs(struct worker *w)
{
    for (unsigned i = 0; i < w->stage->nin; i++) {
        if (w->in[i] != NULL || w->in_ended[i]) continue;
        int got = br_reader_wait(w->stage->in[i].reader, &w->in[i]);
        if (got < 0) return got;
        if (got == 0) w->in_ended[i] = true;
    }
    return BR_OK;
}

static bool draining(const struct worker *w)
{
    for (unsigned i = 0; i < w->stage->nin; i++)
        if (!w->in_ended[i]) return false;
    return w->stage->nin > 0;
}

/* Brings an empty frame to every output that has none. BR_E_STOPPED when nobody reads it any more. */
static int fetch_outputs(struct worker *w)
{
    bool drain = draining(w);
    if (w->shares && drain) return BR_OK; /* no input, no memory; and nothing to write */
    for (unsigned i = 0; i < w->stage->nout; i++) {
        if (w->out[i] != NULL) continue;
        int status = br_queue_acquire(w->stage->out[i].queue, &w->out[i]);
        if (status != BR_OK) return status;
        if (!w->shares && w->in[0] != NULL) {
            w->out[i]->first = w->in[0]->first;
            w->out[i]->samples = w->in[0]->samples;
        }
    }
    return BR_OK;
}

static int call(struct worker *w)
{
    struct br_stage *stage = w->stage;
    struct br_io io = {{0}, {0}};
    memcpy(io.in, w->in, sizeof io.in);
    memcpy(io.out, w->out, sizeof io.out);
    uint64_t begin = now_ns();
    int result = stage->type->process(stage, stage->self, &io);
    struct br_stage_counters *c = &stage->counters;
    atomic_store_explicit(&c->busy_ns, atomic_load_explicit(&c->busy_ns, memory_order_relaxed) + now_ns() - begin,
                          memory_order_relaxed);
    atomic_store_explicit(&c->calls, atomic_load_explicit(&c->calls, memory_order_relaxed) + 1, memory_order_relaxed);
    return result;
}

/* The rules at the top of stage.h, as far as the return value can break them. */
static int check_result(struct worker *w, int result)
{
    struct br_stage *stage = w->stage;
    const char *wrong = NULL;
    if (result < 0) {
        br_fail(&stage->error, result, "process failed with status %d and gave no reason", result);
        return result;
    }
    if ((result & ~(BR_CONSUMED | BR_PRODUCED | BR_FINISHED)) != 0) wrong = "process returned unknown bits";
    else if (result == 0 && stage->nin > 0 && !draining(w)) wrong = "process neither consumed nor produced a frame";
    else if (w->shares && !draining(w) && (result & BR_FINISHED) == 0 && (result & 3) != (BR_CONSUMED | BR_PRODUCED))
        wrong = "a stage that works in place must consume and produce together";
    else if (w->shares && draining(w) && (result & BR_PRODUCED) != 0) wrong = "it produced a frame without memory";
    for (unsigned i = 0; (result & BR_PRODUCED) != 0 && wrong == NULL && i < stage->nout; i++)
        if (w->out[i]->samples == 0) wrong = "process published a frame of no samples";
    if (wrong != NULL) return br_fail(&stage->error, BR_E_INTERNAL, "%s", wrong);
    return BR_OK;
}

/* Publishes and releases as `result` says. An output in shared memory goes before its input. */
static void hand_on(struct worker *w, int result)
{
    struct br_stage *stage = w->stage;
    for (unsigned i = 0; (result & BR_PRODUCED) != 0 && i < stage->nout; i++) {
        br_queue_publish(stage->out[i].queue);
        w->out[i] = NULL;
    }
    for (unsigned i = 0; (result & BR_CONSUMED) != 0 && i < stage->nin; i++) {
        if (w->in[i] != NULL) br_reader_release(stage->in[i].reader);
        w->in[i] = NULL;
    }
}

/* Runs the stage to its end. Returns BR_OK (all input worked off, or a source that ended), BR_E_STOPPED (aborted, or nobody
 * reads its output any more), or the stage's failure. */
static int work(struct worker *w)
{
    struct br_stage *stage = w->stage;
    for (;;) {
        int status = fetch_inputs(w);
        if (status == BR_OK) status = fetch_outputs(w);
        if (status != BR_OK) return status;
        if (stage->nin == 0 && br_stage_stopping(stage) && w->after_stop++ == PATIENCE) return BR_OK;
        bool drain = draining(w);
        int result = call(w);
        status = check_result(w, result);
        if (status != BR_OK) return status;
        hand_on(w, result);
        if ((result & BR_FINISHED) != 0) return BR_OK;
        if (drain && (result & BR_PRODUCED) == 0) return BR_OK;
    }
}

static void end(struct worker *w, int status)
{
    struct br_stage *stage = w->stage;
    bool failed = status != BR_OK && status != BR_E_STOPPED;
    for (unsigned i = 0; i < stage->nout; i++) {
        if (failed) br_queue_fail(stage->out[i].queue);
        else br_queue_close(stage->out[i].queue);
    }
    /* A frame that the stage failed on, or gave up, was not delivered. */
    for (unsigned i = 0; i < stage->nin; i++) {
        if (w->in[i] != NULL) br_reader_discard(stage->in[i].reader);
        br_reader_detach(stage->in[i].reader);
    }
    if (failed) {
        br_log(stage->graph->log, BR_LOG_ERROR, stage->name, "%s; the other stages drain", stage->error.text);
        br_pipeline_drain(stage->graph);
    }
    atomic_store(&stage->completed, status == BR_OK && (stage->nin == 0 || draining(w)));
}

void *br_worker(void *arg)
{
    struct br_stage *stage = arg;
    struct worker w = {.stage = stage, .shares = stage->nout > 0 && stage->out[0].parent != NULL};
    end(&w, work(&w));
    atomic_store(&stage->ended, true);
    if (stage->graph->on_end != NULL) stage->graph->on_end(stage->graph->on_end_arg);
    return NULL;
}
