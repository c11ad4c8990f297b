/* node.c - see node.h. */
#include "buffers/clock.h"
#include "runtime/control/notify.h"
#include "runtime/control/parts.h"
#include "runtime/control/update_routes.h"
#include "runtime/ranks/ranks.h"
#include "runtime/run/updates.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_S  0.25
#define TRIM_NS 10000000000u /* from one return of free memory to the next */

/* --- what has ended --- */

/* Returns what is free between what stays. Another program's heap is not ours to trim. */
static void trim(struct node *node)
{
    node->trimmed_ns = br_clock_ns();
    if (!node->options->embedded) malloc_trim(0);
}

/* A pipeline that has ended. While a thread of its own hangs in a file, or MPI in a call, its graph must
 * stay. */
static void let_go(struct node *node)
{
    /* br_ranks_leave ends the process, or somebody still uses the pipeline's memory */
    if (br_ranks_hangs(node->options->ranks) || node->current.graph->state->left_behind ||
        node->current.graph->state->kept) {
        node->current = (struct node_pipeline){0};
        return;
    }
    struct node_left *left = node->hung != NULL ? calloc(1, sizeof *left) : NULL;
    if (node->hung == NULL) {
        node_unload(&node->current);
        trim(node);
        return;
    }
    br_log(node->options->log, BR_LOG_WARNING, NULL,
           "an update hangs in a file that it names; what it was for is kept until the file comes back");
    if (left != NULL) *left = (struct node_left){node->left, node->current, node->hung};
    if (left != NULL) node->left = left;
    node->hung = NULL;
    node->current = (struct node_pipeline){0};
}

static void free_left(struct node *node)
{
    for (struct node_left **at = &node->left; *at != NULL;) {
        struct node_left *left = *at;
        if (!desk_ended(left->desk)) {
            at = &left->next;
            continue;
        }
        *at = left->next;
        node_unload(&left->pipeline);
        free(left);
    }
}

/* Nobody starts before everybody can. */
static int all_are_ready(const struct node *node)
{
    struct br_error error = {0};
    if (br_ranks_check_files(node->options->ranks, node->current.graph, &error) == BR_OK) return 0;
    br_log(node->options->log, BR_LOG_ERROR, NULL, "%s", error.text);
    return 2;
}

/* --- what the service manager is told --- */

static void tell_manager(struct node *node, const struct node_facts *facts)
{
    char sentence[500], state[600];
    uint64_t now = br_clock_ns(), every = notify_watchdog_ns();
    if (!notify_wanted()) return;
    facts_sentence(facts, sentence, sizeof sentence);
    for (char *c = sentence; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    if (now - node->told_ns > 2000000000u && strcmp(sentence, node->told) != 0) {
        node->told_ns = now;
        snprintf(node->told, sizeof node->told, "%s", sentence);
        snprintf(state, sizeof state, "STATUS=%s", sentence);
        notify_send(state);
    }
    if (every == 0 || !facts->healthy || now - node->watchdog_told_ns < every / 2) return;
    node->watchdog_told_ns = now;
    notify_send("WATCHDOG=1");
}

static void on_tick(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    struct node *node = watcher->data;
    struct node_facts facts;
    free_left(node);
    node_look(node, &facts);
    tell_manager(node, &facts);
    if (br_clock_ns() - node->trimmed_ns > TRIM_NS) trim(node);
}

/* --- a pipeline in the loop --- */

static void tell_owner(struct node *node, struct br_run *run, struct br_graph *graph)
{
    if (node->options->tell != NULL) node->options->tell(node->options->tell_arg, run, graph);
}

static void on_begin(void *arg, struct br_run *run, struct br_graph *graph)
{
    struct node *node = arg;
    struct br_view *view = view_make(graph, br_clock_ns());
    node->run = run;
    tell_owner(node, run, graph);
    node->state = NODE_STARTING;
    node->message[0] = '\0';
    node->late_s = graph->control.listen != NULL ? graph->control.late_s : 5;
    if (view == NULL) {
        br_log(graph->log, BR_LOG_WARNING, NULL, "control: no memory for the pipeline's numbers");
        return;
    }
    view_free(node->view);
    node->view = view;
    node->live = true;
    if (node->server != NULL) node->pictures = pictures_make(graph);
    if (node->server != NULL) node->taps = taps_make(graph);
    view_take(view, graph);
}

static void on_started(void *arg)
{
    struct node *node = arg;
    if (node->state == NODE_STARTING) node->state = NODE_RUNNING; /* or it was told to end meanwhile */
    node->threads_run = true;
    node->was_ready = true;
    if (node->server != NULL || node->current.graph->journal != NULL ||
        node->current.graph->state->watched != NULL || node->current.graph->state->updates->newest != NULL) {
        node->desk = desk_open(&(struct desk_options){
            .graph = node->current.graph, .ev = node->ev, .answered = updates_answered, .arg = node});
        if (node->desk == NULL)
            br_log(node->options->log, BR_LOG_WARNING, NULL, "control: no thread for updates: none is taken");
    }
    notify_send("READY=1");
}

/* The loop answers requests until the process ends; stages must not see them once they are stopped. */
static void on_ended(void *arg)
{
    struct node *node = arg;
    node->threads_run = false;
}

static void on_end(void *arg)
{
    struct node *node = arg;
    if (node->desk != NULL && !desk_close(node->desk)) node->hung = node->desk;
    node->desk = NULL;
    if (node->hung != NULL) {
        br_journal_close(&node->current.graph->state->updates->journal, 1000000000);
    } else if (node->current.graph != NULL) { /* what there is to say of the last ones */
        br_updates_tidy(node->current.graph);
        br_updates_note(node->current.graph);
    }
    if (node->live) {
        view_take(node->view, node->current.graph);
        view_let_go(node->view);
        if (node->view->failed_stage >= 0)
            snprintf(node->message, sizeof node->message, "stage '%.64s' has failed: %.900s",
                     node->view->stage[node->view->failed_stage].name, node->view->failure);
    }
    pictures_free(node->pictures);
    node->pictures = NULL;
    taps_free(node->taps);
    node->taps = NULL;
    node->live = false;
    node->run = NULL;
    tell_owner(node, NULL, node->current.graph);
}

bool node_stop(struct node *node, bool abort, const char *who, char *why, size_t size)
{
    if (node->run == NULL && (node->loading != NULL || ev_is_active(&node->again))) { /* what would start */
        ev_timer_stop(node->ev, &node->again);
        node_call_off(node);
        return true;
    }
    if (node->run == NULL) {
        snprintf(why, size, "there is no pipeline that runs");
        return false;
    }
    if (node->state == NODE_DRAINING && !abort) {
        snprintf(why, size, "the pipeline drains already");
        return false;
    }
    node_call_off(node);
    node->state = NODE_DRAINING;
    if (abort)
        br_run_abort(node->run, who);
    else
        br_run_drain(node->run, who);
    return true;
}

/* --- signals --- */

static void on_quit(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)events;
    struct node *node = watcher->data;
    node->quit = true;
    node_call_off(node);
    notify_send("STOPPING=1");
    if (node->run == NULL)
        ev_break(ev, EVBREAK_ALL);
    else /* the run has a watcher of its own, which drains it */
        node->state = NODE_DRAINING;
}

static void on_hangup(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)ev, (void)events;
    struct node *node = watcher->data;
    char why[160];
    if (!node_restart(node, false, "SIGHUP", NULL, why, sizeof why))
        br_log(node->options->log, BR_LOG_WARNING, NULL, "SIGHUP: %s", why);
}

/* A pipeline that runs prints its counters; where none does there is nothing to print, and nothing to
 * die of. */
static void on_report(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)ev, (void)watcher, (void)events;
}

/* The file is read again, too: what was wrong may be mended, or a controller be back. */
static void on_again(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    char why[160];
    node_restart(watcher->data, false, "--again", NULL, why, sizeof why); /* or it is being read already */
}

static void watch(struct node *node)
{
    ev_timer_init(&node->again, on_again, node->options->again_s, node->options->again_s);
    ev_timer_init(&node->tick, on_tick, TICK_S, TICK_S);
    ev_signal_init(&node->hangup, on_hangup, SIGHUP);
    ev_signal_init(&node->interrupt, on_quit, SIGINT);
    ev_signal_init(&node->terminate, on_quit, SIGTERM);
    ev_signal_init(&node->report, on_report, SIGUSR1);
    node->tick.data = node->again.data = node->hangup.data = node->interrupt.data = node->terminate.data =
        node;
    if (node->server != NULL || notify_wanted()) ev_timer_start(node->ev, &node->tick);
    if (node->options->embedded) return;
    ev_signal_start(node->ev, &node->interrupt);
    ev_signal_start(node->ev, &node->terminate);
    ev_signal_start(node->ev, &node->report);
    if (node->options->outlives) ev_signal_start(node->ev, &node->hangup);
}

/* --- the whole --- */

static int open_server(struct node *node)
{
    const struct br_control_settings *settings = &node->current.graph->control;
    struct br_error error = {0};
    if (settings->listen == NULL) return 0;
    if (br_log_keep(node->options->log, (unsigned)settings->log_lines) != BR_OK) return 1;
    node->listen = strdup(settings->listen);
    node->token_file = settings->token_file != NULL ? strdup(settings->token_file) : NULL;
    struct server_options options = {.ev = node->ev,
                                     .listen = node->listen,
                                     .token_file = node->token_file,
                                     .routes = node_routes,
                                     .arg = node,
                                     .log = node->options->log};
    if (node->listen == NULL || server_create(&node->server, &options, &error) != BR_OK) {
        br_log(node->options->log, BR_LOG_ERROR, NULL, "%s", error.text);
        return 2;
    }
    br_log(node->options->log, BR_LOG_NOTE, NULL, "control: http://%s/ shows this node",
           server_address(node->server));
    return 0;
}

/* Between pipelines, until there is one to start or the node shall end. */
static void wait_for_orders(struct node *node, int status)
{
    bool ordered = node->state == NODE_DRAINING;
    node->state = status == 0 || status == 130 ? NODE_STOPPED : NODE_FAILED;
    bool again = node->state == NODE_FAILED && !ordered && node->options->again_s > 0;
    char then[80] = "a restart (SIGHUP) starts it again";
    if (again) snprintf(then, sizeof then, "it starts again in %g s", node->options->again_s);
    if (node->message[0] == '\0')
        snprintf(node->message, sizeof node->message, "%s",
                 status == 0     ? "it has ended"
                 : status == 130 ? "it was stopped"
                                 : "it could not start, or was aborted; the log says more");
    br_log(node->options->log, BR_LOG_NOTE, NULL, "there is no pipeline: %s; %s", node->message, then);
    if (node->quit) return;
    if (again) ev_timer_again(node->ev, &node->again);
    ev_run(node->ev, 0);
    ev_timer_stop(node->ev, &node->again);
}

/* One pipeline after the other; returns the last one's exit status. */
static int run_pipelines(struct node *node)
{
    for (;;) {
        struct br_run_options run = node->options->run;
        run.ev = node->ev;
        run.guest = &node->guest;
        int status = br_pipeline_run(node->current.graph, &run);
        let_go(node);
        if (node->next.graph == NULL && node->options->outlives && !node->quit) wait_for_orders(node, status);
        if (node->next.graph == NULL || node->quit) {
            bool clean = node->options->outlives && (status == 0 || status == 130);
            return clean ? 0 : status;
        }
        node->current = node->next;
        node->next = (struct node_pipeline){0};
        node->restarts++;
    }
}

int br_node_run(const struct br_node_options *options)
{
    struct node node = {.options = options, .late_s = 5};
    node.guest = (struct br_run_guest){.arg = &node,
                                       .begin = on_begin,
                                       .started = on_started,
                                       .ended = on_ended,
                                       .end = on_end,
                                       .owns_hangup = options->outlives};
    node.process_start_ns = br_unix_ns();
    if (!options->embedded) signal(SIGUSR1, SIG_IGN); /* until there is a loop that takes it */
    int status =
        node_load(options, &node.current, false, options->run.errors != NULL ? options->run.errors : stderr);
    if (status == 0) status = all_are_ready(&node);
    if (status != 0) {
        br_ranks_fail(options->ranks, status, "its pipeline file cannot be run; its messages say why");
        node_unload(&node.current);
        return status;
    }
    node.ev = options->run.ev != NULL ? options->run.ev : ev_default_loop(EVFLAG_AUTO);
    if (node.ev == NULL) {
        br_log(options->log, BR_LOG_ERROR, NULL, "the event loop cannot be made: %s", strerror(errno));
        node_unload(&node.current);
        return 1;
    }
    loop_time_measure(&node.loop_time, node.ev);
    if (!options->embedded) signal(SIGPIPE, SIG_IGN);
    status = open_server(&node);
    if (status == 0) {
        watch(&node);
        status = run_pipelines(&node);
        if (!node.quit) notify_send("STOPPING=1");
    }
    node.quit = true; /* also where the pipeline has ended by itself: a late restart has nowhere to go */
    bool loaded = node_end_loading(&node);
    server_destroy(node.server);
    node_unload(&node.current);
    node_unload(&node.next);
    view_free(node.view);
    free(node.listen);
    free(node.token_file);
    if (options->embedded) return status;
    signal(SIGUSR1, SIG_IGN);
    if (loaded) ev_loop_destroy(node.ev);
    free_left(&node);
    if (node.left != NULL || !loaded) { /* a thread that hangs in a file cannot be ended */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
