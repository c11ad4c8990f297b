/* connect.c - from names in `in:` and `out:` to a graph: who reads what, in which order, and what makes no
 * sense. */
#include "runtime/graph/graph.h"

#include <stdlib.h>
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
    return all;
}

/* The queues that have names, by name and as they come in the file. */
struct names {
    size_t count;
    struct br_edge **edge;
};

static int by_name(const void *left, const void *right)
{
    const struct br_edge *a = *(struct br_edge *const *)left, *b = *(struct br_edge *const *)right;
    int names = strcmp(a->name, b->name);
    return names != 0 ? names : (a > b) - (a < b);
}

/* Those that follow the first of a name are its second producers, which is a mistake. */
static struct names sort_names(struct br_graph *graph)
{
    struct names names = {
        0, br_config_alloc(graph->config, (br_graph_nedges(graph) + 1) * sizeof(struct br_edge *))};
    for (size_t s = 0; s < graph->nstages; s++)
        for (unsigned i = 0; i < graph->stage[s].nout; i++)
            if (graph->stage[s].out[i].name != NULL) names.edge[names.count++] = &graph->stage[s].out[i];
    qsort(names.edge, names.count, sizeof *names.edge, by_name);
    for (size_t i = 1, first = 0; i < names.count; i++) {
        struct br_edge *edge = names.edge[i];
        const struct br_edge *other = names.edge[first];
        if (strcmp(edge->name, other->name) != 0) {
            first = i;
            continue;
        }
        br_config_error(graph->config, edge->at,
                        "queue '%s' has two producers, '%s' (line %u) and '%s'; expected one: give "
                        "the output another name",
                        edge->name, other->producer->name, other->at->line, edge->producer->name);
        edge->producer->ready = false;
    }
    return names;
}

static bool is_second(const struct names *names, size_t i)
{
    return i > 0 && strcmp(names->edge[i - 1]->name, names->edge[i]->name) == 0;
}

static struct br_edge *queue_called(const struct names *names, const char *name)
{
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(names->edge[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < names->count && strcmp(names->edge[low]->name, name) == 0 ? names->edge[low] : NULL;
}

/* Finds the queue called `name`, or reports that there is none. `doubtful`: a stage could not be read, so
 * that the queue may well be one of its outputs. */
static struct br_edge *find_queue(struct br_graph *graph, const struct names *known, const struct br_node *at,
                                  const char *name, bool doubtful)
{
    enum { ENOUGH = 200 }; /* mistakes, of which more are not printed */
    struct br_edge *found = queue_called(known, name);
    if (found != NULL) return found;
    const char **names = br_config_errors(graph->config) < ENOUGH
                             ? br_config_alloc(graph->config, (known->count + 1) * sizeof *names)
                             : NULL;
    for (size_t i = 0; names != NULL && i < known->count; i++) names[i] = known->edge[i]->name;
    const char *near = names != NULL ? br_suggest(name, names) : NULL;
    if (doubtful && near == NULL) return NULL;
    br_config_error(graph->config, at, "no stage has an output '%s'%s%s%s", name,
                    near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                    near != NULL ? "'?" : "");
    return NULL;
}

/* False where an input could not be read or found: some queue has a reader that nobody knows of. */
static bool read_inputs(struct br_graph *graph, const struct names *names, bool doubtful)
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
            if (from != NULL) link->edge = find_queue(graph, names, node[i], from, doubtful);
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

/* A heap of numbers, the least one in front. */
static void push(size_t *heap, size_t *count, size_t number)
{
    size_t i = (*count)++;
    for (; i > 0 && heap[(i - 1) / 2] > number; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = number;
}

static size_t pop(size_t *heap, size_t *count)
{
    size_t least = heap[0], last = heap[--*count], i = 0;
    for (size_t child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return least;
}

/* Among the stages that wait for no other one, the first in the file comes first. */
bool br_graph_sort(struct br_graph *graph, bool *placed)
{
    size_t n = 0, nready = 0;
    size_t *ready = br_config_alloc(graph->config, (graph->nstages + 1) * sizeof *ready);
    unsigned *waits = br_config_alloc(graph->config, (graph->nstages + 1) * sizeof *waits);
    for (size_t s = 0; s < graph->nstages; s++) {
        for (unsigned i = 0; i < graph->stage[s].nin; i++) waits[s] += graph->stage[s].in[i].edge != NULL;
        if (waits[s] == 0) push(ready, &nready, s);
    }
    while (nready > 0) {
        size_t s = pop(ready, &nready);
        placed[s] = true;
        graph->order[n++] = &graph->stage[s];
        for (unsigned i = 0; i < graph->stage[s].nout; i++)
            for (const struct br_link *l = graph->stage[s].out[i].readers; l != NULL; l = l->next)
                if (--waits[l->stage - graph->stage] == 0)
                    push(ready, &nready, (size_t)(l->stage - graph->stage));
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
    struct names names = sort_names(graph);
    doubtful |= !read_inputs(graph, &names, doubtful);
    for (size_t i = 0; i < names.count && !doubtful; i++) {
        const struct br_edge *edge = names.edge[i];
        if (edge->readers == NULL && !is_second(&names, i)) /* of two producers that is told already */
            br_config_error(graph->config, edge->at,
                            "no stage reads queue '%s'; expected at least one with 'in: %s'",
                            edge->name, edge->name);
    }
    bool *placed = br_config_alloc(graph->config, graph->nstages * sizeof *placed);
    if (!br_graph_sort(graph, placed)) report_cycle(graph, placed);
}
