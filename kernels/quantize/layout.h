/* layout.h - where things stand in the quantizer's fast kernels.
 *
 * A warp quantizes 8 beams of a channel at a time, with all steps of the block in its registers: lane 4 g + q
 * has beam g, and of its steps those that it will write as one piece of up to 16 bytes for every 4 pieces of
 * the beam's row. Pairs of steps are packed as float16, so that a register is what the tensor cores take:
 *
 *   x[steps / 8]  simd: t0  register: the piece (high bits), the pair within it (low bits)  thread: t4..t0
 * <-> g2 g1 g0 q1 q0 with step = piece * 4 S + q * S + 2 * pair + t0, S the steps of one lane in one piece.
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
    unsigned piece = br_quantize_piece_steps(bits, steps), pairs = piece / 2;
    return r / pairs * 4 * piece + q * piece + r % pairs * 2 + half;
}

/* A tile of J in shared memory, [steps][64 beams]: rows of 8 chunks of 16 bytes, 8 beams each. Where chunk
 * `chunk` of step `t` stands, in chunks from the row's start. The 8 rows that a matrix is loaded from (q =
 * 0..3, half = 0, 1 of one register) then take all banks. */
static inline BR_HD unsigned br_quantize_chunk(unsigned bits, unsigned steps, unsigned t, unsigned chunk)
{
    unsigned q = t / br_quantize_piece_steps(bits, steps) % 4;
    return chunk ^ (2 * q + t % 2);
}

/* ---- beams formed and quantized at once (fused.cuh) ----
 *
 * Y[j][t][p] of a block's 4 j's in shared memory, all 256 steps: of a step's 48 p's those of the first two
 * k-steps (of 16) in rows of 64 bytes, those of the third in rows of 32. Within a row lane l % 4 = q of the
 * tensor cores' operands has its 16 or 8 bytes together. The rows' places let a warp that stores 8 j's of a
 * step, or loads 8 steps of a j, use all banks. */

/* Bytes from the start: 16 bytes of lane q for slot j (0 to 3) and step t. */
static inline BR_HD unsigned br_fused_wide(unsigned j, unsigned t, unsigned q)
{
    return j * (256 * 64 + 64) + t * 64 + q * 16;
}

/* 8 bytes of lane q. `bits`: of the levels, which say what steps are loaded together. */
static inline BR_HD unsigned br_fused_narrow(unsigned bits, unsigned j, unsigned t, unsigned q)
{
    unsigned turned = t ^ t / br_quantize_piece_steps(bits, 256) % 2 * 2;
    return 4 * (256 * 64 + 64) + j * (256 * 32 + 32) + turned * 32 + q * 8;
}

#define BR_FUSED_Y_BYTES (4u * (256 * 64 + 64) + 4u * (256 * 32 + 32))

#endif
