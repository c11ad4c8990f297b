/* verdict.c - see verdict.h. */
#include "runtime/control/verdict.h"

/* Rates and shares are those of so many seconds; what stands still for less is not held up. */
#define WINDOW_S 2.0
#define STILL_S  1.0
#define LEAST_S  0.4
/* A queue is full when its producer waits for more than this. Behind a full queue frames may come in bursts:
 * there less is enough to go on looking. */
#define FULL_SHARE  0.5
#define BURST_SHARE 0.1

const char *const queue_state_name[4] = {"idle", "flowing", "full", "starved"};
const char *const verdict_kind_name[VERDICT_ENDED + 1] = {"flows",   "limits", "trouble", "holds",
                                                          "no_data", "failed", "ended"};

/* --- shares and rates --- */

/* Never negative: counters may be read in any order. */
static double since_before(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

static double share(uint64_t now, uint64_t before, double ns)
{
    double part = ns > 0 ? since_before(now, before) / ns : 0;
    return part < 1 ? part : 1;
}

void view_stage_shares(const struct br_view *view, size_t at, struct view_shares *shares)
{
    const struct view_moment *before = view_before(view, WINDOW_S);
    *shares = (struct view_shares){0};
    if (before == NULL) return;
    const struct view_stage_now *a = &before->stage[at], *b = &view->now.stage[at];
    double ns = (double)(view->now.at_ns - before->at_ns);
    uint64_t busy = b->totals.busy_ns;
    if (b->process_since != 0 && b->process_since < view->now.at_ns)
        busy += view->now.at_ns - b->process_since; /* the call that has not returned */
    shares->busy = share(busy, a->totals.busy_ns, ns);
    double works = share(b->totals.cpu_ns, a->totals.cpu_ns, ns);
    shares->works = works < shares->busy ? works : shares->busy; /* others may have helped */
    shares->wait_in = share(b->totals.wait_in_ns, a->totals.wait_in_ns, ns);
    shares->wait_out = share(b->totals.wait_out_ns, a->totals.wait_out_ns, ns);
    double values = 0;
    for (unsigned i = 0; i < view->stage[at].nout; i++) {
        int q = view->stage[at].out[i];
        values += view->queue[q].values_per_sample *
                  since_before(view->now.queue[q].samples, before->queue[q].samples);
    }
    if (values > 0) shares->clamped = since_before(b->totals.saturated, a->totals.saturated) / values;
    double frames = since_before(b->totals.in_frames, a->totals.in_frames);
    if (view->stage[at].nin == 0) frames = since_before(b->totals.out_frames, a->totals.out_frames);
    if (frames > 0) shares->busy_s_per_frame = since_before(busy, a->totals.busy_ns) * 1e-9 / frames;
    double sampled = since_before(b->gpu_calls, a->gpu_calls);
    if (sampled <= 0) return;
    shares->gpu_s_per_call = since_before(b->gpu_ns, a->gpu_ns) * 1e-9 / sampled;
    shares->gpu = shares->gpu_s_per_call * since_before(b->totals.calls, a->totals.calls) / (ns * 1e-9);
}

double view_real_time_factor(const struct br_view *view)
{
    const struct view_moment *before = view_before(view, WINDOW_S);
    if (before == NULL || view->now.at_ns <= before->at_ns) return 0;
    double stream_s = view->now.stream_s - before->stream_s;
    return stream_s > 0 ? stream_s / ((double)(view->now.at_ns - before->at_ns) * 1e-9) : 0;
}

static double seconds_since(const struct br_view *view, uint64_t ns)
{
    return view->now.at_ns > ns ? (double)(view->now.at_ns - ns) * 1e-9 : 0;
}

/* --- queues --- */

/* A frame of many seconds is not late before it is due. */
static double still_after(const struct view_queue *queue)
{
    double due = 2 * queue->frame_s;
    return due > STILL_S && due < 600 ? due : STILL_S;
}

/* The share of the last seconds for which the producer waited. The first moments of a run say little. */
static double waited(const struct br_view *view, size_t q)
{
    const struct view_moment *before = view_before(view, WINDOW_S);
    double ns = before != NULL ? (double)(view->now.at_ns - before->at_ns) : 0;
    return ns >= LEAST_S * 1e9 ? share(view->now.queue[q].wait_ns, before->queue[q].wait_ns, ns) : 0;
}

enum queue_state queue_state(const struct br_view *view, size_t q)
{
    const struct br_queue_counters *now = &view->now.queue[q];
    if (now->ended) return QUEUE_IDLE;
    if (waited(view, q) > FULL_SHARE) return QUEUE_FULL;
    if (seconds_since(view, view->queue_moved[q]) < STILL_S && now->frames > 0) return QUEUE_FLOWING;
    for (unsigned r = 0; r < view->queue[q].nreaders; r++)
        if (view->now.reader[view->queue[q].first_reader + r].wait_since != 0) return QUEUE_STARVED;
    return QUEUE_IDLE;
}

/* The blocking reader that is farthest behind, or -1. */
static int slowest_reader(const struct br_view *view, size_t q)
{
    const struct view_queue *queue = &view->queue[q];
    int slowest = -1;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < queue->nreaders; i++) {
        unsigned r = queue->first_reader + i;
        const struct br_reader_counters *c = &view->now.reader[r];
        uint64_t done = c->next - c->held_frames;
        if (view->reader[r].policy != BR_POLICY_BLOCK || done >= least) continue;
        if (view->now.stage[view->reader[r].stage].ended) continue;
        least = done;
        slowest = (int)r;
    }
    return slowest;
}

/* --- who is to blame for a full queue --- */

/* The stage on the same device whose work takes most of the GPU's time. */
static int busiest_on_gpu(const struct br_view *view, int device, struct view_shares *most)
{
    int stage = -1;
    for (size_t s = 0; s < view->nstages; s++) {
        struct view_shares shares;
        if (view->stage[s].device < 0 || (device >= 0 && view->stage[s].device != device)) continue;
        view_stage_shares(view, s, &shares);
        if (stage >= 0 && shares.gpu <= most->gpu) continue;
        stage = (int)s;
        *most = shares;
    }
    return stage;
}

/* The most frequent reason for waiting in the last moments, including this one. */
static const char *waits_for(const struct br_view *view, int stage)
{
    const char *what = view->now.stage[stage].waits_for;
    unsigned n = 1, yes = what != NULL;
    for (uint64_t i = view->npast < 6 ? 0 : view->npast - 6; i < view->npast; i++) {
        const char *then = view->past[i % VIEW_MOMENTS].stage[stage].waits_for;
        n++;
        yes += then != NULL;
        if (what == NULL) what = then;
    }
    return 2 * yes >= n ? what : NULL;
}

static void say_cause(const struct br_view *view, struct verdict *v, int feeds)
{
    const struct view_stage_now *now = &view->now.stage[v->stage];
    struct view_shares shares;
    view_stage_shares(view, (size_t)v->stage, &shares);
    const char *what = waits_for(view, v->stage);
    double call_s = now->process_since != 0 ? seconds_since(view, now->process_since) : 0;
    if (what != NULL && call_s > STILL_S)
        snprintf(v->cause, sizeof v->cause, "it has waited for %.200s for %.1f s", what, call_s);
    else if (what != NULL)
        snprintf(v->cause, sizeof v->cause, "it waits for %.200s %.0f %% of the time", what,
                 100 * (shares.busy - shares.works));
    else if (now->trouble[0] != '\0')
        snprintf(v->cause, sizeof v->cause, "%s", now->trouble);
    else if (call_s > STILL_S)
        snprintf(v->cause, sizeof v->cause, "it has been in one call for %.1f s", call_s);
    else if (now->wait_in != VIEW_NO_QUEUE && now->wait_in != feeds && shares.wait_in > 0.5)
        snprintf(v->cause, sizeof v->cause, "it waits for frames of '%.64s'", view->queue[now->wait_in].name);
    else
        snprintf(v->cause, sizeof v->cause, "it takes %.3g ms a frame, %.0f %% of the time",
                 1e3 * shares.busy_s_per_frame, 100 * shares.busy);
}

/* How much of its time a stage works: on a GPU the kernels' time counts, as the host only enqueues them. */
static double load_of(const struct br_view *view, int stage, struct view_shares *shares)
{
    view_stage_shares(view, (size_t)stage, shares);
    return view->stage[stage].device >= 0 ? shares->gpu : shares->busy;
}

/* The output that keeps the stage waiting most, or -1. */
static int waits_at(const struct br_view *view, const struct view_stage *stage)
{
    int queue = -1;
    double most = BURST_SHARE;
    for (unsigned i = 0; i < stage->nout; i++) {
        double share = waited(view, (size_t)stage->out[i]);
        if (share < most) continue;
        most = share;
        queue = stage->out[i];
    }
    return queue;
}

/* Among the stages from a full queue down, as far as each waits for the next one, the one that works most;
 * the last one where none does. Returns the reader by which it takes its frames, or -1. */
static int find_slowest(const struct br_view *view, size_t q)
{
    struct view_shares shares;
    int found = -1, next = (int)q;
    double most = -1;
    for (size_t step = 0; next >= 0 && step <= view->nqueues; step++) {
        int reader = slowest_reader(view, (size_t)next);
        if (reader < 0) break;
        double load = load_of(view, view->reader[reader].stage, &shares);
        if (load >= most - 0.02) {
            most = load > most ? load : most;
            found = reader;
        }
        next = waits_at(view, &view->stage[view->reader[reader].stage]);
    }
    return found;
}

/* Between GPU stages nobody's host waits: where one of them is at the end, or a GPU is waited for, the one
 * with the most GPU time is to blame. */
static void blame_gpu(const struct br_view *view, struct verdict *v)
{
    struct view_shares host, gpu = {0};
    const struct view_stage_now *producer = &view->now.stage[view->queue[v->queue].producer];
    int device = view->stage[v->stage].device;
    if (device < 0 && !producer->wait_gpu && !view->now.stage[v->stage].wait_gpu) return;
    int busiest = busiest_on_gpu(view, device, &gpu);
    if (busiest < 0 || (device < 0 && load_of(view, v->stage, &host) > gpu.gpu)) return;
    v->stage = busiest;
    snprintf(v->cause, sizeof v->cause,
             "its work on cuda:%d takes %.0f %% of the time, %.3g ms of GPU time a call",
             view->stage[busiest].device, 100 * gpu.gpu, 1e3 * gpu.gpu_s_per_call);
}

/* From a full queue down to the stage that does not get on. */
static void blame(const struct br_view *view, size_t q, struct verdict *v)
{
    int reader = find_slowest(view, q);
    if (reader < 0) return;
    v->stage = view->reader[reader].stage;
    v->queue = view->reader[reader].queue;
    double still = seconds_since(view, view->reader_moved[reader]);
    v->kind = still > still_after(&view->queue[v->queue]) ? VERDICT_HOLDS : VERDICT_LIMITS;
    v->since_s = v->kind == VERDICT_HOLDS ? still : 0;
    blame_gpu(view, v);
    if (v->cause[0] == '\0') say_cause(view, v, v->queue);
    snprintf(v->sentence, sizeof v->sentence, "%.64s %s: %.300s; queue '%.64s' before it is full",
             view->stage[v->stage].name,
             v->kind == VERDICT_HOLDS ? "holds the pipeline up" : "limits the pipeline", v->cause,
             view->queue[v->queue].name);
}

/* --- the other things that can be wrong, in the order in which they matter --- */

static bool has_failed(const struct br_view *view, struct verdict *v)
{
    if (view->failed_stage < 0) return false;
    v->kind = VERDICT_FAILED;
    v->stage = view->failed_stage;
    snprintf(v->cause, sizeof v->cause, "%.300s", view->failure);
    snprintf(v->sentence, sizeof v->sentence, "%.64s has failed: %.400s", view->stage[v->stage].name,
             view->failure);
    return true;
}

static bool has_ended(const struct br_view *view, struct verdict *v)
{
    for (size_t s = 0; s < view->nstages; s++)
        if (!view->now.stage[s].ended) return false;
    v->kind = VERDICT_ENDED;
    snprintf(v->sentence, sizeof v->sentence, "the pipeline has ended: all stages are done");
    return true;
}

static bool gives_nothing(const struct br_view *view, struct verdict *v)
{
    for (size_t s = 0; s < view->nstages; s++) {
        const struct view_stage *stage = &view->stage[s];
        const struct view_stage_now *now = &view->now.stage[s];
        if (stage->nin > 0 || stage->nout == 0 || now->ended || now->wait_out != VIEW_NO_QUEUE) continue;
        size_t q = (size_t)stage->out[0];
        double still = seconds_since(view, view->queue_moved[q]);
        if (still < still_after(&view->queue[q])) continue;
        v->kind = VERDICT_NO_DATA;
        v->stage = (int)s;
        v->queue = (int)q;
        v->since_s = still;
        const char *what = waits_for(view, (int)s);
        if (what != NULL)
            snprintf(v->cause, sizeof v->cause, "it waits for %.200s", what);
        else if (now->trouble[0] != '\0')
            snprintf(v->cause, sizeof v->cause, "%s", now->trouble);
        else
            snprintf(v->cause, sizeof v->cause, "nothing comes");
        snprintf(v->sentence, sizeof v->sentence, "source %.64s has given nothing %sfor %.1f s: %.300s",
                 stage->name, view->now.queue[q].frames == 0 ? "yet, " : "", still, v->cause);
        return true;
    }
    return false;
}

/* True when frames wait, whether some move or none. */
static bool is_full(const struct br_view *view, struct verdict *v)
{
    for (size_t q = 0; q < view->nqueues; q++) {
        if (queue_state(view, q) != QUEUE_FULL) continue;
        blame(view, q, v);
        if (v->stage >= 0) return true;
    }
    return false;
}

/* Whether a stage or a dropping reader has lost samples in the last seconds. */
static bool loses(const struct br_view *view, const struct view_moment *before, size_t s, bool limited,
                  struct verdict *v)
{
    const struct view_stage_now *a = &before->stage[s], *b = &view->now.stage[s];
    double in = since_before(b->totals.in_samples, a->totals.in_samples);
    if (view->stage[s].nin == 0) in = since_before(b->totals.out_samples, a->totals.out_samples);
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++) {
        double lost = since_before(b->lost[i], a->lost[i]);
        if (lost <= 0 || (limited && i == BR_LOST_NO_FRAME)) continue; /* whoever is slow is to blame */
        if (view->stage[s].nin == 0) in += lost;
        snprintf(v->cause, sizeof v->cause, "%.3g %% of its samples are lost (%s): %s%s%.200s",
                 in > 0 && lost < in ? 100 * lost / in : 100, br_losses[i].name, br_losses[i].text,
                 b->trouble[0] != '\0' ? "; " : "", b->trouble);
        return true;
    }
    for (unsigned i = 0; i < view->stage[s].nin; i++) {
        int r = view->stage[s].in[i];
        double dropped = since_before(view->now.reader[r].dropped_samples, before->reader[r].dropped_samples);
        if (dropped <= 0) continue;
        snprintf(v->cause, sizeof v->cause, "it is too slow for queue '%.64s' and drops frames",
                 view->queue[view->reader[r].queue].name);
        v->queue = view->reader[r].queue;
        return true;
    }
    return false;
}

static bool has_trouble(const struct br_view *view, bool limited, struct verdict *v)
{
    const struct view_moment *before = view_before(view, WINDOW_S);
    struct verdict found = {.kind = VERDICT_TROUBLE, .stage = -1, .queue = -1};
    for (size_t s = 0; s < view->nstages; s++) {
        const struct view_stage_now *now = &view->now.stage[s];
        bool lost = !now->ended && before != NULL && loses(view, before, s, limited, &found);
        if (now->ended || (!lost && now->trouble[0] == '\0')) continue;
        found.stage = (int)s;
        if (!lost) snprintf(found.cause, sizeof found.cause, "%s", now->trouble);
        snprintf(found.sentence, sizeof found.sentence, "%.64s: %.320s", view->stage[s].name, found.cause);
        *v = found;
        return true;
    }
    return false;
}

static void flows(const struct br_view *view, struct verdict *v)
{
    int slowest = -1;
    double most = 0;
    for (size_t s = 0; s < view->nstages; s++) {
        struct view_shares shares;
        view_stage_shares(view, s, &shares);
        double load = shares.gpu > 0 ? shares.gpu : shares.works;
        if (view->stage[s].nin == 0 || load <= most) continue;
        most = load;
        slowest = (int)s;
    }
    v->kind = VERDICT_FLOWS;
    int n = snprintf(v->sentence, sizeof v->sentence, "the pipeline flows, at %.3g times real time",
                     view_real_time_factor(view));
    if (slowest >= 0)
        snprintf(v->sentence + n, sizeof v->sentence - (size_t)n, "; the busiest stage is %.64s (%.0f %%)",
                 view->stage[slowest].name, 100 * most);
}

/* A stage that stands still comes before an incomplete one, and that before a slow one: a pipeline that
 * replays files as fast as it can is always limited by one of its stages. */
void verdict_make(const struct br_view *view, struct verdict *v)
{
    *v = (struct verdict){.stage = -1, .queue = -1};
    if (has_failed(view, v) || has_ended(view, v)) return;
    bool limited = is_full(view, v);
    if (limited && v->kind == VERDICT_HOLDS) return;
    if (gives_nothing(view, v) || has_trouble(view, limited, v) || limited) return;
    flows(view, v);
}

const char *view_silent_stage(const struct br_view *view, double late_s, double *silence)
{
    for (size_t s = 0; s < view->nstages; s++) {
        const struct view_stage *stage = &view->stage[s];
        bool source = stage->nin == 0 && stage->nout > 0, sink = stage->nout == 0 && stage->nin > 0;
        if (!source && !sink) continue;
        size_t q = source ? (size_t)stage->out[0] : (size_t)view->reader[stage->in[0]].queue;
        uint64_t moved = source ? view->queue_moved[q] : view->reader_moved[stage->in[0]];
        bool never = source ? view->now.queue[q].frames == 0 : view->now.reader[stage->in[0]].next == 0;
        double due = 3 * view->queue[q].frame_s;
        *silence = view->now.at_ns > moved ? (double)(view->now.at_ns - moved) * 1e-9 : 0;
        if (never || *silence > (due > late_s ? due : late_s)) return stage->name;
    }
    return NULL;
}
