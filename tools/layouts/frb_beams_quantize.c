/* The layouts of beams that are formed and quantized at once: Y, the field and U_p. */
#include "kernels/common/fragments.h"
#include "kernels/frb_beams_quantize/gpu/layout.h"
#include "tools/layouts/check.h"

/* quantize_beams.cuh: Y of a block's two j's, in elements of 16 bytes: 8 p's; item: (slot * 256 + step) *
 * 6 + p / 8.
 * */
static void check_middle(struct layouts *report, unsigned bits)
{
    layouts_variant(report, "beams formed and quantized to %u bits", bits);
    struct layouts_region *y =
        layouts_region(report, LAYOUTS_SHARED, "y", 32 * BR_FRB_BEAMS_QUANTIZE_PIECE / 16, 16);
    struct layouts_pass *send = layouts_begin(y, LAYOUTS_WRITE, "products of all blocks");
    for (unsigned n = 0; n < 8 * 4 * 4; n++) {
        /* Of a warp's store 4 lanes go to this block. */
        unsigned warp = n % 4, chunk = n / 4 % 4, rank = n / 16,
                 piece = (rank + chunk * 8) * BR_FRB_BEAMS_QUANTIZE_PIECE;
        for (unsigned e = 0; e < 3; e++)
            for (unsigned slot = 0; slot < 2; slot++) {
                struct layouts_access access = {.bytes = 16};
                for (unsigned q = 0; q < 4; q++) {
                    unsigned row = 2 * warp + (e < 2 ? e : q / 2),
                             step = br_frb_beams_quantize_step(bits, rank, chunk, row);
                    /* as the kernel has it: a warp's second row and the slot only add */
                    unsigned at = e < 2 ? br_frb_beams_quantize_wide(0, 2 * warp, q) +
                                              e * br_frb_beams_quantize_wide(0, 1, 0) +
                                              slot * br_frb_beams_quantize_wide(1, 0, 0)
                                        : br_frb_beams_quantize_narrow(0, row, q % 2) +
                                              slot * (br_frb_beams_quantize_narrow(1, 0, 0) -
                                                      br_frb_beams_quantize_narrow(0, 0, 0));
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
        unsigned start =
            octet < 4 ? br_frb_beams_quantize_wide(slot, 0, 0) : br_frb_beams_quantize_narrow(slot, 0, 0);
        struct layouts_access access = {.bytes = 16};
        for (unsigned row = 0; row < 8; row++) {
            unsigned straight = octet < 4 ? row * 64 + octet * 16 : row * 32 + octet % 4 * 16,
                     swizzled = straight ^ (straight >> 3 & (octet < 4 ? 0x30 : 0x10));
            layouts_lane_items(&access, row, r * BR_FRB_BEAMS_QUANTIZE_PIECE + start + swizzled,
                               (slot * 256 + br_quantize_step(bits, 256, r, row / 2, row % 2)) * 6 + octet);
        }
        layouts_access(load, &access);
        layouts_expect(report, (r * BR_FRB_BEAMS_QUANTIZE_PIECE + start) % (octet < 4 ? 512 : 256) == 0,
                       "octet %u of columns %u begins a pattern", octet, r);
    }
    layouts_end(load, 1, 1);
}

/* quantize_beams.cuh: the fields of two steps of 48 x 48 cells; item: (step * 48 + p) * 48 + q. */
static void check_field(struct layouts *report)
{
    enum { CELLS = BR_FRB_BEAMS_QUANTIZE_CELLS, PITCH = 2 * CELLS };
    struct layouts_region *field =
        layouts_region(report, LAYOUTS_SHARED, "field", BR_FRB_BEAMS_QUANTIZE_STEP_BYTES, 2);
    for (unsigned step = 0; step < 2; step++)
        for (unsigned piece = 0; piece < BR_FRB_BEAMS_QUANTIZE_PIECES; piece++) {
            unsigned end = br_frb_beams_quantize_row(8 * piece + 7, PITCH) + PITCH,
                     next = piece + 1 < BR_FRB_BEAMS_QUANTIZE_PIECES
                                ? br_frb_beams_quantize_row(8 * piece + 8, PITCH)
                                : (unsigned)BR_FRB_BEAMS_QUANTIZE_STEP_BYTES;
            layouts_padding(field, (step * BR_FRB_BEAMS_QUANTIZE_STEP_BYTES + end) / 2, (next - end) / 2);
        }
    struct layouts_pass *copy = layouts_begin(field, LAYOUTS_WRITE, "pieces of rows");
    for (unsigned piece = 0; piece < BR_FRB_BEAMS_QUANTIZE_PIECES; piece += 2)
        for (unsigned i = 0; i < CELLS; i += 8) { /* 16 bytes each, CELLS in a piece */
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned step = lane / 16, p = (piece + lane / 8 % 2) * 8, place = lane % 8 + i;
                layouts_lane_items(&access, lane,
                                   step * BR_FRB_BEAMS_QUANTIZE_STEP_BYTES +
                                       br_frb_beams_quantize_row(p, PITCH) + place * 16,
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
                    unsigned row = br_frb_beams_quantize_row(br_frb_beams_quantize_p(unit < 2, tile, column),
                                                             PITCH) +
                                   n / 2 * 4 * PITCH,
                             p = br_frb_beams_quantize_p(unit < 2, n + tile, column);
                    layouts_lane_items(&access, lane,
                                       step * BR_FRB_BEAMS_QUANTIZE_STEP_BYTES + row + octet * 16,
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
                               br_frb_beams_quantize_p(true, n, c.column) == 8 * q + 2 * n + e &&
                                   br_frb_beams_quantize_p(false, n, c.column) ==
                                       32 + 8 * (q % 2) + 2 * n + e,
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

void layouts_frb_beams_quantize(struct layouts *report);
void layouts_frb_beams_quantize(struct layouts *report)
{
    check_middle(report, 4);
    check_middle(report, 8);
    check_field(report);
    check_products(report);
}
