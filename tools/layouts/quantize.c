/* The quantizer's layouts: a tile of J in shared memory and in registers; Y, the field and U_p of the beams
 * that are formed and quantized at once. */
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

/* fused.cuh: Y of a block's two j's, in elements of 8 bytes: 4 p's that a lane takes of a k-step; item: (slot
 * * 256 + step) * 12 + element, which is 2 q + k-step for the first two, 8 + q for the third. */
static void check_middle(struct layouts *report, unsigned bits)
{
    layouts_variant(report, "beams formed and quantized to %u bits", bits);
    struct layouts_region *y = layouts_region(report, LAYOUTS_SHARED, "y", 32 * BR_FUSED_PIECE / 8, 8);
    struct layouts_pass *send = layouts_begin(y, LAYOUTS_WRITE, "products of all blocks");
    for (unsigned n = 0; n < 8 * 4 * 8; n++) {
        /* Of a warp's store 4 lanes go to this block. */
        unsigned row = n % 8, chunk = n / 8 % 4, rank = n / 32, warp = row / 2, turned = warp % 2;
        unsigned step = br_fused_step(bits, rank, chunk, row);
        /* as the kernel has it: a warp's second row and the chunk only add */
        unsigned piece = (rank + chunk * 8) * BR_FUSED_PIECE + row % 2 * 64;
        for (unsigned h = 0; h < 2; h++) {
            struct layouts_access wide = {.bytes = 16};
            unsigned slot = h ^ turned;
            for (unsigned q = 0; q < 4; q++)
                layouts_lane_items(&wide, q, piece + br_fused_wide(slot, 2 * warp, q),
                                   (slot * 256 + step) * 12 + 2 * q);
            layouts_access(send, &wide);
        }
        struct layouts_access narrow = {.bytes = 16, .items = true};
        for (unsigned q = 0; q < 4; q++) {
            layouts_lane(&narrow, q, piece + br_fused_narrow(turned, 2 * warp, q));
            for (unsigned h = 0; h < 2; h++) narrow.item[q][h] = ((h ^ turned) * 256 + step) * 12 + 8 + q;
        }
        layouts_access(send, &narrow);
    }
    layouts_end(send, 1, 1);

    /* Tile r of 8 columns of the second product is register r of the quantizer's. */
    struct layouts_pass *load = layouts_begin(y, LAYOUTS_READ, "columns of the second product");
    for (unsigned n = 0; n < 2 * 32; n++) {
        struct layouts_access wide = {.bytes = 16}, narrow = {.bytes = 8};
        unsigned r = n % 32, slot = n / 32, chunk = r / 8 % 2 * 2 + r / 16, piece = chunk * 8 + r % 8;
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned row = lane / 4, q = lane % 4;
            unsigned item = (slot * 256 + br_quantize_step(bits, 256, r, row / 2, row % 2)) * 12;
            layouts_lane_items(&wide, lane, piece * BR_FUSED_PIECE + br_fused_wide(slot, row, q),
                               item + 2 * q);
            layouts_lane_items(&narrow, lane, piece * BR_FUSED_PIECE + br_fused_narrow(slot, row, q),
                               item + 8 + q);
        }
        layouts_access(load, &wide);
        layouts_access(load, &narrow);
    }
    layouts_end(load, 1, 1);
    /* Half a block is a block of half the steps. */
    for (unsigned n = 0; n < 2 * 16 * 4 * 2; n++) {
        unsigned simd = n % 2, q = n / 2 % 4, r = n / 8 % 16, half = n / 128;
        layouts_expect(report,
                       br_quantize_step(bits, 256, half * 16 + r, q, simd) ==
                           half * 128 + br_quantize_step(bits, 128, r, q, simd),
                       "register %u, lane %u of half %u", r, q, half);
    }
}

/* fused.cuh: a step's field of 48 x 48 cells; item: p * 48 + q. */
static void check_field(struct layouts *report)
{
    enum { CELLS = BR_FUSED_CELLS };
    struct layouts_region *field =
        layouts_region(report, LAYOUTS_SHARED, "field", BR_FUSED_STEP_BYTES / 2, 2);
    for (unsigned piece = 1; piece < BR_FUSED_PIECES; piece++)
        layouts_padding(field, br_fused_row(br_fused_first_p(piece), 2 * CELLS) / 2 - 8, 8);
    struct layouts_pass *copy = layouts_begin(field, LAYOUTS_WRITE, "pieces of rows");
    for (unsigned n = 0; n < CELLS * CELLS / 8; n++) {
        struct layouts_access access = {.bytes = 16};
        unsigned p = n * 8 / CELLS, q = n * 8 % CELLS;
        layouts_lane_items(&access, 0, br_fused_row(p, 2 * CELLS) + 2 * q, n * 8);
        layouts_access(copy, &access);
    }
    layouts_end(copy, 1, 1);
    struct layouts_pass *load = layouts_begin(field, LAYOUTS_READ, "columns of the first product");
    for (unsigned n = 0; n < 6; n += 2)
        for (unsigned k = 0; k < 3; k++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned p = br_fused_p(n + lane / 16, lane % 8), octet = 2 * k + lane / 8 % 2;
                layouts_lane_items(&access, lane, br_fused_row(p, 2 * CELLS) + octet * 16,
                                   p * CELLS + octet * 8);
            }
            layouts_access(load, &access);
        }
    layouts_end(load, 1, 1);
}

/* fused.cuh: U_p of 96 i's, in pairs of p's; item: i * 24 + pair. */
static void check_weights(struct layouts *report)
{
    struct layouts_region *weights = layouts_region(report, LAYOUTS_SHARED, "U_p", 6 * 3 * 32 * 4, 4);
    struct layouts_pass *put = layouts_begin(weights, LAYOUTS_WRITE, "fragments");
    layouts_allow_wavefronts(put, 4, "once for all rounds of a part");
    for (unsigned n = 0; n < 6 * 3 * 4; n++) {
        struct layouts_access access = {.bytes = 4};
        unsigned r = n % 4, tile = n / 4 % 6, k = n / 24;
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned i = tile * 16 + r % 2 * 8 + lane / 4, pair = r / 2 * 4 + lane % 4;
            layouts_lane_items(&access, lane, br_fused_weight(i, k, pair), i * 24 + k * 8 + pair);
        }
        layouts_access(put, &access);
    }
    layouts_end(put, 1, 1);
    /* Operand a: rows g and g + 8, the p's of columns 2 q and 2 q + 1 of the first product's tile 2 k, then
     * of tile 2 k + 1: those that the lane has of Y. */
    struct layouts_pass *load = layouts_begin(weights, LAYOUTS_READ, "rows of the second product");
    for (unsigned n = 0; n < 6 * 3; n++) {
        struct layouts_access access = {.bytes = 16, .items = true};
        unsigned tile = n / 3, k = n % 3;
        for (unsigned lane = 0; lane < 32; lane++) {
            layouts_lane(&access, lane, (n * 32 + lane) * 16);
            for (unsigned r = 0; r < 4; r++)
                access.item[lane][r] =
                    (tile * 16 + r % 2 * 8 + lane / 4) * 24 + br_fused_p(2 * k + r / 2, 2 * (lane % 4)) / 2;
        }
        layouts_access(load, &access);
    }
    layouts_end(load, 1, 1);
    for (unsigned n = 0; n < 6; n++)
        for (unsigned q = 0; q < 4; q++)
            layouts_expect(report, br_fused_p(n, 2 * q + 1) == br_fused_p(n, 2 * q) + 1,
                           "columns %u and %u of tile %u are neighbours", 2 * q, 2 * q + 1, n);
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
    check_field(report);
    check_weights(report);
}
