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
#ifndef BEAMRING_KERNELS_QUANTIZE_LAYOUT_H
#define BEAMRING_KERNELS_QUANTIZE_LAYOUT_H

#include "kernels/common/layout.h"

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

/* ---- beams formed and quantized at once (fused.cuh) ----
 *
 * A block keeps the field of 32 of the 256 steps, and Y[t][p] of two j's and all steps, which the blocks of
 * its cluster send it. Y is operand b of the second product (columns: steps, 8 of a chunk from one block), in
 * the order in which lanes take it: 8 p's of the first two k-steps in 16 bytes, 4 p's of the third in 8. The
 * columns stand in the order in which the sums of the product are the registers that br_quantize_step
 * describes. */

/* Cells of a field along p and q; i's of a block's beams. */
enum { BR_FUSED_CELLS = 48, BR_FUSED_BEAMS = 96 };

/* The step of row `row` (0 to 7) of chunk `chunk` (0 to 3) of the Y that block `rank` (0 to 7) makes. Even
 * chunks are the first half of the block of time, odd ones the second one. */
static inline BR_HD unsigned br_fused_step(unsigned bits, unsigned rank, unsigned chunk, unsigned row)
{
    return br_quantize_step(bits, 256, chunk % 2 * 16 + chunk / 2 * 8 + rank, row / 2, row % 2);
}

/* The first product takes rows p of the field as its columns: which one is column `column` (0 to 7) of tile n
 * (0 to 5). So chosen that the lane with columns 2 q and 2 q + 1 ends up with 4 p's of each 16, those that it
 * takes of operand b of the second product, and that the 8 rows of a tile use all banks. */
static inline BR_HD unsigned br_fused_p(unsigned n, unsigned column)
{
    unsigned q = column / 2;
    return n / 2 * 16 + 4 * q + 2 * (n % 2 ^ (q & 1)) + column % 2;
}

/* A step's field stands in four pieces, p from 0, 8, 24 and 40 on, each the next but for 16 bytes. */
enum { BR_FUSED_PIECES = 4, BR_FUSED_STEP_BYTES = BR_FUSED_CELLS * BR_FUSED_CELLS * 2 + 48 };

static inline BR_HD unsigned br_fused_first_p(unsigned piece)
{
    return piece == 0 ? 0 : 16 * piece - 8;
}

/* Bytes from the step's start to row p of `pitch` bytes. */
static inline BR_HD unsigned br_fused_row(unsigned p, unsigned pitch)
{
    unsigned piece = (p + 8) / 16, first = br_fused_first_p(piece);
    return first * (BR_FUSED_CELLS * 2) + piece * 16 + (p - first) * pitch;
}

/* Y of 8 steps (rows of the operand, columns of the product) and two j's stands together: what a block makes
 * of a chunk for another one. */
enum { BR_FUSED_PIECE = 1536, BR_FUSED_NARROW = 1024 };

/* Bytes from the piece's start to the 16 bytes of lane q (of those that have a column of it) of j `slot`: of
 * the first two k-steps. */
static inline BR_HD unsigned br_fused_wide(unsigned slot, unsigned row, unsigned q)
{
    return slot * 512 + row * 64 + q * 16;
}

/* 8 bytes, of the third: those of both j's side by side, every other pair of rows turned round, so that a
 * lane's 8 bytes of half a warp use all banks. */
static inline BR_HD unsigned br_fused_narrow(unsigned slot, unsigned row, unsigned q)
{
    return BR_FUSED_NARROW + row * 64 + q * 16 + (slot ^ (row / 2 & 1)) * 8;
}

/* U_p is operand a of the second product, [tile of 16 i's][k-step][lane], 16 bytes each, its p's in the order
 * of Y's. Bytes from the start to the two p's from 16 k + 2 pair on, of i (of the block's 96). */
static inline BR_HD unsigned br_fused_weight(unsigned i, unsigned k, unsigned pair)
{
    unsigned q = pair / 2, second = pair % 2 ^ (q & 1), lane = i % 8 * 4 + q;
    return ((i / 16 * 3 + k) * 32 + lane) * 16 + (2 * second + i / 8 % 2) * 4;
}

#endif
