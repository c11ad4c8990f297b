/* earlier.h - files of an earlier run with the same directory and prefix: found, or removed. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_EARLIER_H
#define BEAMRING_STAGES_COMMON_STAGE_EARLIER_H

#include <stdbool.h>
#include <stddef.h>

/* What stands behind PREFIX_NNNNNN, six digits or more, in a file's name. NULL where it does not begin so. */
const char *earlier_rest(const char *name, const char *prefix);

/* Whether a file's name is one that a run with this prefix would write. */
typedef bool earlier_is_ours(const char *name, const char *prefix);

/* Puts the path of the first of our files into `found`, "" where there is none; with `away` removes them all.
 * 0, or the errno of the file in `found` that could not be removed. A directory that cannot be read has none:
 * whoever writes into it says why. */
int earlier_files(const char *directory, const char *prefix, earlier_is_ours *is_ours, bool away, char *found,
                  size_t size);

#endif
