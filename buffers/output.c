#include "buffers/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int in_the_way(const char *path, mode_t mode, struct br_error *error)
{
    const char *what = S_ISDIR(mode)    ? "a directory"
                       : S_ISLNK(mode)  ? "a symbolic link"
                       : S_ISFIFO(mode) ? "a pipe"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a device";
    return br_fail(error, BR_E_IO,
                   "%s is %s, which is not replaced; expected a name that is free, or a regular file", path,
                   what);
}

int br_output_check(const char *path, struct br_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0) return BR_OK; /* making it says what is wrong */
    return S_ISREG(info.st_mode) ? BR_OK : in_the_way(path, info.st_mode, error);
}

int br_output_open(const char *path, bool overwrite, struct br_error *error)
{
    struct stat info;
    if (br_output_check(path, error) != BR_OK) return -1;
    /* A link, pipe or device may have taken the place since the check: O_NOFOLLOW, O_NONBLOCK, and the file
     * is emptied only below. */
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags | (overwrite ? 0 : O_EXCL), 0666);
    int why = fd < 0 || fstat(fd, &info) != 0 ? errno : 0;
    if (why == 0 && !S_ISREG(info.st_mode))
        in_the_way(path, info.st_mode, error);
    else if (why == 0 && overwrite && ftruncate(fd, 0) != 0)
        why = errno;
    if (why != 0) br_fail(error, BR_E_IO, "cannot create %s: %s", path, strerror(why));
    if (why == 0 && S_ISREG(info.st_mode)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

FILE *br_output_stream(const char *path, bool overwrite, struct br_error *error)
{
    int fd = br_output_open(path, overwrite, error);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (fd >= 0 && file == NULL) {
        close(fd);
        br_fail(error, BR_E_IO, "cannot create %s: %s", path, strerror(ENOMEM));
    }
    return file;
}

int br_output_rename(const char *from, const char *to, struct br_error *error)
{
    int status = br_output_check(to, error);
    if (status != BR_OK || rename(from, to) == 0) return status;
    return br_fail(error, BR_E_IO, "cannot write %s: %s", to, strerror(errno));
}

void br_output_sync_directory(const char *path)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy) return;
    int fd = open(dirname(strcpy(copy, path)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

int br_output_publish(const char *from, const char *to, struct br_error *error)
{
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int why = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    if (why != 0) return br_fail(error, BR_E_IO, "cannot write %s: %s", from, strerror(why));
    int status = br_output_rename(from, to, error);
    if (status == BR_OK) br_output_sync_directory(to);
    return status;
}
