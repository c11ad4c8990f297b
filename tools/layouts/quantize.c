/* The layouts of the quantizer: a tile of J in shared memory and in registers. */
#include "kernels/quantize/gpu/layout.h"
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
                /* as in the kernel: the place is linear in the bits of the step */
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
                /* row `lane % 8` of matrix `lane / 8`: the data that lanes with q receive in this half of
                 * register r + lane / 8 */
                unsigned step = br_quantize_step(v->bits, v->steps, r + lane / 8, q, half);
                layouts_lane_items(&access, lane, from + br_quantize_step(v->bits, v->steps, r, 0, 0) * 128,
                                   step * 8 + warp);
            }
            layouts_access(load, &access);
        }
    layouts_end(load, 1, 1);
}

/* rows.cuh: one validity byte per step, in the order of the words of levels and in that of the registers.
 * Each byte is read for the 8 beams of a warp. */
static void check_validity(struct layouts *report, const struct variant *v)
{
    struct layouts_region *valid = layouts_region(report, LAYOUTS_SHARED, "validity", v->steps, 1);
    layouts_fill(valid);
    struct layouts_pass *words = layouts_begin(valid, LAYOUTS_READ, "of words");
    for (unsigned first = 0; first < v->steps / 8; first += 16 / v->bits)
        for (unsigned half = 0; half < 8 / v->bits; half++) {
            struct layouts_access access = {.bytes = 4};
            for (unsigned lane = 0; lane < 32; lane++)
                layouts_lane(&access, lane,
                             br_quantize_step(v->bits, v->steps, first, lane % 4, 0) + 4 * half);
            layouts_access(words, &access);
        }
    layouts_end(words, 8, 8);

    struct layouts_pass *halves = layouts_begin(valid, LAYOUTS_READ, "of halves of registers");
    for (unsigned r = 0; r < v->steps / 8; r++)
        for (unsigned half = 0; half < 2; half++) {
            struct layouts_access access = {.bytes = 1};
            for (unsigned lane = 0; lane < 32; lane++)
                layouts_lane(&access, lane, br_quantize_step(v->bits, v->steps, r, lane % 4, half));
            layouts_access(halves, &access);
        }
    layouts_end(halves, 8, 8);
}

/* tile.cuh and quantize_beams.cuh: 4 lanes of a warp write adjacent pieces of a beam's row; item: step. */
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
        /* the registers of the lane hold the right steps */
        for (unsigned q = 0; q < 4; q++) {
            unsigned step = br_quantize_step(v->bits, v->steps, part * piece / 2, q, 0);
            layouts_expect(report, step * v->bits / 8 == (part * 4 + q) * bytes,
                           "piece %u of lane %u begins with step %u", part, q, step);
        }
    }
    layouts_end(store, 1, 1);
}

void layouts_quantize(struct layouts *report);
void layouts_quantize(struct layouts *report)
{
    static const struct variant variants[] = {{4, 64}, {4, 128}, {4, 256}, {8, 64}, {8, 128}, {8, 256}};
    for (unsigned i = 0; i < sizeof variants / sizeof *variants; i++) {
        check_tile(report, &variants[i]);
        check_validity(report, &variants[i]);
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
}
