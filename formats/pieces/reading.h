/* reading.h - what readers share: checks against the user's options, and sizes that suit. */
#ifndef BEAMRING_FORMATS_PIECES_READING_H
#define BEAMRING_FORMATS_PIECES_READING_H

#include "formats/common/coding.h"
#include "formats/format.h"

/* `stream: sample0` against the first sample that a recording counts itself. Errors are the caller's. */
int reading_check_first(struct caller *caller, const char *path, uint64_t first);

/* The coding that a recording has by its own word `own`, against `coding` of the options (or NULL) and
 * of `stream:`. Errors are the caller's. */
int reading_coding(struct caller *caller, const char *path, const char *key, const char *own,
                   const char *wanted, enum coding *coding);

/* Reads exactly `length` bytes. Errors are the caller's: BR_E_IO, with the file's name. */
int reading_read(struct caller *caller, int fd, const char *path, void *buffer, size_t length,
                 uint64_t offset);

/* Number of samples so that a frame of rows of `row_bytes` has about 1 MiB, for recordings that do not say.
 */
uint64_t reading_frame_samples(size_t row_bytes);

/* Whether frames of so many bytes do better without the caches: some of them are in a queue. */
bool reading_is_far(size_t frame_bytes);

#endif
