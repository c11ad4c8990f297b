/* documents.c - see documents.h. */
#include "runtime/control/documents.h"
#include "runtime/base/json_text.h"
#include "runtime/run/update_watch.h"
#include "runtime/run/updates.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* --- status --- */

static json_t *lost_of(const struct view_stage_now *now)
{
    json_t *lost = json_object();
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++)
        if (now->lost[i] > 0) json_object_set_new(lost, br_losses[i].name, count(now->lost[i]));
    return lost;
}

/* The present activity of the stage's thread. */
static const char *activity(const struct view_stage_now *now)
{
    if (now->failed) return "failed";
    if (now->ended) return "ended";
    if (now->wait_gpu) return "waits for a GPU";
    if (now->wait_out != VIEW_NO_QUEUE) return "waits for a free frame";
    if (now->wait_in != VIEW_NO_QUEUE) return "waits for input";
    return now->waits_for != NULL ? "waits" : "works";
}

/* The dumps of a stage, by their names. */
static json_t *dumps_of(const struct view_stage_now *now)
{
#define DUMP_NAME(NAME, name, text) name,
    static const char *const names[] = {BR_DUMP_NUMBERS(DUMP_NAME)};
#undef DUMP_NAME
    json_t *document = json_object();
    for (unsigned i = 0; i < BR_DUMP_COUNT; i++)
        json_object_set_new(document, names[i], json_integer(now->dumps[i]));
    return document;
}

/* {"source 3": {"late": 5, ...}, ...} */
static json_t *counted_of(const struct view_stage *stage)
{
    json_t *all = json_object();
    for (size_t i = 0; i < stage->ncounted; i++) {
        const struct view_counted *c = &stage->counted[i];
        if (json_object_get(all, c->of) == NULL) json_object_set_new(all, c->of, json_object());
        json_object_set_new(json_object_get(all, c->of), c->what, count(c->value));
    }
    return all;
}

static json_t *stage_status(const struct br_view *view, size_t s)
{
    const struct view_stage *stage = &view->stage[s];
    const struct view_stage_now *now = &view->now.stage[s];
    struct view_shares shares;
    char device[24] = "cpu";
    if (stage->device >= 0) snprintf(device, sizeof device, "cuda:%d", stage->device);
    view_stage_shares(view, s, &shares);
    json_t *document =
        json_pack("{so so ss ss so so so so so so so so so}", "name", br_json_text(stage->name), "stage",
                  br_json_text(stage->type), "device", device, "does", activity(now), "waits_for",
                  br_json_text(now->waits_for), "trouble",
                  now->trouble[0] != '\0' ? br_json_text(now->trouble) : json_null(), "busy",
                  number(shares.works), "wait_else", number(shares.busy - shares.works), "wait_in",
                  number(shares.wait_in), "wait_out", number(shares.wait_out), "lost", lost_of(now),
                  "saturated", count(now->totals.saturated), "clamped", number(shares.clamped));
    if (document == NULL) return NULL;
    if (stage->device >= 0) {
        json_object_set_new(document, "gpu", number(shares.gpu));
        json_object_set_new(document, "gpu_ms_per_call", number(1e3 * shares.gpu_s_per_call));
    }
    if (stage->dumps) json_object_set_new(document, "dumps", dumps_of(now));
    if (now->latency_ns != INT64_MIN)
        json_object_set_new(document, "latency_s", number((double)now->latency_ns * 1e-9));
    return document;
}

static json_t *queue_status(const struct br_view *view, size_t q)
{
    const struct view_queue *queue = &view->queue[q];
    const struct br_queue_counters *now = &view->now.queue[q];
    const struct view_moment *before = view_before(view, 2);
    double frames = 0, samples = 0, missing = 0;
    if (before != NULL && view->now.at_ns > before->at_ns) {
        double seconds = (double)(view->now.at_ns - before->at_ns) * 1e-9;
        frames = (double)(now->frames - before->queue[q].frames) / seconds;
        samples = (double)(now->samples - before->queue[q].samples) / seconds;
        missing = (double)(now->missing - before->queue[q].missing) / seconds;
    }
    json_t *readers = json_array();
    for (unsigned i = 0; i < queue->nreaders; i++) {
        const struct view_reader *reader = &view->reader[queue->first_reader + i];
        const struct br_reader_counters *r = &view->now.reader[queue->first_reader + i];
        json_array_append_new(
            readers, json_pack("{so ss so so}", "stage", br_json_text(view->stage[reader->stage].name),
                               "policy", br_policy_name[reader->policy], "dropped_samples",
                               count(r->dropped_samples), "discarded_samples", count(r->discarded_samples)));
    }
    return json_pack("{so so so si si si ss so so so so so}", "name", br_json_text(queue->name), "from",
                     br_json_text(view->stage[queue->producer].name), "readers", readers, "slots",
                     (int)queue->depth, "fill", (int)now->fill, "max_fill", (int)now->max_fill, "state",
                     queue_state_name[queue_state(view, q)], "frames_per_s", number(frames), "samples_per_s",
                     number(samples), "bytes_per_s", number(frames * (double)queue->frame_bytes),
                     "missing_per_s", number(missing), "missing", count(now->missing));
}

/* The newest sample of the source that is ahead, and when it was taken; null: there is none yet. */
static json_t *newest_of(const struct br_view *view)
{
    uint64_t newest = 0;
    const struct view_queue *queue = NULL;
    for (size_t q = 0; view != NULL && q < view->nqueues; q++) {
        if (view->stage[view->queue[q].producer].nin > 0 || view->now.queue[q].newest <= newest) continue;
        newest = view->now.queue[q].newest;
        queue = &view->queue[q];
    }
    if (queue == NULL) return json_null();
    struct br_stream stream = {.epoch_ns = queue->epoch_ns, .sample_ns = queue->sample_ns};
    return json_pack("{sI sI}", "sample", (json_int_t)newest, "unix_ns",
                     (json_int_t)br_stream_time_ns(&stream, newest));
}

static json_t *verdict_of(const struct node_facts *facts)
{
    const struct verdict *v = &facts->verdict;
    const struct br_view *view = facts->view;
    if (view == NULL || v->kind == VERDICT_FLOWS || v->kind == VERDICT_ENDED) return json_null();
    return json_pack("{ss so so so so}", "kind", verdict_kind_name[v->kind], "stage",
                     v->stage >= 0 ? br_json_text(view->stage[v->stage].name) : json_null(), "queue",
                     v->queue >= 0 ? br_json_text(view->queue[v->queue].name) : json_null(), "cause",
                     br_json_text(v->cause), "since_s", number(v->since_s));
}

const char *const node_state_name[NODE_FAILED + 1] = {"starting",   "running", "draining",
                                                      "restarting", "stopped", "failed"};

const char *facts_sentence(const struct node_facts *facts, char *sentence, size_t size)
{
    const char *words = facts->verdict.sentence;
    snprintf(sentence, size, "%.500s", words);
    if (facts->state == NODE_STARTING)
        snprintf(sentence, size, "the pipeline starts");
    else if (facts->state == NODE_DRAINING || facts->state == NODE_RESTARTING)
        snprintf(sentence, size, "the pipeline drains%s: %.420s",
                 facts->state == NODE_RESTARTING ? ", and starts again" : "", words);
    else if (facts->state == NODE_STOPPED)
        snprintf(sentence, size, "there is no pipeline: %s",
                 facts->message[0] != '\0' ? facts->message : "it has ended");
    else if (facts->state == NODE_FAILED)
        snprintf(sentence, size, "there is no pipeline: %.450s", facts->message);
    return sentence;
}

static json_t *updates_of(const struct update_facts *u)
{
    if (!u->known) return json_null();
    json_t *states = json_object(), *watched = json_object();
    for (unsigned i = 0; i < BR_UPDATE_STATES; i++)
        json_object_set_new(states, br_update_state_name[i], count(u->total[i]));
    for (unsigned i = 0; i < 4; i++)
        json_object_set_new(watched, br_watch_state_name[i], count(u->watched[i]));
    return json_pack("{so so so so ss}", "states", states, "watched", watched, "waiting", count(u->waiting),
                     "busy_s", number(u->busy_s), "journal", br_journal_state_name[u->journal]);
}

json_t *document_status(const struct node_facts *facts)
{
    const struct br_view *view = facts->view;
    char sentence[640];
    facts_sentence(facts, sentence, sizeof sentence);
    json_t *stages = json_array(), *queues = json_array();
    for (size_t s = 0; view != NULL && s < view->nstages; s++)
        json_array_append_new(stages, stage_status(view, s));
    for (size_t q = 0; view != NULL && q < view->nqueues; q++)
        json_array_append_new(queues, queue_status(view, q));
    double uptime = view != NULL ? (double)(view->now.at_ns - view->start_ns) * 1e-9 : 0;
    return json_pack("{ss si so ss so so sb sb so so so so so so so so so}", "version", BR_VERSION, "pid",
                     (int)getpid(), "file", br_json_text(facts->file), "state", node_state_name[facts->state],
                     "sentence", br_json_text(sentence), "held_up", verdict_of(facts), "healthy",
                     (int)facts->healthy, "ready", (int)facts->ready, "unhealthy",
                     facts->unhealthy[0] != '\0' ? br_json_text(facts->unhealthy) : json_null(), "not_ready",
                     facts->unready[0] != '\0' ? br_json_text(facts->unready) : json_null(), "restarts",
                     count(facts->restarts), "uptime_s", number(uptime), "stream_s",
                     number(view != NULL ? view->now.stream_s : 0), "real_time_factor",
                     number(view != NULL ? view_real_time_factor(view) : 0), "updates",
                     updates_of(&facts->updates), "newest", newest_of(view), "graph",
                     json_pack("{so so}", "stages", stages, "queues", queues));
}

/* --- the others --- */

static json_t *place(const struct br_place *where)
{
    if (where->space == BR_SPACE_CUDA) return json_sprintf("cuda:%d", where->device);
    return json_string(where->space == BR_SPACE_PINNED ? "locked" : "host");
}

json_t *document_graph(const struct br_view *view)
{
    json_t *stages = json_array(), *queues = json_array();
    for (size_t s = 0; s < view->nstages; s++)
        json_array_append_new(stages, json_pack("{so so so}", "name", br_json_text(view->stage[s].name),
                                                "stage", br_json_text(view->stage[s].type), "device",
                                                json_integer(view->stage[s].device)));
    for (size_t q = 0; q < view->nqueues; q++) {
        const struct view_queue *queue = &view->queue[q];
        json_t *readers = json_array();
        for (unsigned i = 0; i < queue->nreaders; i++)
            json_array_append_new(
                readers, br_json_text(view->stage[view->reader[queue->first_reader + i].stage].name));
        json_array_append_new(
            queues, json_pack("{so so so so si so so so so}", "name", br_json_text(queue->name), "from",
                              br_json_text(view->stage[queue->producer].name), "readers", readers, "frame",
                              br_json_text(queue->shape), "slots", (int)queue->depth, "memory",
                              place(&queue->place), "bytes", count(queue->bytes + queue->device_bytes),
                              "frame_s", number(queue->frame_s), "no_preview", br_json_text(queue->unseen)));
    }
    return json_pack("{so so}", "stages", stages, "queues", queues);
}

static json_t *memory(const struct br_memory *m)
{
    return json_pack("{so so so}", "host", count(m->host), "locked", count(m->locked), "device",
                     count(m->device));
}

json_t *document_stages(const struct br_view *view)
{
    json_t *list = json_array();
    for (size_t s = 0; s < view->nstages; s++) {
        const struct view_stage_now *now = &view->now.stage[s];
        const struct br_stage_totals *t = &now->totals;
        json_array_append_new(
            list,
            json_pack("{so so so so so so so so so so so so so so so so so so}", "name",
                      br_json_text(view->stage[s].name), "stage", br_json_text(view->stage[s].type),
                      "in_frames", count(t->in_frames), "in_samples", count(t->in_samples), "out_frames",
                      count(t->out_frames), "out_samples", count(t->out_samples), "out_missing",
                      count(t->out_missing), "saturated", count(t->saturated), "calls", count(t->calls),
                      "busy_s", number((double)t->busy_ns * 1e-9), "cpu_s", number((double)t->cpu_ns * 1e-9),
                      "wait_in_s", number((double)t->wait_in_ns * 1e-9), "wait_out_s",
                      number((double)t->wait_out_ns * 1e-9), "gpu_ms_per_call",
                      number(t->gpu_ns_per_call * 1e-6), "lost", lost_of(now), "counted",
                      counted_of(&view->stage[s]), "memory", memory(&view->stage[s].memory), "held",
                      memory(&now->held)));
    }
    return json_pack("{so}", "stages", list);
}

/* A source whose packets are accepted; lost are those that never came. */
static json_t *board(const struct br_view *view, const struct view_stage *stage,
                     const struct view_counted *accepted, const struct view_counted *lost)
{
    double came = view_counted_per_s(view, accepted), lacks = view_counted_per_s(view, lost);
    const char *state = came > 0 ? (lacks > 0 ? "loses" : "sends") : lacks > 0 ? "silent" : "not expected";
    if (accepted->value == 0 && lost->value == 0) state = "waited for";
    return json_pack(
        "{so so so so so so ss}", "stage", br_json_text(stage->name), "board", br_json_text(accepted->of),
        "packets_per_s", number(came), "lost_per_s", number(lacks), "lost", count(lost->value), "last_seen_s",
        accepted->moved_ns != 0 ? number((double)(view->now.at_ns - accepted->moved_ns) * 1e-9) : json_null(),
        "state", state);
}

/* Counters of one source are adjacent. */
json_t *document_boards(const struct br_view *view)
{
    json_t *list = json_array();
    for (size_t s = 0; s < view->nstages; s++) {
        const struct view_stage *stage = &view->stage[s];
        const struct view_counted *accepted = NULL;
        for (const struct view_counted *c = stage->counted; c < stage->counted + stage->ncounted; c++) {
            if (strcmp(c->what, "accepted") == 0) accepted = c;
            if (accepted != NULL && strcmp(c->what, "never_came") == 0 && strcmp(c->of, accepted->of) == 0)
                json_array_append_new(list, board(view, stage, accepted, c));
        }
    }
    return json_pack("{so}", "boards", list);
}

json_t *document_queues(const struct br_view *view)
{
    json_t *list = json_array();
    for (size_t q = 0; q < view->nqueues; q++) {
        const struct view_queue *queue = &view->queue[q];
        const struct br_queue_counters *now = &view->now.queue[q];
        json_t *readers = json_array();
        for (unsigned i = 0; i < queue->nreaders; i++) {
            const struct view_reader *reader = &view->reader[queue->first_reader + i];
            const struct br_reader_counters *r = &view->now.reader[queue->first_reader + i];
            json_array_append_new(
                readers,
                json_pack("{so so so so so so so}", "stage", br_json_text(view->stage[reader->stage].name),
                          "delivered_frames", count(r->delivered_frames), "delivered_samples",
                          count(r->delivered_samples), "dropped_samples", count(r->dropped_samples),
                          "discarded_samples", count(r->discarded_samples), "held_samples",
                          count(r->held_samples), "wait_s", number((double)r->wait_ns * 1e-9)));
        }
        double newest = (double)queue->epoch_ns * 1e-9 + (double)now->newest * queue->sample_s;
        json_array_append_new(
            list,
            json_pack("{so si si si so so so so so so so}", "name", br_json_text(queue->name), "slots",
                      (int)queue->depth, "fill", (int)now->fill, "max_fill", (int)now->max_fill, "frames",
                      count(now->frames), "samples", count(now->samples), "missing", count(now->missing),
                      "wait_s", number((double)now->wait_ns * 1e-9), "newest_sample", count(now->newest),
                      "newest_unix_s", now->frames > 0 ? number(newest) : json_null(), "readers", readers));
    }
    return json_pack("{so}", "queues", list);
}

json_t *document_config(const struct br_node *node)
{
    if (node == NULL) return json_null();
    if (node->kind == BR_NODE_SCALAR) return br_json_text(node->text);
    if (node->kind == BR_NODE_LIST) {
        json_t *list = json_array();
        for (size_t i = 0; i < node->count; i++) json_array_append_new(list, document_config(node->item[i]));
        return list;
    }
    json_t *map = json_object();
    for (size_t i = 0; i < node->count; i++)
        json_object_set_new_nocheck(map, node->key[i]->text, document_config(node->item[i]));
    return map;
}

json_t *document_log(const struct br_log *log, uint64_t since)
{
    json_t *lines = json_array();
    uint64_t next = atomic_load(&log->lines), first = next > log->nslots ? next - log->nslots : 0;
    if (since < first) since = first;
    for (uint64_t i = since; i < next; i++) {
        struct br_log_line line;
        if (!br_log_get(log, i, &line)) continue; /* gone meanwhile */
        json_array_append_new(
            lines, json_pack("{so so ss so so}", "number", count(line.number), "unix_s",
                             number((double)line.unix_ns * 1e-9), "level",
                             br_log_level_name[line.level < BR_LOG_LEVELS ? line.level : BR_LOG_NOTE],
                             "stage", line.who[0] != '\0' ? br_json_text(line.who) : json_null(), "message",
                             br_json_text(line.text)));
    }
    return json_pack("{so so}", "next", count(next), "lines", lines);
}
