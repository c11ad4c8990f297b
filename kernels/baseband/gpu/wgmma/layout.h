/* layout.h - layouts of the baseband beamformer for Hopper: shared memory, registers, tables.
 *
 * Names: a warpgroup forms `beams` beams by 128 times, of which it holds 64 mt times at once (a piece: mt = 1
 * or 2 products of 64 rows). Dishes come in chunks of 128, a chunk in two halves of 64, a half in two steps
 * of 32 (one product each). */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_LAYOUT_H
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_LAYOUT_H

#include "kernels/common/fragments.h"

/* Time, in a piece, of row 8 upper + (lane / 4) of a warp's 16 rows in product m: what a thread holds are 2
 * mt consecutive times. Bit 2 of the time changes between the two rows that eight lanes read at once, so that
 * these are read from different banks.
 *
 *   mt of 1:  warp1 warp0 row2 row0 row1 upper <-> t5 t4 t3 t2 t1 t0
 *
 *   mt of 2:  warp1 warp0 row2 row1 row0 m upper <-> t6 t5 t4 t3 t2 t1 t0 */
static inline BR_HD unsigned br_hopper_time(unsigned mt, unsigned m, unsigned upper, unsigned lane,
                                            unsigned warp)
{
    unsigned row = lane / 4;
    return mt == 1 ? upper | br_bit(row, 1) << 1 | br_bit(row, 0) << 2 | br_bit(row, 2) << 3 | warp << 4
                   : upper | m << 1 | row << 2 | warp << 5;
}

/* Dish, in a half of 64, of the tensor core's k (0 to 31) in a step: chosen so that a thread's bytes of a row
 * are 16 consecutive dishes.
 *
 *   dish of k:  k3 k2 step k4 k1 k0 <-> d5 d4 d3 d2 d1 d0 */
static inline BR_HD unsigned br_hopper_dish(unsigned step, unsigned k)
{
    return (k / 4 % 4) * 16 + step * 8 + k / 16 * 4 + k % 4;
}

/* The inverse: step in .row, k in .column. */
static inline BR_HD struct br_cell br_hopper_k(unsigned dish)
{
    return br_cell(dish / 8 % 2, dish / 4 % 2 * 16 + dish / 16 * 4 + dish % 4);
}

/* Byte offset, in a stage (a piece of 64 mt times by 128 dishes), of 16 dishes: number 0 to 7. As the tensor
 * memory accelerator writes it with its 128-byte swizzle. */
static inline BR_HD unsigned br_hopper_field(unsigned time, unsigned sixteen)
{
    return br_swizzle_128_bytes(time * 128 + sixteen * 16);
}

/* Byte offset, in a chunk's weights, of one weight: part 0 is -im, 1 re, 2 im. The columns of the product
 * with the field's real part are parts 1 and 2, those of the product with its imaginary part are parts 0
 * and 1. */
static inline BR_HD unsigned br_hopper_weight(unsigned beams, unsigned part, unsigned beam, unsigned dish)
{
    struct br_cell k = br_hopper_k(dish % 64);
    return br_wgmma_128_place(part * beams + beam, dish / 64 * 64 + k.row * 32 + k.column);
}

/* The same in the kernel for frames of few tiles, which forms 48 beams of a tile's 96 (`upper`: the last
 * 48) and has two parts, 0 is re, 1 im. */
static inline BR_HD unsigned br_hopper_small_weight(unsigned part, unsigned beam, unsigned dish)
{
    return br_hopper_weight(48, part, beam, dish);
}

/* Where, in a chunk's weights [3 parts][96 beams][128 bytes], the box [2][48][128] of those that are
 * wanted begins: part in .row, beam in .column. */
static inline BR_HD struct br_cell br_hopper_small_box(unsigned upper)
{
    return br_cell(1, upper * 48);
}

/* Byte offset in the beams' bytes [beams][128 times] on their way out, with the accelerator's 128-byte
 * swizzle. */
static inline BR_HD unsigned br_hopper_out(unsigned beam, unsigned time)
{
    return br_swizzle_128_bytes(beam * 128 + time);
}

/* Sum number i of a lane's beams / 4, each over its times: the beam. */
static inline BR_HD unsigned br_hopper_beam(unsigned i, unsigned lane)
{
    return i / 2 * 8 + lane % 4 * 2 + i % 2;
}

/* The lanes that add up sums over 16 times differ in these bits of their numbers, one after the other: they
 * are the bits of the time behind those that a lane has itself. */
static inline BR_HD unsigned br_hopper_group_bit(unsigned mt, unsigned halving)
{
    return mt == 1 ? (halving == 0 ? 8 : halving == 1 ? 4 : 16) : (halving == 0 ? 4 : 8);
}

/* Each of them goes on with half of its sums: the first one of `sums` that it has in the end. */
static inline BR_HD unsigned br_hopper_group_first(unsigned mt, unsigned sums, unsigned lane)
{
    unsigned first = 0;
    for (unsigned i = 0; i < (mt == 1 ? 3u : 2u); i++) {
        sums /= 2;
        if (lane & br_hopper_group_bit(mt, i)) first += sums;
    }
    return first;
}

/* Beam whose 64 times of half a tile a lane and the three next to it (those with the same lane / 4) bring to
 * global memory, 16 each: so that 8 lanes, which read at once, have two beams of which the swizzle puts one
 * half of a row in the place of the other's. */
static inline BR_HD unsigned br_hopper_half_beam(unsigned pass, unsigned warp, unsigned lane)
{
    unsigned eighth = lane / 4;
    return pass * 32 + warp * 8 + eighth / 2 + eighth % 2 * 4;
}

#endif
