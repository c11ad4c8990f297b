#include "stages/common/stage/fileio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t fileio_read(int fd, void *buffer, size_t length, uint64_t offset)
{
    char *to = buffer;
    size_t got = 0;
    while (got < length) {
        ssize_t n = pread(fd, to + got, length - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int fileio_read_all(int fd, const char *path, void *buffer, size_t length, uint64_t offset,
                    struct br_error *error)
{
    ssize_t got = fileio_read(fd, buffer, length, offset);
    if (got < 0) return br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno));
    if ((size_t)got < length)
        return br_fail(error, BR_E_IO, "%s ends at byte %llu: it became shorter while it was read", path,
                       (unsigned long long)offset + (unsigned long long)got);
    return BR_OK;
}

int fileio_write(int fd, const void *buffer, size_t length, uint64_t offset)
{
    const char *from = buffer;
    for (size_t done = 0; done < length;) {
        ssize_t n = pwrite(fd, from + done, length - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? ENOSPC : errno;
        done += (size_t)n;
    }
    return 0;
}

int fileio_make_directory(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return 0;
    const char *slash = errno == ENOENT ? strrchr(path, '/') : NULL;
    if (slash == NULL || slash == path) return -1;
    char *above = strndup(path, (size_t)(slash - path));
    if (above == NULL) return -1;
    int status = fileio_make_directory(above), why = errno;
    free(above);
    errno = why;
    return status == 0 && mkdir(path, 0777) != 0 && errno != EEXIST ? -1 : status;
}
