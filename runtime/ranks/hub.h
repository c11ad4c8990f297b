/* hub.h - where all ranks of a job are connected: it passes on what they say, and notices who is gone. It
 * lives in a thread of rank 0, or of `beamring check --ranks`. Without MPI each other rank has one too, which
 * takes the others' posts. */
#ifndef BEAMRING_RUNTIME_RANKS_HUB_H
#define BEAMRING_RUNTIME_RANKS_HUB_H

#include "buffers/error.h"
#include "runtime/ranks/wire.h"

#include <stdatomic.h>

struct hub;

/* A hub for connections that exist: fd[rank], which become the hub's. Errors: BR_E_NO_MEMORY. */
int hub_create(struct hub **hub, unsigned ranks, const int *fd, struct br_error *error);

/* The hub's thread calls `take` with each post for its own rank. */
struct hub_posts {
    void (*take)(void *arg, unsigned from, unsigned channel, const unsigned char *data, size_t bytes);
    void *arg;
    bool only; /* it takes posts, and does not judge who is alive */
};

/* A hub that the ranks connect to: a listening socket, which becomes the hub's. Who does not show `token`
 * is turned away. */
int hub_listen(struct hub **hub, unsigned ranks, int listening, const unsigned char token[WIRE_TOKEN],
               struct hub_posts posts, struct br_error *error);

/* A rank that gives no sign of life for so long has failed; seconds. */
void hub_set_stall(struct hub *hub, double seconds);

/* Waits until all ranks have said goodbye or are gone, or `wait_s` seconds, and frees it. NULL is allowed. */
void hub_destroy(struct hub *hub, double wait_s);

#endif
