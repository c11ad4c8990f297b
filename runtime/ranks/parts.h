/* parts.h - what the files of runtime/ranks share. */
#ifndef BEAMRING_RUNTIME_RANKS_PARTS_H
#define BEAMRING_RUNTIME_RANKS_PARTS_H

#include "runtime/ranks.h"
#include "runtime/ranks/engine.h"
#include "runtime/ranks/hub.h"
#include "runtime/ranks/ranks.h"

#include <pthread.h>

/* Something that another rank said to one stage of this one: message.channel. */
struct post {
    struct post *next;
    struct br_message message; /* it is there when this is done */
    _Alignas(16) unsigned char data[];
};

struct br_ranks {
    unsigned rank, count, local;
    struct br_log *log;
    struct hub *hub;       /* of rank 0, and without MPI of every rank */
    struct engine *engine; /* NULL: no MPI */
    pthread_t listener;
    bool listens;
    int poke; /* an eventfd that wakes the listener */
    _Atomic uint64_t events, stall_ns;

    pthread_mutex_t mutex; /* of all that follows */
    pthread_cond_t changed;
    struct wire *wire;   /* [count] to rank 0's hub, which keeps the membership, and without MPI to those */
    unsigned hubs;       /* of the other ranks, which take posts; how many are connected, from rank 0 on */
    struct pollfd *poll; /* [count + 1] of the listener */
    uint64_t heard_ns, beaten_ns, looked_ns;
    unsigned char *gathered;
    size_t gathered_bytes;
    bool has_gathered;
    struct post **post; /* [count] by sender, oldest first */
    struct sent *sent;  /* by MPI, and not received by all; oldest first */
    bool failed;
    unsigned failed_rank;
    bool unaware; /* rank 0 says that this rank has failed, which does not know of it */
    int failed_status;
    char why[BR_ERROR_LENGTH];
    void (*on_failure)(void *arg);
    void *on_failure_arg;
    bool all_done, quit;
    bool cut_off; /* from rank 0, which does not answer */
    int worst;    /* exit status of all, once all are done */
};

/* The rank is connected to rank 0's hub by `wire`, which becomes its own: starts to listen. */
int ranks_begin(struct br_ranks *ranks, struct wire *wire, struct br_error *error);
void ranks_free(struct br_ranks *ranks);

/* Says something to the hub of rank `hub`, with the mutex held. False: the connection is lost. */
bool ranks_say(struct br_ranks *ranks, unsigned hub, uint32_t type, uint32_t channel, const void *payload,
               size_t length);

/* For the hub (hub_posts): a post of rank `from` is here. */
void ranks_take_post(void *arg, unsigned from, unsigned channel, const unsigned char *data, size_t bytes);

/* For the engine: see there. */
void ranks_happened(void *arg, const char *failure);
struct br_message *ranks_expect(void *arg, unsigned from, unsigned channel, size_t bytes);

/* Appends room for what `from` says, with the mutex held. NULL: no memory. */
struct post *ranks_keep(struct br_ranks *ranks, unsigned from, unsigned channel, size_t bytes);
void ranks_free_posts(struct br_ranks *ranks);

#endif
