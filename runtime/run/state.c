/* state.c - from a configuration to a pipeline that can be started: its graph, and the state beside it. */
#include "runtime/run/state.h"
#include "buffers/threads.h"

#include "runtime/ranks/ranks.h"
#include "runtime/run/pipeline.h"
#include "runtime/run/update_watch.h"
#include "runtime/run/updates.h"

#include <stdlib.h>

static int make_state(struct br_graph *graph, struct br_error *error)
{
    struct br_graph_state *state = graph->state = calloc(1, sizeof *state);
    if (state == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the pipeline");
    state->home = -1;
    br_cond_init(&state->wake);
    pthread_mutex_init(&state->mutex, NULL);
    state->updates = br_updates_make();
    return state->updates != NULL ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory for the pipeline");
}

static int make_stages(struct br_graph *graph, struct br_error *error)
{
    graph->state->stage = calloc(graph->nstages, sizeof *graph->state->stage);
    if (graph->state->stage == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu stages", graph->nstages);
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        stage->state = &graph->state->stage[s];
        stage->state->counted =
            br_config_alloc(graph->config, stage->ncounters * sizeof *stage->state->counted);
        atomic_init(&stage->state->counters.latency_ns, INT64_MIN);
    }
    return BR_OK;
}

int br_pipeline_build(struct br_graph **graph, struct br_config *config, struct br_log *log,
                      struct br_ranks *ranks, bool only_shown, struct br_error *error)
{
    int status = br_graph_read(graph, config, log, ranks, only_shown, error);
    if (status != BR_OK) return status;
    br_ranks_set_stall(ranks, (*graph)->stall_s);
    status = make_state(*graph, error);
    if (status != BR_OK) return status;
    br_watch_begin(*graph); /* before stages read the files: what comes later is seen */
    status = br_graph_describe(*graph, error);
    if (status == BR_OK) status = make_stages(*graph, error);
    if (status != BR_OK) return status;
    br_held_find_sources(*graph);
    br_updates_check(*graph, br_node_get(br_config_root(config), "updates"));
    return br_config_errors(config) > 0 ? BR_E_INVALID : BR_OK;
}

void br_pipeline_destroy(struct br_graph *graph)
{
    struct br_graph_state *state = graph != NULL ? graph->state : NULL;
    size_t nstages = state != NULL && state->stage != NULL ? graph->nstages : 0;
    if (state != NULL) br_updates_free(graph);
    br_graph_destroy(graph); /* its queues use the streams */
    for (size_t s = 0; s < nstages; s++) br_gpu_stream_destroy(&state->stage[s].gpu);
    if (state == NULL) return;
    free(state->stage);
    pthread_cond_destroy(&state->wake);
    pthread_mutex_destroy(&state->mutex);
    free(state);
}
