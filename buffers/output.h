/* output.h - files that the program makes or replaces: only where nothing is yet, or a regular file. A
 * device, a pipe, a folder or a symbolic link stays what it is, whoever runs the program. */
#ifndef BEAMRING_BUFFERS_OUTPUT_H
#define BEAMRING_BUFFERS_OUTPUT_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a file of that name may be made or replaced. Errors: BR_E_IO; the message names what is there. */
BR_API int br_output_check(const char *path, struct br_error *error);

/* Opens a file for writing and reading, closed on exec, from its beginning: one that is there is emptied with
 * `overwrite`, and else an error. The descriptor, or -1: BR_E_IO with the file's name. */
BR_API int br_output_open(const char *path, bool overwrite, struct br_error *error);

/* The same as a stream, or NULL. */
BR_API FILE *br_output_stream(const char *path, bool overwrite, struct br_error *error);

/* Gives the file at `from` the name `to`, in one step. A reader of `to` sees the old file or the new one,
 * never half of one. Errors: BR_E_IO with the file's name; then `from` is still there. */
BR_API int br_output_rename(const char *from, const char *to, struct br_error *error);

/* The same, and afterwards the file and its name are on the disk: a machine that loses power keeps them.
 * Waits for the disk. Errors: as above; where the disk fails, too. */
BR_API int br_output_publish(const char *from, const char *to, struct br_error *error);

/* The names in the directory of `path` are on the disk; where that cannot be known, nothing happens. */
BR_API void br_output_sync_directory(const char *path);

#ifdef __cplusplus
}
#endif
#endif
