/* update_routes.h - what the control interface answers about updates (runtime/run/updates.h). In the loop's
 * thread, in which updates are checked and prepared as well. */
#ifndef BEAMRING_RUNTIME_CONTROL_UPDATE_ROUTES_H
#define BEAMRING_RUNTIME_CONTROL_UPDATE_ROUTES_H

#include "runtime/control/parts.h"

/* POST /v1/update: 202 scheduled; 400 wrong, with the place in the body; 409 late, with the earliest
 * sample, or where an id is used again; 500 no memory. */
void updates_post(struct node *node, const struct control_request *request, struct control_answer *answer);

/* GET /v1/updates: the newest first. */
void updates_get(struct node *node, struct control_answer *answer);

#endif
