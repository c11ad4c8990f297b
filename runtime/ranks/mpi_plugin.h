/* mpi_plugin.h - all that is wanted of MPI: a plugin of its own (mpi_plugin.c), so that nothing else
 * depends on an MPI library. All calls from one thread. */
#ifndef BEAMRING_RUNTIME_RANKS_MPI_PLUGIN_H
#define BEAMRING_RUNTIME_RANKS_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#define MPI_PLUGIN_POST 0x80000000u

struct mpi_plugin {
    /* Each returns false with a reason. */
    bool (*init)(unsigned *rank, unsigned *ranks, unsigned *local, char *why, size_t size);
    bool (*share)(void *data, size_t bytes); /* what rank 0 has, to all */
    /* Begins to send or receive; `token` comes back from `done`. A channel with MPI_PLUGIN_POST is that of a
     * post, which is only sent. */
    bool (*begin)(bool sends, void *data, size_t bytes, unsigned peer, unsigned channel, void *token,
                  char *why, size_t size);
    /* Finds a post that has arrived; `fetch` then begins to receive it. 1; 0: none; -1: a failure. */
    int (*look)(unsigned *peer, unsigned *channel, size_t *bytes, char *why, size_t size);
    bool (*fetch)(void *data, size_t bytes, void *token, char *why, size_t size);
    /* Calls `each` with the tokens of what is done; `*left` is how many are not. How many; -1: a failure. */
    int (*done)(void (*each)(void *token), int *left, char *why, size_t size);
    void (*finalize)(void);
};

extern const struct mpi_plugin beamring_mpi;

#endif
