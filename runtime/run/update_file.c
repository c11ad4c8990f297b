/* update_file.c - `updates:` of the pipeline file, checked with the rest of it. See updates.h. */
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
