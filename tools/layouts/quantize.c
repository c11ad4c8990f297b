/* The quantizer's layouts: a tile of J in shared memory and in registers; Y of the beams that are formed and
 * quantized at once. */
#include "kernels/quantize/layout.h"
#include "tools/layouts/check.h"

enum { THREADS = 256, WARPS = THREADS / 32 };

struct variant {
    unsigned bits, steps;
};

/* half, register, lane -> step, beam */
static void assign(const void *context, const unsigned *in, unsigned *out)
{
    const struct variant *v = context;
    out[0] = br_quantize_step(v->bits, v->steps, in[1], in[2] % 4, in[0]);
    out[1] = in[2] / 4;
}

/* tile.cuh: 64 beams, in chunks of 8; item: step * 8 + chunk. */
static void check_tile(struct layouts *report, const struct variant *v)
{
    layouts_variant(report, "rows of %u steps to %u bits", v->steps, v->bits);
    struct layouts_region *tile = layouts_region(report, LAYOUTS_SHARED, "tile", v->steps * 8, 16);
    struct layouts_pass *copy = layouts_begin(tile, LAYOUTS_WRITE, "copy");
    for (unsigned t = 0; t < v->steps; t += THREADS / 8)
        for (unsigned warp = 0; warp < WARPS; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned thread = 32 * warp + lane, first = thread / 8, chunk = thread % 8;
                /* as the kernel has it: the place is linear in the step's bits */
                unsigned to = (first * 8 + br_quantize_chunk(v->bits, v->steps, first, chunk)) * 16;
                unsigned at = (to ^ br_quantize_chunk(v->bits, v->steps, t, 0) * 16) + t * 128;
                layouts_lane_items(&access, lane, at, (t + first) * 8 + chunk);
            }
            layouts_access(copy, &access);
        }
    layouts_end(copy, 1, 1);

    struct layouts_pass *load = layouts_begin(tile, LAYOUTS_READ, "load of matrices");
    for (unsigned warp = 0; warp < WARPS; warp++)
        for (unsigned r = 0; r < v->steps / 8; r += 4) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned q = lane % 8 / 2, half = lane % 2;
                unsigned first = br_quantize_step(v->bits, v->steps, lane / 8, q, half);
                unsigned from = (first * 8 + br_quantize_chunk(v->bits, v->steps, first, warp)) * 16;
                /* row `lane % 8` of matrix `lane / 8`: what lanes with q get in this half of register r +
                 * lane / 8 */
                unsigned step = br_quantize_step(v->bits, v->steps, r + lane / 8, q, half);
                layouts_lane_items(&access, lane, from + br_quantize_step(v->bits, v->steps, r, 0, 0) * 128,
                                   step * 8 + warp);
            }
            layouts_access(load, &access);
        }
    layouts_end(load, 1, 1);
}

/* tile.cuh and fused.cuh: a warp writes 4 lanes' pieces of a beam's row side by side; item: step. */
static void check_rows(struct layouts *report, const struct variant *v)
{
    unsigned piece = br_quantize_piece_steps(v->bits, v->steps), bytes = piece * v->bits / 8,
             row = v->steps * v->bits / 8;
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "rows", 8 * row, 1);
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "levels");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, "a lane has 16 bytes at a time of each 64 of its beam's row");
    for (unsigned part = 0; part < row / (4 * bytes); part++) {
        struct layouts_access access = {.bytes = bytes};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane, lane / 4 * row + (part * 4 + lane % 4) * bytes);
        layouts_access(store, &access);
        /* what the lane has in its registers is what belongs there */
        for (unsigned q = 0; q < 4; q++) {
            unsigned step = br_quantize_step(v->bits, v->steps, part * piece / 2, q, 0);
            layouts_expect(report, step * v->bits / 8 == (part * 4 + q) * bytes,
                           "piece %u of lane %u begins with step %u", part, q, step);
        }
    }
    layouts_end(store, 1, 1);
}

/* fused.cuh: Y of a block's 4 j's, in elements of 8 bytes; item: (slot * 256 + step) * 12 + element. */
static void check_middle(struct layouts *report, unsigned bits)
{
    layouts_variant(report, "beams formed and quantized to %u bits", bits);
    struct layouts_region *y = layouts_region(report, LAYOUTS_SHARED, "y", BR_FUSED_Y_BYTES / 8, 8);
    for (unsigned slot = 0; slot < 4; slot++) {
        layouts_padding(y, br_fused_wide(slot, 256, 0) / 8, 8);
        layouts_padding(y, br_fused_narrow(slot, 256, 0) / 8, 4);
    }
    struct layouts_pass *send = layouts_begin(y, LAYOUTS_WRITE, "products of all blocks");
    for (unsigned t = 0; t < 256; t++)
        for (unsigned h = 0; h < 2; h++) {
            /* Of a warp's store the rows g, g + 1 (8 lanes) go to this block: any pair is like the first. */
            struct layouts_access wide = {.bytes = 16}, narrow = {.bytes = 8};
            for (unsigned lane = 0; lane < 8; lane++) {
                unsigned slot = 2 * h + lane / 4 % 2, q = lane % 4, item = (slot * 256 + t) * 12;
                /* as the kernel has it: slots, rows and lanes only add */
                unsigned row = br_fused_row(bits, t / 32 * 32) + br_fused_row(bits, t % 32);
                layouts_lane_items(&wide, lane,
                                   br_fused_wide(lane / 4 % 2, 0, q) + row * 64 + br_fused_wide(2 * h, 0, 0),
                                   item + 2 * q);
                layouts_lane_items(&narrow, lane,
                                   br_fused_narrow(lane / 4 % 2, 0, q) + row * 32 +
                                       (br_fused_narrow(2 * h, 0, 0) - br_fused_narrow(0, 0, 0)),
                                   item + 8 + q);
            }
            layouts_access(send, &wide);
            layouts_access(send, &narrow);
        }
    layouts_end(send, 1, 1);

    struct layouts_pass *load = layouts_begin(y, LAYOUTS_READ, "columns of the second product");
    for (unsigned slot = 0; slot < 4; slot++)
        for (unsigned half = 0; half < 2; half++)
            for (unsigned r = 0; r < 16; r++) {
                struct layouts_access wide = {.bytes = 16}, narrow = {.bytes = 8};
                unsigned row = br_fused_row(bits, br_quantize_step(bits, 256, r, 0, 0));
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned column = lane / 4, q = lane % 4;
                    unsigned first = br_fused_row(
                        bits, br_quantize_step(bits, 256, 0, column / 2, column % 2) + half * 128);
                    unsigned step = br_quantize_step(bits, 256, half * 16 + r, column / 2, column % 2),
                             item = (slot * 256 + step) * 12;
                    /* as the kernel has it: register r's part of the row only adds */
                    layouts_lane_items(&wide, lane, br_fused_wide(slot, first, q) + row * 64, item + 2 * q);
                    layouts_lane_items(&narrow, lane, br_fused_narrow(slot, first, q) + row * 32,
                                       item + 8 + q);
                }
                layouts_access(load, &wide);
                layouts_access(load, &narrow);
            }
    layouts_end(load, 1, 1);
}

void layouts_quantize(struct layouts *report);
void layouts_quantize(struct layouts *report)
{
    static const struct variant variants[] = {{4, 64}, {4, 128}, {4, 256}, {8, 64}, {8, 128}, {8, 256}};
    for (unsigned i = 0; i < sizeof variants / sizeof *variants; i++) {
        check_tile(report, &variants[i]);
        check_rows(report, &variants[i]);
    }
    layouts_variant(report, "registers");
    layouts_assignment(report, "x, 256 steps, 4 bits",
                       "b0 <-> t2, r4 r3 r2 r1 r0 <-> t7 t4 t3 t0 t1, l4..l0 <-> g2 g1 g0 t6 t5", "b r l",
                       "t g", assign, &variants[2]);
    layouts_assignment(report, "x, 256 steps, 8 bits",
                       "b0 <-> t1, r4 r3 r2 r1 r0 <-> t7 t6 t3 t2 t0, l4..l0 <-> g2 g1 g0 t5 t4", "b r l",
                       "t g", assign, &variants[5]);
    layouts_assignment(report, "x, 128 steps, 4 bits",
                       "b0 <-> t2, r3 r2 r1 r0 <-> t4 t3 t0 t1, l4..l0 <-> g2 g1 g0 t6 t5", "b r l", "t g",
                       assign, &variants[1]);
    check_middle(report, 4);
    check_middle(report, 8);
}
