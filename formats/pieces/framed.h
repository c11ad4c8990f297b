/* framed.h - recordings that are a sequence of whole frames, each row-major with its own number of time
 * steps: products that `record` wrote and in which time is not slowest, and kotekan's arrays.
 *
 * A block is one file or one frame of it. Blocks follow each other in time; what a later one repeats is
 * delivered once, and what lacks between them is missing. */
#ifndef BEAMRING_FORMATS_PIECES_FRAMED_H
#define BEAMRING_FORMATS_PIECES_FRAMED_H

#include "formats/common/gaps.h"
#include "formats/format.h"
#include "formats/pieces/pool.h"

struct block {
    size_t file;
    uint64_t offset;         /* of its data in the file, bytes */
    uint64_t first, samples; /* base samples */
    uint64_t begin;          /* delivered from here on: an earlier block has what is before */
    const struct gaps *gaps; /* or NULL */
};

struct framed {
    struct br_stream stream;
    struct file_list files;
    size_t count;
    struct block *block; /* [count] */
    /* True: a block has frames that end at multiples of frame_samples, and frames of the stream are these.
     * False: a block is one frame of any length, and frames of the stream are made of several. */
    bool gridded;
    uint64_t passes;
    unsigned threads;
    bool direct;
    bool checked; /* decode says which cells are valid */
    /* From the bytes of `steps` time steps in the file to ours; NULL: they are alike. `valid` if checked. */
    void (*decode)(const void *self, size_t steps, const uint8_t *raw, void *to, uint8_t *valid);

    /* while running */
    uint64_t first, end, period; /* base samples of a pass, and by which one follows the one before */
    uint64_t pass, cursor;
    size_t at; /* block */
    int fd;
    bool fd_direct, told;
    size_t fd_file;
    struct br_frame source; /* a frame of the file of which parts are delivered */
    uint64_t loaded;        /* its first sample, UINT64_MAX: none */
    size_t loaded_block;
    uint8_t *raw;
    struct pool *pool;
};

/* Sorts the blocks and joins them; the rest of `f` above "while running" is complete. Errors at `files`: a
 * gap of more than max_gap_s, no whole sample. */
int framed_join(struct caller *caller, struct framed *f, double max_gap_s);

/* Of every such reader, whose `self` begins with a struct framed. */
int framed_start(struct caller *caller, void *self);
int framed_fill(struct caller *caller, void *self, struct br_frame *out);
void framed_stop(struct caller *caller, void *self);

#endif
