/* update_desk.h - the thread that checks and prepares updates while a pipeline runs: one after the other, in
 * the order in which they came, so that a file on a disk that hangs holds up updates and nothing else. */
#ifndef BEAMRING_RUNTIME_CONTROL_UPDATE_DESK_H
#define BEAMRING_RUNTIME_CONTROL_UPDATE_DESK_H

#include "runtime/run/state.h"

#include <ev.h>

enum { DESK_WAITING = 64 }; /* requests that may wait; more are refused */

/* What a request has come to: a code of HTTP, and JSON from malloc (NULL: no memory), which is the
 * receiver's. */
struct desk_answer {
    unsigned code;
    char *body;
};

struct desk_options {
    struct br_graph *graph; /* its stages run */
    struct ev_loop *ev;
    /* Called in the loop's thread, once for each request, with what desk_post was given. May be NULL. */
    void (*answered)(void *arg, void *request, const struct desk_answer *answer);
    void *arg;
};

struct desk;

/* Begins. NULL: no memory, or no thread. */
struct desk *desk_open(const struct desk_options *options);

/* Leaves an update (JSON or YAML, copied) to the thread, or with `cancels` the id of one that shall not hold.
 * False: too many wait, or there is no memory. The loop's thread, like all that follows. */
bool desk_post(struct desk *desk, bool cancels, const char *text, size_t length, void *request);

/* Requests that wait, with the one that is worked at; and for how long that one has been. */
size_t desk_waiting(struct desk *desk, double *busy_s);

/* Answers what waits (503) and ends the thread, after br_updates_close. True: it has ended, and the desk is
 * gone. False: it hangs in a file, within a second; then the graph must be kept until desk_ended. */
bool desk_close(struct desk *desk);

/* Whether a thread that hung has ended by now; then the desk is gone. */
bool desk_ended(struct desk *desk);

#endif
