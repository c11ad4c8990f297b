/* routes.c - what the control interface answers. See parts.h and server.h. */
#include "runtime/control/documents.h"
#include "runtime/control/metrics.h"
#include "runtime/control/parts.h"
#include "runtime/control/requests.h"
#include "runtime/control/update_routes.h"
#include "runtime/page.h"

#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

/* How old an answer may be that many ask for. */
enum { FRESH_MS = 100 };

static void answer_json(struct control_answer *answer, json_t *document)
{
    answer_document(answer, document, 15);
}

static void answer_text(struct control_answer *answer, unsigned code, const char *text)
{
    answer->code = code;
    answer->type = "text/plain; charset=utf-8";
    answer->body = malloc(strlen(text) + 2);
    if (answer->body == NULL) return;
    answer->length = (size_t)sprintf(answer->body, "%s\n", text);
}

/* --- GET --- */

static void get_metrics(void *arg, const struct control_request *request, struct control_answer *answer)
{
    const char *accept = request_header(request, "Accept");
    bool open_metrics = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    struct node_facts facts;
    FILE *out = open_memstream(&answer->body, &answer->length);
    if (out == NULL) return;
    (void)__fsetlocking(out, FSETLOCKING_BYCALLER); /* nobody else writes here */
    node_look(arg, &facts);
    metrics_write(&facts, open_metrics, out);
    fclose(out);
    answer->type = open_metrics ? METRICS_OPEN : METRICS_TEXT;
}

static void get_healthy(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    struct node_facts facts;
    node_look(arg, &facts);
    answer_text(answer, facts.healthy ? 200 : 503, facts.healthy ? "healthy" : facts.unhealthy);
}

static void get_ready(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    struct node_facts facts;
    node_look(arg, &facts);
    answer_text(answer, facts.ready ? 200 : 503, facts.ready ? "ready" : facts.unready);
}

static void get_status(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    struct node_facts facts;
    node_look(arg, &facts);
    answer_json(answer, document_status(&facts));
}

/* Documents that are made of the view alone. */
static void answer_view(struct node *node, struct control_answer *answer,
                        json_t *(*document)(const struct br_view *view))
{
    struct node_facts facts;
    node_look(node, &facts);
    if (node->view == NULL)
        answer_error(answer, 409, "there has been no pipeline yet");
    else
        answer_json(answer, document(node->view));
}

static void get_graph(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    answer_view(arg, answer, document_graph);
}

static void get_stages(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    answer_view(arg, answer, document_stages);
}

static void get_queues(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    answer_view(arg, answer, document_queues);
}

static void get_boards(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    answer_view(arg, answer, document_boards);
}

static void get_config(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    const struct node *node = arg;
    if (node->current.config == NULL)
        answer_error(answer, 409, "there is no pipeline");
    else
        answer_json(answer, document_config(br_config_root(node->current.config)));
}

/* A number in the query; 0 without one. False: the value is not a number. */
static bool query_number(const struct control_request *request, const char *key, uint64_t *number)
{
    const char *text = request_query(request, key);
    char *end = NULL;
    *number = text != NULL ? strtoull(text, &end, 10) : 0;
    return text == NULL || (*text >= '0' && *text <= '9' && *end == '\0');
}

static void get_log(void *arg, const struct control_request *request, struct control_answer *answer)
{
    const struct node *node = arg;
    uint64_t from;
    if (!query_number(request, "since", &from))
        answer_error(answer, 400, "since: '%.40s' is not the number of a line",
                     request_query(request, "since"));
    else
        answer_json(answer, document_log(node->options->log, from));
}

static void get_preview(void *arg, const struct control_request *request, struct control_answer *answer)
{
    struct node *node = arg;
    const char *queue = request_query(request, "queue");
    char why[240];
    uint64_t item, since;
    bool good = query_number(request, "item", &item) && query_number(request, "since", &since);
    if (queue == NULL || !good) {
        answer_error(answer, 400,
                     "expected ?queue=NAME, &item=NUMBER of a beam or input, and &since=NUMBER of a column");
    } else if (node->pictures == NULL) {
        answer_error(answer, 409, "there is no pipeline that runs");
    } else {
        json_t *document = pictures_get(node->pictures, queue, item, since, why, sizeof why);
        if (document == NULL)
            answer_error(answer, 404, "%s", why);
        else
            answer_document(answer, document, 6); /* a picture is not for computing with */
    }
}

static void get_tap(void *arg, const struct control_request *request, struct control_answer *answer)
{
    struct node *node = arg;
    if (node->taps == NULL)
        answer_error(answer, 409, "there is no pipeline that runs");
    else
        taps_answer(node->taps, request, answer);
}

static void get_page(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)arg, (void)request;
    answer->body = malloc(sizeof control_page - 1);
    if (answer->body == NULL) return;
    memcpy(answer->body, control_page, sizeof control_page - 1);
    answer->length = sizeof control_page - 1;
    answer->type = "text/html; charset=utf-8";
}

/* --- POST --- */

/* Reads {"abort": true}; nothing at all is false. False: it is not that, and the answer says why. */
static bool read_order(const struct control_request *request, struct control_answer *answer, bool *abort)
{
    json_error_t error;
    const char *key;
    json_t *value;
    *abort = false;
    if (request->length == 0) return true;
    json_t *order = json_loadb(request->body, request->length, JSON_REJECT_DUPLICATES, &error);
    if (order == NULL) {
        answer_error(answer, 400, "the body is not JSON: line %d, column %d: %s", error.line, error.column,
                     error.text);
        return false;
    }
    bool good = json_is_object(order);
    if (!good) answer_error(answer, 400, "the body is not an object; expected {\"abort\": true}, or nothing");
    json_object_foreach(order, key, value)
    {
        if (strcmp(key, "abort") == 0 && json_is_boolean(value)) {
            *abort = json_is_true(value);
        } else if (good) {
            good = false;
            answer_error(
                answer, 400,
                "'%.60s' is not a key, or its value is wrong; expected {\"abort\": true}, or nothing", key);
        }
    }
    json_decref(order);
    return good;
}

static void post_stop(void *arg, const struct control_request *request, struct control_answer *answer)
{
    const struct node *node = arg;
    bool abort;
    char why[160];
    if (!read_order(request, answer, &abort)) return;
    if (!node_stop(arg, abort, "POST /v1/stop", why, sizeof why)) {
        answer_error(answer, 409, "%s", why);
        return;
    }
    const char *state = node->run == NULL ? "stopped" : abort ? "aborting" : "draining";
    answer_json(answer, json_pack("{ss}", "state", state));
    answer->code = 202;
}

static void post_restart(void *arg, const struct control_request *request, struct control_answer *answer)
{
    struct node *node = arg;
    bool abort;
    char why[160] = "the node ends";
    if (!read_order(request, answer, &abort)) return;
    struct deferred *deferred = request_defer(request);
    answer->later = !node->quit && node_restart(node, abort, "POST /v1/restart", deferred, why, sizeof why);
    if (answer->later) return;
    request_undefer(request);
    answer_error(answer, 409, "%s", why);
}

/* {"level": "warning"}: messages below this level are not printed. /v1/log keeps all of them. */
static void post_log(void *arg, const struct control_request *request, struct control_answer *answer)
{
    const struct node *node = arg;
    json_t *body = json_loadb(request->body, request->length, JSON_REJECT_DUPLICATES, NULL);
    const char *word = json_string_value(json_object_get(body, "level"));
    unsigned level = 0;
    while (level < BR_LOG_LEVELS && (word == NULL || strcmp(word, br_log_level_name[level]) != 0)) level++;
    if (level == BR_LOG_LEVELS || json_object_size(body) != 1) {
        answer_error(answer, 400, "expected {\"level\": \"note\"}, or \"warning\", or \"error\"");
    } else {
        br_log_set_level(node->options->log, (enum br_log_level)level);
        answer_json(answer, json_pack("{ss}", "level", br_log_level_name[level]));
    }
    json_decref(body);
}

static void get_updates(void *arg, const struct control_request *request, struct control_answer *answer)
{
    (void)request;
    updates_get(arg, answer);
}

static void post_update(void *arg, const struct control_request *request, struct control_answer *answer)
{
    updates_post(arg, request, answer);
}

static void delete_update(void *arg, const struct control_request *request, struct control_answer *answer)
{
    updates_delete(arg, request, answer);
}

static void get_dumps(void *arg, const struct control_request *request, struct control_answer *answer)
{
    requests_dumps(arg, request, answer);
}

static void get_injections(void *arg, const struct control_request *request, struct control_answer *answer)
{
    requests_injections(arg, request, answer);
}

static void post_dump(void *arg, const struct control_request *request, struct control_answer *answer)
{
    requests_forward(arg, "dump", request, answer);
}

static void post_cancel(void *arg, const struct control_request *request, struct control_answer *answer)
{
    requests_forward(arg, "cancel", request, answer);
}

static void post_baseband(void *arg, const struct control_request *request, struct control_answer *answer)
{
    requests_baseband(arg, request, answer, true);
}

static void get_baseband(void *arg, const struct control_request *request, struct control_answer *answer)
{
    requests_baseband(arg, request, answer, false);
}

const struct control_route node_routes[] = {
    {"GET", "/", "the live page, for browsers", get_page, 60000},
    {"GET", "/metrics", "all numbers, for Prometheus (text, or OpenMetrics)", get_metrics, FRESH_MS},
    {"GET", "/-/healthy", "200 while the process need not be restarted, else 503 and why", get_healthy,
     FRESH_MS},
    {"GET", "/-/ready", "200 while data flow, else 503 and why", get_ready, FRESH_MS},
    {"GET", "/healthz", "the same as /-/healthy", get_healthy, FRESH_MS},
    {"GET", "/readyz", "the same as /-/ready", get_ready, FRESH_MS},
    {"GET", "/v1/status", "where the pipeline is held up and why, with rates", get_status, FRESH_MS},
    {"GET", "/v1/graph", "stages and queues with shapes", get_graph, 0},
    {"GET", "/v1/stages", "all counters of the stages", get_stages, FRESH_MS},
    {"GET", "/v1/queues", "all counters of the queues", get_queues, FRESH_MS},
    {"GET", "/v1/boards", "the boards that packets come from: rate, losses, last seen, state", get_boards,
     FRESH_MS},
    {"GET", "/v1/config", "the pipeline file as it was understood", get_config, 0},
    {"GET", "/v1/log", "the last messages; ?since=NUMBER for those from a number on", get_log, FRESH_MS},
    {"POST", "/v1/log", "{\"level\": \"warning\"}: from which level on messages are printed", post_log, 0},
    {"GET", "/v1/preview",
     "?queue=NAME: means of what it carries; &item=NUMBER for one beam's waterfall, &since=NUMBER of a "
     "column",
     get_preview, 0},
    {"GET", "/v1/tap", "?queue=NAME: its last frame, binary; &from=SAMPLE: one that begins there or later",
     get_tap, 0},
    {"GET", "/v1/updates", "new values of parameters: what was asked for, and since which sample it holds",
     get_updates, 0},
    {"POST", "/v1/update",
     "{\"at\": {\"sample\": N}, \"stages\": {NAME: {PARAMETER: value}}}: new values from a sample on",
     post_update, 0},
    {"DELETE", "/v1/updates/", "ID behind it: an update that is scheduled shall not hold", delete_update, 0},
    {"GET", "/v1/dumps", "dumps of what has passed; ?id=EVENT for one with its channels", get_dumps, 0},
    {"GET", "/v1/injections", "bursts that are added to the field; ?id=EVENT for one", get_injections, 0},
    {"POST", "/v1/dump",
     "writes what has passed: {\"id\", \"start\", \"duration_s\", \"dm\", \"dm_error\", \"freq_ref_mhz\", "
     "...}",
     post_dump, 0},
    {"POST", "/v1/dump/cancel", "{\"id\": EVENT}: no more of it is written", post_cancel, 0},
    {"GET", "/baseband", "dumps in kotekan's words; ?event_id=EVENT", get_baseband, 0},
    {"POST", "/baseband", "a dump in kotekan's words", post_baseband, 0},
    {"POST", "/v1/stop", "drains the pipeline; {\"abort\": true} ends it at once", post_stop, 0},
    {"POST", "/v1/restart", "reads the file again and starts it, after a drain; a bad file changes nothing",
     post_restart, 0},
    {0},
};
