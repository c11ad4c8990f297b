/* mpi_plugin.h - all that is wanted of MPI: a plugin of its own (mpi_plugin.c), so that nothing else
 * depends on an MPI library. All calls from one thread. */
#ifndef BEAMRING_RUNTIME_RANKS_MPI_PLUGIN_H
#define BEAMRING_RUNTIME_RANKS_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

struct mpi_plugin {
    /* Each returns false with a reason. */
    bool (*init)(unsigned *rank, unsigned *ranks, unsigned *local, char *why, size_t size);
    bool (*share)(void *data, size_t bytes); /* what rank 0 has, to all */
    /* Begins to send or receive; `token` comes back from `done`. */
    bool (*begin)(bool sends, void *data, size_t bytes, unsigned peer, unsigned channel, void *token,
                  char *why, size_t size);
    /* Calls `each` with the tokens of what is done. How many; -1: a failure. */
    int (*done)(void (*each)(void *token), char *why, size_t size);
    void (*finalize)(void);
};

extern const struct mpi_plugin beamring_mpi;

#endif
