/* output.h - creates and replaces output files. Only regular files are replaced: a device, a pipe, a folder
 * or a symbolic link of the same name is an error, even for root. */
#ifndef BEAMRING_BUFFERS_OUTPUT_H
#define BEAMRING_BUFFERS_OUTPUT_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns BR_OK if a file called `path` may be created or replaced. Errors: BR_E_IO; the message names the
 * thing that has this name. */
BR_API int br_output_check(const char *path, struct br_error *error);

/* Opens an empty file for writing and reading (close-on-exec) and returns its descriptor, which the caller
 * closes. An existing file is truncated if `overwrite` is true, and otherwise an error. Returns -1 on
 * failure; `error` then has BR_E_IO and the file's name. */
BR_API int br_output_open(const char *path, bool overwrite, struct br_error *error);

/* The same, as a FILE that the caller closes; NULL on failure. */
BR_API FILE *br_output_stream(const char *path, bool overwrite, struct br_error *error);

/* Renames `from` to `to` atomically: a reader of `to` sees the old file or the new one, never a part of one.
 * Returns BR_OK or BR_E_IO, with the file's name in the message; `from` then still exists. */
BR_API int br_output_rename(const char *from, const char *to, struct br_error *error);

/* The same, then waits until the file and its name are on the disk, so that they survive a loss of power.
 * Errors as above, and BR_E_IO if the disk fails. */
BR_API int br_output_publish(const char *from, const char *to, struct br_error *error);

/* Writes the names in the directory of `path` to the disk and waits for it; failures are ignored. */
BR_API void br_output_sync_directory(const char *path);

#ifdef __cplusplus
}
#endif
#endif
