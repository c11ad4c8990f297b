/* update_plan.c - updates on their way into the stages' lists: planned and prepared with nothing that runs
 * being touched, then linked at once. See updates.h. */
#include "runtime/run/updates.h"

#include <stdlib.h>

/* Changes that are made for one request: its own, and those of updates behind it, which get its values as
 * well. */
struct plan {
    size_t count, room;
    struct br_change **made;
    struct br_change **instead; /* [count] the change whose place it takes; NULL: the request's own */
};

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

uint64_t br_update_taken(const struct br_update_request *request)
{
    uint64_t most = 0;
    for (size_t i = 0; i < request->nstages; i++) {
        uint64_t taken = atomic_load(&request->stage[i]->state->updates.taken);
        if (taken > most) most = taken;
    }
    return most;
}

/* --- planning: nothing that runs is touched ---------------------------------------------------------- */

static bool add(struct plan *plan, struct br_change *made, struct br_change *instead)
{
    if (plan->count == plan->room) {
        size_t room = 2 * plan->room + 8;
        struct br_change **a = realloc(plan->made, room * sizeof(struct br_change *));
        if (a != NULL) plan->made = a;
        struct br_change **b = a != NULL ? realloc(plan->instead, room * sizeof(struct br_change *)) : NULL;
        if (b != NULL) plan->instead = b;
        if (b == NULL) return false;
        plan->room = room;
    }
    plan->made[plan->count] = made;
    plan->instead[plan->count++] = instead;
    return true;
}

static void drop(struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        br_change_discard(plan->made[i]);
        free(plan->made[i]);
    }
    free(plan->made);
    free(plan->instead);
    *plan = (struct plan){0};
}

/* The change behind which one at `sample` goes, or NULL: in front; and its values. What is found stays:
 * only this thread frees changes. */
static const struct br_change *before_sample(struct br_stage *stage, uint64_t sample,
                                             const struct br_node **values, struct br_change **behind)
{
    pthread_mutex_t *mutex = &stage->graph->state->updates->mutex;
    pthread_mutex_lock(mutex);
    const struct br_change *before = NULL;
    struct br_change *c = atomic_load(&stage->state->updates.first);
    const struct br_change *last = stage->state->updates.last;
    for (; c != NULL && c->sample <= sample; c = c->next) before = c;
    *behind = c;
    pthread_mutex_unlock(mutex);
    if (before == NULL) before = last;
    *values = before != NULL ? before->node : stage->node;
    return before;
}

/* Makes what one stage needs. BR_OK, or a status with a mistake in the config. */
static int plan_stage(struct plan *plan, struct br_update *update, struct br_stage *stage,
                      const struct br_node *given, uint64_t now)
{
    const struct br_node *base;
    struct br_change *behind;
    const struct br_change *before = before_sample(stage, moment_of(update, stage, now), &base, &behind);
    struct br_change *change = br_change_make(update, stage, base, given, update->config);
    if (change == NULL) return BR_E_INVALID;
    change->sample = moment_of(update, stage, now);
    if (!br_held_make(change, before) || !add(plan, change, NULL)) {
        br_change_discard(change);
        free(change);
        return BR_E_NO_MEMORY;
    }
    int status = br_change_prepare(change);
    for (struct br_change *c = behind; c != NULL && status == BR_OK; c = c->next) {
        struct br_change *again = br_change_make(c->update, stage, change->node, c->given, c->update->config);
        if (again == NULL || !br_held_make(again, change) || br_change_prepare(again) != BR_OK ||
            !add(plan, again, c)) {
            br_config_error(update->config, given,
                            "stage '%s': together with these values the update '%s', at sample "
                            "%llu, would not fit any more",
                            stage->name, c->update->id, (unsigned long long)c->sample);
            if (again != NULL) br_change_discard(again);
            free(again);
            return BR_E_INVALID;
        }
        again->sample = c->sample;
        change = again;
    }
    return status;
}

/* --- linking ----------------------------------------------------------------------------------------- */

/* Under the mutex. Puts a change in its place by sample, behind those that came before it. */
static void link_change(struct br_change *change)
{
    struct br_stage_updates *u = &change->stage->state->updates;
    struct br_change *before = NULL, *c = atomic_load(&u->first);
    for (; c != NULL && c->sample <= change->sample; c = c->next) before = c;
    change->next = c;
    if (before != NULL)
        before->next = change;
    else
        atomic_store(&u->first, change);
}

static void unlink_change(struct br_change *change)
{
    struct br_stage_updates *u = &change->stage->state->updates;
    struct br_change *c = atomic_load(&u->first);
    if (c == change) {
        atomic_store(&u->first, change->next);
        return;
    }
    while (c != NULL && c->next != change) c = c->next;
    if (c != NULL) c->next = change->next;
}

static bool is_due(const struct br_change *change)
{
    const struct br_change *c = atomic_load(&change->stage->state->updates.first);
    while (c != NULL && c != change) c = c->next;
    return c != NULL;
}

enum linked { LINKED, TOO_LATE, PLAN_AGAIN, HAS_ENDED };

/* Whether what is linked may stay. Under the mutex: a stage that goes on sees the list and waits. */
static enum linked judge(const struct plan *plan, const struct br_update_request *request, uint64_t now)
{
    for (size_t i = 0; i < request->nstages; i++)
        if (atomic_load(&request->stage[i]->state->ended)) return HAS_ENDED;
    for (size_t i = 0; i < plan->count; i++) {
        const struct br_change *c = plan->made[i];
        if (plan->instead[i] != NULL) continue;
        if (request->at == BR_AT_NOW && c->next != NULL && c->next->sample <= now) return PLAN_AGAIN;
        if (request->at != BR_AT_NOW && c->sample < atomic_load(&c->stage->state->updates.taken))
            return TOO_LATE;
    }
    return LINKED;
}

/* Puts the plan in place in all stages at once, or leaves all as it was. */
static enum linked link_plan(struct br_updates *updates, const struct plan *plan,
                             const struct br_update_request *request, uint64_t *now)
{
    enum linked result = LINKED;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < plan->count; i++)
        if (plan->instead[i] != NULL && !is_due(plan->instead[i])) result = PLAN_AGAIN;
    if (result == LINKED) {
        for (size_t i = 0; i < plan->count; i++) {
            if (plan->instead[i] != NULL) unlink_change(plan->instead[i]);
            link_change(plan->made[i]);
        }
        *now = br_update_taken(request);
        result = judge(plan, request, *now);
        for (size_t i = 0; i < plan->count; i++) {
            if (result == LINKED && request->at == BR_AT_NOW && plan->instead[i] == NULL)
                plan->made[i]->sample = *now;
            if (result != LINKED) unlink_change(plan->made[i]);
        }
        for (size_t i = 0; i < plan->count && result != LINKED; i++)
            if (plan->instead[i] != NULL) link_change(plan->instead[i]);
    }
    pthread_mutex_unlock(&updates->mutex);
    return result;
}

/* The plan is in place: each change belongs to its update, and what was replaced goes. */
static void settle(struct br_updates *updates, struct plan *plan, struct br_update *update)
{
    pthread_mutex_lock(&updates->records);
    for (size_t i = 0; i < plan->count; i++) {
        struct br_change *made = plan->made[i], *old = plan->instead[i];
        struct br_update *of = old != NULL ? old->update : update;
        for (size_t k = 0; old != NULL && k < of->nchanges; k++)
            if (of->change[k] == old) of->change[k] = made;
        if (old == NULL) update->change[update->nchanges++] = made;
        if (old == NULL) continue;
        br_change_discard(old);
        free(old);
    }
    pthread_mutex_unlock(&updates->records);
    free(plan->made);
    free(plan->instead);
}

/* --- the whole --------------------------------------------------------------------------------------- */

enum br_update_outcome br_update_schedule(struct br_graph *graph, struct br_update *update,
                                          const struct br_update_request *request, uint64_t *earliest,
                                          struct br_error *error)
{
    enum { TRIES = 8 };
    enum linked linked = PLAN_AGAIN;
    for (unsigned attempt = 0; attempt < TRIES && linked == PLAN_AGAIN; attempt++) {
        struct plan plan = {0};
        uint64_t now = br_update_taken(request);
        int status = BR_OK;
        for (size_t i = 0; i < request->nstages && status == BR_OK; i++)
            status = plan_stage(&plan, update, request->stage[i], request->values[i], now);
        if (status == BR_OK) linked = link_plan(graph->state->updates, &plan, request, &now);
        *earliest = br_update_taken(request);
        if (status == BR_OK && linked == LINKED) {
            update->sample = plan.made[0]->sample;
            settle(graph->state->updates, &plan, update);
            return BR_UPDATE_OK;
        }
        drop(&plan);
        if (status == BR_OK) continue;
        if (status == BR_E_STOPPED) {
            linked = HAS_ENDED;
            break;
        }
        br_fail(error, status, "there is no memory for it");
        return status == BR_E_NO_MEMORY || status == BR_E_DEVICE ? BR_UPDATE_FAILED : BR_UPDATE_WRONG;
    }
    if (linked == HAS_ENDED) {
        br_fail(error, BR_E_STOPPED, "its stages have come to their end");
        return BR_UPDATE_CONFLICT;
    }
    if (linked == TOO_LATE) {
        br_fail(error, BR_E_INVALID,
                "it comes too late: its stages have come to sample %llu; ask for that one or later",
                (unsigned long long)*earliest);
        return BR_UPDATE_LATE;
    }
    br_fail(error, BR_E_INVALID, "the stages are too fast for it; ask for a sample");
    return BR_UPDATE_FAILED;
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

/* --- one that is withdrawn --------------------------------------------------------------------------- */

/* Makes the changes behind `gone` anew, as they would be without it. */
static int plan_without(struct plan *plan, const struct br_change *gone)
{
    struct br_stage *stage = gone->stage;
    pthread_mutex_t *mutex = &stage->graph->state->updates->mutex;
    pthread_mutex_lock(mutex);
    const struct br_change *before = stage->state->updates.last;
    struct br_change *c = atomic_load(&stage->state->updates.first);
    for (; c != NULL && c != gone; c = c->next) before = c;
    struct br_change *behind = c != NULL ? c->next : NULL;
    pthread_mutex_unlock(mutex);
    for (c = behind; c != NULL; c = c->next) {
        const struct br_node *base = before != NULL ? before->node : stage->node;
        struct br_change *again = br_change_make(c->update, stage, base, c->given, c->update->config);
        if (again == NULL) return BR_E_INVALID;
        int status = br_held_make(again, before) ? br_change_prepare(again) : BR_E_NO_MEMORY;
        if (status == BR_OK && !add(plan, again, c)) status = BR_E_NO_MEMORY;
        if (status != BR_OK) {
            br_change_discard(again);
            free(again);
            return status;
        }
        again->sample = c->sample;
        before = again;
    }
    return BR_OK;
}

/* All at once, if no stage has come as far. */
static bool unlink_update(struct br_updates *updates, const struct plan *plan, const struct br_update *update)
{
    bool good = true;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < update->nchanges; i++) {
        const struct br_change *c = update->change[i];
        good = good && is_due(c) && c->sample >= atomic_load(&c->stage->state->updates.taken);
    }
    for (size_t i = 0; i < plan->count; i++) good = good && is_due(plan->instead[i]);
    for (size_t i = 0; good && i < update->nchanges; i++) unlink_change(update->change[i]);
    for (size_t i = 0; good && i < plan->count; i++) {
        unlink_change(plan->instead[i]);
        link_change(plan->made[i]);
    }
    pthread_mutex_unlock(&updates->mutex);
    return good;
}

enum br_update_outcome br_update_withdraw(struct br_graph *graph, struct br_update *update,
                                          struct br_error *error)
{
    struct plan plan = {0};
    int status = BR_OK;
    for (size_t i = 0; i < update->nchanges && status == BR_OK; i++)
        status = plan_without(&plan, update->change[i]);
    if (status == BR_OK && unlink_update(graph->state->updates, &plan, update)) {
        settle(graph->state->updates, &plan, update);
        pthread_mutex_lock(&graph->state->updates->records);
        for (size_t i = 0; i < update->nchanges; i++) br_change_discard(update->change[i]);
        pthread_mutex_unlock(&graph->state->updates->records);
        return BR_UPDATE_OK;
    }
    drop(&plan);
    if (status == BR_E_NO_MEMORY || status == BR_E_DEVICE) {
        br_fail(error, status, "there is no memory for what is scheduled behind it");
        return BR_UPDATE_FAILED;
    }
    br_fail(error, BR_E_INVALID,
            status == BR_E_INVALID ? "it stays: updates that are scheduled behind it need its values"
                                   : "it comes too late: stages have taken its sample, or have ended");
    return BR_UPDATE_CONFLICT;
}
