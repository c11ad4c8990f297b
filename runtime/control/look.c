/* look.c - whether a node is healthy and ready. See parts.h.
 *
 * Healthy: it need not be restarted; its loop runs, and every stage's thread makes progress. Ready: it does
 * its work; sources deliver, nothing has failed, and products leave in time. */
#include "runtime/control/parts.h"
#include "runtime/control/update_routes.h"

#include "runtime/run/watchdog.h"

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
    else if ((silent = view_silent_stage(node->view, node->late_s, &silence)) != NULL)
        snprintf(facts->unready, sizeof facts->unready, "no frame has passed stage '%.64s' for %.1f s",
                 silent, silence);
    facts->ready = facts->unready[0] == '\0';
}

void node_look(struct node *node, struct node_facts *facts)
{
    *facts = (struct node_facts){.state = node->state,
                                 .view = node->view,
                                 .file = node->options->file,
                                 .restarts = node->restarts,
                                 .loop_time = &node->loop_time,
                                 .process_start_ns = node->process_start_ns};
    snprintf(facts->message, sizeof facts->message, "%s", node->message);
    if (node->live) view_take(node->view, node->current.graph);
    if (node->view != NULL) verdict_make(node->view, &facts->verdict);
    look_at_health(node, facts);
    look_at_readiness(node, facts);
    updates_look(node, &facts->updates);
    if (node->server != NULL) server_counts(node->server, &facts->http);
    for (unsigned i = 0; i < BR_LOG_LEVELS; i++)
        facts->messages[i] = atomic_load_explicit(&node->options->log->messages[i], memory_order_relaxed);
}
