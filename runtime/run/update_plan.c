/* update_plan.c - updates on their way into the stages' lists: prepared with nothing that runs being touched,
 * then linked at once, behind all others. See updates.h. */
#include "runtime/run/updates.h"

#include <stdlib.h>

/* --- moments ----------------------------------------------------------------------------------------- */

uint64_t br_updates_earliest(const struct br_graph *graph)
{
    uint64_t earliest = 0;
    for (size_t s = 0; s < graph->nfile; s++) {
        uint64_t taken = atomic_load(&graph->stage[s].state->updates.taken);
        if (taken > earliest) earliest = taken;
    }
    return earliest;
}

/* The first sample that is not before a Unix time. */
static uint64_t sample_at(const struct br_stream *stream, int64_t time_ns)
{
    __int128_t since = (__int128_t)time_ns - stream->epoch_ns;
    if (since <= 0) return 0;
    return (uint64_t)((since * stream->sample_ns.den + stream->sample_ns.num - 1) / stream->sample_ns.num);
}

int64_t br_update_time_ns(const struct br_update *update)
{
    const struct br_stream *stream = br_update_stream(update->change[0]->stage);
    int64_t time_ns = br_stream_time_ns(stream, update->sample); /* the nearest one: it may lie behind */
    if (update->at == BR_AT_TIME) return update->time_ns;
    return sample_at(stream, time_ns) > update->sample ? time_ns - 1 : time_ns;
}

const struct br_stream *br_update_stream(const struct br_stage *stage)
{
    return stage->in[0].edge != NULL ? &stage->in[0].edge->stream : &stage->out[0].stream;
}

/* Where a change shall hold from; for BR_AT_NOW where it would, if linked now. */
static uint64_t moment_of(const struct br_update *update, const struct br_stage *stage, uint64_t now)
{
    if (update->at == BR_AT_TIME) return sample_at(br_update_stream(stage), update->time_ns);
    return update->at == BR_AT_SAMPLE ? update->sample : now;
}

static uint64_t taken_by(const struct br_update_request *request)
{
    uint64_t most = 0;
    for (size_t i = 0; i < request->nstages; i++) {
        uint64_t taken = atomic_load(&request->stage[i]->state->updates.taken);
        if (taken > most) most = taken;
    }
    return most;
}

/* --- a stage's list, under the mutex ------------------------------------------------------------------ */

/* The last scheduled change but `except`, or NULL. */
static struct br_change *last_scheduled(const struct br_stage *stage, const struct br_change *except)
{
    struct br_change *last = NULL, *c = atomic_load(&stage->state->updates.first);
    for (; c != NULL && c != except; c = c->next) last = c;
    return last;
}

static void append(struct br_change *change)
{
    struct br_change *before = last_scheduled(change->stage, NULL);
    if (before != NULL)
        before->next = change;
    else
        atomic_store(&change->stage->state->updates.first, change);
}

/* The last one of its list. */
static void take_off(struct br_change *change)
{
    struct br_change *before = last_scheduled(change->stage, change);
    if (before != NULL)
        before->next = NULL;
    else
        atomic_store(&change->stage->state->updates.first, NULL);
}

static bool is_scheduled(const struct br_change *change)
{
    const struct br_change *c = atomic_load(&change->stage->state->updates.first);
    while (c != NULL && c != change) c = c->next;
    return c != NULL;
}

uint64_t br_update_earliest(struct br_graph *graph, const struct br_update_request *request)
{
    pthread_mutex_lock(&graph->state->updates->mutex);
    uint64_t earliest = taken_by(request);
    for (size_t i = 0; i < request->nstages; i++) {
        const struct br_change *last = last_scheduled(request->stage[i], NULL);
        if (last != NULL && last->sample > earliest) earliest = last->sample;
    }
    pthread_mutex_unlock(&graph->state->updates->mutex);
    return earliest;
}

/* --- scheduling -------------------------------------------------------------------------------------- */

/* Makes and prepares what one stage needs, with the values of the change that will be before it: only this
 * thread adds changes and frees them. BR_OK, or a status with a mistake in the config. */
static int prepare_stage(struct br_update *update, struct br_stage *stage, const struct br_node *given)
{
    pthread_mutex_t *mutex = &stage->graph->state->updates->mutex;
    pthread_mutex_lock(mutex);
    const struct br_change *before = last_scheduled(stage, NULL);
    if (before == NULL) before = stage->state->updates.last;
    pthread_mutex_unlock(mutex);
    const struct br_node *base = before != NULL ? before->node : stage->node;
    struct br_change *change = br_change_make(update, stage, base, given, update->config);
    if (change == NULL) return BR_E_INVALID;
    update->change[update->nchanges++] = change;
    return br_held_make(change, before) ? br_change_prepare(change) : BR_E_NO_MEMORY;
}

static void drop(struct br_update *update)
{
    for (size_t i = 0; i < update->nchanges; i++) {
        br_change_discard(update->change[i]);
        free(update->change[i]);
    }
    update->nchanges = 0;
}

/* Whether a change that was appended may stay. Under the mutex: a stage that goes on sees the list and
 * waits. */
static enum br_update_outcome judge(const struct br_change *change, enum br_update_at at,
                                    struct br_error *error)
{
    const struct br_stage *stage = change->stage;
    const struct br_change *before = last_scheduled(stage, change);
    uint64_t taken = atomic_load(&stage->state->updates.taken);
    if (atomic_load(&stage->state->ended)) {
        br_fail(error, BR_E_STOPPED, "its stages have ended");
        return BR_UPDATE_CONFLICT;
    }
    if (at != BR_AT_NOW && change->sample < taken) {
        br_fail(error, BR_E_INVALID,
                "it is too late: stage '%s' has reached sample %llu; ask for the `earliest` sample or later",
                stage->name, (unsigned long long)taken);
        return BR_UPDATE_LATE;
    }
    if (before != NULL && change->sample < before->sample) {
        br_fail(
            error, BR_E_INVALID,
            "stage '%s' has update '%s' scheduled for sample %llu, and takes updates in order only; ask for "
            "the `earliest` sample or later, or cancel that one first",
            stage->name, before->update->id, (unsigned long long)before->sample);
        return BR_UPDATE_LATE;
    }
    return BR_UPDATE_OK;
}

/* Links the changes into all stages' lists at once, or leaves all as it was. */
static enum br_update_outcome link_all(struct br_updates *updates, struct br_update *update,
                                       const struct br_update_request *request, struct br_error *error)
{
    enum br_update_outcome outcome = BR_UPDATE_OK;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < update->nchanges; i++) append(update->change[i]);
    uint64_t now = taken_by(request);
    for (size_t i = 0; i < update->nchanges && outcome == BR_UPDATE_OK; i++) {
        struct br_change *change = update->change[i];
        change->sample = moment_of(update, change->stage, now);
        outcome = judge(change, update->at, error);
    }
    for (size_t i = 0; i < update->nchanges && outcome != BR_UPDATE_OK; i++) take_off(update->change[i]);
    pthread_mutex_unlock(&updates->mutex);
    return outcome;
}

enum br_update_outcome br_update_schedule(struct br_graph *graph, struct br_update *update,
                                          const struct br_update_request *request, struct br_error *error)
{
    enum br_update_outcome outcome = BR_UPDATE_WRONG;
    int status = BR_OK;
    for (size_t i = 0; i < request->nstages && status == BR_OK; i++)
        status = prepare_stage(update, request->stage[i], request->values[i]);
    if (status == BR_OK)
        outcome = link_all(graph->state->updates, update, request, error);
    else if (status == BR_E_STOPPED)
        br_fail(error, status, "its stages have ended");
    else
        br_fail(error, status, "not enough memory for it");
    if (outcome == BR_UPDATE_OK) {
        update->sample = update->change[0]->sample;
        return outcome;
    }
    drop(update);
    if (status == BR_E_STOPPED) return BR_UPDATE_CONFLICT;
    return status == BR_E_NO_MEMORY || status == BR_E_DEVICE ? BR_UPDATE_FAILED : outcome;
}

bool br_update_is_far(const struct br_update *update, const struct br_update_request *request)
{
    bool far = false;
    for (size_t i = 0; i < request->nstages && update->at != BR_AT_NOW; i++) {
        uint64_t taken = atomic_load(&request->stage[i]->state->updates.taken),
                 sample = moment_of(update, request->stage[i], taken);
        double sample_s = br_stream_sample_s(br_update_stream(request->stage[i]));
        far = far || (sample > taken && (double)(sample - taken) * sample_s > BR_UPDATES_SOON_S);
    }
    return far;
}

enum br_update_outcome br_update_withdraw(struct br_graph *graph, struct br_update *update,
                                          struct br_error *error)
{
    struct br_updates *updates = graph->state->updates;
    bool good = true;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < update->nchanges && good; i++) {
        const struct br_change *c = update->change[i];
        good = is_scheduled(c) && c->sample >= atomic_load(&c->stage->state->updates.taken);
        if (!good)
            br_fail(error, BR_E_INVALID, "it is too late: stage '%s' has taken its sample, or has ended",
                    c->stage->name);
        if (!good || c->next == NULL) continue;
        br_fail(error, BR_E_INVALID,
                "stage '%s' has update '%s' scheduled behind it, with its values; cancel that one first",
                c->stage->name, c->next->update->id);
        good = false;
    }
    for (size_t i = 0; i < update->nchanges && good; i++) take_off(update->change[i]);
    pthread_mutex_unlock(&updates->mutex);
    if (!good) return BR_UPDATE_CONFLICT;
    pthread_mutex_lock(&updates->records);
    for (size_t i = 0; i < update->nchanges; i++) br_change_discard(update->change[i]);
    pthread_mutex_unlock(&updates->records);
    return BR_UPDATE_OK;
}
