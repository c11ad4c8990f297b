/* update_file.c - `updates:` of the pipeline file: checked with the rest of it, scheduled before the first
 * sample. See updates.h. */
#include "runtime/run/updates.h"

#include <stdlib.h>

static void check_one(struct br_graph *graph, const struct br_node *item)
{
    struct br_update_request request;
    if (!br_update_read(graph, graph->config, item, &request)) return;
    for (size_t i = 0; i < request.nstages; i++) {
        struct br_stage *stage = request.stage[i];
        struct br_change *change = br_change_make(NULL, stage, stage->node, request.values[i], graph->config);
        if (change != NULL) br_change_discard(change);
        free(change);
    }
}

void br_updates_check(struct br_graph *graph, const struct br_node *list)
{
    graph->state->updates->of_file = list;
    if (list == NULL) return;
    if (list->kind != BR_NODE_LIST) {
        br_config_error(
            graph->config, list,
            "updates: expected a list such as [{at: {sample: 1000000}, stages: {upchannelize: {gain: 4}}}]");
        return;
    }
    for (size_t i = 0; i < list->count; i++) check_one(graph, list->item[i]);
}

int br_updates_start(struct br_graph *graph, struct br_error *error)
{
    const struct br_node *list = graph->state->updates->of_file;
    br_updates_resume(graph);
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        struct br_update_reply reply;
        struct br_update_request request;
        if (graph->state->updates->past != NULL &&
            br_update_read(graph, graph->config, list->item[i], &request) &&
            br_updates_resumed(graph, &request, br_update_digest(&request)))
            continue;
        int status = br_updates_submit(graph, graph->config, list->item[i], false, &reply);
        if (status != BR_OK) return br_fail(error, status, "no memory for %zu updates", list->count);
        if (reply.outcome != BR_UPDATE_OK)
            return br_fail(error, BR_E_INVALID, "updates: %s",
                           reply.update->why != NULL ? reply.update->why : "no memory");
    }
    json_decref(graph->state->updates->past);
    graph->state->updates->past = NULL;
    return BR_OK;
}
