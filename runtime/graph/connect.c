/* connect.c - from names in `in:` and `out:` to a graph: who reads what, in which order, and what makes no
 * sense. */
#include "runtime/graph/graph.h"

#include <string.h>

struct out_params {
    const char *name;
    int64_t depth;
};
static const struct br_param out_params[] = {
    BR_PARAM("name", BR_P_STRING, struct out_params, name, NULL, .required = true),
    BR_PARAM("depth", BR_P_INT, struct out_params, depth, NULL, .min = 1, .max = 65536),
    {0},
};

struct history_params {
    double seconds;
};
static const struct br_param history_params[] = {
    BR_PARAM("seconds", BR_P_REAL, struct history_params, seconds, NULL, .required = true, .min = 1e-6,
             .max = 86400),
    {0},
};

struct in_params {
    const char *from, *policy;
    struct history_params *history;
};
static const char *const policies[] = {"block", "drop", NULL};
static const struct br_param in_params[] = {
    BR_PARAM("from", BR_P_STRING, struct in_params, from, NULL, .required = true),
    BR_PARAM("policy", BR_P_CHOICE, struct in_params, policy, NULL, .choices = policies, .def = "block"),
    BR_PARAM("history", BR_P_MAP, struct in_params, history, NULL, .fields = history_params,
             .size = sizeof(struct history_params)),
    {0},
};

/* `in: x`, `in: [x, y]`: one node per port. Records an error and returns false unless there are as many as
 * ports, or at least `least`; *used is how many there are. */
static bool ports(struct br_stage *stage, const char *key, const struct br_port *port, unsigned count,
                  unsigned least, unsigned *used, const struct br_node *node[BR_MAX_PORTS])
{
    struct br_config *config = stage->graph->config;
    const struct br_node *value = br_node_get(stage->node, key);
    if (count == 0) {
        if (value != NULL)
            br_config_error(config, value, "stage '%s' has no %sputs, but '%s' is given", stage->type->name,
                            key, key);
        return value == NULL;
    }
    size_t given = value == NULL ? 0 : value->kind == BR_NODE_LIST ? value->count : 1;
    if (given >= least && given <= count) {
        *used = (unsigned)given;
        for (unsigned i = 0; i < given; i++) node[i] = value->kind == BR_NODE_LIST ? value->item[i] : value;
        return true;
    }
    char expected[256] = "";
    for (unsigned i = 0; i < count; i++) {
        size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, "%s%s (%s)", i > 0 ? ", " : "", port[i].name,
                 port[i].help != NULL ? port[i].help : "");
    }
    br_config_error(config, value != NULL ? value : stage->node,
                    "stage '%s' %s '%s:'; expected %s%u queue name%s: %s", stage->name,
                    value == NULL ? "lacks" : "has too many or too few names in", key,
                    least < count ? "1 to " : "", count, count > 1 ? "s" : "", expected);
    return false;
}

/* A queue's name: a scalar, not empty. */
static const char *queue_name(struct br_config *config, const struct br_node *node)
{
    if (node->kind == BR_NODE_SCALAR && node->text[0] != '\0') return node->text;
    br_config_error(config, node, "expected the name of a queue");
    return NULL;
}

static bool read_output(struct br_stage *stage, unsigned i, const struct br_node *node)
{
    struct br_config *config = stage->graph->config;
    struct br_edge *edge = &stage->out[i];
    edge->producer = stage;
    edge->port = i;
    edge->at = node;
    if (node->kind == BR_NODE_MAP) {
        struct out_params p = {0};
        bool wrong = br_config_fill(config, node, out_params, NULL, &p) > 0;
        edge->name = p.name; /* with a wrong depth it is still the queue that others read */
        if (wrong) return false;
        edge->depth_given = br_node_get(node, "depth") != NULL;
        edge->depth = edge->depth_given ? (unsigned)p.depth : 0;
    } else {
        edge->name = queue_name(config, node);
    }
    return edge->name != NULL;
}

/* Whether `history:` makes sense there. */
static bool history_allowed(const struct br_stage *stage, const struct br_node *node)
{
    struct br_config *config = stage->graph->config;
    if (br_node_get(node, "policy") != NULL) {
        br_config_error(
            config, br_node_get(node, "policy"),
            "'policy' next to 'history': a history is a policy of its own; leave one of them out");
        return false;
    }
    if ((stage->type->flags & BR_STAGE_HISTORY) != 0) return true;
    br_config_error(config, br_node_get(node, "history"),
                    "stage '%s' cannot look at what has passed, as 'dump' can; leave 'history' out (or take "
                    "'policy: drop', which does not hold the others up either)",
                    stage->name);
    return false;
}

static bool read_input(struct br_stage *stage, unsigned i, const struct br_node *node, const char **from)
{
    struct br_config *config = stage->graph->config;
    struct br_link *link = &stage->in[i];
    link->stage = stage;
    link->port = i;
    link->at = node;
    link->policy = BR_POLICY_BLOCK;
    if (node->kind == BR_NODE_MAP) {
        struct in_params p = {0};
        bool wrong = br_config_fill(config, node, in_params, NULL, &p) > 0;
        *from = p.from;
        if (wrong) return false;
        link->policy = strcmp(p.policy, "drop") == 0 ? BR_POLICY_DROP : BR_POLICY_BLOCK;
        if (p.history != NULL && !history_allowed(stage, node)) return false;
        if (p.history != NULL) link->policy = BR_POLICY_HISTORY;
        if (p.history != NULL) link->history_s = p.history->seconds;
    } else {
        *from = queue_name(config, node);
    }
    bool lacks = (stage->type->flags & BR_STAGE_HISTORY) != 0 && link->policy != BR_POLICY_HISTORY;
    if (lacks && *from != NULL)
        br_config_error(config, node,
                        "stage '%s' reads what has passed: expected how much is kept for it, such as 'in: "
                        "{from: %s, history: {seconds: 30}}'",
                        stage->name, *from);
    return *from != NULL && !lacks;
}

/* False where a stage's outputs could not be read, so that nobody knows what they are called. */
static bool read_outputs(struct br_graph *graph)
{
    bool all = true;
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        const struct br_node *node[BR_MAX_PORTS];
        if (stage->type == NULL) continue;
        unsigned least = (stage->type->flags & BR_STAGE_OPTIONAL_OUTPUTS) != 0 ? 1 : stage->nout;
        if (!ports(stage, "out", stage->type->outputs, stage->nout, least, &stage->nout, node)) {
            stage->ready = all = false;
            continue;
        }
        for (unsigned i = 0; i < stage->nout; i++) {
            if (!read_output(stage, i, node[i])) stage->ready = false;
            all &= stage->out[i].name != NULL;
        }
    }
    size_t nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        for (size_t k = 0; k < i && edge->name != NULL; k++) {
            struct br_edge *other = br_graph_edge(graph, k);
            if (other->name == NULL || strcmp(edge->name, other->name) != 0) continue;
            br_config_error(graph->config, edge->at,
                            "queue '%s' has two producers, '%s' (line %u) and '%s'; expected one: give "
                            "the output another name",
                            edge->name, other->producer->name, other->at->line, edge->producer->name);
            edge->producer->ready = false;
            break;
        }
    }
    return all;
}

/* Finds the queue called `name`, or reports that there is none. `doubtful`: a stage could not be read, so
 * that the queue may well be one of its outputs. */
static struct br_edge *find_queue(struct br_graph *graph, const struct br_node *at, const char *name,
                                  bool doubtful)
{
    size_t nedges = br_graph_nedges(graph), n = 0;
    const char **names = br_config_alloc(graph->config, (nedges + 1) * sizeof *names);
    for (size_t i = 0; i < nedges; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        if (edge->name == NULL) continue;
        if (strcmp(edge->name, name) == 0) return edge;
        names[n++] = edge->name;
    }
    const char *near = br_suggest(name, names);
    if (doubtful && near == NULL) return NULL;
    br_config_error(graph->config, at, "no stage has an output '%s'%s%s%s", name,
                    near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                    near != NULL ? "'?" : "");
    return NULL;
}

/* False where an input could not be read or found: some queue has a reader that nobody knows of. */
static bool read_inputs(struct br_graph *graph, bool doubtful)
{
    bool all = true;
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        const struct br_node *node[BR_MAX_PORTS];
        if (stage->type == NULL) continue;
        if (!ports(stage, "in", stage->type->inputs, stage->nin, stage->nin, &stage->nin, node)) {
            stage->ready = all = false;
            continue;
        }
        for (unsigned i = 0; i < stage->nin; i++) {
            const char *from = NULL;
            struct br_link *link = &stage->in[i];
            if (!read_input(stage, i, node[i], &from)) stage->ready = false;
            if (from != NULL) link->edge = find_queue(graph, node[i], from, doubtful);
            if (link->edge == NULL) {
                stage->ready = all = false;
                continue;
            }
            struct br_link **tail = &link->edge->readers;
            while (*tail != NULL) tail = &(*tail)->next;
            *tail = link;
        }
    }
    return all;
}

bool br_graph_sort(struct br_graph *graph, bool *placed)
{
    size_t n = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t s = 0; s < graph->nstages; s++) {
            struct br_stage *stage = &graph->stage[s];
            bool waits = placed[s];
            for (unsigned i = 0; i < stage->nin && !waits; i++)
                waits = stage->in[i].edge != NULL && !placed[stage->in[i].edge->producer - graph->stage];
            if (waits) continue;
            placed[s] = moved = true;
            graph->order[n++] = stage;
        }
    }
    return n == graph->nstages;
}

/* Goes upstream among the stages that could not be placed until one comes again: that is a cycle. */
static void report_cycle(struct br_graph *graph, const bool *placed)
{
    struct br_stage *at = NULL;
    for (size_t s = 0; s < graph->nstages && at == NULL; s++)
        if (!placed[s]) at = &graph->stage[s];
    char path[512] = "";
    struct br_stage *first = NULL;
    for (size_t steps = 0; at != NULL && steps <= 2 * graph->nstages; steps++) {
        struct br_stage *upstream = NULL;
        for (unsigned i = 0; i < at->nin && upstream == NULL; i++)
            if (at->in[i].edge != NULL && !placed[at->in[i].edge->producer - graph->stage])
                upstream = at->in[i].edge->producer;
        if (steps == graph->nstages) first = at; /* by now it goes round in a circle */
        if (first != NULL) {
            size_t used = strlen(path);
            snprintf(path + used, sizeof path - used, "%s'%s'", used > 0 ? ", which reads from " : "",
                     at->name);
            if (at == first && used > 0) break;
        }
        at = upstream;
    }
    if (first != NULL)
        br_config_error(graph->config, first->node,
                        "the stages form a cycle: %s; expected data to flow one way", path);
    for (size_t s = 0; s < graph->nstages; s++)
        if (!placed[s]) graph->stage[s].ready = false;
}

void br_graph_connect(struct br_graph *graph)
{
    bool doubtful = false;
    for (size_t s = 0; s < graph->nstages; s++) doubtful |= graph->stage[s].type == NULL;
    doubtful |= !read_outputs(graph);
    doubtful |= !read_inputs(graph, doubtful);
    size_t nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges && !doubtful; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        bool second = false; /* of two producers: that is told already */
        for (size_t k = 0; k < i && edge->name != NULL; k++) {
            const char *other = br_graph_edge(graph, k)->name;
            second |= other != NULL && strcmp(other, edge->name) == 0;
        }
        if (edge->readers == NULL && edge->name != NULL && !second)
            br_config_error(graph->config, edge->at,
                            "queue '%s' is read by no stage; expected at least one stage with 'in: %s'",
                            edge->name, edge->name);
    }
    bool *placed = br_config_alloc(graph->config, graph->nstages * sizeof *placed);
    if (!br_graph_sort(graph, placed)) report_cycle(graph, placed);
}
