/* The quantizer's layouts: a tile of J in shared memory and in registers; Y, the field and U_p of the beams
 * that are formed and quantized at once. */
#include "kernels/common/fragments.h"
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

/* rows.cuh: which steps are there, a byte each, as words of levels need them, and as registers do: each byte
 * is read for the 8 beams of a warp. */
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

/* tile.cuh and quantize_beams.cuh: a warp writes 4 lanes' pieces of a beam's row side by side; item: step. */
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

/* quantize_beams.cuh: Y of a block's two j's, in elements of 16 bytes: 8 p's; item: (slot * 256 + step) *
 * 6 + p / 8.
 * */
static void check_middle(struct layouts *report, unsigned bits)
{
    layouts_variant(report, "beams formed and quantized to %u bits", bits);
    struct layouts_region *y = layouts_region(report, LAYOUTS_SHARED, "y", 32 * BR_FUSED_PIECE / 16, 16);
    struct layouts_pass *send = layouts_begin(y, LAYOUTS_WRITE, "products of all blocks");
    for (unsigned n = 0; n < 8 * 4 * 4; n++) {
        /* Of a warp's store 4 lanes go to this block. */
        unsigned warp = n % 4, chunk = n / 4 % 4, rank = n / 16, piece = (rank + chunk * 8) * BR_FUSED_PIECE;
        for (unsigned e = 0; e < 3; e++)
            for (unsigned slot = 0; slot < 2; slot++) {
                struct layouts_access access = {.bytes = 16};
                for (unsigned q = 0; q < 4; q++) {
                    unsigned row = 2 * warp + (e < 2 ? e : q / 2),
                             step = br_fused_step(bits, rank, chunk, row);
                    /* as the kernel has it: a warp's second row and the slot only add */
                    unsigned at = e < 2 ? br_fused_wide(0, 2 * warp, q) + e * br_fused_wide(0, 1, 0) +
                                              slot * br_fused_wide(1, 0, 0)
                                        : br_fused_narrow(0, row, q % 2) +
                                              slot * (br_fused_narrow(1, 0, 0) - br_fused_narrow(0, 0, 0));
                    layouts_lane_items(&access, q, piece + at,
                                       (slot * 256 + step) * 6 + (e < 2 ? q : 4 + q % 2));
                }
                layouts_access(send, &access);
            }
    }
    layouts_end(send, 1, 1);

    /* Operand b of the second product: group r of 8 columns is register r of the quantizer's. Of the first
     * four octets of k 64 bytes a row (bits 4 and 5 of an address with bits 7 and 8), of the others 32 (bit 4
     * with bit 7), from where the descriptors begin. */
    struct layouts_pass *load = layouts_begin(y, LAYOUTS_READ, "columns of the second product");
    for (unsigned n = 0; n < 2 * 32 * 6; n++) {
        unsigned octet = n % 6, r = n / 6 % 32, slot = n / 192;
        unsigned start = octet < 4 ? br_fused_wide(slot, 0, 0) : br_fused_narrow(slot, 0, 0);
        struct layouts_access access = {.bytes = 16};
        for (unsigned row = 0; row < 8; row++) {
            unsigned straight = octet < 4 ? row * 64 + octet * 16 : row * 32 + octet % 4 * 16,
                     swizzled = straight ^ (straight >> 3 & (octet < 4 ? 0x30 : 0x10));
            layouts_lane_items(&access, row, r * BR_FUSED_PIECE + start + swizzled,
                               (slot * 256 + br_quantize_step(bits, 256, r, row / 2, row % 2)) * 6 + octet);
        }
        layouts_access(load, &access);
        layouts_expect(report, (r * BR_FUSED_PIECE + start) % (octet < 4 ? 512 : 256) == 0,
                       "octet %u of columns %u begins a pattern", octet, r);
    }
    layouts_end(load, 1, 1);
}

/* quantize_beams.cuh: the fields of two steps of 48 x 48 cells; item: (step * 48 + p) * 48 + q. */
static void check_field(struct layouts *report)
{
    enum { CELLS = BR_FUSED_CELLS, PITCH = 2 * CELLS };
    struct layouts_region *field = layouts_region(report, LAYOUTS_SHARED, "field", BR_FUSED_STEP_BYTES, 2);
    for (unsigned step = 0; step < 2; step++)
        for (unsigned piece = 0; piece < BR_FUSED_PIECES; piece++) {
            unsigned end = br_fused_row(8 * piece + 7, PITCH) + PITCH,
                     next = piece + 1 < BR_FUSED_PIECES ? br_fused_row(8 * piece + 8, PITCH)
                                                        : (unsigned)BR_FUSED_STEP_BYTES;
            layouts_padding(field, (step * BR_FUSED_STEP_BYTES + end) / 2, (next - end) / 2);
        }
    struct layouts_pass *copy = layouts_begin(field, LAYOUTS_WRITE, "pieces of rows");
    for (unsigned piece = 0; piece < BR_FUSED_PIECES; piece += 2)
        for (unsigned i = 0; i < CELLS; i += 8) { /* 16 bytes each, CELLS in a piece */
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned step = lane / 16, p = (piece + lane / 8 % 2) * 8, place = lane % 8 + i;
                layouts_lane_items(&access, lane,
                                   step * BR_FUSED_STEP_BYTES + br_fused_row(p, PITCH) + place * 16,
                                   (step * CELLS + p) * CELLS + place * 8);
            }
            layouts_access(copy, &access);
        }
    layouts_end(copy, 1, 1);
    /* Units 0 and 1: the first 32 p's of a step each, 2: the others of both; the kernel adds 4 rows for every
     * second tile. */
    struct layouts_pass *load = layouts_begin(field, LAYOUTS_READ, "columns of the first product");
    for (unsigned unit = 0; unit < 3; unit++)
        for (unsigned n = 0; n < 4; n += 2)
            for (unsigned k = 0; k < 3; k++) {
                struct layouts_access access = {.bytes = 16};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned column = lane % 8, tile = lane / 16, octet = 2 * k + lane / 8 % 2,
                             step = unit < 2 ? unit : column / 4;
                    unsigned row =
                                 br_fused_row(br_fused_p(unit < 2, tile, column), PITCH) + n / 2 * 4 * PITCH,
                             p = br_fused_p(unit < 2, n + tile, column);
                    layouts_lane_items(&access, lane, step * BR_FUSED_STEP_BYTES + row + octet * 16,
                                       (step * CELLS + p) * CELLS + octet * 8);
                }
                layouts_access(load, &access);
            }
    layouts_end(load, 1, 1);
}

/* quantize_beams.cuh: a lane of the first product ends up with what it sends in 16 bytes, 8 p's in a row,
 * and with what stands in operand a of the second product where these stand in operand b: p's in their
 * order. */
static void check_products(struct layouts *report)
{
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned n = 0; n < 4; n++)
            for (unsigned e = 0; e < 2; e++) {
                struct br_cell c = br_mma_c(e, lane);
                unsigned q = lane % 4;
                layouts_expect(report,
                               br_fused_p(true, n, c.column) == 8 * q + 2 * n + e &&
                                   br_fused_p(false, n, c.column) == 32 + 8 * (q % 2) + 2 * n + e,
                               "sum %u of tile %u, lane %u", e, n, lane);
            }
    for (unsigned lane = 0; lane < 128; lane++)
        for (unsigned r = 0; r < 4; r++)
            for (unsigned e = 0; e < 2; e++) {
                struct br_cell a = br_wgmma_f16_a(r, e, lane);
                layouts_expect(report,
                               a.row == lane / 32 * 16 + r % 2 * 8 + lane % 32 / 4 &&
                                   a.column == r / 2 * 8 + lane % 4 * 2 + e,
                               "U_p in register %u of lane %u", r, lane);
            }
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
    check_middle(report, 4);
    check_middle(report, 8);
    check_field(report);
    check_products(report);
}
