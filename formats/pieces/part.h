/* part.h - a rank's share of a recording: some of its bands, or some channels of its only one. */
#ifndef BEAMRING_FORMATS_PIECES_PART_H
#define BEAMRING_FORMATS_PIECES_PART_H

#include "formats/caller.h"

#include <stddef.h>
#include <stdint.h>

/* Which part of the recording's frequencies is read: `index` of `count`. count = 1: all of them. */
struct part {
    uint64_t index, count;
};

/* "R/N", or NULL for all. Errors at `part`: no two numbers, R not below N. */
int part_parse(struct caller *caller, const char *text, struct part *part);

/* The part's share: bands [begin, end) in the order in which they are joined, or channels of the only one. */
struct share {
    size_t begin, end;
    bool of_channels;
};

/* Errors at `part`: more parts than bands, or than channels of the only band. `path`: a file, for the
 * message. */
int part_divide(struct caller *caller, const struct part *part, const char *path, size_t bands,
                size_t channels, struct share *share);

/* About how many of all channels the largest part has: frames are of the same length for all parts. */
size_t part_most_channels(const struct part *part, size_t channels);

#endif
