/* update_held.c - records from which sample each update applied, for stages that write this into their
 * products. See updates.h and br_stage_updates_held. */
#include "runtime/run/updates.h"

#include <stdlib.h>
#include <string.h>

static size_t params_of(const struct br_stage_type *type)
{
    size_t n = 0;
    while (type->updates != NULL && type->updates[n] != NULL) n++;
    return n;
}

bool br_held_make(struct br_change *change, const struct br_change *before)
{
    const struct br_stage_type *type = change->stage->type;
    size_t count = params_of(type);
    struct br_held *held = calloc(1, sizeof *held + count * sizeof *held->source);
    if (held == NULL) return false;
    held->count = count;
    pthread_mutex_lock(&change->stage->graph->state->updates->mutex);
    if (before != NULL) memcpy(held->source, before->held->source, count * sizeof *held->source);
    pthread_mutex_unlock(&change->stage->graph->state->updates->mutex);
    for (size_t i = 0; i < count; i++) {
        if (br_node_get(change->given, type->updates[i]) == NULL) continue;
        struct br_held_source *source = &held->source[i];
        source->number = change->update->number;
        source->digest = change->update->digest;
        memcpy(source->id, change->update->id, sizeof source->id);
    }
    change->held = held;
    return true;
}

/* Each source of values begins at the sample from which its values applied: here, or earlier if they already
 * did. */
void br_held_begin(struct br_stage *stage, struct br_held *held, uint64_t sample)
{
    struct br_stage_updates *u = &stage->state->updates;
    held->from = sample;
    for (size_t i = 0; i < held->count; i++) {
        const struct br_held_source *before = u->held != NULL ? &u->held->source[i] : NULL;
        bool same = before != NULL && before->number == held->source[i].number;
        held->source[i].from = same ? before->from : sample;
    }
    held->older = u->held;
    u->held = held;
    atomic_fetch_add(&stage->graph->state->updates->commits, 1);
}

void br_held_tidy(struct br_stage *stage)
{
    size_t kept = 0;
    struct br_held *rest = NULL;
    pthread_mutex_lock(&stage->graph->state->updates->mutex);
    for (struct br_held *h = stage->state->updates.held; h != NULL && rest == NULL; h = h->older) {
        if (++kept < BR_HELD_KEPT) continue;
        rest = h->older;
        h->older = NULL;
    }
    pthread_mutex_unlock(&stage->graph->state->updates->mutex);
    br_held_free(rest);
}

void br_held_free(struct br_held *held)
{
    while (held != NULL) {
        struct br_held *older = held->older;
        free(held);
        held = older;
    }
}

/* --- the stages upstream --- */

/* Marks all stages before one: in `order`, producers come before their readers. */
static void mark_before(const struct br_graph *graph, const struct br_stage *stage, bool *before)
{
    memset(before, 0, graph->nstages * sizeof *before);
    for (size_t o = graph->nstages; o-- > 0;) {
        const struct br_stage *at = graph->order[o];
        if (at != stage && !before[at - graph->stage]) continue;
        for (unsigned i = 0; i < at->nin; i++)
            if (at->in[i].edge != NULL) before[at->in[i].edge->producer - graph->stage] = true;
    }
}

void br_held_find_sources(struct br_graph *graph)
{
    size_t all = 0;
    for (size_t s = 0; s < graph->nstages; s++) all += graph->stage[s].type->updates != NULL;
    bool *before = br_config_alloc(graph->config, graph->nstages * sizeof *before);
    for (size_t s = 0; all > 0 && s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        size_t n = 0;
        mark_before(graph, stage, before);
        for (size_t o = 0; o < graph->nstages; o++) {
            const struct br_stage *other = graph->order[o];
            before[other - graph->stage] = before[other - graph->stage] && other->type->updates != NULL;
            n += before[other - graph->stage];
        }
        stage->state->source = br_config_alloc(graph->config, n * sizeof(struct br_stage *));
        for (size_t o = 0; n > 0 && o < graph->nstages; o++)
            if (before[graph->order[o] - graph->stage])
                stage->state->source[stage->state->nsources++] = graph->order[o];
    }
}
