/* update_routes.h - what the control interface answers about updates (runtime/run/updates.h). */
#ifndef BEAMRING_RUNTIME_CONTROL_UPDATE_ROUTES_H
#define BEAMRING_RUNTIME_CONTROL_UPDATE_ROUTES_H

#include "runtime/control/parts.h"
#include "runtime/control/update_desk.h"

/* POST /v1/update, which the desk's thread answers: 202 scheduled; 400 wrong, with the place in the body; 409
 * late, with the earliest sample, or where an id is used again; 500 no memory; 503 too many wait. */
void updates_post(struct node *node, const struct control_request *request, struct control_answer *answer);

/* DELETE /v1/updates/ID, which the desk's thread answers too: 200 cancelled; 404 nothing of this id is
 * scheduled or holds; 409 it holds already, or others need it. */
void updates_delete(struct node *node, const struct control_request *request, struct control_answer *answer);

/* GET /v1/updates: the newest first. */
void updates_get(struct node *node, struct control_answer *answer);

/* How many there are, by state; the journal; the watched files. */
void updates_look(struct node *node, struct update_facts *facts);

/* The callback of struct desk_options for answers of the desk. `node` is the node. */
void updates_answered(void *node, void *request, const struct desk_answer *answer);

/* Checks, prepares and schedules an update, and says what came of it. In the desk's thread. */
void update_answer(struct br_graph *graph, const char *text, size_t length, struct desk_answer *answer);

/* Cancels one, and says what came of it. In the desk's thread. */
void update_answer_cancel(struct br_graph *graph, const char *id, struct desk_answer *answer);

#endif
