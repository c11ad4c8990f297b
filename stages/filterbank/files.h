/* files.h - many files that grow at their end: all open when the system allows, else opened for each write.
 */
#ifndef BEAMRING_STAGES_FILTERBANK_FILES_H
#define BEAMRING_STAGES_FILTERBANK_FILES_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILES_NAME = 256, FILES_PATH = 4352 };

struct files {
    size_t count;
    const char *directory;
    /* Writes the name of file i into a buffer of FILES_NAME, without the directory. */
    void (*name)(void *owner, size_t i, char *name);
    void *owner;
    bool keep_open;
    int *fd;        /* [count], -1: closed */
    uint64_t *size; /* [count] bytes that are whole */
};

/* Looks for files of an earlier run, PREFIXnnnn.fil and PREFIX.gaps with what may stand before the dot:
 * copies the name of one to `found` (FILES_PATH; empty when there is none), or removes them all. Errors:
 * BR_E_IO. */
int files_earlier(const char *directory, const char *prefix, bool away, char *found, struct br_error *error);

/* Makes the directory and those above it if there is none. Errors: BR_E_IO: it cannot be made or written to.
 */
int files_directory(const char *directory, struct br_error *error);

/* Asks the system for as many open files as are needed; with fewer than that, files are opened for each
 * write. Errors: BR_E_NO_MEMORY. Free with files_destroy, also after a failure. */
int files_create(struct files *files, size_t count, struct br_error *error);

/* Creates file i with these bytes. */
int files_begin(struct files *files, size_t i, const void *data, size_t bytes, struct br_error *error);

/* Appends. A failure leaves the file as it was before and names it. */
int files_append(struct files *files, size_t i, const void *data, size_t bytes, struct br_error *error);

/* Closes all open files; a file that cannot be completed is named. */
int files_close(struct files *files, struct br_error *error);
void files_destroy(struct files *files);

#endif
