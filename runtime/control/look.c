/* look.c - whether a node is healthy and ready. See parts.h.
 *
 * Healthy: it need not be restarted; its loop runs, and every stage's thread makes progress. Ready: it does
 * its work; sources deliver, nothing has failed, and products leave in time. */
#include "runtime/control/parts.h"

#include "buffers/clock.h"
#include "runtime/run/watchdog.h"

#include <string.h>

/* Where the user has no watchdog a call of this length still makes the node unhealthy. */
#define HANG_S 30.0

static void look_at_health(const struct node *node, struct node_facts *facts)
{
    struct br_hang hang;
    facts->healthy = true;
    if (!node->live) return;
    double limit_s = node->current.graph->watchdog_s > 0 ? node->current.graph->watchdog_s : HANG_S;
    if (!br_watchdog_find(node->current.graph, (uint64_t)(limit_s * 1e9), &hang)) return;
    facts->healthy = false;
    snprintf(facts->unhealthy, sizeof facts->unhealthy, "stage '%.64s': %.180s", hang.stage->name, hang.text);
}

/* The stage without inputs, or without outputs, that has been silent for longer than it may. */
static const char *silent_stage(const struct br_view *view, double late_s, double *silence)
{
    for (size_t s = 0; s < view->nstages; s++) {
        const struct view_stage *stage = &view->stage[s];
        bool source = stage->nin == 0 && stage->nout > 0, sink = stage->nout == 0 && stage->nin > 0;
        if (!source && !sink) continue;
        size_t q = source ? (size_t)stage->out[0] : (size_t)view->reader[stage->in[0]].queue;
        uint64_t moved = source ? view->queue_moved[q] : view->reader_moved[stage->in[0]];
        bool never = source ? view->now.queue[q].frames == 0 : view->now.reader[stage->in[0]].next == 0;
        double due = 3 * view->queue[q].frame_s;
        *silence = view->now.at_ns > moved ? (double)(view->now.at_ns - moved) * 1e-9 : 0;
        if (never || *silence > (due > late_s ? due : late_s)) return stage->name;
    }
    return NULL;
}

static void look_at_readiness(const struct node *node, struct node_facts *facts)
{
    double silence;
    const char *silent;
    if (node->state != NODE_RUNNING || node->view == NULL)
        snprintf(facts->unready, sizeof facts->unready, "the node is %s", node_state_name[node->state]);
    else if (node->view->failed_stage >= 0)
        snprintf(facts->unready, sizeof facts->unready, "stage '%.64s' has failed: %.150s",
                 node->view->stage[node->view->failed_stage].name, node->view->failure);
    else if (!facts->healthy)
        snprintf(facts->unready, sizeof facts->unready, "%s", facts->unhealthy);
    else if ((silent = silent_stage(node->view, node->late_s, &silence)) != NULL)
        snprintf(facts->unready, sizeof facts->unready, "no frame has come through stage '%.64s' for %.1f s",
                 silent, silence);
    facts->ready = facts->unready[0] == '\0';
}

void node_look(struct node *node, struct node_facts *facts)
{
    *facts = (struct node_facts){.state = node->state,
                                 .view = node->view,
                                 .file = node->options->file,
                                 .restarts = node->restarts,
                                 .process_start_ns = node->process_start_ns};
    snprintf(facts->message, sizeof facts->message, "%s", node->message);
    if (node->live) view_take(node->view, node->current.graph);
    if (node->view != NULL) verdict_make(node->view, &facts->verdict);
    look_at_health(node, facts);
    look_at_readiness(node, facts);
    if (node->server != NULL) server_counts(node->server, &facts->http);
    for (unsigned i = 0; i < BR_LOG_LEVELS; i++)
        facts->messages[i] = atomic_load_explicit(&node->options->log->messages[i], memory_order_relaxed);
}
