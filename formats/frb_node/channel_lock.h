/* channel_lock.h - which channels this program sends to a destination, so that no other one of this machine
 * sends them there too.
 *
 * A destination has a file in XDG_RUNTIME_DIR (or /tmp) whose bytes stand for channels: who sends some holds
 * locks on them. */
#ifndef BEAMRING_FORMATS_FRB_NODE_CHANNEL_LOCK_H
#define BEAMRING_FORMATS_FRB_NODE_CHANNEL_LOCK_H

#include "formats/common/file_lock.h"

/* Locks `count` channels (>= 0, in any order) of the destination, named by its resolved address; lock->fd
 * must be -1. Returns BR_OK; BR_E_INVALID when another lock is on some of them, after a fifth of a second of
 * asking again; BR_E_IO when that cannot be known; BR_E_NO_MEMORY. Nothing is locked after a failure. Given
 * back by file_lock_release. */
int channel_lock_take(struct file_lock *lock, const char *destination, const int64_t *channels, size_t count,
                      struct br_error *error);

#endif
