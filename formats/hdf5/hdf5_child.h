/* hdf5_child.h - HDF5 in a process of its own.
 *
 * The library does not survive every damaged file: it reads beyond its memory, crashes, or forgets what it
 * has open (seen in 1.10.8, by changing single bytes). A child process reads files and sends what is wanted
 * of them; if it dies, or does not come to an end, the file is refused. This process never reads with the
 * library. The child stays for the next file, which is ten times as fast as another one (0.3 instead of 3
 * ms) and spares a pipeline that runs the fork, which may hold up its threads. After a file
 * with which anything is wrong there is a new one. */
#ifndef BEAMRING_FORMATS_HDF5_HDF5_CHILD_H
#define BEAMRING_FORMATS_HDF5_HDF5_CHILD_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Where the child's work sends its result; false: nobody takes it any more. */
struct hdf5_sink;
bool hdf5_send(struct hdf5_sink *to, const void *data, size_t bytes);

/* In the child, with a copy of the `arg` that was given; what that points to must be constants of the
 * program. HDF5 prints nothing. Returns BR_OK, with nothing left open, or fails with br_fail as usual; the
 * message is the parent's then. */
typedef int hdf5_work(const void *arg, struct hdf5_sink *to, struct br_error *error);

/* Runs `work` with `arg` of `arg_bytes` bytes; *result (malloc'ed, the caller frees it; NULL on failure and
 * when nothing was sent) has the *bytes that it has sent. Any thread; none waits for another. Errors: the
 * work's, BR_E_FORMAT naming `path` when the child died or took HDF5_SECONDS of processor time, BR_E_IO also
 * when it took HDF5_WALL_SECONDS of time, BR_E_NO_MEMORY. */
enum { HDF5_SECONDS = 60, HDF5_WALL_SECONDS = 120 };
extern unsigned hdf5_wall_seconds; /* what holds; for tests */
int hdf5_apart(hdf5_work *work, const void *arg, size_t arg_bytes, const char *path, void **result,
               size_t *bytes, struct br_error *error);

/* Ends the child that waits, if there is one, and gives back what it has taken for a large file. Every child
 * ends by itself when this process does. */
void hdf5_apart_end(void);

#endif
