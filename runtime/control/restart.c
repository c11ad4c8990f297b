/* restart.c - the pipeline's file becomes a pipeline; for a restart in a thread of its own, since a disk that
 * hangs must hold up neither the pipeline that runs nor those who watch it. See parts.h. */
#include "buffers/clock.h"
#include "buffers/threads.h"
#include "runtime/control/notify.h"
#include "runtime/control/parts.h"
#include "runtime/ranks/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GRACE_S = 1 }; /* for a file, when the node ends */

struct loading {
    struct node *node; /* of which the thread looks at the options only */
    char who[24];
    bool abort, called_off;
    struct deferred *asked; /* NULL: by a signal */
    pthread_t thread;
    ev_async done;

    struct node_pipeline pipeline; /* the thread's until it ends, and so is what follows */
    int status;
    char *errors;
};

void node_unload(struct node_pipeline *pipeline)
{
    br_pipeline_destroy(pipeline->graph);
    br_config_free(pipeline->config);
    *pipeline = (struct node_pipeline){0};
}

/* Whoever asks for a restart, or reads the log, may see the pipeline, and nothing of files that are none: an
 * `include:` of the wrong file, or one that has come in the pipeline file's place. */
static void print_for_others(const struct br_node_options *o, const struct br_config *config, FILE *out)
{
    bool known = br_node_get(br_config_root(config), "pipeline") != NULL;
    br_config_print_places(config, known ? o->file : NULL,
                           "what a pipeline file has there (`beamring check` on the node itself says more)",
                           out);
}

int node_load(const struct br_node_options *o, struct node_pipeline *pipeline, bool for_others, FILE *out)
{
    struct br_error error = {0};
    *pipeline = (struct node_pipeline){0};
    int status = o->text != NULL ? br_config_parse(&pipeline->config, o->file, o->text, strlen(o->text),
                                                   o->nset, o->set, &error)
                                 : br_config_load(&pipeline->config, o->file, o->nset, o->set, &error);
    if (status == BR_OK && o->more != NULL) br_config_append(pipeline->config, "pipeline", "added", o->more);
    if (status == BR_OK) status = br_ranks_agree(o->ranks, br_config_digest(pipeline->config), &error);
    if (status == BR_OK)
        status =
            br_pipeline_build(&pipeline->graph, pipeline->config, o->log, o->ranks, o->only_shown, &error);
    if (pipeline->config != NULL && br_config_errors(pipeline->config) > 0) {
        if (for_others)
            print_for_others(o, pipeline->config, out);
        else
            br_config_print_errors(pipeline->config, out);
        bool file_is_right =
            pipeline->graph != NULL && br_config_errors(pipeline->config) == pipeline->graph->not_now;
        return file_is_right ? 1 : 2;
    }
    if (status == BR_OK) pipeline->graph->state->embedded = o->embedded;
    if (status == BR_OK) return 0;
    fprintf(out, "beamring: %s\n", error.text);
    return status == BR_E_NO_MEMORY ? 1 : 2;
}

static void *run(void *arg)
{
    struct loading *l = arg;
    size_t length;
    FILE *out = open_memstream(&l->errors, &length);
    l->status = out != NULL ? node_load(l->node->options, &l->pipeline, true, out) : 1;
    if (out != NULL) fclose(out);
    ev_async_send(l->node->ev, &l->done);
    return NULL;
}

/* The control interface is that of the first pipeline: a connection must not break because a file has
 * changed. */
static void say_what_stays(const struct node *node, const struct br_control_settings *fresh)
{
    const char *listen = fresh->listen != NULL ? fresh->listen : "",
               *now = node->listen != NULL ? node->listen : "";
    const char *file = fresh->token_file != NULL ? fresh->token_file : "";
    if (strcmp(listen, now) == 0 && strcmp(file, node->token_file != NULL ? node->token_file : "") == 0)
        return;
    br_log(node->options->log, BR_LOG_NOTE, NULL,
           "control: address and token stay as they are until the process ends");
}

/* Starts the loaded pipeline: at once, or after the running one has drained. */
static void start_next(struct node *node, const struct loading *l)
{
    char reloading[80];
    node_unload(&node->next);
    node->next = l->pipeline;
    say_what_stays(node, &l->pipeline.graph->control);
    if (node->run == NULL) {
        br_log(node->options->log, BR_LOG_NOTE, NULL, "%s: the pipeline starts", l->who);
        ev_break(node->ev, EVBREAK_ALL);
        return;
    }
    snprintf(reloading, sizeof reloading, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(br_clock_ns() / 1000));
    notify_send(reloading);
    node->state = NODE_RESTARTING;
    if (l->abort)
        br_run_abort(node->run, l->who);
    else
        br_run_drain(node->run, l->who);
}

static void free_loading(struct loading *l)
{
    free(l->errors);
    free(l);
}

static void on_loaded(struct ev_loop *ev, ev_async *watcher, int events)
{
    (void)events;
    struct loading *l = watcher->data;
    struct node *node = l->node;
    struct control_answer answer = {.code = 202};
    ev_async_stop(ev, &l->done);
    pthread_join(l->thread, NULL);
    node->loading = NULL;
    if (l->status != 0 || l->called_off || node->quit) node_unload(&l->pipeline);
    if (l->called_off || node->quit) {
        answer_error(&answer, 409, "%s", node->quit ? "the node ends" : "a stop has called it off");
    } else if (l->status != 0) {
        const char *errors = l->errors != NULL ? l->errors : "no memory";
        const char *why = l->status == 2 ? "the file is wrong" : "it cannot run now";
        br_log(node->options->log, BR_LOG_WARNING, NULL, "%s: %s, so that nothing changes: %s", l->who, why,
               errors);
        answer_error(&answer, 422, "%s, and nothing has changed:\n%.900s", why, errors);
    } else {
        answer_document(&answer, json_pack("{ss}", "state", node->run != NULL ? "restarting" : "starting"),
                        15);
        start_next(node, l);
    }
    if (l->asked != NULL)
        server_answer(node->server, l->asked, &answer);
    else
        free(answer.body);
    free_loading(l);
}

bool node_restart(struct node *node, bool abort, const char *who, struct deferred *asked, char *why,
                  size_t size)
{
    if (node->loading != NULL) {
        snprintf(why, size, "the file is being read already, for %s", node->loading->who);
        return false;
    }
    struct loading *l = calloc(1, sizeof *l);
    if (l != NULL) {
        l->node = node;
        l->abort = abort;
        l->asked = asked;
        snprintf(l->who, sizeof l->who, "%s", who);
        ev_async_init(&l->done, on_loaded);
        l->done.data = l;
        ev_async_start(node->ev, &l->done);
        if (br_thread_start(&l->thread, run, l) == 0) {
            node->loading = l;
            return true;
        }
        ev_async_stop(node->ev, &l->done);
    }
    free(l);
    snprintf(why, size, "no memory, or no thread, to read the file with");
    return false;
}

void node_call_off(struct node *node)
{
    node_unload(&node->next);
    if (node->loading != NULL) node->loading->called_off = true;
}

bool node_end_loading(struct node *node)
{
    struct loading *l = node->loading;
    if (l == NULL) return true;
    struct timespec until = br_clock_in(CLOCK_REALTIME, GRACE_S * UINT64_C(1000000000));
    if (pthread_timedjoin_np(l->thread, NULL, &until) != 0) return false;
    ev_async_stop(node->ev, &l->done);
    node->loading = NULL;
    node_unload(&l->pipeline);
    free_loading(l);
    return true;
}
