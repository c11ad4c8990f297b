/* update_commit.c - updates on a stage's own thread: what is due is committed. See updates.h.
 *
 * A stage says first how far it takes its samples, then looks for something due; who schedules links first,
 * then looks how far the stages have come. Whichever comes first, the other one sees it. */
#include "runtime/run/updates.h"

uint64_t br_update_due(struct br_stage *stage, uint64_t end)
{
    struct br_stage_updates *u = &stage->state->updates;
    if (atomic_load(&u->first) == NULL) return end; /* nearly always */
    pthread_mutex_lock(&stage->graph->state->updates->mutex);
    const struct br_change *first = atomic_load(&u->first);
    uint64_t sample = first != NULL && first->sample < end ? first->sample : end;
    pthread_mutex_unlock(&stage->graph->state->updates->mutex);
    return sample;
}

/* The stage takes its samples up to `end`. */
static void say_taken(struct br_stage_updates *u, uint64_t end)
{
    if (end > atomic_load_explicit(&u->taken, memory_order_relaxed)) atomic_store(&u->taken, end);
}

uint64_t br_stage_next_update(struct br_stage *stage, uint64_t end)
{
    if (stage->nin == 0) say_taken(&stage->state->updates, end); /* no frame that comes in says it */
    return br_update_due(stage, end);
}

/* Takes the newest one that is due at `sample` out of the list; older ones are passed over, since it has
 * their values as well. */
static struct br_change *take_due(struct br_stage *stage, uint64_t sample)
{
    struct br_stage_updates *u = &stage->state->updates;
    struct br_change *c = atomic_load(&u->first);
    if (c == NULL || c->sample > sample) return NULL;
    while (c->next != NULL && c->next->sample <= sample) {
        struct br_change *next = c->next;
        c->passed = true;
        c->next = u->used;
        u->used = c;
        c = next;
    }
    atomic_store(&u->first, c->next);
    u->last = c;
    return c;
}

void br_stage_update(struct br_stage *stage, uint64_t sample)
{
    pthread_mutex_t *mutex = &stage->graph->state->updates->mutex;
    pthread_mutex_lock(mutex);
    struct br_change *c = take_due(stage, sample);
    pthread_mutex_unlock(mutex);
    if (c == NULL) return;
    stage->type->commit(stage, stage->self, c->fresh->self, sample);
    if (stage->device >= 0) br_gpu_event_record(c->old_unused, &stage->state->gpu, NULL);
    pthread_mutex_lock(mutex);
    c->held_from = sample;
    c->committed = true;
    br_held_begin(stage, c->held, sample);
    c->next = stage->state->updates.used;
    stage->state->updates.used = c;
    pthread_mutex_unlock(mutex);
}

void br_updates_take(struct br_stage *stage, const struct br_frame *in)
{
    say_taken(&stage->state->updates, in->first + in->samples);
    if ((stage->type->flags & BR_STAGE_COMMITS) != 0) return;
    if (br_update_due(stage, in->first + 1) <= in->first) br_stage_update(stage, in->first);
}
