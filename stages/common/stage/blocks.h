/* blocks.h - input frames of any length, cut into blocks of time steps that are counted from step 0 of the
 * stream: which steps of a frame go where in which block, where a block begins late and ends early, and
 * what a hole does to it.
 *
 * A stage asks blocks_gap before it takes a frame, hands on the open block if there is a gap (and gets the
 * same frame again), then takes pieces until blocks_used says that the frame is used up. Between calls
 * nothing but this struct says where it stands. The data is the stage's. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_BLOCKS_H
#define BEAMRING_STAGES_COMMON_STAGE_BLOCKS_H

#include "buffers/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blocks {
    unsigned step; /* base samples of a time step */
    size_t length; /* time steps of a block */
    bool bridges;  /* a block goes on behind a hole within it; else a hole ends it */

    bool open;
    uint64_t number; /* of the open block; it begins at step number x length */
    uint64_t start;  /* base sample of its first sample: later than the block's where input began later */
    uint64_t cursor; /* base sample up to which input was taken */
    size_t begin;    /* steps [begin, fill) of the block are taken */
    size_t fill;
    size_t taken; /* steps of the current frame */
};

/* The part of a frame that belongs to the open block. */
struct blocks_piece {
    size_t nsteps; /* of the frame */
    size_t from;   /* step of the frame */
    size_t at;     /* step of the block */
    size_t count;
    bool whole; /* it is the whole block, and no frame has any more of its steps */
    bool ends;  /* the block is complete */
};

/* True when the open block must be handed on before this frame: it does not go on there. */
bool blocks_gap(const struct blocks *blocks, const struct br_frame *in);

/* The next piece of the frame; opens a block if none is open, and counts the piece as taken. */
struct blocks_piece blocks_take(struct blocks *blocks, const struct br_frame *in);

/* True once, when all steps of the frame are taken: the next frame may come. */
bool blocks_used(struct blocks *blocks, const struct br_frame *in);

#endif
