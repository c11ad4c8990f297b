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

#endif
