/* mpi.h - what MPI does for a job: it says who the ranks are, and carries their messages. mpi.c is a plugin,
 * so that nothing else depends on an MPI library. A process has one. */
#ifndef BEAMRING_RUNTIME_RANKS_MPI_H
#define BEAMRING_RUNTIME_RANKS_MPI_H

#include "runtime/ranks.h"

/* A channel of posts: a message to it is freed when it is sent, and nobody has asked for it. */
#define MPI_POST 0x80000000u

struct mpi_host {
    void *arg;
    unsigned *rank, *ranks, *local; /* `start` fills them in; local: the rank on this machine */
    /* Messages are done, or MPI has failed, with the reason. */
    void (*happened)(void *arg, const char *failure);
    /* The message that receives a post, which has arrived. NULL: no memory. */
    struct br_message *(*expect)(void *arg, unsigned from, unsigned channel, size_t bytes);
};

struct mpi_plugin {
    /* Starts MPI, and the thread that makes all its calls, while stages work. NULL, or what went wrong. */
    const char *(*start)(const struct mpi_host *host);
    /* Sends rank 0's data to all ranks: once, after the start. False: MPI has failed. */
    bool (*share)(void *data, size_t bytes);
    void (*submit)(struct br_message *message);
    /* From its return on MPI touches no memory of messages. False: MPI does not return from a call, and may
     * touch it as long as the process lives. */
    bool (*halt)(void);
    /* Ends MPI: in order, with all other ranks, or (`clean` false) not at all. False: it hangs, and is left
     * as it is. */
    bool (*end)(bool clean);
};

#endif
