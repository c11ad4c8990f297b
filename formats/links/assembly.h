/* assembly.h - blocks of time that are put together from pieces arriving in any order.
 *
 * A block holds levels [beam][freq][row bytes] and f32 [beam][freq][2] = {scale, offset}. Its pieces are
 * units, each arriving once. Up to `window` blocks are open at a time. Blocks are handed on in order: the
 * oldest one when it is complete, or when data `window` blocks ahead of it has come, or when the caller
 * flushes. Data for a block that was handed on is late. */
#ifndef BEAMRING_FORMATS_LINKS_ASSEMBLY_H
#define BEAMRING_FORMATS_LINKS_ASSEMBLY_H

#include "buffers/error.h"
#include "buffers/frame.h"

/* Bytes for the sentence about a peer that was refused: a reader's whole message, and who it is about. */
enum { WIRE_COMPLAINT = BR_ERROR_LENGTH + 64 };

struct wire_counts {
    uint64_t received;    /* pieces (minichunks, packets) that were taken */
    uint64_t late;        /* pieces of a block that was handed on already */
    uint64_t duplicate;   /* pieces that had come before */
    uint64_t missing;     /* units that had not come when their block was handed on, or passed over */
    uint64_t malformed;   /* pieces or connections that are not what the format demands */
    uint64_t connections; /* TCP: that were taken */
    uint64_t refused;     /* TCP: that were one too many */
    uint64_t broken;      /* TCP: that ended within a message */
    uint64_t silent;      /* TCP: that said nothing for too long, or did not read their answers */
    uint64_t blocks;      /* handed on */
};

struct assembly_block {
    bool open;
    uint64_t number;
    uint8_t *levels;  /* [beam][freq][row] */
    float *side;      /* [beam][freq][2] */
    uint8_t *arrived; /* [units] */
    size_t narrived;
};

struct assembly {
    size_t nbeams, nchannels, row; /* row: bytes per beam and channel */
    size_t units;
    unsigned window;
    uint8_t missing; /* byte of levels that did not come */
    bool nibbles;    /* levels have 4 bits, else 8 */

    struct assembly_block *block; /* [window], number % window */
    bool started;
    uint64_t tail; /* the first block that was not handed on, or passed over */
    uint64_t from; /* behind the last block that was handed on, or the first block of all */
    bool pressed;  /* data of block `wanted` waits for room */
    uint64_t wanted;
    uint64_t since_ns; /* when the last piece came; the caller's */
    struct wire_counts *counts;
};

/* Allocates for the fields above. Errors: BR_E_NO_MEMORY. Free with assembly_free. */
int assembly_create(struct assembly *assembly, struct br_error *error);
void assembly_free(struct assembly *assembly);

enum assembly_answer { ASSEMBLY_OPEN, ASSEMBLY_LATE, ASSEMBLY_FULL };

/* The block of this number, opened if need be. LATE: handed on already (counted). FULL: older blocks must be
 * handed on first; ask again then. */
enum assembly_answer assembly_open(struct assembly *assembly, uint64_t number, struct assembly_block **block);

/* Passes over all blocks before `number`, which is not before the tail. False: there are open ones. */
bool assembly_pass(struct assembly *assembly, uint64_t number);

/* Marks a unit; false when it had come before. */
bool assembly_mark(struct assembly_block *block, size_t unit);

/* The block to hand on now, or NULL. `flush`: whatever is open. */
struct assembly_block *assembly_ready(struct assembly *assembly, bool flush);

/* Forgets what is open, and what was passed over since a block was handed on last. */
void assembly_forget(struct assembly *assembly);

/* It was handed on: counts what it lacks, and makes room. */
void assembly_done(struct assembly *assembly, struct assembly_block *block);

/* Copies a block into a frame of the stream, whose first sample is the block's; validity: where any beam has
 * a level. */
void assembly_fill(const struct assembly *assembly, const struct assembly_block *block,
                   const struct br_stream *stream, struct br_frame *frame);

/* All of that: the block to hand on now goes into a frame of the stream, and makes room. False: there is
 * none. */
bool assembly_take(struct assembly *assembly, const struct br_stream *stream, bool flush,
                   struct br_frame *frame);

#endif
