/* stage.c - the runtime's side of runtime/ranks.h. */
#include "runtime/ranks.h"

#include "runtime/graph/graph.h"
#include "runtime/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

unsigned br_stage_rank(const struct br_stage *stage)
{
    return br_ranks_rank(stage->graph->ranks);
}

unsigned br_stage_ranks(const struct br_stage *stage)
{
    return br_ranks_count(stage->graph->ranks);
}

bool br_stage_has_messages(const struct br_stage *stage)
{
    return stage->graph->only_shown || br_ranks_has_messages(stage->graph->ranks);
}

/* All ranks have the same file, so that a stage's number in it is the same everywhere. */
static unsigned channel_of(const struct br_stage *stage)
{
    return (unsigned)(stage - stage->graph->stage);
}

int br_stage_gather(struct br_stage *stage, const void *mine, size_t bytes, const void ***part,
                    const size_t **length)
{
    unsigned n = br_stage_ranks(stage);
    struct br_ranks_part own = {mine, bytes}, *all = NULL;
    struct br_error error = {0};
    const void **parts = br_stage_alloc(stage, n * sizeof *parts);
    size_t *lengths = br_stage_alloc(stage, n * sizeof *lengths);
    *part = parts;
    *length = lengths;
    if (stage->graph->ranks != NULL) {
        int status = br_ranks_gather(stage->graph->ranks, mine, bytes, &all, &error);
        if (status != BR_OK) return br_stage_fail(stage, status, "%s", error.text);
    }
    for (unsigned r = 0; r < n; r++) {
        const struct br_ranks_part *theirs = all != NULL ? &all[r] : &own;
        void *copy = br_stage_alloc(stage, theirs->bytes + 1);
        memcpy(copy, theirs->data, theirs->bytes);
        parts[r] = copy;
        lengths[r] = theirs->bytes;
    }
    free(all);
    return BR_OK;
}

void br_stage_crosses(struct br_stage *stage, double sent, double received)
{
    stage->sent_per_s = sent;
    stage->received_per_s = received;
}

int br_stage_post(struct br_stage *stage, const void *data, size_t bytes)
{
    struct br_error error = {0};
    if (stage->graph->ranks == NULL) return BR_OK;
    int status = br_ranks_post(stage->graph->ranks, channel_of(stage), data, bytes, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

const void *br_stage_next_post(struct br_stage *stage, unsigned from, size_t *bytes)
{
    if (stage->graph->ranks == NULL) return NULL;
    return br_ranks_next_post(stage->graph->ranks, channel_of(stage), from, bytes);
}

void br_stage_drop_post(struct br_stage *stage, unsigned from)
{
    if (stage->graph->ranks != NULL) br_ranks_drop_post(stage->graph->ranks, channel_of(stage), from);
}

int br_stage_message(struct br_stage *stage, struct br_message *message)
{
    message->channel = channel_of(stage);
    if (!br_ranks_has_messages(stage->graph->ranks))
        return br_stage_fail(stage, BR_E_INTERNAL, "messages between ranks need --mpi");
    br_ranks_message(stage->graph->ranks, message);
    return BR_OK;
}

bool br_stage_halt_messages(struct br_stage *stage)
{
    return br_ranks_halt(stage->graph->ranks);
}

uint64_t br_stage_events(const struct br_stage *stage)
{
    return stage->graph->ranks != NULL ? br_ranks_events(stage->graph->ranks) : 0;
}

bool br_stage_job_failed(const struct br_stage *stage)
{
    return br_ranks_failed(stage->graph->ranks, NULL);
}

int br_stage_await(struct br_stage *stage, uint64_t seen, uint64_t ns)
{
    struct br_error error = {0};
    if (stage->graph->ranks == NULL) return BR_OK;
    int status = br_ranks_await(stage->graph->ranks, seen, ns, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}
