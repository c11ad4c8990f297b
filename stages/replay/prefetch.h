/* prefetch.h - a file that is read from front to back in windows: while one is worked on, a thread reads the
 * next. */
#ifndef BEAMRING_STAGES_REPLAY_PREFETCH_H
#define BEAMRING_STAGES_REPLAY_PREFETCH_H

#include "buffers/error.h"

#include <stddef.h>
#include <stdint.h>

struct prefetch;

/* Windows of at least `room` bytes. Whoever reads asks for pieces of at most `piece` bytes, less than half a
 * window. NULL without memory or thread. */
struct prefetch *prefetch_start(size_t room, size_t piece);
void prefetch_stop(struct prefetch *p); /* NULL is allowed */

/* Bytes [offset, offset + length) of the open file `fd` of `file_bytes`; *bytes is valid until the next call.
 * Pieces in the order of the file are fast, others are not. Errors: BR_E_IO. */
int prefetch_get(struct prefetch *p, int fd, const char *path, uint64_t file_bytes, uint64_t offset,
                 size_t length, const uint8_t **bytes, struct br_error *error);

/* Forgets what was read: call before `fd` is closed. */
void prefetch_forget(struct prefetch *p);

#endif
