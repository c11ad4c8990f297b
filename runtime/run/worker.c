/* worker.c - one stage's thread: waits for frames, calls process, does what it says. All waiting and all
 * shutdown logic of a pipeline is here, so that no stage contains any. */
#include "buffers/clock.h"
#include "runtime/ranks/ranks.h"
#include "runtime/run/pipeline.h"
#include "runtime/run/preview.h"
#include "runtime/run/tap.h"
#include "runtime/run/updates.h"

#include <string.h>

/* A source that ignores br_stage_stopping() is ended by the runtime after this many further calls. */
enum { PATIENCE = 2 };

struct worker {
    struct br_stage *stage;
    const struct br_frame *in[BR_MAX_PORTS];
    bool in_ended[BR_MAX_PORTS];
    struct br_frame *out[BR_MAX_PORTS];
    uint64_t end[BR_MAX_PORTS]; /* of what was put out */
    unsigned after_stop;        /* calls of a source since it was asked to end */
    br_gpu_event begin, done;   /* around a sampled call, on a GPU */
    unsigned calls;
    bool sampling;    /* the two are recorded and not looked at yet */
    bool record_done; /* the second is still to be recorded */
};

/* Brings a frame to every input that has none and has not ended. BR_E_STOPPED after an abort. */
static int fetch_inputs(struct worker *w)
{
    for (unsigned i = 0; i < w->stage->nin; i++) {
        if (w->in[i] != NULL || w->in_ended[i]) continue;
        int got = br_reader_wait(w->stage->in[i].reader, &w->in[i]);
        if (got == BR_E_DEVICE) br_queue_error(w->stage->in[i].edge->queue, &w->stage->state->error);
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
    for (unsigned i = 0; i < w->stage->nout; i++) {
        if (w->out[i] != NULL) continue;
        int status = br_queue_acquire(w->stage->out[i].queue, &w->out[i]);
        if (status == BR_E_DEVICE) br_queue_error(w->stage->out[i].queue, &w->stage->state->error);
        if (status != BR_OK) return status;
        if (w->in[0] != NULL) {
            w->out[i]->first = w->in[0]->first;
            w->out[i]->samples = w->in[0]->samples;
        }
    }
    return BR_OK;
}

/* GPU time is sampled: two events around one call in SAMPLE_EVERY, looked at before the next such call,
 * when they have long happened, so that nobody waits. A look costs as much as two orders between streams:
 * only until there is a first sample, which is all that a short run has, every call looks. */
enum { SAMPLE_EVERY = 8 };

static void look_at_sample(struct worker *w)
{
    struct br_stage *stage = w->stage;
    if (!w->sampling || !br_gpu_event_done(w->done)) return;
    w->sampling = false;
    double ms = br_gpu_event_ms(w->begin, w->done);
    if (ms < 0) return;
    br_counter_add(&stage->state->counters.gpu_ns, (uint64_t)(ms * 1e6));
    br_counter_add(&stage->state->counters.gpu_calls, 1);
}

static void begin_sample(struct worker *w)
{
    struct br_stage *stage = w->stage;
    bool due = w->calls++ % SAMPLE_EVERY == 0;
    if (due || atomic_load_explicit(&stage->state->counters.gpu_calls, memory_order_relaxed) == 0)
        look_at_sample(w);
    if (!due || w->sampling) return;
    w->sampling = br_gpu_event_record(w->begin, &stage->state->gpu, NULL) == BR_OK;
    w->record_done = w->sampling;
}

/* Which counter of calls a call of `ns` belongs to. */
static unsigned bucket_of(uint64_t ns)
{
    uint64_t us = ns / 1000;
    if (us <= 1u << BR_TIME_FIRST_SHIFT) return 0;
    unsigned bits = 64 - (unsigned)__builtin_clzll(us - 1) - BR_TIME_FIRST_SHIFT; /* us <= 2^(first + bits) */
    return bits < BR_TIME_BUCKETS ? bits : BR_TIME_BUCKETS - 1;
}

/* A product has left: how old its newest sample is. */
static void note_latency(struct br_stage *stage, const struct br_frame *in)
{
    int64_t sampled = br_stream_time_ns(&stage->in[0].edge->stream, in->first + in->samples);
    int64_t latency; /* a recording's epoch may be anything */
    if (__builtin_sub_overflow(br_unix_ns(), sampled, &latency)) latency = INT64_MAX;
    atomic_store_explicit(&stage->state->counters.latency_ns, latency, memory_order_relaxed);
}

static int call(struct worker *w)
{
    struct br_stage *stage = w->stage;
    struct br_io io = {{0}, {0}};
    memcpy(io.in, w->in, sizeof io.in);
    memcpy(io.out, w->out, sizeof io.out);
    if (stage->device >= 0) {
        begin_sample(w);
        br_gpu_range_push(stage->name);
    }
    uint64_t begin = br_clock_ns();
    if (stage->type->updates != NULL && w->in[0] != NULL) br_updates_take(stage, w->in[0]);
    atomic_store_explicit(&stage->state->process_since, begin, memory_order_relaxed);
    int result = stage->type->process(stage, stage->self, &io);
    atomic_store_explicit(&stage->state->process_since, 0, memory_order_relaxed);
    uint64_t took = br_clock_ns() - begin;
    br_counter_add(&stage->state->counters.busy_ns, took);
    br_counter_add(&stage->state->counters.calls, 1);
    br_counter_add(&stage->state->counters.took[bucket_of(took)], 1);
    if (stage->device >= 0) {
        br_gpu_range_pop();
        if (w->record_done) br_gpu_event_record(w->done, &stage->state->gpu, NULL);
        w->record_done = false;
        if (result >= 0 && br_gpu_last_error(&stage->state->error) != BR_OK) result = BR_E_DEVICE;
    }
    return result;
}

/* Those who read the frame rely on this. */
static int check_frame(struct worker *w, unsigned i)
{
    const struct br_frame *out = w->out[i];
    const struct br_edge *edge = &w->stage->out[i];
    if (out->samples == 0)
        return br_fail(&w->stage->state->error, BR_E_INTERNAL, "process published a frame of no samples");
    if (out->samples > edge->stream.frame_samples)
        return br_fail(&w->stage->state->error, BR_E_INTERNAL,
                       "process published a frame of %llu samples into '%s', whose frames have at most %llu",
                       (unsigned long long)out->samples, edge->name,
                       (unsigned long long)edge->stream.frame_samples);
    if (out->first < w->end[i])
        return br_fail(&w->stage->state->error, BR_E_INTERNAL,
                       "process published a frame from sample %llu on into '%s', before the end %llu of the "
                       "one before",
                       (unsigned long long)out->first, edge->name, (unsigned long long)w->end[i]);
    w->end[i] = out->first + out->samples;
    return BR_OK;
}

/* The rules at the top of stage.h, as far as the return value can break them. */
static int check_result(struct worker *w, int result)
{
    struct br_stage *stage = w->stage;
    const char *wrong = NULL;
    if (result < 0) {
        if (result == BR_E_STOPPED) result = BR_E_INTERNAL; /* only the runtime stops: this is a failure */
        br_fail(&stage->state->error, result, "process failed with status %d and gave no reason", result);
        return result;
    }
    if ((result & ~(BR_CONSUMED | BR_PRODUCED | BR_FINISHED)) != 0)
        wrong = "process returned unknown bits";
    else if (result == 0 && stage->nin > 0 && !draining(w))
        wrong = "process neither consumed nor produced a frame";
    if (atomic_load_explicit(&stage->state->misused, memory_order_relaxed))
        wrong = "process began jobs while it had some already, or from within a job";
    if (wrong != NULL) return br_fail(&stage->state->error, BR_E_INTERNAL, "%s", wrong);
    for (unsigned i = 0; (result & BR_PRODUCED) != 0 && i < stage->nout; i++) {
        int status = check_frame(w, i);
        if (status != BR_OK) return status;
    }
    return BR_OK;
}

/* Somebody looks: the frame that is about to be published goes into the preview, too. */
static void show(struct br_stage *stage, unsigned i, const struct br_frame *frame)
{
    struct br_tap *tap = atomic_exchange_explicit(&stage->state->tap[i], NULL, memory_order_acquire);
    if (tap != NULL) {
        br_tap_fill(tap, &stage->out[i].stream, frame);
        atomic_store_explicit(&tap->state, PREVIEW_FILLED, memory_order_release);
    }
    struct br_preview *preview = atomic_load_explicit(&stage->state->preview[i], memory_order_acquire);
    if (preview == NULL || !br_preview_add(preview, &stage->out[i].stream, frame)) return;
    atomic_store_explicit(&stage->state->preview[i], NULL, memory_order_relaxed);
    atomic_store_explicit(&preview->state, PREVIEW_FILLED, memory_order_release);
}

/* Publishes and releases as `result` says. A failure keeps nothing back: the first one is returned. */
static int hand_on(struct worker *w, int result)
{
    struct br_stage *stage = w->stage;
    int status = BR_OK;
    for (unsigned i = 0; (result & BR_PRODUCED) != 0 && i < stage->nout; i++) {
        if (atomic_load_explicit(&stage->state->preview[i], memory_order_relaxed) != NULL ||
            atomic_load_explicit(&stage->state->tap[i], memory_order_relaxed) != NULL)
            show(stage, i, w->out[i]);
        status = br_queue_publish(stage->out[i].queue);
        if (status != BR_OK) {
            br_queue_error(stage->out[i].queue, &stage->state->error);
            return status;
        }
        w->out[i] = NULL;
    }
    if ((result & BR_CONSUMED) != 0 && stage->nout == 0 && stage->nin > 0 && w->in[0] != NULL)
        note_latency(stage, w->in[0]);
    for (unsigned i = 0; (result & BR_CONSUMED) != 0 && i < stage->nin; i++) {
        int released = w->in[i] != NULL ? br_reader_release(stage->in[i].reader) : BR_OK;
        w->in[i] = NULL;
        if (status != BR_OK || released == BR_OK) continue;
        status = released;
        br_queue_error(stage->in[i].edge->queue, &stage->state->error);
    }
    return status;
}

/* Runs the stage to its end. Returns BR_OK (all input worked off, or a source that ended), BR_E_STOPPED
 * (aborted, or nobody reads its output any more), or the stage's failure. */
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
        status = hand_on(w, result);
        if (status != BR_OK) return status;
        if ((result & BR_FINISHED) != 0) return BR_OK;
        if (drain && (result & BR_PRODUCED) == 0) return BR_OK;
    }
}

static void end(struct worker *w, int status)
{
    struct br_stage *stage = w->stage;
    bool failed = status != BR_OK && status != BR_E_STOPPED;
    for (unsigned i = 0; i < stage->nout; i++) br_queue_close(stage->out[i].queue);
    /* A frame that the stage failed on, or gave up, was not delivered. */
    for (unsigned i = 0; i < stage->nin; i++) {
        if (w->in[i] != NULL) br_reader_discard(stage->in[i].reader);
        br_reader_detach(stage->in[i].reader);
    }
    if (failed) {
        /* A GPU that has failed fails everybody who works with it: the first message is the one that
         * helps. */
        struct br_stage *nobody = NULL;
        bool first = atomic_compare_exchange_strong(&stage->graph->state->first_failed, &nobody, stage);
        if (first || status != BR_E_DEVICE)
            br_log(stage->graph->log, BR_LOG_ERROR, stage->name, "%s; the other stages drain",
                   stage->state->error.text);
        char why[BR_ERROR_LENGTH + 100];
        snprintf(why, sizeof why, "stage '%.64s': %s", stage->name, stage->state->error.text);
        br_ranks_fail(stage->graph->ranks, 1, why);
        br_pipeline_drain(stage->graph);
    }
    atomic_store(&stage->state->completed, status == BR_OK && (stage->nin == 0 || draining(w)));
}

void *br_worker(void *arg)
{
    struct br_stage *stage = arg;
    struct worker w = {.stage = stage};
    int status = BR_OK;
    if (stage->device >= 0) status = br_gpu_use(stage->device, &stage->state->error);
    if (stage->device >= 0 && status == BR_OK)
        status = br_gpu_event_create(&w.begin, stage->device, true, &stage->state->error);
    if (stage->device >= 0 && status == BR_OK)
        status = br_gpu_event_create(&w.done, stage->device, true, &stage->state->error);
    if (status == BR_OK) status = work(&w);
    end(&w, status);
    if (stage->device >= 0) {
        br_gpu_event_destroy(w.begin);
        br_gpu_event_destroy(w.done);
    }
    atomic_store(&stage->state->counters.cpu_ns, br_clock_of(CLOCK_THREAD_CPUTIME_ID));
    atomic_store(&stage->state->ended, true);
    if (stage->graph->state->on_end != NULL) stage->graph->state->on_end(stage->graph->state->on_end_arg);
    return NULL;
}
