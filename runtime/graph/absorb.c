/* absorb.c - stages that do the work of the stage before them too. */
#include "runtime/run/state.h"

#include <string.h>

void br_stage_offer(struct br_stage *stage)
{
    stage->offered = true;
}

const struct br_stream *br_stage_absorb(struct br_stage *stage, const char *type)
{
    if (stage->phase != BR_PHASE_CONFIGURE || stage->nin != 1 || stage->in[0].edge == NULL) return NULL;
    struct br_edge *between = stage->in[0].edge;
    struct br_stage *before = between->producer;
    bool alone = before->nin == 1 && before->nout == 1 && between->readers == &stage->in[0] &&
                 between->readers->next == NULL && stage->in[0].policy == BR_POLICY_BLOCK;
    if (!alone || !before->offered || before->device != stage->device ||
        strcmp(before->type->name, type) != 0)
        return NULL;
    stage->absorbed = before;
    return &before->in[0].edge->stream;
}

/* Stands where a stage was: it ends at once. Updates of the stage are made by its own type, and committed by
 * the one that does its work. */
struct stand_in {
    struct br_stage_type type; /* first */
    const struct br_stage_type *of;
    const struct br_stage *stage;
};

static int end_at_once(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage, (void)self, (void)io;
    return BR_FINISHED;
}

/* A second struct, for an update: with the ports that the stage itself has lost. */
static int configure_second(struct br_stage *fresh, void *self)
{
    const struct stand_in *s = (const struct stand_in *)(const void *)fresh->type;
    const struct br_stage *by = s->stage->absorbed_by;
    const struct br_stream *now = &s->stage->out[0].stream;
    struct br_stream *then = &fresh->out[0].stream;
    struct br_error why = {0};
    fresh->nin = fresh->nout = 1;
    fresh->device = by->device;
    fresh->out[0] = (struct br_edge){.name = s->stage->out[0].name,
                                     .at = s->stage->out[0].at,
                                     .depth = s->stage->out[0].depth,
                                     .depth_given = true,
                                     .stream = s->stage->in[0].edge->stream};
    int status = s->of->configure(fresh, self);
    if (status != BR_OK) return status;
    if (!fresh->offered)
        return br_stage_fail(
            fresh, BR_E_INVALID,
            "'%s' does its work in one kernel with its own, which these values do not allow; "
            "expected others, or a restart",
            by->name);
    if (then->nbeams == now->nbeams) then->beams = now->beams; /* where they point may change */
    if (then->beams_x == now->beams_x && then->beams_y == now->beams_y &&
        br_stream_compatible(now, then, &why))
        return BR_OK;
    return br_stage_fail(fresh, BR_E_INVALID,
                         "what it makes would change, which a pipeline that runs cannot do: %s; expected "
                         "values that leave its shape, or a restart",
                         why.text[0] != '\0' ? why.text : "another grid of beams");
}

static const struct br_stage_type *stand_in_for(struct br_graph *graph, const struct br_stage *stage)
{
    const struct br_stage_type *of = stage->type;
    struct stand_in *s = br_config_alloc(graph->config, sizeof *s);
    *s = (struct stand_in){.type = {.abi_version = BR_ABI_VERSION,
                                    .type_size = sizeof(struct br_stage_type),
                                    .name = "absorbed",
                                    .summary = "done by the stage behind it",
                                    .params = of->params,
                                    .size = of->size,
                                    .configure = configure_second,
                                    .process = end_at_once,
                                    .updates = of->updates,
                                    .prepare = of->prepare,
                                    .commit = of->commit,
                                    .discard = of->discard},
                           .of = of,
                           .stage = stage};
    return &s->type;
}

void *br_stage_absorbed(const struct br_stage *stage)
{
    return stage->absorbed != NULL ? stage->absorbed->self : NULL;
}

uint64_t br_stage_next_absorbed_update(struct br_stage *stage, uint64_t end)
{
    struct br_stage *before = stage->absorbed;
    if (before == NULL || before->type->updates == NULL) return end;
    /* As for a stage of its own: it says how far it goes before it looks. */
    if (end > atomic_load_explicit(&before->state->updates.taken, memory_order_relaxed))
        atomic_store(&before->state->updates.taken, end);
    return br_stage_next_update(before, end);
}

void br_stage_absorbed_update(struct br_stage *stage, uint64_t sample)
{
    if (stage->absorbed != NULL) br_stage_update(stage->absorbed, sample);
}

void br_graph_absorb(struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s], *before = stage->absorbed;
        if (before == NULL) continue;
        br_log(graph->log, BR_LOG_NOTE, stage->name, "does the work of '%s' too: there is no queue '%s'",
               before->name, stage->in[0].edge->name);
        struct br_link **place = &before->in[0].edge->readers;
        while (*place != &before->in[0]) place = &(*place)->next;
        struct br_link *mine = &stage->in[0];
        mine->edge = before->in[0].edge;
        mine->at = before->in[0].at;
        mine->policy = before->in[0].policy;
        mine->next = before->in[0].next;
        *place = mine;
        before->absorbed_by = stage;
        before->type = stand_in_for(graph, before);
        before->nin = before->nout = 0;
        before->device = -1;
    }
}
