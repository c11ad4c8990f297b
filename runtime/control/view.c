/* view.c - see view.h. */
#include "runtime/control/view.h"
#include "runtime/control/picture.h"

#include "buffers/clock.h"

#include <stdlib.h>
#include <string.h>

/* --- what does not change --- */

static int index_of(const struct br_graph *graph, const struct br_stage *stage)
{
    return (int)(stage - graph->stage);
}

static bool describe_stage(const struct br_stage *stage, struct view_stage *s)
{
    s->name = strdup(stage->name);
    s->type = strdup(stage->type->name);
    s->device = stage->device;
    s->nin = stage->nin;
    s->nout = stage->nout;
    s->memory = stage->memory;
    s->counted = calloc(stage->ncounters + 1, sizeof *s->counted);
    if (s->counted == NULL) return false;
    s->ncounted = stage->ncounters;
    for (size_t i = 0; i < s->ncounted; i++) {
        s->counted[i].of = strdup(stage->counter[i].of);
        s->counted[i].what = strdup(stage->counter[i].what);
        if (s->counted[i].of == NULL || s->counted[i].what == NULL) return false;
    }
    s->dumps = (stage->type->flags & BR_STAGE_HISTORY) != 0;
    return s->name != NULL && s->type != NULL;
}

static bool describe_queue(const struct br_graph *graph, const struct br_edge *edge, struct view_queue *q)
{
    char shape[256];
    q->name = strdup(edge->name);
    q->shape = strdup(br_array_format(&edge->stream.array, shape, sizeof shape));
    q->producer = index_of(graph, edge->producer);
    q->depth = edge->depth;
    q->place = edge->place;
    q->bytes = br_queue_bytes(edge->queue);
    q->device_bytes = br_queue_device_bytes(edge->queue);
    q->sample_s = br_stream_sample_s(&edge->stream);
    q->frame_s = q->sample_s * (double)edge->stream.frame_samples;
    q->frame_bytes = br_stream_max_bytes(&edge->stream);
    const struct br_array *array = &edge->stream.array;
    bool complex = array->dtype == BR_INT4X2 || array->dtype == BR_INT8X2 || array->dtype == BR_INT32X2;
    q->values_per_sample =
        (complex ? 2.0 : 1.0) * (double)br_array_elements(array) / (double)edge->stream.frame_samples;
    q->unseen = pictures_refuse(edge);
    q->epoch_ns = edge->stream.epoch_ns;
    q->sample_ns = edge->stream.sample_ns;
    return q->name != NULL && q->shape != NULL;
}

static bool describe(struct br_view *view, const struct br_graph *graph)
{
    bool ok = true;
    size_t r = 0;
    for (size_t s = 0; s < view->nstages; s++) ok &= describe_stage(&graph->stage[s], &view->stage[s]);
    for (size_t i = 0; i < view->nqueues; i++) {
        const struct br_edge *edge = br_graph_edge(graph, i);
        struct view_queue *queue = &view->queue[i];
        ok &= describe_queue(graph, edge, queue);
        view->stage[queue->producer].out[edge->port] = (int)i;
        queue->first_reader = (unsigned)r;
        for (const struct br_link *link = edge->readers; link != NULL; link = link->next, r++) {
            int stage = index_of(graph, link->stage);
            view->reader[r] = (struct view_reader){stage, (int)i, link->policy};
            view->stage[stage].in[link->port] = (int)r;
            queue->nreaders++;
        }
    }
    return ok;
}

static bool make_moment(struct view_moment *moment, const struct br_view *view)
{
    moment->stage = calloc(view->nstages + 1, sizeof *moment->stage);
    moment->queue = calloc(view->nqueues + 1, sizeof *moment->queue);
    moment->reader = calloc(view->nreaders + 1, sizeof *moment->reader);
    return moment->stage != NULL && moment->queue != NULL && moment->reader != NULL;
}

static void free_moment(struct view_moment *moment)
{
    free(moment->stage);
    free(moment->queue);
    free(moment->reader);
}

struct br_view *view_make(const struct br_graph *graph, uint64_t start_ns)
{
    struct br_view *view = calloc(1, sizeof *view);
    if (view == NULL) return NULL;
    view->nstages = graph->nstages;
    view->nqueues = br_graph_nedges(graph);
    for (size_t i = 0; i < view->nqueues; i++)
        for (const struct br_link *l = br_graph_edge(graph, i)->readers; l != NULL; l = l->next)
            view->nreaders++;
    view->start_ns = start_ns;
    view->failed_stage = -1;
    view->stage = calloc(view->nstages + 1, sizeof *view->stage);
    view->queue = calloc(view->nqueues + 1, sizeof *view->queue);
    view->reader = calloc(view->nreaders + 1, sizeof *view->reader);
    view->queue_moved = calloc(view->nqueues + 1, sizeof *view->queue_moved);
    view->reader_moved = calloc(view->nreaders + 1, sizeof *view->reader_moved);
    view->queue_frames = calloc(view->nqueues + 1, sizeof *view->queue_frames);
    view->reader_next = calloc(view->nreaders + 1, sizeof *view->reader_next);
    view->waited = calloc(2 * view->nstages + 1, sizeof *view->waited);
    view->queue_waited = calloc(view->nqueues + 1, sizeof *view->queue_waited);
    view->reader_waited = calloc(view->nreaders + 1, sizeof *view->reader_waited);
    bool ok = view->waited != NULL && view->queue_waited != NULL && view->reader_waited != NULL;
    ok = ok && view->stage != NULL && view->queue != NULL && view->reader != NULL &&
         view->queue_moved != NULL && view->reader_moved != NULL && view->queue_frames != NULL &&
         view->reader_next != NULL;
    for (size_t q = 0; ok && q < view->nqueues; q++) view->queue_moved[q] = start_ns;
    for (size_t r = 0; ok && r < view->nreaders; r++) view->reader_moved[r] = start_ns;
    ok = make_moment(&view->now, view) && ok;
    for (unsigned i = 0; i < VIEW_MOMENTS; i++) ok = make_moment(&view->past[i], view) && ok;
    if (ok && describe(view, graph)) return view;
    view_free(view);
    return NULL;
}

void view_free(struct br_view *view)
{
    if (view == NULL) return;
    for (size_t s = 0; view->stage != NULL && s < view->nstages; s++) {
        free(view->stage[s].name);
        free(view->stage[s].type);
        for (size_t i = 0; i < view->stage[s].ncounted; i++) {
            free(view->stage[s].counted[i].of);
            free(view->stage[s].counted[i].what);
        }
        free(view->stage[s].counted);
    }
    for (size_t q = 0; view->queue != NULL && q < view->nqueues; q++) {
        free(view->queue[q].name);
        free(view->queue[q].shape);
    }
    free(view->stage);
    free(view->queue);
    free(view->reader);
    free(view->queue_moved);
    free(view->reader_moved);
    free(view->queue_frames);
    free(view->reader_next);
    free(view->waited);
    free(view->queue_waited);
    free(view->reader_waited);
    free_moment(&view->now);
    for (unsigned i = 0; i < VIEW_MOMENTS; i++) free_moment(&view->past[i]);
    free(view);
}

/* --- what does --- */

static void look_at_waits(const struct br_view *view, const struct br_stage *stage,
                          const struct view_stage *description, struct view_stage_now *s)
{
    s->wait_in = s->wait_out = VIEW_NO_QUEUE;
    for (unsigned i = 0; i < stage->nin; i++) {
        const struct br_reader *reader = stage->in[i].reader;
        uint64_t since = view->now.reader[description->in[i]].wait_since,
                 gpu = br_reader_gpu_wait_since(reader);
        if (since == 0 && gpu == 0) continue;
        s->wait_in = view->reader[description->in[i]].queue;
        s->wait_in_since = since != 0 ? since : gpu;
        s->wait_gpu |= gpu != 0;
    }
    for (unsigned i = 0; i < stage->nout; i++) {
        const struct br_queue *queue = stage->out[i].queue;
        uint64_t since = view->now.queue[description->out[i]].wait_since,
                 gpu = br_queue_gpu_wait_since(queue);
        if (since == 0 && gpu == 0) continue;
        s->wait_out = description->out[i];
        s->wait_out_since = since != 0 ? since : gpu;
        s->wait_gpu |= gpu != 0;
    }
}

/* To Prometheus a counter that falls, if by a nanosecond, has begun again. */
static void never_falls(uint64_t *now, uint64_t *most)
{
    if (*now < *most) *now = *most;
    *most = *now;
}

static void look_at_stage(struct br_view *view, const struct br_stage *stage, size_t at)
{
    struct view_stage_now *s = &view->now.stage[at];
    const struct br_stage_counters *c = &stage->state->counters;
    uint64_t words[BR_TROUBLE_WORDS];
    *s = (struct view_stage_now){0};
    br_stage_get_totals(stage, &s->totals);
    never_falls(&s->totals.wait_in_ns, &view->waited[2 * at]);
    never_falls(&s->totals.wait_out_ns, &view->waited[2 * at + 1]);
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++) s->lost[i] = br_stage_lost(stage, i);
    for (unsigned i = 0; i < BR_DUMP_COUNT; i++)
        s->dumps[i] = atomic_load_explicit(&stage->state->counters.dumps[i], memory_order_relaxed);
    for (size_t i = 0; i < view->stage[at].ncounted; i++) {
        struct view_counted *counted = &view->stage[at].counted[i];
        uint64_t value = atomic_load_explicit(&stage->state->counted[i], memory_order_relaxed);
        if (value != counted->value) counted->moved_ns = view->now.at_ns;
        counted->value = value;
    }
    for (unsigned i = 0; i < BR_TIME_BUCKETS; i++)
        s->took[i] = atomic_load_explicit(&c->took[i], memory_order_relaxed);
    s->gpu_ns = atomic_load_explicit(&c->gpu_ns, memory_order_relaxed);
    s->gpu_calls = atomic_load_explicit(&c->gpu_calls, memory_order_relaxed);
    s->process_since = atomic_load_explicit(&stage->state->process_since, memory_order_relaxed);
    s->waits_for = atomic_load_explicit(&stage->state->waits_for, memory_order_relaxed);
    br_board_read(&stage->state->trouble_version, stage->state->trouble, words, BR_TROUBLE_WORDS);
    memcpy(s->trouble, words, sizeof s->trouble);
    s->trouble[sizeof s->trouble - 1] = '\0';
    s->latency_ns = atomic_load_explicit(&c->latency_ns, memory_order_relaxed);
    s->ended = atomic_load(&stage->state->ended);
    if (atomic_load(&stage->graph->state->prepared)) s->held = stage->state->held;
    look_at_waits(view, stage, &view->stage[at], s);
    /* The message is written by the stage's thread: it is looked at when that has ended. */
    s->failed = s->ended && stage->state->error.status != BR_OK && stage->state->error.status != BR_E_STOPPED;
}

static void look_for_failure(struct br_view *view, const struct br_graph *graph)
{
    const struct br_stage *first = atomic_load(&graph->state->first_failed);
    if (view->failed_stage >= 0 || first == NULL || !atomic_load(&first->state->ended)) return;
    view->failed_stage = index_of(graph, first);
    snprintf(view->failure, sizeof view->failure, "%.900s", first->state->error.text);
}

/* Keeps what stages have counted, once a second. */
static void keep_counted(struct br_view *view)
{
    if (view->now.at_ns == 0 || view->now.at_ns - view->counted_ns[1] < 1000000000) return;
    view->counted_ns[0] = view->counted_ns[1];
    view->counted_ns[1] = view->now.at_ns;
    for (size_t s = 0; s < view->nstages; s++)
        for (size_t i = 0; i < view->stage[s].ncounted; i++) {
            struct view_counted *counted = &view->stage[s].counted[i];
            counted->was[0] = counted->was[1];
            counted->was[1] = counted->value;
        }
}

double view_counted_per_s(const struct br_view *view, const struct view_counted *counted)
{
    unsigned at = view->counted_ns[0] == 0; /* 1: there is only one moment */
    if (view->counted_ns[at] == 0 || view->now.at_ns <= view->counted_ns[at]) return 0;
    return (double)(counted->value - counted->was[at]) /
           ((double)(view->now.at_ns - view->counted_ns[at]) * 1e-9);
}

void view_take(struct br_view *view, const struct br_graph *graph)
{
    uint64_t now = br_clock_ns();
    keep_counted(view);
    if (view->now.at_ns != 0 && now - view->last_ns >= VIEW_STEP_NS) {
        struct view_moment *oldest = &view->past[view->npast++ % VIEW_MOMENTS], kept = view->now;
        view->now = *oldest;
        *oldest = kept;
        view->last_ns = now;
    }
    view->now.at_ns = now;
    view->now.unix_ns = br_unix_ns();
    view->now.stream_s = br_run_times(graph, view->start_ns, now).stream_s;
    for (size_t q = 0; q < view->nqueues; q++) {
        const struct br_edge *edge = br_graph_edge(graph, q);
        size_t r = view->queue[q].first_reader;
        struct br_queue_counters *c = &view->now.queue[q];
        br_queue_get_counters(edge->queue, c);
        never_falls(&c->wait_ns, &view->queue_waited[q]);
        if (c->frames != view->queue_frames[q]) view->queue_moved[q] = now;
        view->queue_frames[q] = c->frames;
        for (const struct br_link *link = edge->readers; link != NULL; link = link->next, r++) {
            br_reader_get_counters(link->reader, &view->now.reader[r]);
            never_falls(&view->now.reader[r].wait_ns, &view->reader_waited[r]);
            if (view->now.reader[r].next != view->reader_next[r]) view->reader_moved[r] = now;
            view->reader_next[r] = view->now.reader[r].next;
        }
    }
    for (size_t s = 0; s < view->nstages; s++) look_at_stage(view, &graph->stage[s], s);
    look_for_failure(view, graph);
}

static void let_go(struct view_moment *moment, size_t nstages)
{
    for (size_t s = 0; s < nstages; s++) moment->stage[s].waits_for = NULL;
}

void view_let_go(struct br_view *view)
{
    let_go(&view->now, view->nstages);
    for (unsigned i = 0; i < VIEW_MOMENTS; i++) let_go(&view->past[i], view->nstages);
}

const struct view_moment *view_before(const struct br_view *view, double seconds)
{
    uint64_t n = view->npast < VIEW_MOMENTS ? view->npast : VIEW_MOMENTS;
    for (uint64_t i = view->npast - n; i < view->npast; i++) {
        const struct view_moment *moment = &view->past[i % VIEW_MOMENTS];
        if ((double)(view->now.at_ns - moment->at_ns) <= seconds * 1e9) return moment;
    }
    return NULL;
}
