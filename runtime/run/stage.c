/* stage.c - the runtime's side of runtime/stage.h: what a stage may ask for. */
#include "buffers/clock.h"
#include "runtime/ranks.h"
#include "runtime/run/state.h"
#include "runtime/stage_updates.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct br_stream *br_stage_input(const struct br_stage *stage, unsigned i)
{
    return i < stage->nin ? &stage->in[i].edge->stream : NULL;
}

int br_stage_pass(struct br_stage *stage, const struct br_frame *in, struct br_frame *out)
{
    const struct br_edge *from = stage->in[0].edge, *to = &stage->out[0];
    bool alone = from->readers->next == NULL && from->readers->policy == BR_POLICY_BLOCK,
         alike = from->place.space == to->place.space &&
                 (from->place.space != BR_SPACE_CUDA || from->place.device == to->place.device);
    if (!alone || !alike) {
        size_t bytes = br_frame_bytes(&from->stream, in);
        return br_stage_copy_rows(stage, out->data, bytes, in->data, bytes, bytes, 1);
    }
    /* Both belong to this stage's thread until it publishes and releases. Who gets one of them later waits
     * for the work of this stage, and with it for the work that this stage waited for. */
    struct br_frame *source = (struct br_frame *)(uintptr_t)in;
    void *data = source->data;
    source->data = out->data;
    out->data = data;
    return BR_OK;
}

/* True if the data of a stage come from `from`, through any number of stages. */
static bool is_behind(const struct br_stage *stage, const struct br_stage *from)
{
    for (unsigned i = 0; i < stage->nin; i++) {
        const struct br_stage *producer = stage->in[i].edge->producer;
        if (producer->name == from->name || is_behind(producer, from)) return true;
    }
    return false;
}

const struct br_stream *br_stage_downstream(const struct br_stage *stage, size_t i, const char **name)
{
    const struct br_graph *graph = stage->graph;
    for (size_t n = 0; n < graph->nstages; n++) {
        const struct br_stage *s = graph->order[n];
        if ((size_t)(s - graph->stage) >= graph->nfile || !is_behind(s, stage)) continue; /* or a transfer */
        for (unsigned o = 0; o < s->nout; o++)
            if (i-- == 0) {
                *name = s->name;
                return &s->out[o].stream;
            }
    }
    return NULL;
}

enum br_sideband br_stage_sideband(struct br_stage *stage)
{
    enum br_sideband sideband = br_stage_input(stage, 0)->sideband;
    if (sideband != BR_SIDEBAND_UNKNOWN) return sideband;
    if (!stage->graph->sideband_told)
        br_stage_note(stage, "neither the source nor `stream:` states the sideband of the channels; upper is "
                             "assumed. If it is lower (an even Nyquist zone or a lower-sideband mixer: "
                             "CHIME, HIRAX, CASM), beams look at the mirror direction and fine channels are "
                             "in the wrong order. State it: `stream: {sideband: upper}` or `lower`");
    stage->graph->sideband_told = true;
    return BR_SIDEBAND_UPPER;
}

struct br_stream *br_stage_output(struct br_stage *stage, unsigned i)
{
    return i < stage->nout ? &stage->out[i].stream : NULL;
}

void br_stage_suggest_depth(struct br_stage *stage, unsigned i, unsigned depth)
{
    if (i < stage->nout && !stage->out[i].depth_given && depth > 0) stage->out[i].depth = depth;
}

const struct br_telescope *br_stage_telescope(const struct br_stage *stage)
{
    return stage->graph->telescope;
}

const struct br_stream_hints *br_stage_hints(const struct br_stage *stage)
{
    return &stage->graph->hints;
}

bool br_stage_given(const struct br_stage *stage, const char *param)
{
    return br_node_get(stage->node, param) != NULL;
}

/* Where what is made in configure belongs, and mistakes go. */
static struct br_config *config_of(const struct br_stage *stage)
{
    return stage->second != NULL ? stage->second : stage->graph->config;
}

void *br_stage_alloc(struct br_stage *stage, size_t bytes)
{
    return br_config_alloc(config_of(stage), bytes);
}

bool br_stage_is_update(const struct br_stage *stage)
{
    return stage->second != NULL;
}

const void *br_stage_running(const struct br_stage *stage)
{
    const struct br_graph *graph = stage->graph;
    for (size_t s = 0; stage->second != NULL && s < graph->nstages; s++)
        if (graph->stage[s].name == stage->name) return graph->stage[s].self;
    return NULL;
}

int64_t br_stage_run_ns(const struct br_stage *stage)
{
    return stage->graph->run_ns;
}

const char *br_stage_name(const struct br_stage *stage)
{
    return stage->name;
}

/* In configure the message belongs to a place in the file, later to the run. */
static int fail(struct br_stage *stage, int status, const struct br_node *at, const char *format,
                va_list args)
{
    char text[BR_ERROR_LENGTH];
    vsnprintf(text, sizeof text, format, args);
    if (stage->phase == BR_PHASE_CONFIGURE)
        br_config_error(config_of(stage), at, "stage '%s': %s", stage->name, text);
    else
        br_fail(&stage->state->error, status, "%s", text);
    return status;
}

int br_stage_fail(struct br_stage *stage, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(stage, status, stage->node, format, args);
    va_end(args);
    return status;
}

int br_stage_fail_at(struct br_stage *stage, const char *param, const char *format, ...)
{
    const struct br_node *value = br_node_get(stage->node, param);
    char text[BR_ERROR_LENGTH];
    snprintf(text, sizeof text, "%s: %s", param, format);
    va_list args;
    va_start(args, format);
    fail(stage, BR_E_INVALID, value != NULL ? value : stage->node, text, args);
    va_end(args);
    return BR_E_INVALID;
}

int br_stage_fail_run_at(struct br_stage *stage, const char *param, const char *format, ...)
{
    char text[BR_ERROR_LENGTH];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!stage->graph->only_shown) {
        stage->graph->not_now++;
        return br_stage_fail_at(stage, param, "%s", text);
    }
    br_stage_warn(stage, "%s: %s; it could not run now", param, text);
    return BR_OK;
}

int br_stage_decline_gpu(struct br_stage *stage, const char *format, ...)
{
    char text[BR_ERROR_LENGTH];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (stage->device < 0) return BR_OK;
    if (stage->device_given)
        return br_stage_fail(stage, BR_E_INVALID, "%s; choose `device: cpu` for it", text);
    br_log(stage->graph->log, BR_LOG_NOTE, stage->name, "runs on the CPU: %s", text);
    stage->device = -1;
    return BR_OK;
}

int br_stage_device(const struct br_stage *stage)
{
    return stage->device;
}

void *br_stage_stream(const struct br_stage *stage)
{
    return stage->state->gpu.handle;
}

static int copy(struct br_stage *stage, const struct br_rows *rows, unsigned n, bool beside)
{
    struct br_error error = {0};
    if (stage->device < 0) {
        for (const struct br_rows *r = rows; r < rows + n; r++)
            for (size_t i = 0; i < r->rows; i++)
                memcpy((char *)r->to + i * r->to_pitch, (const char *)r->from + i * r->from_pitch, r->width);
        return BR_OK;
    }
    int status = br_gpu_move_rows(rows, n, beside, &stage->state->gpu, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

int br_stage_copy_all(struct br_stage *stage, const struct br_rows *rows, unsigned n)
{
    return copy(stage, rows, n, true);
}

int br_stage_copy_rows(struct br_stage *stage, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                       size_t width, size_t rows)
{
    return copy(stage, &(struct br_rows){to, to_pitch, from, from_pitch, width, rows}, 1, false);
}

int br_stage_set_rows(struct br_stage *stage, void *to, size_t pitch, int byte, size_t width, size_t rows)
{
    struct br_error error = {0};
    if (stage->device < 0) {
        for (size_t i = 0; i < rows; i++) memset((char *)to + i * pitch, byte, width);
        return BR_OK;
    }
    int status = br_gpu_set_rows(to, pitch, byte, width, rows, &stage->state->gpu, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

int br_stage_exchange(struct br_stage *stage, void *to, const void *from, size_t bytes)
{
    struct br_error error = {0};
    if (stage->device < 0) {
        memcpy(to, from, bytes);
        return BR_OK;
    }
    int status = br_gpu_copy(to, from, bytes, &stage->state->gpu, &error);
    if (status == BR_OK) status = br_gpu_stream_wait(&stage->state->gpu, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

void br_stage_note(struct br_stage *stage, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    br_vlog(stage->graph->log, BR_LOG_NOTE, stage->name, format, args);
    va_end(args);
}

void br_stage_warn(struct br_stage *stage, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    br_vlog(stage->graph->log, BR_LOG_WARNING, stage->name, format, args);
    va_end(args);
}

void br_stage_trouble(struct br_stage *stage, const char *text)
{
    uint64_t words[BR_TROUBLE_WORDS] = {0};
    if (text == NULL && atomic_load_explicit(&stage->state->trouble[0], memory_order_relaxed) == 0) return;
    snprintf((char *)words, sizeof words, "%s", text != NULL ? text : "");
    br_board_write(&stage->state->trouble_version, stage->state->trouble, words, BR_TROUBLE_WORDS);
}

void br_stage_waits_for(struct br_stage *stage, const char *what)
{
    atomic_store_explicit(&stage->state->waits_for, what, memory_order_relaxed);
}

void br_stage_count_saturated(struct br_stage *stage, uint64_t values)
{
    if (values > 0) br_counter_add(&stage->state->counters.saturated, values);
}

void br_stage_has_counters(struct br_stage *stage, const struct br_counter *counters, size_t count)
{
    stage->counter = counters;
    stage->ncounters = count;
}

void br_stage_count(struct br_stage *stage, size_t i, uint64_t value)
{
    if (i < stage->ncounters && value > atomic_load_explicit(&stage->state->counted[i], memory_order_relaxed))
        atomic_store_explicit(&stage->state->counted[i], value, memory_order_relaxed);
}

void br_stage_holds(struct br_stage *stage, const struct br_memory *memory)
{
    stage->state->held = memory != NULL ? *memory : (struct br_memory){0};
}

void br_stage_count_lost(struct br_stage *stage, enum br_loss reason, uint64_t samples)
{
    if ((unsigned)reason >= BR_LOSS_COUNT) reason = BR_LOST_OTHER; /* a plugin newer than this beamring */
    if (samples > 0) br_counter_add(&stage->state->counters.lost[reason], samples);
}

void br_stage_count_gained(struct br_stage *stage, uint64_t samples)
{
    br_counter_add(&stage->state->counters.gained, samples);
}

struct br_frame *br_stage_lend_ahead(struct br_stage *stage, unsigned output, unsigned ahead)
{
    struct br_frame *frame = NULL;
    if (output >= stage->nout || br_queue_lend_ahead(stage->out[output].queue, ahead, &frame) != BR_OK)
        return NULL;
    return frame;
}

unsigned br_stage_threads(const struct br_stage *stage)
{
    return stage->graph->threads;
}

/* Two rounds of one stage, or one within a job: what calls this goes on with results that are not there, so
 * that the run fails when it comes back. */
static int misused(struct br_stage *stage)
{
    atomic_store(&stage->state->misused, true);
    return BR_E_INTERNAL;
}

int br_stage_parallel_begin(struct br_stage *stage, unsigned most, size_t jobs, br_stage_work *work,
                            void *arg)
{
    if (br_pool_in_job() || stage->state->in_round) return misused(stage);
    br_round_begin(&stage->state->round, stage->graph->state->pool, most, jobs, work, arg);
    stage->state->in_round = true;
    return BR_OK;
}

int br_stage_parallel_add(struct br_stage *stage, size_t more)
{
    if (br_pool_in_job() || !stage->state->in_round) return misused(stage);
    br_round_add(&stage->state->round, more);
    return BR_OK;
}

int br_stage_parallel_end(struct br_stage *stage)
{
    if (br_pool_in_job() || !stage->state->in_round) return misused(stage);
    br_round_end(&stage->state->round);
    stage->state->in_round = false;
    br_counter_add(&stage->state->counters.helped_ns,
                   atomic_load_explicit(&stage->state->round.helped_ns, memory_order_relaxed));
    return BR_OK;
}

int br_stage_parallel(struct br_stage *stage, size_t jobs, br_stage_work *work, void *arg)
{
    int status = br_stage_parallel_begin(stage, 0, jobs, work, arg);
    return status == BR_OK ? br_stage_parallel_end(stage) : status;
}

bool br_stage_stopping(const struct br_stage *stage)
{
    return atomic_load_explicit(&stage->graph->state->stopping, memory_order_relaxed);
}

bool br_stage_sleep_until(struct br_stage *stage, uint64_t ns)
{
    struct br_graph *graph = stage->graph;
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    atomic_store_explicit(&stage->state->process_since, 0,
                          memory_order_relaxed); /* it does not hang: it sleeps */
    pthread_mutex_lock(&graph->state->mutex);
    while (!graph->state->stop_signalled &&
           pthread_cond_timedwait(&graph->state->wake, &graph->state->mutex, &until) != ETIMEDOUT)
        continue;
    bool stopping = graph->state->stop_signalled;
    pthread_mutex_unlock(&graph->state->mutex);
    atomic_store_explicit(&stage->state->process_since, br_clock_ns(), memory_order_relaxed);
    return stopping;
}
