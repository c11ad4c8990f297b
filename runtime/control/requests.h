/* requests.h - requests that stages answer themselves: dumps of what has passed. */
#ifndef BEAMRING_RUNTIME_CONTROL_REQUESTS_H
#define BEAMRING_RUNTIME_CONTROL_REQUESTS_H

#include "runtime/control/parts.h"

/* A POST for one stage: the one that `stage` in the body names, or the only one that answers. */
void requests_forward(struct node *node, const char *what, const struct control_request *request,
                      struct control_answer *answer);

/* The dumps of all stages: {"dumps": [...]}, newest first in each. */
void requests_dumps(struct node *node, const struct control_request *request, struct control_answer *answer);

/* The bursts that all stages add to the field: {"injections": [...]}, newest first in each. */
void requests_injections(struct node *node, const struct control_request *request,
                         struct control_answer *answer);

/* kotekan's request (`post`) and status: of all stages together, as its frequencies are. */
void requests_baseband(struct node *node, const struct control_request *request,
                       struct control_answer *answer, bool post);

#endif
