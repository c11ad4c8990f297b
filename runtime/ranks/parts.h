/* parts.h - what the files of runtime/ranks share. */
#ifndef BEAMRING_RUNTIME_RANKS_PARTS_H
#define BEAMRING_RUNTIME_RANKS_PARTS_H

#include "runtime/ranks/engine.h"
#include "runtime/ranks/hub.h"
#include "runtime/ranks/ranks.h"

#include <pthread.h>

/* Something that another rank said to one stage of this one. */
struct post {
    struct post *next;
    uint32_t channel;
    size_t bytes;
    _Alignas(16) unsigned char data[];
};

struct br_ranks {
    unsigned rank, count, local;
    struct br_log *log;
    struct hub *hub;       /* of rank 0 */
    struct engine *engine; /* NULL: no MPI */
    pthread_t listener;
    bool listens;
    int poke; /* an eventfd that wakes the listener */
    _Atomic uint64_t events, stall_ns;

    pthread_mutex_t mutex; /* of all that follows */
    pthread_cond_t changed;
    struct wire wire; /* to the hub */
    uint64_t heard_ns, beaten_ns, looked_ns;
    unsigned char *gathered;
    size_t gathered_bytes;
    bool has_gathered;
    struct post **post; /* [count] by sender, oldest first */
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

/* The rank is connected by `fd`: starts to listen. */
int ranks_begin(struct br_ranks *ranks, int fd, struct br_error *error);

/* For the engine: see there. */
void ranks_happened(void *arg, const char *failure);

#endif
