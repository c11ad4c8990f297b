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
    size_t all_bytes = 0, at = 0;
    unsigned char *all = NULL;
    struct br_error error = {0};
    const void **parts = br_stage_alloc(stage, n * sizeof *parts);
    size_t *lengths = br_stage_alloc(stage, n * sizeof *lengths);
    *part = parts;
    *length = lengths;
    if (stage->graph->ranks == NULL) {
        void *copy = br_stage_alloc(stage, bytes + 1);
        memcpy(copy, mine, bytes);
        parts[0] = copy;
        lengths[0] = bytes;
        return BR_OK;
    }
    int status = br_ranks_gather(stage->graph->ranks, mine, bytes, &all, &all_bytes, &error);
    if (status != BR_OK) return br_stage_fail(stage, status, "%s", error.text);
    for (unsigned r = 0; r < n && status == BR_OK; r++) {
        const unsigned char *theirs;
        status = br_ranks_part(all, all_bytes, &at, &theirs, &lengths[r], &error);
        if (status != BR_OK) break;
        void *copy = br_stage_alloc(stage, lengths[r] + 1);
        memcpy(copy, theirs, lengths[r]);
        parts[r] = copy;
    }
    free(all);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

void br_stage_crosses(struct br_stage *stage, double sent, double received)
{
    stage->sent_per_s = sent;
    stage->received_per_s = received;
}

int br_stage_post(struct br_stage *stage, const void *data, size_t bytes)
{
    if (stage->graph->ranks == NULL) return BR_OK;
    if (br_ranks_post(stage->graph->ranks, channel_of(stage), data, bytes) == BR_OK) return BR_OK;
    struct br_error error = {0};
    bool failed = br_ranks_failed(stage->graph->ranks, &error);
    return br_stage_fail(stage, BR_E_IO, "%s",
                         failed ? error.text
                                : "another rank takes no messages, or there is no memory for one");
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
    return br_ranks_message(stage->graph->ranks, message);
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
    struct br_error error = {0};
    return br_ranks_failed(stage->graph->ranks, &error);
}

int br_stage_await(struct br_stage *stage, uint64_t seen, uint64_t ns)
{
    struct br_error error = {0};
    if (stage->graph->ranks == NULL) return BR_OK;
    int status = br_ranks_await(stage->graph->ranks, seen, ns, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}
