/* layout.h - where things stand in the kernel that forms and quantizes beams at once. C17 and CUDA C++.
 *
 * A block keeps the field of 32 of the 256 steps, and Y[p][t] of two j's and all steps, which the blocks of
 * its cluster send it. Y is operand b of the second product (rows: p; columns: steps, 8 of a chunk from one
 * block), as wgmma wants it: of a step the first 32 p's in 64 bytes, swizzled, and the other 16 in 32. The
 * columns stand in the order in which the sums of the product are the registers that br_quantize_step
 * describes. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_GPU_LAYOUT_H
#define BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_GPU_LAYOUT_H

#include "kernels/quantize/gpu/layout.h"

#include <stdbool.h>

/* Cells of a field along p and q; i's of a block's beams. */
enum { BR_FRB_BEAMS_QUANTIZE_CELLS = 48, BR_FRB_BEAMS_QUANTIZE_BEAMS = 96 };

/* The step of row `row` (0 to 7) of chunk `chunk` (0 to 3) of the Y that block `rank` (0 to 7) makes. */
static inline BR_HD unsigned br_frb_beams_quantize_step(unsigned bits, unsigned rank, unsigned chunk,
                                                        unsigned row)
{
    return br_quantize_step(bits, 256, chunk * 8 + rank, row / 2, row % 2);
}

/* The first product has rows p of the field as its columns, in tiles of 8: which one is column `column` of
 * tile n (0 to 3), so chosen that the lane with columns 2 q and 2 q + 1 ends up with 8 p's in a row.
 * `wide`: of a step's first 32 p's. Else of the others, and columns from 4 on are the next step's. */
static inline BR_HD unsigned br_frb_beams_quantize_p(bool wide, unsigned n, unsigned column)
{
    unsigned q = column / 2;
    return (wide ? 8 * q : 32 + 8 * (q % 2)) + 2 * n + column % 2;
}

/* A step's field stands in pieces of 8 p's, with gaps of 16, 48, 16, 0 and 16 bytes between them and 96 at
 * the end: the 8 rows of a tile then use all banks. */
enum {
    BR_FRB_BEAMS_QUANTIZE_PIECES = 6,
    BR_FRB_BEAMS_QUANTIZE_STEP_BYTES = BR_FRB_BEAMS_QUANTIZE_CELLS * BR_FRB_BEAMS_QUANTIZE_CELLS * 2 + 192
};

/* Bytes from the step's start to row p of `pitch` bytes. */
static inline BR_HD unsigned br_frb_beams_quantize_row(unsigned p, unsigned pitch)
{
    unsigned piece = p / 8, gaps = piece % 2 + piece / 2 % 2 * 4 + piece / 4 * 5;
    return piece * (8 * BR_FRB_BEAMS_QUANTIZE_CELLS * 2) + gaps * 16 + p % 8 * pitch;
}

/* Y of 8 steps (rows of the operand in memory, columns of the product) and two j's stands together: what a
 * block makes of a chunk for another one. */
enum { BR_FRB_BEAMS_QUANTIZE_PIECE = 1536, BR_FRB_BEAMS_QUANTIZE_NARROW = 1024 };

/* Bytes from the piece's start to p's 8 q to 8 q + 7 of a row, of j `slot`. */
static inline BR_HD unsigned br_frb_beams_quantize_wide(unsigned slot, unsigned row, unsigned q)
{
    return slot * 512 + row * 64 + (q ^ row / 2) * 16;
}

/* p's 32 + 8 q to 32 + 8 q + 7. */
static inline BR_HD unsigned br_frb_beams_quantize_narrow(unsigned slot, unsigned row, unsigned q)
{
    return BR_FRB_BEAMS_QUANTIZE_NARROW + slot * 256 + row * 32 + (q ^ row / 4) * 16;
}

#endif
