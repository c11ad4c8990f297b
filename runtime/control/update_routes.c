/* update_routes.c - updates over HTTP. See update_routes.h. */
#include "runtime/control/update_routes.h"

#include "runtime/run/update_watch.h"
#include "runtime/run/updates.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static void answer_json(struct control_answer *answer, unsigned code, json_t *document)
{
    answer->code = code;
    answer_document(answer, document, 15);
}

static json_t *document_of(const struct br_update *u)
{
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, u->digest);
    json_t *document =
        json_pack("{ss ss sI ss ss sf}", "id", u->id, "state", br_update_state_name[u->state], "sample",
                  (json_int_t)u->sample, "stages", u->stages != NULL ? u->stages : "", "digest", digest,
                  "came_unix_s", (double)u->came_ns * 1e-9);
    if (document != NULL && u->state == BR_UPDATE_APPLIED)
        json_object_set_new(document, "held_from", json_integer((json_int_t)u->held_from));
    if (document != NULL && u->why != NULL)
        json_object_set_new(document, "error", json_string_nocheck(u->why));
    return document;
}

static json_t *journal_document(struct br_graph *graph)
{
    struct br_journal *journal = &graph->state->updates->journal;
    if (graph->journal == NULL) return json_null();
    pthread_mutex_lock(&journal->told);
    json_t *document =
        json_pack("{ss ss sI}", "file", graph->journal, "state", br_journal_state_name[journal->state],
                  "resumed", (json_int_t)journal->resumed);
    if (document != NULL && journal->why[0] != '\0')
        json_object_set_new(document, "why", json_string_nocheck(journal->why));
    pthread_mutex_unlock(&journal->told);
    return document;
}

static bool runs(const struct node *node, struct control_answer *answer)
{
    if (node->run != NULL && node->threads_run && node->current.graph != NULL) return true;
    answer_error(answer, 409, "there is no pipeline that runs");
    return false;
}

void update_answer(struct br_graph *graph, const char *text, size_t length, struct desk_answer *answer)
{
    static const unsigned codes[] = {
        [BR_UPDATE_OK] = 202,       [BR_UPDATE_WRONG] = 400,  [BR_UPDATE_LATE] = 409,
        [BR_UPDATE_CONFLICT] = 409, [BR_UPDATE_FAILED] = 500, [BR_UPDATE_TOO_MANY] = 503};
    struct br_error error = {0};
    struct br_config *config;
    struct br_update_reply reply;
    int status = br_config_parse_value(&config, "request", text, length, &error);
    if (status == BR_OK) status = br_updates_submit(graph, config, br_config_root(config), true, &reply);
    if (status != BR_OK) {
        *answer = (struct desk_answer){500, strdup("{\"error\": \"no memory for an update\"}")};
        return;
    }
    br_updates_look(graph);
    pthread_mutex_lock(&graph->state->updates->records);
    json_t *document = document_of(reply.update);
    pthread_mutex_unlock(&graph->state->updates->records);
    json_t *journal = journal_document(graph);
    if (document != NULL && graph->journal != NULL && graph->state->updates->journal.state != BR_JOURNAL_KEPT)
        json_object_set(document, "journal", journal);
    json_decref(journal);
    bool knows = reply.outcome == BR_UPDATE_OK || reply.outcome == BR_UPDATE_LATE;
    if (document != NULL && knows)
        json_object_set_new(document, "earliest", json_integer((json_int_t)reply.earliest));
    answer->code = codes[reply.outcome];
    answer->body = document != NULL ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(document);
}

void update_answer_cancel(struct br_graph *graph, const char *id, struct desk_answer *answer)
{
    static const unsigned codes[] = {[BR_UPDATE_OK] = 200,
                                     [BR_UPDATE_CONFLICT] = 409,
                                     [BR_UPDATE_FAILED] = 503,
                                     [BR_UPDATE_UNKNOWN] = 404};
    struct br_update_reply reply;
    struct br_error error = {0};
    br_updates_cancel(graph, id, &reply, &error);
    pthread_mutex_lock(&graph->state->updates->records);
    json_t *document = reply.update != NULL ? document_of(reply.update) : json_object();
    pthread_mutex_unlock(&graph->state->updates->records);
    if (error.text[0] != '\0') {
        answer_clean(error.text);
        json_object_set_new(document, "error", json_string(error.text));
    }
    answer->code = codes[reply.outcome];
    answer->body = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    json_decref(document);
}

/* Leaves what `text` asks for to the desk. */
static void leave_to_desk(struct node *node, const struct control_request *request, bool cancels,
                          const char *text, size_t length, struct control_answer *answer)
{
    if (!runs(node, answer)) return;
    struct deferred *deferred = request_defer(request);
    if (node->desk != NULL && desk_post(node->desk, cancels, text, length, deferred)) {
        answer->later = true;
        return;
    }
    request_undefer(request);
    answer_error(
        answer, 503,
        "%d updates wait to be checked already, or memory is exhausted; send the request again later",
        DESK_WAITING);
}

void updates_post(struct node *node, const struct control_request *request, struct control_answer *answer)
{
    leave_to_desk(node, request, false, request->body, request->length, answer);
}

void updates_delete(struct node *node, const struct control_request *request, struct control_answer *answer)
{
    leave_to_desk(node, request, true, request->below, strlen(request->below), answer);
}

void updates_answered(void *arg, void *request, const struct desk_answer *from)
{
    struct node *node = arg;
    struct control_answer answer = {.code = from->code,
                                    .type = "application/json",
                                    .body = from->body,
                                    .length = from->body != NULL ? strlen(from->body) : 0};
    server_answer(node->server, request, &answer);
}

void updates_look(struct node *node, struct update_facts *facts)
{
    struct br_graph *graph = node->current.graph;
    *facts = (struct update_facts){.known = node->live && graph != NULL};
    if (!facts->known) return;
    struct br_updates *updates = graph->state->updates;
    br_updates_look(graph);
    pthread_mutex_lock(&updates->records);
    _Static_assert(sizeof facts->total == sizeof updates->total, "a total for each state");
    memcpy(facts->total, updates->total, sizeof facts->total);
    for (const struct br_watched *w = graph->state->watched; w != NULL; w = w->next)
        facts->watched[w->state]++;
    pthread_mutex_unlock(&updates->records);
    pthread_mutex_lock(&updates->journal.told);
    facts->journal = (int)updates->journal.state;
    pthread_mutex_unlock(&updates->journal.told);
    if (node->desk != NULL) facts->waiting = desk_waiting(node->desk, &facts->busy_s);
}

static json_t *watches_of(const struct br_graph *graph)
{
    json_t *list = json_array();
    for (const struct br_watched *w = graph->state->watched; w != NULL; w = w->next) {
        json_t *one = json_pack("{ss ss ss}", "file", w->file->path, "parameters", w->file->params, "state",
                                br_watch_state_name[w->state]);
        if (w->why[0] != '\0') json_object_set_new(one, "why", json_string_nocheck(w->why));
        json_array_append_new(list, one);
    }
    return list;
}

void updates_get(struct node *node, struct control_answer *answer)
{
    double busy_s = 0;
    if (!runs(node, answer)) return;
    struct br_graph *graph = node->current.graph;
    json_t *list = json_array();
    br_updates_look(graph);
    pthread_mutex_lock(&graph->state->updates->records);
    for (const struct br_update *u = graph->state->updates->newest; u != NULL; u = u->older)
        json_array_append_new(list, document_of(u));
    json_t *watches = watches_of(graph);
    pthread_mutex_unlock(&graph->state->updates->records);
    size_t waiting = node->desk != NULL ? desk_waiting(node->desk, &busy_s) : 0;
    answer_json(answer, 200,
                json_pack("{sI sI sf so so so}", "earliest", (json_int_t)br_updates_earliest(graph),
                          "waiting", (json_int_t)waiting, "busy_s", busy_s, "journal",
                          journal_document(graph), "watches", watches, "updates", list));
}
