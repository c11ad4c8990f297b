#include "formats/common/fileio.h"
#include "buffers/regular_file.h"

#include "buffers/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHERS = 256 }; /* descriptors left for everybody else */

bool fileio_allow_files(size_t count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    if (limit.rlim_cur >= count + OTHERS) return true;
    rlim_t was = limit.rlim_cur;
    limit.rlim_cur = count + OTHERS;
    if (limit.rlim_max >= limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &limit) == 0) return true;
    return count < was / 4;
}

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

static int ends_early(const char *path, uint64_t at, struct br_error *error)
{
    return br_fail(error, BR_E_IO, "%s ends at byte %llu: it became shorter while it was read", path,
                   (unsigned long long)at);
}

int fileio_read_all(int fd, const char *path, void *buffer, size_t length, uint64_t offset,
                    struct br_error *error)
{
    ssize_t got = fileio_read(fd, buffer, length, offset);
    if (got < 0) return br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno));
    return (size_t)got < length ? ends_early(path, offset + (uint64_t)got, error) : BR_OK;
}

int fileio_open(const char *path, bool *direct, struct br_error *error)
{
    int fd = *direct ? br_open_regular(path, O_DIRECT, NULL, NULL) : -1;
    if (fd >= 0) { /* there are file systems that open the file and cannot read it */
        void *block = aligned_alloc(FILEIO_BLOCK, FILEIO_BLOCK);
        if (block == NULL || fileio_read(fd, block, FILEIO_BLOCK, 0) < 0) {
            close(fd);
            fd = -1;
        }
        free(block);
    }
    if (fd >= 0) return fd;
    *direct = false;
    return br_open_regular(path, 0, NULL, error);
}

int fileio_read_direct(int fd, const char *path, void *buffer, size_t length, uint64_t offset, void *scratch,
                       size_t room, struct br_error *error)
{
    char *to = buffer;
    for (size_t done = 0; done < length;) {
        size_t left = length - done, skip = (size_t)((offset + done) % FILEIO_BLOCK);
        bool straight = skip == 0 && left >= FILEIO_BLOCK && (uintptr_t)(to + done) % FILEIO_BLOCK == 0;
        bool alike = (uintptr_t)(to + done) % FILEIO_BLOCK == skip; /* behind this block it goes straight */
        size_t wanted = straight ? left : alike ? FILEIO_BLOCK : skip + left + FILEIO_BLOCK - 1;
        if (!straight && wanted > room) wanted = room;
        wanted = wanted / FILEIO_BLOCK * FILEIO_BLOCK;
        ssize_t got = pread(fd, straight ? to + done : scratch, wanted, (off_t)(offset + done - skip));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno));
        size_t more = (size_t)got > skip ? (size_t)got - skip : 0;
        if (more > left) more = left;
        if (more == 0) return ends_early(path, offset + done, error);
        if (!straight) memcpy(to + done, (char *)scratch + skip, more);
        done += more;
    }
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

static bool holds(const char *path, const char *text, size_t length)
{
    int fd = br_open_regular(path, 0, NULL, NULL);
    char *found = malloc(length + 1);
    bool same = fd >= 0 && found != NULL && fileio_read(fd, found, length + 1, 0) == (ssize_t)length &&
                memcmp(found, text, length) == 0;
    free(found);
    if (fd >= 0) close(fd);
    return same;
}

int fileio_keep(const char *path, const char *text, size_t length, bool overwrite, struct br_error *error)
{
    int status = br_output_check(path, error);
    if (status != BR_OK) return status;
    if (!overwrite && access(path, F_OK) == 0)
        return holds(path, text, length)
                   ? BR_OK
                   : br_fail(error, BR_E_IO, "%s exists already and holds something else", path);
    int fd = br_output_open(path, overwrite, error);
    if (fd < 0) return BR_E_IO;
    int why = fileio_write(fd, text, length, 0);
    if (close(fd) != 0 && why == 0) why = errno;
    return why == 0 ? BR_OK : br_fail(error, BR_E_IO, "cannot write %s: %s", path, strerror(why));
}

int fileio_make_directory(const char *path)
{
    if (mkdir(path, 0777) == 0) return 0;
    struct stat info;
    if (errno == EEXIST) { /* a file of that name is told now, not as a lack of permission later */
        if (stat(path, &info) != 0 || S_ISDIR(info.st_mode)) return 0;
        errno = ENOTDIR;
        return -1;
    }
    const char *slash = errno == ENOENT ? strrchr(path, '/') : NULL;
    if (slash == NULL || slash == path) return -1;
    char *above = strndup(path, (size_t)(slash - path));
    if (above == NULL) return -1;
    int status = fileio_make_directory(above), why = errno;
    free(above);
    errno = why;
    return status == 0 && mkdir(path, 0777) != 0 && errno != EEXIST ? -1 : status;
}
