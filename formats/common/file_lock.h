/* file_lock.h - locks on bytes of a file that comes and goes with its users. The system drops the locks of a
 * program that dies; the last one to leave removes the file. Locks of one program count against each other,
 * too. */
#ifndef BEAMRING_FORMATS_COMMON_FILE_LOCK_H
#define BEAMRING_FORMATS_COMMON_FILE_LOCK_H

#include "buffers/error.h"

#include <stddef.h>
#include <stdint.h>

struct file_lock {
    int fd; /* -1: nothing is locked */
    char path[4200];
    int64_t first, last; /* where another one's locks are, after BR_E_INVALID */
};

/* Locks `count` bytes (>= 0, sorted) of the file lock->path; lock->fd must be -1. Returns BR_OK; BR_E_INVALID
 * when another lock is on some of them, after a fifth of a second of asking again; BR_E_IO when that cannot
 * be known. Nothing is locked after a failure. */
int file_lock_take(struct file_lock *lock, const int64_t *sorted, size_t count, struct br_error *error);

/* Gives them back; does nothing where none are locked. */
void file_lock_release(struct file_lock *lock);

#endif
