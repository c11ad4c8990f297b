/* layout.h - where things stand in the quantizer's fast kernels.
 *
 * A warp quantizes 8 beams of a channel at a time, with steps of the block in its registers: lane 4 g + q has
 * beam g, and of its steps those that it will write as one piece of up to 16 bytes for every 4 pieces of the
 * beam's row. Pairs of steps are packed as float16, so that a register is what the tensor cores take. A word
 * of levels (8 steps of 4 bits, 4 of 8 bits) is made of consecutive registers, and the steps' order within it
 * is the one in which levels in the halves of registers become a word by moving whole registers:
 *
 *   x[steps / 8]  simd: t2 (8 bits: t1)  register: the piece, the word within it, t0 t1 (8 bits: t0)
 *                 thread: t4..t0 <-> g2 g1 g0 q1 q0
 *   with step = piece * 4 S + q * S + word * (32 / bits) + (t2 t1 t0), S the steps of one lane in one piece.
 */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_LAYOUT_H
#define BEAMRING_KERNELS_QUANTIZE_GPU_LAYOUT_H

#include "kernels/common/layout.h"

#include <stdbool.h>

/* Steps of one lane in one piece: 16 bytes of levels, or a quarter of the block where that is less. */
static inline BR_HD unsigned br_quantize_piece_steps(unsigned bits, unsigned steps)
{
    return 128 / bits < steps / 4 ? 128 / bits : steps / 4;
}

/* Which step stands in half `half` of register `r` of the lanes with lane % 4 = q. */
static inline BR_HD unsigned br_quantize_step(unsigned bits, unsigned steps, unsigned r, unsigned q,
                                              unsigned half)
{
    unsigned piece = br_quantize_piece_steps(bits, steps), pairs = piece / 2, i = r % pairs;
    unsigned in_word =
        bits == 4 ? i / 4 * 8 + half * 4 + i % 2 * 2 + i / 2 % 2 : i / 2 * 4 + half * 2 + i % 2;
    return r / pairs * 4 * piece + q * piece + in_word;
}

/* A tile of J in shared memory, [steps][64 beams]: rows of 8 chunks of 16 bytes, 8 beams each. Where chunk
 * `chunk` of step `t` stands, in chunks from the row's start. The 8 rows that a matrix is loaded from (q =
 * 0..3, half = 0, 1 of one register) then take all banks. */
static inline BR_HD unsigned br_quantize_chunk(unsigned bits, unsigned steps, unsigned t, unsigned chunk)
{
    unsigned q = t / br_quantize_piece_steps(bits, steps) % 4, half = t / (16 / bits) % 2;
    return chunk ^ (2 * q + half);
}

/* ---- beams formed and quantized at once (kernels/frb_beams_quantize/gpu/quantize_beams.cuh) ----
 *
 * A block keeps the field of 32 of the 256 steps, and Y[p][t] of two j's and all steps, which the blocks of
 * its cluster send it. Y is operand b of the second product (rows: p; columns: steps, 8 of a chunk from one
 * block), as wgmma wants it: of a step the first 32 p's in 64 bytes, swizzled, and the other 16 in 32. The
 * columns stand in the order in which the sums of the product are the registers that br_quantize_step
 * describes. */

/* Cells of a field along p and q; i's of a block's beams. */
enum { BR_FUSED_CELLS = 48, BR_FUSED_BEAMS = 96 };

/* The step of row `row` (0 to 7) of chunk `chunk` (0 to 3) of the Y that block `rank` (0 to 7) makes. */
static inline BR_HD unsigned br_fused_step(unsigned bits, unsigned rank, unsigned chunk, unsigned row)
{
    return br_quantize_step(bits, 256, chunk * 8 + rank, row / 2, row % 2);
}

/* The first product has rows p of the field as its columns, in tiles of 8: which one is column `column` of
 * tile n (0 to 3), so chosen that the lane with columns 2 q and 2 q + 1 ends up with 8 p's in a row.
 * `wide`: of a step's first 32 p's. Else of the others, and columns from 4 on are the next step's. */
static inline BR_HD unsigned br_fused_p(bool wide, unsigned n, unsigned column)
{
    unsigned q = column / 2;
    return (wide ? 8 * q : 32 + 8 * (q % 2)) + 2 * n + column % 2;
}

/* A step's field stands in pieces of 8 p's, with gaps of 16, 48, 16, 0 and 16 bytes between them and 96 at
 * the end: the 8 rows of a tile then use all banks. */
enum { BR_FUSED_PIECES = 6, BR_FUSED_STEP_BYTES = BR_FUSED_CELLS * BR_FUSED_CELLS * 2 + 192 };

/* Bytes from the step's start to row p of `pitch` bytes. */
static inline BR_HD unsigned br_fused_row(unsigned p, unsigned pitch)
{
    unsigned piece = p / 8, gaps = piece % 2 + piece / 2 % 2 * 4 + piece / 4 * 5;
    return piece * (8 * BR_FUSED_CELLS * 2) + gaps * 16 + p % 8 * pitch;
}

/* Y of 8 steps (rows of the operand in memory, columns of the product) and two j's stands together: what a
 * block makes of a chunk for another one. */
enum { BR_FUSED_PIECE = 1536, BR_FUSED_NARROW = 1024 };

/* Bytes from the piece's start to p's 8 q to 8 q + 7 of a row, of j `slot`. */
static inline BR_HD unsigned br_fused_wide(unsigned slot, unsigned row, unsigned q)
{
    return slot * 512 + row * 64 + (q ^ row / 2) * 16;
}

/* p's 32 + 8 q to 32 + 8 q + 7. */
static inline BR_HD unsigned br_fused_narrow(unsigned slot, unsigned row, unsigned q)
{
    return BR_FUSED_NARROW + slot * 256 + row * 32 + (q ^ row / 4) * 16;
}

#endif
