/* absorb.c - stages that do the work of the stage before them too. */
#include "runtime/graph/graph.h"

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

/* Stands where a stage was: it ends at once. */
static int absorbed_process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage, (void)self, (void)io;
    return BR_FINISHED;
}

static const struct br_stage_type absorbed = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "absorbed",
    .summary = "done by the stage behind it",
    .process = absorbed_process,
};

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
        before->type = &absorbed;
        before->nin = before->nout = 0;
        before->device = -1;
    }
}
