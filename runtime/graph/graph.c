/* graph.c - see graph.h. */
#include "runtime/graph/graph.h"
#include "buffers/clock.h"
#include "runtime/graph/positions.h"

#include "buffers/history.h"
#include "runtime/base/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_DEPTH = 4 };

size_t br_graph_nedges(const struct br_graph *graph)
{
    size_t n = 0;
    if (graph->edge != NULL) return graph->nedges;
    for (size_t s = 0; s < graph->nstages; s++) n += graph->stage[s].nout;
    return n;
}

struct br_edge *br_graph_edge(const struct br_graph *graph, size_t i)
{
    if (graph->edge != NULL) return i < graph->nedges ? graph->edge[i] : NULL;
    for (size_t s = 0; s < graph->nstages; s++) {
        if (i < graph->stage[s].nout) return &graph->stage[s].out[i];
        i -= graph->stage[s].nout;
    }
    return NULL;
}

/* Once stages have all their outputs: from here on a queue is found by its number at once. */
static void list_edges(struct br_graph *graph)
{
    size_t n = 0;
    graph->nedges = br_graph_nedges(graph);
    struct br_edge **edge = br_config_alloc(graph->config, (graph->nedges + 1) * sizeof *edge);
    for (size_t s = 0; s < graph->nstages; s++)
        for (unsigned i = 0; i < graph->stage[s].nout; i++) edge[n++] = &graph->stage[s].out[i];
    graph->edge = edge;
}

size_t br_graph_device_bytes(const struct br_graph *graph, int device)
{
    size_t bytes = 0, nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        if (edge->queue != NULL && edge->place.device == device) bytes += br_queue_device_bytes(edge->queue);
    }
    return bytes;
}

size_t br_graph_bytes(const struct br_graph *graph)
{
    size_t bytes = 0, nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        if (edge->queue != NULL) bytes += br_queue_bytes(edge->queue);
    }
    return bytes;
}

struct br_memory br_graph_queue_memory(const struct br_graph *graph, int device)
{
    struct br_memory memory = {.device = br_graph_device_bytes(graph, device)};
    size_t nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) {
        const struct br_edge *edge = br_graph_edge(graph, i);
        if (edge->queue == NULL) continue;
        *(edge->place.space == BR_SPACE_PINNED ? &memory.locked : &memory.host) +=
            br_queue_bytes(edge->queue);
    }
    return memory;
}

struct br_memory br_graph_memory(const struct br_graph *graph, int device)
{
    struct br_memory memory = br_graph_queue_memory(graph, device);
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        memory.host += stage->memory.host;
        memory.locked += stage->memory.locked;
        if (stage->device == device) memory.device += stage->memory.device;
    }
    return memory;
}

/* --- the file's top level --- */

struct top_params {
    struct br_strings plugins;
    const char *device, *journal;
    struct br_ints affinity;
    int64_t threads;
    double watchdog_s, stall_s;
};
static const struct br_param top_params[] = {
    BR_PARAM("plugins", BR_P_STRINGS, struct top_params, plugins, NULL),
    BR_PARAM("device", BR_P_STRING, struct top_params, device, NULL, .def = "auto"),
    BR_PARAM("journal", BR_P_PATH, struct top_params, journal, NULL),
    BR_PARAM("affinity", BR_P_INTS, struct top_params, affinity, NULL, .min = 0, .max = 1023),
    BR_PARAM("threads", BR_P_INT, struct top_params, threads, NULL, .def = "0", .min = 0,
             .max = BR_POOL_MOST),
    BR_PARAM("watchdog_s", BR_P_REAL, struct top_params, watchdog_s, NULL, .def = "30", .min = 0, .max = 1e6),
    BR_PARAM("stall_s", BR_P_REAL, struct top_params, stall_s, NULL, .def = "5", .min = 1, .max = 1e6),
    {0},
};
static const char *const top_also[] = {"telescope", "stream",  "pipeline", "include",
                                       "control",   "updates", NULL};

struct common_params {
    const char *stage, *name, *device;
    struct br_ints affinity;
};
static const struct br_param common_params[] = {
    BR_PARAM("stage", BR_P_STRING, struct common_params, stage, NULL, .required = true),
    BR_PARAM("name", BR_P_STRING, struct common_params, name, NULL),
    BR_PARAM("device", BR_P_STRING, struct common_params, device, NULL, .def = "auto"),
    BR_PARAM("affinity", BR_P_INTS, struct common_params, affinity, NULL, .min = 0, .max = 1023),
    {0},
};
const char *const br_graph_common_keys[] = {"stage", "name", "device", "affinity", "in", "out", NULL};

static void add_plugins(struct br_graph *graph, const struct br_node *node, const struct br_strings *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        struct br_error error = {0};
        const struct br_node *at = node->kind == BR_NODE_LIST ? node->item[i] : node;
        if (br_plugins_add(graph->plugins, paths->value[i], &error) != BR_OK)
            br_config_error(graph->config, at, "%s", error.text);
    }
}

/* --- stages --- */

static unsigned count_ports(const struct br_port *port)
{
    unsigned n = 0;
    while (port != NULL && port[n].name != NULL) n++;
    return n;
}

/* Only those keys of a stage that a schema has, so that an unknown key is reported once, by the stage's own.
 */
static const struct br_node *only_keys(struct br_config *config, const struct br_node *node,
                                       const struct br_param *schema)
{
    struct br_node *known = br_config_alloc(config, sizeof *known);
    *known = *node;
    known->count = 0;
    known->key = br_config_alloc(config, (node->count + 1) * sizeof *known->key);
    known->item = br_config_alloc(config, (node->count + 1) * sizeof *known->item);
    for (size_t i = 0; i < node->count; i++)
        for (size_t k = 0; schema[k].name != NULL; k++)
            if (strcmp(node->key[i]->text, schema[k].name) == 0) {
                known->key[known->count] = node->key[i];
                known->item[known->count++] = node->item[i];
            }
    return known;
}

/* The stage's own struct, of its type's size; false: no memory. */
static bool make_self(struct br_stage *stage)
{
    free(stage->self);
    stage->self = calloc(1, stage->type->size > 0 ? stage->type->size : 1);
    if (stage->self == NULL)
        br_config_error(stage->graph->config, stage->node, "no memory for stage '%s'", stage->name);
    return stage->self != NULL;
}

/* A plugin that becomes what its parameters say, see stage.h. */
static bool specialize(struct br_stage *stage)
{
    struct br_config *config = stage->graph->config;
    const struct br_node *known = only_keys(config, stage->node, stage->type->params);
    const struct br_stage_type *type = NULL;
    struct br_error error = {0};
    size_t before = br_config_errors(config);
    if (!make_self(stage) || br_config_fill(config, known, stage->type->params, NULL, stage->self) > 0)
        return false;
    int status = stage->type->specialize(stage, stage->self, &type);
    if (status == BR_OK && type != NULL) status = br_plugin_check(type, stage->type->name, &error);
    if (status != BR_OK && br_config_errors(config) == before)
        br_config_error(config, stage->node, "stage '%s': %s", stage->name,
                        error.text[0] != '\0' ? error.text
                                              : "it cannot become what it shall, and gave no reason");
    if (status == BR_OK && type != NULL) stage->type = type;
    return status == BR_OK;
}

/* All that can be said about one stage without looking at its neighbours. */
static void read_stage(struct br_graph *graph, struct br_stage *stage, const struct br_node *node,
                       const struct br_ints *affinity)
{
    struct br_config *config = graph->config;
    struct common_params p = {0};
    struct br_error error = {0};
    stage->graph = graph;
    stage->node = node;
    stage->name = "?";
    if (node->kind != BR_NODE_MAP) {
        br_config_error(config, node, "expected a stage, such as {stage: record, in: field, directory: out}");
        return;
    }
    const struct br_node *type_node = br_node_get(node, "stage");
    if (type_node == NULL || type_node->kind != BR_NODE_SCALAR) {
        br_config_error(config, type_node != NULL ? type_node : node,
                        "expected 'stage:' with the name of a plugin");
        return;
    }
    stage->name = type_node->text;
    if (br_plugins_find(graph->plugins, type_node->text, &stage->type, &error) != BR_OK) {
        br_config_error(config, type_node, "%s", error.text);
        return;
    }
    stage->ready =
        br_config_fill(config, only_keys(config, node, common_params), common_params, NULL, &p) == 0;
    if (p.name != NULL) stage->name = p.name;
    stage->affinity = p.affinity.count > 0 ? p.affinity : *affinity;

    static const struct br_param none[] = {{0}};
    if ((stage->type->specialize != NULL && !specialize(stage)) || !make_self(stage)) {
        stage->type = NULL; /* nothing more can be said of it */
        stage->ready = false;
        return;
    }
    const struct br_param *schema = stage->type->params != NULL ? stage->type->params : none;
    stage->nin = count_ports(stage->type->inputs);
    stage->nout = count_ports(stage->type->outputs);
    node = br_graph_read_watches(graph, stage, node);
    if (node == NULL) {
        stage->ready = false;
        return;
    }
    stage->node = node;
    if (br_config_fill(config, node, schema, br_graph_common_keys, stage->self) > 0) stage->ready = false;
}

static int by_name(const void *left, const void *right)
{
    const struct br_stage *a = *(struct br_stage *const *)left, *b = *(struct br_stage *const *)right;
    int names = strcmp(a->name, b->name);
    return names != 0 ? names : (a > b) - (a < b);
}

static void find_namesakes(struct br_graph *graph)
{
    size_t n = 0;
    struct br_stage **sorted = br_config_alloc(graph->config, (graph->nstages + 1) * sizeof *sorted);
    for (size_t s = 0; s < graph->nstages; s++)
        if (graph->stage[s].type != NULL) sorted[n++] = &graph->stage[s];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1, first = 0; i < n; i++) {
        if (strcmp(sorted[i]->name, sorted[first]->name) != 0)
            first = i;
        else
            br_config_error(
                graph->config, sorted[i]->node,
                "two stages are called '%s' (the other one in line %u); expected different names: "
                "give one a `name:`",
                sorted[i]->name, sorted[first]->node->line);
    }
}

static int read_stages(struct br_graph *graph, const struct br_node *list, const struct br_ints *affinity,
                       struct br_error *error)
{
    struct br_config *config = graph->config;
    if (list == NULL || list->kind != BR_NODE_LIST || list->count == 0) {
        br_config_error(config, list != NULL ? list : br_config_root(config),
                        "%s; expected 'pipeline:' with a list of stages",
                        list == NULL ? "there is no pipeline" : "no stages");
        return BR_OK;
    }
    /* Every input may turn out to need a transfer before it; stages are pointed to, so that they cannot
     * move later. */
    size_t room = list->count * (1 + BR_MAX_PORTS);
    graph->stage = calloc(room, sizeof *graph->stage);
    graph->order = calloc(room, sizeof *graph->order);
    if (graph->stage == NULL || graph->order == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu stages", list->count);
    graph->nstages = graph->nfile = list->count;
    for (size_t i = 0; i < list->count; i++) read_stage(graph, &graph->stage[i], list->item[i], affinity);
    find_namesakes(graph);
    return BR_OK;
}

/* --- shapes --- */

/* Several inputs advance together: same samples, same frames. */
static bool inputs_agree(struct br_stage *stage)
{
    for (unsigned i = 1; i < stage->nin; i++) {
        const struct br_stream *a = &stage->in[0].edge->stream;
        const struct br_stream *b = &stage->in[i].edge->stream;
        if (a->frame_samples == b->frame_samples && a->epoch_ns == b->epoch_ns &&
            a->sample_ns.num == b->sample_ns.num && a->sample_ns.den == b->sample_ns.den)
            continue;
        br_config_error(stage->graph->config, stage->in[i].at,
                        "stage '%s' reads '%s' and '%s', whose frames differ (%llu and "
                        "%llu samples) or whose clocks do; expected the same time base and frame length",
                        stage->name, stage->in[0].edge->name, stage->in[i].edge->name,
                        (unsigned long long)a->frame_samples, (unsigned long long)b->frame_samples);
        return false;
    }
    return true;
}

static void configure(struct br_graph *graph, struct br_stage *stage)
{
    if (!stage->ready) return;
    for (unsigned i = 0; i < stage->nin; i++)
        if (!stage->in[i].edge->described) return; /* the mistake upstream is reported already */
    if (!inputs_agree(stage)) return;
    for (unsigned i = 0; i < stage->nout; i++) {
        struct br_edge *edge = &stage->out[i];
        if (stage->nin > 0) {
            edge->stream = stage->in[0].edge->stream;
        } else {
            edge->stream = (struct br_stream){.scale = 1, .telescope = graph->telescope};
        }
        if (!edge->depth_given) edge->depth = DEFAULT_DEPTH;
    }
    size_t before = br_config_errors(graph->config);
    int status = stage->type->configure(stage, stage->self);
    if (status != BR_OK && br_config_errors(graph->config) == before)
        br_config_error(graph->config, stage->node, "stage '%s' refused its configuration without saying why",
                        stage->name);
    if (br_config_errors(graph->config) > before) return;
    for (unsigned i = 0; i < stage->nout; i++) {
        struct br_error error = {0};
        if (br_stream_check(&stage->out[i].stream, &error) == BR_OK) {
            stage->out[i].described = true;
        } else {
            br_config_error(graph->config, stage->out[i].at,
                            "stage '%s' described its output '%s' wrongly: %s", stage->name,
                            stage->out[i].name, error.text);
        }
    }
}

/* --- queues --- */

/* A reader of a queue that has none yet. A history reaches back at least as far as it was asked to, from the
 * end of its newest frame. */
static int add_reader(struct br_edge *edge, struct br_link *link, struct br_error *error)
{
    const char *name = link->stage->name;
    if (link->policy != BR_POLICY_HISTORY)
        return br_queue_add_reader(edge->queue, name, link->policy, &link->reader, error);
    double frame_s = (double)edge->stream.frame_samples * br_stream_sample_s(&edge->stream);
    double frames = ceil(link->history_s / frame_s) + 1;
    if (frames > BR_MAX_SLOTS) {
        br_config_error(
            link->stage->graph->config, link->at,
            "history: %g s are %.0f frames of %g s; expected at most %u frames: longer frames, or "
            "a shorter history",
            link->history_s, frames, frame_s, (unsigned)BR_MAX_SLOTS);
        return BR_E_INVALID;
    }
    return br_queue_add_history(edge->queue, name, (unsigned)frames, &link->reader, error);
}

static int make_queues(struct br_graph *graph, struct br_error *error)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = graph->order[s];
        for (unsigned i = 0; i < stage->nout; i++) {
            struct br_edge *edge = &stage->out[i];
            int status =
                br_queue_create(&edge->queue, edge->name, &edge->stream, edge->depth, edge->place, error);
            for (struct br_link *link = edge->readers; link != NULL && status == BR_OK; link = link->next)
                status = add_reader(edge, link, error);
            if (status != BR_OK) return status;
        }
    }
    return BR_OK;
}

/* --- the whole --- */

int br_graph_read(struct br_graph **result, struct br_config *config, struct br_log *log,
                  struct br_ranks *ranks, bool only_shown, struct br_error *error)
{
    struct br_graph *graph = *result = calloc(1, sizeof *graph);
    if (graph == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the graph");
    graph->config = config;
    graph->log = log;
    graph->ranks = ranks;
    graph->only_shown = only_shown;
    graph->run_ns = br_unix_ns();
    int status = br_plugins_create(&graph->plugins, error);
    if (status != BR_OK) return status;
    const struct br_node *root = br_config_root(config);
    if (root == NULL || br_config_errors(config) > 0) {
        /* Half a tree would make errors of its own. */
        if (root == NULL && br_config_errors(config) == 0) br_config_error(config, NULL, "the file is empty");
        return BR_E_INVALID;
    }
    if (root->kind != BR_NODE_MAP) {
        br_config_error(config, root, "expected a map with 'pipeline:' at the top of the file");
        return BR_E_INVALID;
    }
    struct top_params top = {0};
    bool misspelt = br_config_fill(config, root, top_params, top_also, &top) > 0 &&
                    (br_node_get(root, "telescope") == NULL || br_node_get(root, "stream") == NULL ||
                     br_node_get(root, "pipeline") == NULL);
    graph->watchdog_s = top.watchdog_s;
    graph->journal = top.journal;
    graph->stall_s = top.stall_s;
    graph->cpus = top.affinity;
    graph->threads = top.threads > 0 ? (unsigned)top.threads : br_pool_default_threads(top.affinity.count);
    br_control_read(config, br_node_get(root, "control"), &graph->control);
    add_plugins(graph, br_node_get(root, "plugins"), &top.plugins);
    size_t before = br_config_errors(config);
    br_graph_read_telescope(graph, br_node_get(root, "telescope"));
    br_graph_read_hints(graph, br_node_get(root, "stream"));
    /* else stages would ask for what is there, but wrong or by another name */
    bool known = br_config_errors(config) == before && !misspelt;
    if (misspelt && br_node_get(root, "pipeline") == NULL) return BR_E_INVALID;
    status = read_stages(graph, br_node_get(root, "pipeline"), &top.affinity, error);
    if (status != BR_OK) return status;
    br_graph_place_stages(graph, root);
    if (graph->nstages > 0) br_graph_connect(graph);
    return known ? BR_OK : BR_E_INVALID;
}

/* Warns of the size of an array, by the first stream that has one. */
static void check_size(const struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++)
        for (unsigned i = 0; i < graph->order[s]->nout; i++) {
            const struct br_stream *stream = &graph->order[s]->out[i].stream;
            if (stream->telescope == NULL) continue;
            br_positions_check_size(stream, graph->log);
            return;
        }
}

int br_graph_describe(struct br_graph *graph, struct br_error *error)
{
    struct br_config *config = graph->config;
    for (size_t s = 0; s < graph->nstages && graph->order[s] != NULL; s++) configure(graph, graph->order[s]);
    if (br_config_errors(config) > 0) return BR_E_INVALID;
    check_size(graph);
    br_graph_insert_transfers(graph);
    bool *placed = br_config_alloc(config, graph->nstages * sizeof *placed);
    br_graph_sort(graph, placed); /* it had an order before, and transfers only lengthen paths */
    list_edges(graph);
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        stage->phase = BR_PHASE_RUN;
        if (stage->type->memory != NULL) stage->type->memory(stage, stage->self, &stage->memory);
    }
    return make_queues(graph, error);
}

void br_graph_destroy(struct br_graph *graph)
{
    if (graph == NULL) return;
    for (size_t s = 0; s < graph->nstages; s++) {
        for (unsigned i = 0; i < graph->stage[s].nout; i++) br_queue_destroy(graph->stage[s].out[i].queue);
        free(graph->stage[s].self);
    }
    free(graph->stage);
    free(graph->order);
    br_plugins_destroy(graph->plugins);
    free(graph);
}
