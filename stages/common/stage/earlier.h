/* earlier.h - files of an earlier run with the same directory and prefix: found, or removed. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_EARLIER_H
#define BEAMRING_STAGES_COMMON_STAGE_EARLIER_H

#include "buffers/error.h"
#include "formats/common/file_lock.h"

#include <stdbool.h>
#include <stddef.h>

/* The part of a file's name behind PREFIX_NNNNNN, six digits or more. NULL if it does not begin so. */
const char *earlier_rest(const char *name, const char *prefix);

/* Whether a file's name is one that a run with this prefix would write. */
typedef bool earlier_is_ours(const char *name, const char *prefix);

/* Puts the path of the first of our files into `found`, "" where there is none. A directory that cannot be
 * read has none: whoever writes into it says why. */
void earlier_files(const char *directory, const char *prefix, earlier_is_ours *is_ours, char *found,
                   size_t size);

/* Claims the names of a directory and prefix for this run, so that no other one writes them until
 * file_lock_release; lock->fd must be -1. Errors: BR_E_IO, where another run has them. A file system without
 * locks has none to give: then there is no claim, and no error. */
int earlier_claim(struct file_lock *lock, const char *directory, const char *prefix, struct br_error *error);

/* Removes them all. Errors: BR_E_IO; the message names the file that stays: it cannot be removed, or is a
 * device or a link, which no run has left. */
int earlier_remove(const char *directory, const char *prefix, earlier_is_ours *is_ours,
                   struct br_error *error);

#endif
