/* layout.h - layouts of the portable beamformer (tile.cuh): what its blocks keep in shared memory, and which
 * lane holds what.
 *
 * One tile: 16 MT beams by TIMES times, dishes in chunks. All numbers here count within the tile, the
 * chunk and the block. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_MMA_LAYOUT_H
#define BEAMRING_KERNELS_BASEBAND_GPU_MMA_LAYOUT_H

#include "kernels/common/layout.h"

enum {
    BR_TILE_TIMES = 128,
    BR_TILE_DISHES = 128, /* of a chunk */
    BR_TILE_FEW = 64,     /* the same where all dishes are at most so many */
    BR_TILE_ROWS = 16,    /* beams of an MMA */
    BR_TILE_STEP = 32,    /* dishes of an MMA */
    BR_TILE_WARPS = 4,
    BR_TILE_THREADS = 32 * BR_TILE_WARPS,
    BR_TILE_WARP_TIMES = BR_TILE_TIMES / BR_TILE_WARPS,
    BR_TILE_COLUMNS = BR_TILE_WARP_TIMES / 8, /* MMAs next to each other along time */
    BR_TILE_FRAGMENT = 32 * 16,               /* bytes of a weight matrix of ROWS beams by STEP dishes */
    BR_TILE_OUT_ROW =
        BR_TILE_TIMES + 32, /* + 32: the 4 rows that half a warp writes are in different banks */
    BR_TILE_LARGEST = 4     /* MT */
};

/* ---- the field: [TIMES][chunk] bytes; chunk: BR_TILE_DISHES or BR_TILE_FEW ---- */

/* A thread's share of a copy of rows of `bytes` in pieces of 16. */
static inline BR_HD int br_tile_copy_row(int bytes, int thread, int pass)
{
    return thread / (bytes / 16) + pass * (BR_TILE_THREADS / (bytes / 16));
}

static inline BR_HD int br_tile_copy_piece(int bytes, int thread)
{
    return thread % (bytes / 16);
}

/* Byte of a 16-byte piece in its row: half a warp reads two pieces each of rows t, t + 1, t +
 * 8 and t + 9 (t even) at once, and these are in different banks. */
static inline BR_HD int br_tile_field_place(int chunk, int row, int piece)
{
    int other = chunk == BR_TILE_FEW ? (row & 8) >> 2 : (row & 1) << 1 | (row & 8) >> 1;
    return (piece ^ other) * 16;
}

/* The time that is column `column` of MMA `j` of those next to each other: so that a thread, which holds
 * columns 2 i and 2 i + 1, ends up with 8 consecutive times. */
static inline BR_HD int br_tile_time(int warp, int j, int column)
{
    return warp * BR_TILE_WARP_TIMES + column / 2 * 8 + 2 * j + column % 2;
}

/* The dish of a step that is k of an MMA: a thread, which holds k of 4 i to 4 i + 3 and of 16 more, reads 8
 * consecutive dishes. */
static inline BR_HD int br_tile_dish(int k)
{
    return k / 4 % 4 * 8 + k / 16 * 4 + k % 4;
}

/* Byte in its row of the 8 dishes that a lane needs of a step. */
static inline BR_HD int br_tile_field_read(int chunk, int row, int step, int lane)
{
    return br_tile_field_place(chunk, row, step * 2 + lane % 4 / 2) + lane % 2 * 8;
}

/* ---- weights: [MT][steps][2][FRAGMENT] bytes, in the order of the MMA's registers ---- */

/* Byte of a weight in its fragment; reg and part as in fragments.h. */
static inline BR_HD int br_tile_weight_place(int lane, int reg, int part)
{
    return lane * 16 + reg * 4 + part;
}

/* The same from the weight's beam and dish (of 16 and 32). */
static inline BR_HD int br_tile_weight_of(int beam, int dish)
{
    return br_tile_weight_place(beam % 8 * 4 + dish / 8, dish / 4 % 2 * 2 + beam / 8, dish % 4);
}

/* ---- the result: [16 MT][OUT_ROW] bytes ---- */

static inline BR_HD int br_tile_out_place(int beam, int time)
{
    return beam * BR_TILE_OUT_ROW + time;
}

/* A thread's beams: `upper` is 0 or 1; and the first of its 8 times. */
static inline BR_HD int br_tile_beam(int m, int upper, int lane)
{
    return m * BR_TILE_ROWS + upper * 8 + lane / 4;
}

static inline BR_HD int br_tile_first_time(int warp, int lane)
{
    return warp * BR_TILE_WARP_TIMES + lane % 4 * 8;
}

#endif
