/* hdf5_apart.h - HDF5 in a process of its own.
 *
 * The library does not survive every damaged file: it reads and writes beyond its memory, loops, or forgets
 * what it has open (seen in 1.10.8, by changing single bytes). A child process reads the file and sends what
 * is wanted of it through a pipe; if it dies, the file is refused. This process never calls the library to
 * read. */
#ifndef BEAMRING_STAGES_COMMON_HDF5_APART_H
#define BEAMRING_STAGES_COMMON_HDF5_APART_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Where the child's work sends its result. */
struct hdf5_pipe;
bool hdf5_send(struct hdf5_pipe *to, const void *data, size_t bytes);

/* In the child, with `arg` as it was in the parent; HDF5 prints nothing. May leave memory and files open.
 * Returns BR_OK, or fails with br_fail as usual; the message is the parent's then. */
typedef int hdf5_work(const void *arg, struct hdf5_pipe *to, struct br_error *error);

/* Runs `work`; *result (malloc'ed, the caller frees it; NULL on failure) has the *bytes it has sent. Not
 * while another thread uses HDF5. Errors: the work's, BR_E_FORMAT naming `path` when the child died or took
 * HDF5_SECONDS of processor time, BR_E_NO_MEMORY, BR_E_IO. */
enum { HDF5_SECONDS = 60 };
int hdf5_apart(hdf5_work *work, const void *arg, const char *path, void **result, size_t *bytes,
               struct br_error *error);

#endif
