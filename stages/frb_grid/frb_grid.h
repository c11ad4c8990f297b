/* frb_grid.h - inside the stage: its parameters, its plans, and where the stream stands. */
#ifndef BEAMRING_STAGES_FRB_GRID_FRB_GRID_H
#define BEAMRING_STAGES_FRB_GRID_FRB_GRID_H

#include "kernels/frb_grid/frb_grid.h"
#include "runtime/stage.h"

struct frb_grid {
    int64_t downsample, integrate, frame, headroom; /* parameters */
    const char *gains_file;
    double threshold;

    const float *gains; /* [gain_channels][pol][dish][2], NULL: all 1 */
    size_t gain_channels;
    uint64_t block;    /* base samples per output step */
    size_t nblocks;    /* steps in a full output frame */
    size_t cells;      /* 2M x 2N */
    size_t spectators; /* pol x dish: bytes of one channel in a row of input */
    unsigned boundary; /* the largest input step, in base samples */
    int log2_scale;
    struct br_frb_grid *plan[BR_MAX_ZONES];
    struct br_cuda *cuda;         /* NULL on the CPU */
    uint16_t *row;                /* [nblocks][cells], where the frames are */
    float *weights[BR_MAX_ZONES]; /* expanded to fine channels; only while plans are made */
    uint16_t (*dish_cell)[2];

    /* The stream: `cursor` is the base sample up to which input went into blocks. */
    bool running;
    uint64_t cursor;

    /* The output frame being filled: blocks [first_block, first_block + length), of which zone z has
     * done[z]. */
    bool open;
    uint64_t start, first_block;
    size_t length, done[BR_MAX_ZONES];
    size_t taken[BR_MAX_ZONES]; /* steps of the current input frame that zone z has used */
    bool resumed;               /* the current input frame was begun in an earlier call */
};

/* blocks.c: the callback `process`. */
int frb_grid_process(struct br_stage *stage, void *self, const struct br_io *io);

#endif
