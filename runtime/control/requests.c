/* requests.c - see requests.h. Stages answer in the loop's thread and wait for nothing; between the start
 * of the threads and the end of the run all of them are there. */
#include "runtime/control/requests.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The stages that answer; NULL at the end. `stage` of what comes next. */
static struct br_stage *next_stage(struct node *node, struct br_stage *after)
{
    struct br_graph *graph = node->current.graph;
    bool runs = node->run != NULL && graph != NULL && node->threads_run;
    if (!runs) return NULL;
    for (struct br_stage *s = after != NULL ? after + 1 : graph->stage; s < graph->stage + graph->nstages;
         s++)
        if (s->type->request != NULL) return s;
    return NULL;
}

static int ask(struct br_stage *stage, const char *what, const char *text, json_t **document)
{
    char *reply = NULL;
    int code = stage->type->request(stage, stage->self, what, text, &reply);
    *document = reply != NULL ? json_loads(reply, 0, NULL) : NULL;
    free(reply);
    return *document != NULL ? code : 500;
}

/* The only stage that answers: its words are the answer, however long. */
static struct br_stage *only_stage(struct node *node)
{
    struct br_stage *first = next_stage(node, NULL);
    return first != NULL && next_stage(node, first) == NULL ? first : NULL;
}

static void answer_reply(struct control_answer *answer, struct br_stage *stage, const char *what,
                         const char *text)
{
    char *reply = NULL;
    int code = stage->type->request(stage, stage->self, what, text, &reply);
    answer->code = reply != NULL ? (unsigned)code : 500;
    answer->type = "application/json";
    answer->body = reply;
    answer->length = reply != NULL ? strlen(reply) : 0;
}

static void answer_json(struct control_answer *answer, unsigned code, json_t *document)
{
    answer->code = code;
    answer_document(answer, document, 12);
}

/* Says that nobody answers; true then. */
static bool nobody(struct node *node, struct control_answer *answer)
{
    if (next_stage(node, NULL) != NULL) return false;
    if (node->run == NULL || !node->threads_run)
        answer_error(answer, 409, "there is no pipeline that runs");
    else
        answer_error(answer, 409,
                     "no stage of this pipeline keeps what has passed: expected one such as 'dump'");
    return true;
}

/* The stage that the body names, or the only one. NULL: the answer says why. */
static struct br_stage *choose(struct node *node, const struct control_request *request,
                               struct control_answer *answer)
{
    json_t *body = json_loadb(request->body, request->length, 0, NULL);
    const char *name = json_string_value(json_object_get(body, "stage"));
    struct br_stage *found = NULL;
    char names[300] = "";
    unsigned count = 0;
    for (struct br_stage *s = next_stage(node, NULL); s != NULL; s = next_stage(node, s)) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", s->name);
        count++;
        if (name == NULL || strcmp(name, s->name) == 0) found = s;
    }
    if (name == NULL && count > 1) {
        answer_error(answer, 400, "several stages keep what has passed; say which one with 'stage': %s",
                     names);
        found = NULL;
    } else if (found == NULL) {
        answer_error(answer, 404, "no stage '%.60s' keeps what has passed; expected %s", name, names);
    }
    json_decref(body);
    return found;
}

void requests_forward(struct node *node, const char *what, const struct control_request *request,
                      struct control_answer *answer)
{
    if (nobody(node, answer)) return;
    struct br_stage *stage = choose(node, request, answer);
    if (stage == NULL) return;
    answer_reply(answer, stage, what, request->body);
}

/* [...] becomes {"dumps": [...]}. */
static void wrap_list(struct control_answer *answer)
{
    char *text = NULL, *list = answer->body;
    if (answer->code != 200 || list == NULL) return;
    int length = asprintf(&text, "{\"dumps\": %s}", list);
    free(list);
    answer->body = length < 0 ? NULL : text;
    answer->length = length < 0 ? 0 : (size_t)length;
}

void requests_dumps(struct node *node, const struct control_request *request, struct control_answer *answer)
{
    const char *id = request_query(request, "id");
    int code = 200;
    bool found = id == NULL;
    if (nobody(node, answer)) return;
    struct br_stage *only = only_stage(node);
    if (only != NULL) {
        answer_reply(answer, only, "dumps", id != NULL ? id : "");
        wrap_list(answer);
        return;
    }
    json_t *list = json_array(), *document = NULL;
    for (struct br_stage *s = next_stage(node, NULL); s != NULL; s = next_stage(node, s)) {
        json_t *part;
        int one = ask(s, "dumps", id != NULL ? id : "", &part);
        if (one == 200) {
            found = true;
            json_array_extend(list, part);
            json_decref(part);
        } else {
            code = one;
            json_decref(document);
            document = part;
        }
    }
    if (found) {
        json_decref(document);
        answer_json(answer, 200, json_pack("{so}", "dumps", list));
    } else {
        json_decref(list);
        answer_json(answer, (unsigned)code, document);
    }
}

void requests_baseband(struct node *node, const struct control_request *request,
                       struct control_answer *answer, bool post)
{
    const char *id = request_query(request, "event_id");
    const char *text = post ? request->body : id != NULL ? id : "";
    json_t *all = NULL, *error = NULL;
    int code = 500;
    if (nobody(node, answer)) return;
    struct br_stage *only = only_stage(node);
    if (only != NULL) {
        answer_reply(answer, only, post ? "baseband" : "baseband_status", text);
        unsigned one = answer->code;
        if (post && one != 200 && one != 409 && one != 503) answer->code = 400;
        return;
    }
    for (struct br_stage *s = next_stage(node, NULL); s != NULL; s = next_stage(node, s)) {
        json_t *part;
        int one = ask(s, post ? "baseband" : "baseband_status", text, &part);
        if (one != 200) {
            code = one == 409 || one == 503 ? one : post ? 400 : one;
            json_decref(error);
            error = part;
        } else if (all == NULL) {
            all = part;
        } else {
            if (json_is_array(all))
                json_array_extend(all, part);
            else
                json_object_update(all, part);
            json_decref(part);
        }
    }
    if (all != NULL) {
        json_decref(error);
        answer_json(answer, 200, all);
    } else {
        answer_json(answer, (unsigned)code, error);
    }
}
