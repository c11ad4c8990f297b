/* regular_file.h - opens files that must be regular files: opening a pipe would wait for its other end, and a
 * device may be endless. */
#ifndef BEAMRING_BUFFERS_REGULAR_FILE_H
#define BEAMRING_BUFFERS_REGULAR_FILE_H

#include "buffers/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a regular file for reading, with additional `flags` of open, without waiting. Returns the descriptor,
 * which the caller closes; *bytes (may be NULL) receives the file's size. Returns -1 on failure: `error` has
 * BR_E_IO and the file's name, and errno is that of open, or 0 if it is not a regular file. */
static inline int br_open_regular(const char *path, int flags, uint64_t *bytes, struct br_error *error)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        if (bytes != NULL) *bytes = (uint64_t)info.st_size;
        return fd;
    }
    int why = fd < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    if (why == ENXIO) why = 0; /* a socket */
    if (why != 0)
        br_fail(error, BR_E_IO, "cannot open %s: %s", path, strerror(why));
    else
        br_fail(error, BR_E_IO, "%s is not a regular file; expected one", path);
    errno = why;
    return -1;
}

/* The same, as a FILE that the caller closes; NULL on failure. */
static inline FILE *br_fopen_regular(const char *path, uint64_t *bytes, struct br_error *error)
{
    int fd = br_open_regular(path, 0, bytes, error);
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (file == NULL && fd >= 0) {
        br_fail(error, BR_E_IO, "cannot open %s: %s", path, strerror(errno));
        close(fd);
    }
    return file;
}

/* Returns BR_OK if `path` is a readable regular file, before a library opens it itself. Errors as above. */
static inline int br_check_regular(const char *path, struct br_error *error)
{
    int fd = br_open_regular(path, 0, NULL, error);
    if (fd < 0) return BR_E_IO;
    close(fd);
    return BR_OK;
}

#endif
