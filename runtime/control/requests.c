/* requests.c - see requests.h. Stages answer in the loop's thread and wait for nothing; between the start
 * of the threads and the end of the run all of them are there. */
#include "runtime/control/requests.h"
#include "runtime/control/joined.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The stages that answer, of those that keep what has passed or of the others; NULL at the end. */
static struct br_stage *next_of(struct node *node, struct br_stage *after, bool history)
{
    struct br_graph *graph = node->current.graph;
    bool runs = node->run != NULL && graph != NULL && node->threads_run;
    if (!runs) return NULL;
    for (struct br_stage *s = after != NULL ? after + 1 : graph->stage; s < graph->stage + graph->nstages;
         s++)
        if (s->type->request != NULL && history == ((s->type->flags & BR_STAGE_HISTORY) != 0)) return s;
    return NULL;
}

static struct br_stage *next_stage(struct node *node, struct br_stage *after)
{
    return next_of(node, after, true);
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

/* --- all stages together --- */

/* The stages' answers with code 200, and the last one with another code. */
struct replies {
    struct joined *joined;
    int code; /* of `error` */
    char *error;
};

/* Asks all stages. */
static struct replies ask_all(struct node *node, const char *what, const char *text, bool history)
{
    struct replies all = {.joined = joined_begin(), .code = 500};
    for (struct br_stage *s = next_of(node, NULL, history); s != NULL; s = next_of(node, s, history)) {
        char *reply = NULL;
        int code = s->type->request(s, s->self, what, text, &reply);
        if (code == 200 && reply != NULL && joined_add(all.joined, reply)) continue;
        free(all.error);
        all.code = reply != NULL && code != 200 ? code : 500;
        all.error = reply;
    }
    return all;
}

/* The joined answers, or the error where no stage has another one. */
static void answer_all(struct control_answer *answer, struct replies *all, const char *before,
                       const char *behind)
{
    answer->code = (unsigned)all->code;
    answer->type = "application/json";
    if (joined_count(all->joined) > 0) {
        answer->code = 200;
        answer->body = joined_text(all->joined, before, behind);
        free(all->error);
    } else {
        answer->body = all->error;
    }
    answer->length = answer->body != NULL ? strlen(answer->body) : 0;
    joined_free(all->joined);
}

void requests_dumps(struct node *node, const struct control_request *request, struct control_answer *answer)
{
    const char *id = request_query(request, "id");
    if (nobody(node, answer)) return;
    struct replies all = ask_all(node, "dumps", id != NULL ? id : "", true);
    answer_all(answer, &all, "{\"dumps\": ", "}");
}

void requests_injections(struct node *node, const struct control_request *request,
                         struct control_answer *answer)
{
    const char *id = request_query(request, "id");
    if (next_of(node, NULL, false) == NULL) {
        answer_error(answer, 409, "no stage of this pipeline adds bursts: expected one such as 'inject'");
        return;
    }
    struct replies all = ask_all(node, "injections", id != NULL ? id : "", false);
    answer_all(answer, &all, "{\"injections\": ", "}");
}

void requests_baseband(struct node *node, const struct control_request *request,
                       struct control_answer *answer, bool post)
{
    const char *id = request_query(request, "event_id");
    const char *text = post ? request->body : id != NULL ? id : "";
    if (nobody(node, answer)) return;
    struct replies all = ask_all(node, post ? "baseband" : "baseband_status", text, true);
    if (post && all.code != 409 && all.code != 503) all.code = 400;
    answer_all(answer, &all, "", "");
}
