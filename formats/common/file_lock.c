/* Locks on the bytes of a file that comes and goes with its users. Two things can go wrong. The file may
 * be removed between open and lock: after locking we check that the open file still has the name. And a
 * user that is about to remove the file holds all of its bytes for a moment: a refused user tries again
 * for a while. Links are not followed, since the folder may be open to everybody. */
#include "formats/common/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPTS = 100, PAUSE_MS = 2 };

/* Locks the bytes [first, first + count), all from `first` on where count is 0. Locks of other open files
 * count, also of this program. 0, or -1 with errno: EAGAIN or EACCES when somebody has some of them. */
static int lock_bytes(int fd, int64_t first, int64_t count)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
    return fcntl(fd, F_OFD_SETLK, &range);
}

/* Locks sorted bytes, a run without gaps at a time; lock->first to lock->last is the last one that was asked
 * for. 0, or -1 as above. */
static int lock_all(struct file_lock *lock, int fd, const int64_t *sorted, size_t count)
{
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && sorted[to] <= sorted[to - 1] + 1; to++) continue;
        lock->first = sorted[from];
        lock->last = sorted[to - 1];
        if (lock_bytes(fd, lock->first, lock->last + 1 - lock->first) != 0) return -1;
    }
    return 0;
}

/* Whether the open file still is the one with this name. */
static bool is_named(int fd, const char *path)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

/* One attempt. *again: another one may have another result. */
static int take(struct file_lock *lock, const int64_t *sorted, size_t count, bool *again,
                struct br_error *error)
{
    /* A file that is there may be another user's, in a folder in which O_CREAT is refused then. */
    int fd = open(lock->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno != ELOOP) fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    *again = false;
    if (fd < 0 && errno == ELOOP)
        return br_fail(error, BR_E_IO, "%s is a symbolic link, which is not followed; remove it", lock->path);
    if (fd < 0) return br_fail(error, BR_E_IO, "cannot open %s (%s)", lock->path, strerror(errno));
    int status;
    if (lock_all(lock, fd, sorted, count) == 0) {
        if (is_named(fd, lock->path)) {
            lock->fd = fd;
            return BR_OK;
        }
        *again = true;
        status = br_fail(error, BR_E_IO, "another process keeps removing %s", lock->path);
    } else if (errno == EAGAIN || errno == EACCES) {
        *again = true;
        status =
            br_fail(error, BR_E_INVALID, "another one has some of the bytes %" PRId64 " to %" PRId64 " of %s",
                    lock->first, lock->last, lock->path);
    } else {
        status = br_fail(error, BR_E_IO, "cannot lock %s (%s)", lock->path, strerror(errno));
    }
    close(fd);
    return status;
}

int file_lock_take(struct file_lock *lock, const int64_t *sorted, size_t count, struct br_error *error)
{
    struct br_error last = {0};
    bool again;
    int status = take(lock, sorted, count, &again, &last);
    for (unsigned attempt = 1; again && attempt < ATTEMPTS; attempt++) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        last = (struct br_error){0};
        status = take(lock, sorted, count, &again, &last);
    }
    return status == BR_OK ? BR_OK : br_fail(error, status, "%s", last.text);
}

void file_lock_release(struct file_lock *lock)
{
    if (lock->fd < 0) return;
    /* Nobody else has any, and it was not removed from outside and made again. */
    if (lock_bytes(lock->fd, 0, 0) == 0 && is_named(lock->fd, lock->path)) unlink(lock->path);
    close(lock->fd);
    lock->fd = -1;
}
