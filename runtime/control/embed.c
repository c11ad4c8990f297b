/* embed.c - see runtime/embed.h. */
#include "runtime/embed.h"

#include "buffers/clock.h"
#include "runtime/control/parts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct br_embed {
    struct ev_loop *ev;
    ev_async asked;
    pthread_mutex_t mutex;
    unsigned stops;         /* under the mutex: 1 drains, 2 aborts */
    struct br_run *run;     /* the loop's thread's */
    struct br_graph *graph; /* under the mutex: while its counters may be looked at */
    uint64_t start_ns;
    bool left_behind; /* the run has ended without some of its threads */
};

/* Where messages go for one call. */
struct outlets {
    struct br_log log;
    FILE *log_out, *errors, *report;
};

static FILE *outlet(int fd)
{
    int own = dup(fd);
    FILE *file = own >= 0 ? fdopen(own, "w") : NULL;
    if (file == NULL && own >= 0) close(own);
    if (file != NULL) setvbuf(file, NULL, _IOLBF, 4096);
    return file;
}

static void close_outlets(struct outlets *o)
{
    br_log_destroy(&o->log);
    FILE *const all[] = {o->log_out, o->errors, o->report};
    for (size_t i = 0; i < 3; i++)
        if (all[i] != NULL) fclose(all[i]);
}

static bool open_outlets(struct outlets *o, const struct br_embed_source *source)
{
    *o = (struct outlets){.log_out = outlet(source->log_fd),
                          .errors = outlet(source->errors_fd),
                          .report = outlet(source->report_fd)};
    br_log_init(&o->log, o->log_out, BR_LOG_NOTE);
    o->log.json = true;
    if (o->log_out != NULL && o->errors != NULL && o->report != NULL) return true;
    close_outlets(o);
    return false;
}

void br_stage_keep_memory(struct br_stage *stage)
{
    atomic_store(&stage->graph->state->kept, true);
}

/* --- check --- */

static json_t *memory_json(const struct br_memory *m)
{
    return json_pack("{sI sI sI}", "host", (json_int_t)m->host, "locked", (json_int_t)m->locked, "device",
                     (json_int_t)m->device);
}

static json_t *queue_json(const struct br_edge *edge)
{
    json_t *readers = json_array();
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        json_array_append_new(readers, json_string(link->stage->name));
    char *stream = br_stream_json(&edge->stream);
    json_t *document =
        json_pack("{ss ss so si sI so}", "name", edge->name, "from", edge->producer->name, "readers", readers,
                  "slots", (int)edge->depth, "bytes",
                  (json_int_t)(br_queue_bytes(edge->queue) + br_queue_device_bytes(edge->queue)), "stream",
                  stream != NULL ? json_loads(stream, 0, NULL) : json_null());
    free(stream);
    return document;
}

static void write_graph(const struct br_graph *graph, FILE *out)
{
    json_t *stages = json_array(), *queues = json_array();
    for (size_t s = 0; s < graph->nstages; s++)
        json_array_append_new(stages, json_pack("{ss ss si so}", "name", graph->stage[s].name, "stage",
                                                graph->stage[s].type->name, "device", graph->stage[s].device,
                                                "memory", memory_json(&graph->stage[s].memory)));
    for (size_t i = 0; i < br_graph_nedges(graph); i++)
        json_array_append_new(queues, queue_json(br_graph_edge(graph, i)));
    struct br_memory all = br_graph_memory(graph, 0);
    json_t *document =
        json_pack("{so so so}", "stages", stages, "queues", queues, "memory", memory_json(&all));
    json_dumpf(document, out, JSON_COMPACT);
    json_decref(document);
}

static struct br_node_options options_of(const struct br_embed_source *source, struct outlets *o)
{
    return (struct br_node_options){.file = source->name,
                                    .text = source->text,
                                    .more = source->more,
                                    .nset = source->nset,
                                    .set = source->set,
                                    .embedded = true,
                                    .log = &o->log,
                                    .run = {.out = o->errors, .errors = o->errors, .stats = o->report}};
}

int br_embed_check(const struct br_embed_source *source)
{
    struct outlets o;
    struct node_pipeline pipeline;
    if (!open_outlets(&o, source)) return 1;
    struct br_node_options options = options_of(source, &o);
    options.only_shown = true;
    int status = node_load(&options, &pipeline, false, o.errors);
    if (status == 0) write_graph(pipeline.graph, o.report);
    node_unload(&pipeline);
    close_outlets(&o);
    return status;
}

/* --- run --- */

struct br_embed *br_embed_create(void)
{
    struct br_embed *embed = calloc(1, sizeof *embed);
    if (embed == NULL) return NULL;
    pthread_mutex_init(&embed->mutex, NULL);
    embed->ev = ev_loop_new(EVFLAG_AUTO);
    if (embed->ev != NULL) return embed;
    pthread_mutex_destroy(&embed->mutex);
    free(embed);
    return NULL;
}

void br_embed_destroy(struct br_embed *embed)
{
    if (embed == NULL) return;
    ev_loop_destroy(embed->ev);
    pthread_mutex_destroy(&embed->mutex);
    free(embed);
}

static void on_asked(struct ev_loop *ev, ev_async *watcher, int events)
{
    (void)ev, (void)events;
    struct br_embed *embed = watcher->data;
    pthread_mutex_lock(&embed->mutex);
    unsigned stops = embed->stops;
    pthread_mutex_unlock(&embed->mutex);
    if (embed->run != NULL && stops == 1) br_run_drain(embed->run, "the program");
    if (embed->run != NULL && stops > 1) br_run_abort(embed->run, "the program");
}

static void on_told(void *arg, struct br_run *run, struct br_graph *graph)
{
    struct br_embed *embed = arg;
    pthread_mutex_lock(&embed->mutex);
    embed->run = run;
    embed->graph = run != NULL ? graph : NULL;
    embed->start_ns = br_clock_ns();
    embed->left_behind = run == NULL && graph->state->left_behind;
    if (embed->stops > 0) ev_async_send(embed->ev, &embed->asked);
    pthread_mutex_unlock(&embed->mutex);
}

int br_embed_run(struct br_embed *embed, const struct br_embed_source *source)
{
    struct outlets *o = malloc(sizeof *o);
    if (o == NULL || !open_outlets(o, source)) {
        free(o);
        return 1;
    }
    struct br_node_options options = options_of(source, o);
    options.run.ev = embed->ev;
    options.tell = on_told;
    options.tell_arg = embed;
    ev_async_init(&embed->asked, on_asked);
    embed->asked.data = embed;
    ev_async_start(embed->ev, &embed->asked);
    int status = br_node_run(&options);
    ev_async_stop(embed->ev, &embed->asked);
    if (embed->left_behind) { /* a thread that comes back may say something */
        fflush(o->report);
        fflush(o->errors);
        return status;
    }
    close_outlets(o);
    free(o);
    return status;
}

void br_embed_stop(struct br_embed *embed, bool abort)
{
    pthread_mutex_lock(&embed->mutex);
    if (embed->stops < (abort ? 2u : 1u)) embed->stops = abort ? 2 : 1;
    if (embed->graph != NULL) ev_async_send(embed->ev, &embed->asked);
    pthread_mutex_unlock(&embed->mutex);
}

void br_embed_progress(struct br_embed *embed, char *text, size_t size)
{
    text[0] = '\0';
    pthread_mutex_lock(&embed->mutex);
    if (embed->graph != NULL) {
        struct br_run_times times = br_run_times(embed->graph, embed->start_ns, br_clock_ns());
        br_report_progress(embed->graph, &times, text, size);
    }
    pthread_mutex_unlock(&embed->mutex);
}
