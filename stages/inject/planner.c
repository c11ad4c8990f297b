/* planner.c - the thread that plans events ahead of the stream, and how the stage's thread meets it. */
#include "stages/inject/planner.h"
#include "buffers/clock.h"
#include "buffers/threads.h"
#include "runtime/stage_updates.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A disk that does not answer is not waited for any more after so many looks. Looks are counted, not seconds:
 * a process that stands still does not look. */
enum { LOOK_MS = 100, MOST_LOOKS = 10 };
#define AHEAD_S     10.0         /* of stream for which the schedule is planned */
#define PATIENCE_NS 10000000000u /* a disk that does not answer for longer is told of, and left at the end */
#define END_S       5            /* between looks at the thread at the end of the run */

/* --- planning --- */

/* The open event that has samples of a channel in common with this one, or NULL. */
static const struct open *overlapped(const struct inject *s, const struct inject_planner *p,
                                     const struct inject_event *e)
{
    for (size_t i = 0; i < p->nopen; i++)
        for (size_t c = 0; c < s->nchannels; c++) {
            int64_t first, end, at = (int64_t)p->open[i].sample;
            burst_extent(&p->open[i].burst, c, &first, &end);
            if (first + at - INJECT_NOISE < e->last[c] && e->first[c] - INJECT_NOISE < end + at)
                return &p->open[i];
        }
    return NULL;
}

static void close_open(struct inject_planner *p, const char *id)
{
    for (size_t i = 0; i < p->nopen; i++)
        if (strcmp(p->open[i].id, id) == 0) p->open[i--] = p->open[--p->nopen];
}

/* Accepts a new event, tells of it and hands it over; or refuses it. Without the mutex. */
static void plan(struct inject_planner *p, struct inject_event *e)
{
    struct inject *s = p->s;
    const struct open *other = NULL;
    if (json_object_get(p->known, e->id) != NULL) { /* an earlier run has it, or an earlier update */
        inject_event_free(e);
        return;
    }
    pthread_mutex_lock(&p->mutex);
    e->gains = p->gains;
    if (e->gains != NULL) atomic_fetch_add(&e->gains->users, 1);
    pthread_mutex_unlock(&p->mutex);
    bool good = inject_accept(s, e, p->nworkers);
    if (good) other = overlapped(s, p, e);
    if (other != NULL)
        inject_refuse(e, "it overlaps with '%s'", other->id);
    else if (good && p->nopen == INJECT_OPEN)
        inject_refuse(e, "%d injections are open; expected fewer at a time", INJECT_OPEN);
    const enum inject_state told = e->state;
    bool saved = ledger_tell(p, e);
    pthread_mutex_lock(&p->mutex);
    if (e->state != INJECT_REFUSED && !saved)
        inject_refuse(e, "%s", p->trouble[0] != '\0' ? p->trouble : "no memory for its line");
    else if (e->state != INJECT_REFUSED && e->begin < p->position)
        inject_refuse(e, "it comes too late: its first sample is %" PRIu64 ", and the stream is at %" PRIu64,
                      e->begin, p->position);
    if (e->state != INJECT_REFUSED) {
        struct inject_event **at = &p->accepted;
        while (*at != NULL && (*at)->begin <= e->begin) at = &(*at)->next;
        e->next = *at;
        *at = e;
        p->open[p->nopen] = (struct open){.burst = e->burst, .sample = e->sample, .end = e->end};
        snprintf(p->open[p->nopen++].id, INJECT_ID, "%s", e->id);
        json_object_set_new(p->known, e->id, json_true());
        br_stage_mark(p->stage, e->begin + INJECT_NOISE, e->end, e->id); /* before the stage has it */
        pthread_mutex_unlock(&p->mutex);
        return;
    }
    json_object_set_new(p->known, e->id, json_true()); /* a list that is sent again does not repeat it */
    pthread_mutex_unlock(&p->mutex);
    if (e->state != told) ledger_tell(p, e);
    br_stage_warn(p->stage, "injection '%s' is refused: %s", e->id, e->why);
    inject_event_free(e);
}

/* Settles the state of an event with which the stage has done, and tells of it. */
static void conclude(struct inject_planner *p, struct inject_event *e)
{
    struct br_why why;
    if (!inject_settle(p->s, e, &why)) { /* the run fails; the ledger's last line stays `scheduled` */
        br_stage_warn(p->stage, "what became of injection '%s' is not known: %s", e->id, why.text);
        inject_event_free(e);
        return;
    }
    double added = ledger_share_added(p->s, e);
    if (added > 0)
        e->state = added > 1 - 1e-6 ? INJECT_INJECTED : INJECT_PARTLY;
    else if (e->state != INJECT_REFUSED)
        inject_refuse(e, "nothing of it was added: the stream has no samples there");
    if (e->state == INJECT_PARTLY)
        snprintf(e->why, sizeof e->why, "%.3g %% of it was not added: there the stream has no samples",
                 100 * (1 - added));
    ledger_tell(p, e);
    if (e->state == INJECT_REFUSED) br_stage_warn(p->stage, "injection '%s' is refused: %s", e->id, e->why);
    pthread_mutex_lock(&p->mutex);
    p->clipped += e->clipped;
    close_open(p, e->id);
    pthread_mutex_unlock(&p->mutex);
    inject_event_free(e);
}

/* The end of the stream for which all events are planned. */
static uint64_t planned(const struct inject_planner *p)
{
    uint64_t end = p->busy;
    for (const struct inject_event *e = p->inbox; e != NULL; e = e->next)
        if (e->begin < end) end = e->begin;
    double slot = p->s->schedule != NULL ? (double)p->slot * inject_slot(p->s) : INFINITY;
    return slot < (double)end ? (uint64_t)slot : end;
}

/* Waits until it is told of a change, for at most some ms. False: it was not. */
static bool wait_for_change(struct inject_planner *p, uint64_t ms)
{
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, ms * UINT64_C(1000000));
    return pthread_cond_timedwait(&p->changed, &p->mutex, &until) == 0;
}

static struct inject_event *pop(struct inject_event **list)
{
    struct inject_event *e = *list;
    *list = e->next;
    e->next = NULL;
    return e;
}

/* Whether the stream has come so far that the next slot of the schedule is to be planned. */
static bool slot_is_due(const struct inject_planner *p)
{
    double ahead = (double)p->position + AHEAD_S / p->s->sample_s;
    if (ahead < (double)p->wanted) ahead = (double)p->wanted;
    return p->s->schedule != NULL && (double)p->slot * inject_slot(p->s) <= ahead;
}

/* The next event to plan, with the mutex: from the inbox, else from the schedule. NULL: it is not time. */
static struct inject_event *next_event(struct inject_planner *p)
{
    if (p->inbox != NULL) return pop(&p->inbox);
    if (!p->started || p->quit || !slot_is_due(p)) return NULL;
    struct inject_event *e = inject_draw(p->s, p->slot++);
    if (e == NULL || (double)e->sample - inject_lead(p->s) >= (double)p->position) return e;
    inject_event_free(e); /* its slot had begun when the stream did, or the stream has a hole there */
    return NULL;
}

static void *run(void *arg)
{
    struct inject_planner *p = arg;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        uint64_t slot = p->slot;
        struct inject_event *over = p->finished != NULL ? pop(&p->finished) : NULL,
                            *fresh = over == NULL ? next_event(p) : NULL;
        bool again = p->slot != slot, unsaved = p->nunsaved > 0;
        if (over == NULL && fresh == NULL && !again) {
            pthread_cond_broadcast(&p->changed);
            if (p->quit) break;
            if (unsaved)
                wait_for_change(p, 1000);
            else
                pthread_cond_wait(&p->changed, &p->mutex);
        }
        if (fresh != NULL) p->busy = fresh->begin;
        pthread_mutex_unlock(&p->mutex);
        if (over != NULL) conclude(p, over);
        if (fresh != NULL) plan(p, fresh);
        if (unsaved) ledger_save_rest(p);
        pthread_mutex_lock(&p->mutex);
        p->busy = UINT64_MAX;
        if (fresh != NULL) pthread_cond_broadcast(&p->changed);
    }
    while (p->accepted != NULL) {
        struct inject_event *e = pop(&p->accepted);
        pthread_mutex_unlock(&p->mutex);
        inject_refuse(e, "the stream ended before it");
        ledger_tell(p, e);
        inject_event_free(e);
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    if (p->nunsaved > 0) ledger_save_rest(p);
    return NULL;
}

/* --- for the stage --- */

int inject_planner_start(struct br_stage *stage, struct inject *s)
{
    bool failed, without;
    struct inject_planner *p = calloc(1, sizeof *p);
    struct inject_event *events = inject_events(s, &failed);
    if (p != NULL) p->gains = inject_gains_make(s, &without);
    if (p == NULL || failed || without || (p->known = json_object()) == NULL)
        return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for the events");
    s->planner = p;
    p->stage = stage;
    p->s = s;
    p->inbox = events;
    p->nworkers = br_stage_threads(stage);
    p->fd = ledger_open(s->ledger, p->trouble, sizeof p->trouble);
    if (p->fd < 0) br_stage_warn(stage, "%s: injections are refused until it can be written", p->trouble);
    ledger_read(stage, p, s->ledger);
    p->busy = UINT64_MAX;
    pthread_mutex_init(&p->mutex, NULL);
    br_cond_init(&p->changed);
    p->has_thread = pthread_create(&p->thread, NULL, run, p) == 0;
    return p->has_thread ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "no thread for the ledger");
}

static void free_list(struct inject_event *list)
{
    while (list != NULL) inject_event_free(pop(&list));
}

void inject_planner_stop(struct br_stage *stage, struct inject *s)
{
    struct inject_planner *p = s->planner;
    if (p == NULL) return;
    if (p->has_thread) {
        struct timespec until = br_clock_in(CLOCK_REALTIME, 0);
        pthread_mutex_lock(&p->mutex);
        p->quit = true;
        pthread_cond_broadcast(&p->changed);
        /* It has a last look at what is left; a disk that hangs is left behind, and so is its memory. */
        bool hangs = false;
        while (!hangs) {
            pthread_mutex_unlock(&p->mutex);
            until.tv_sec += END_S;
            if (pthread_timedjoin_np(p->thread, NULL, &until) == 0) break;
            pthread_mutex_lock(&p->mutex);
            hangs = p->disk_since != 0 && br_clock_ns() - p->disk_since > PATIENCE_NS;
            if (hangs) pthread_mutex_unlock(&p->mutex);
        }
        if (hangs) {
            br_stage_warn(stage, "the disk of %s does not answer: the ledger is not complete", s->ledger);
            return;
        }
        pthread_mutex_destroy(&p->mutex);
        pthread_cond_destroy(&p->changed);
    }
    br_stage_count_saturated(stage, p->clipped);
    if (p->nunsaved > 0)
        br_stage_warn(stage, "%zu lines of the ledger are lost: %s", p->nunsaved, p->trouble);
    if (p->fd >= 0) close(p->fd);
    for (size_t i = 0; i < INJECT_KEPT; i++) free(p->told[i].text);
    json_decref(p->known);
    free_list(p->inbox);
    free_list(p->accepted);
    free_list(p->finished);
    inject_gains_leave(p->gains);
    free(p);
    s->planner = NULL;
}

static void join(struct inject_event **list, struct inject_event *more)
{
    while (*list != NULL) list = &(*list)->next;
    *list = more;
}

void inject_planner_add(struct inject *s, struct inject_event *events, uint64_t sample)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    if (p->position < sample) p->position = sample;
    join(&p->inbox, events);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void inject_planner_exchange(struct inject *s, struct inject_gains **gains)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    struct inject_gains *before = p->gains;
    p->gains = *gains;
    *gains = before;
    pthread_mutex_unlock(&p->mutex);
}

void inject_planner_give(struct inject *s, struct inject_event *events)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    join(&p->finished, events);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

struct inject_event *inject_planner_take(struct br_stage *stage, struct inject *s, uint64_t first,
                                         uint64_t end)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    if (p->position < first || !p->started) {
        p->position = first;
        if (s->schedule != NULL) {
            uint64_t slot = (uint64_t)((double)first / inject_slot(s));
            if (p->slot < slot) p->slot = slot;
        }
    }
    p->wanted = end;
    bool wake = !p->started || slot_is_due(p);
    p->started = true;
    if (wake) pthread_cond_broadcast(&p->changed);
    while (planned(p) < end && p->looks < MOST_LOOKS) {
        br_stage_waits_for(stage, "the ledger");
        if (!wait_for_change(p, LOOK_MS) && p->disk_since != 0) p->looks++;
        br_stage_waits_for(stage, NULL);
    }
    if (p->position < end) p->position = end;
    struct inject_event *list = p->accepted, **at = &list;
    while (*at != NULL && (*at)->begin < end) at = &(*at)->next;
    p->accepted = *at;
    *at = NULL;
    bool hangs =
        p->looks == MOST_LOOKS || (p->disk_since != 0 && br_clock_ns() - p->disk_since > PATIENCE_NS);
    const char *trouble = hangs ? "the ledger's disk does not answer: injections are refused"
                          : p->trouble[0] != '\0' ? p->trouble
                                                  : NULL;
    if (trouble != NULL || s->troubled) br_stage_trouble(stage, trouble);
    s->troubled = trouble != NULL;
    br_stage_count_saturated(stage, p->clipped);
    p->clipped = 0;
    pthread_mutex_unlock(&p->mutex);
    return list;
}
