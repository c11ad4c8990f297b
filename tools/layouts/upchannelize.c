/* The filterbank's tensor-core kernels: shared memory of folded.cuh, and what warps load and store in both.
 */
#include "kernels/common/fragments.h"
#include "kernels/upchannelize/layout.h"
#include "tools/layouts/check.h"

void layouts_upchannelize(struct layouts *report);

enum { BAND = BR_BAND, SPAN = BR_FOLD_SPAN, TILES = BR_FOLD_TILES };

static const char pieces[] = "a warp has 64 samples or fewer of a row; the block's other warps, or its "
                             "neighbour, have the line's rest";

/* ---- banded ---- */

/* A chunk of a field of one channel: every sample is loaded once, by the lane that has it in b; outputs are
 * stored once. */
static void banded(struct layouts *report, unsigned tiles)
{
    unsigned span = tiles * 8;
    layouts_variant(report, "banded, %u tiles", tiles);
    struct layouts_region *e = layouts_region(report, LAYOUTS_GLOBAL, "e", (size_t)BAND * span, 1);
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)BAND * span, 1);
    layouts_fill(e);
    struct layouts_pass *read = layouts_begin(e, LAYOUTS_READ, "load_band");
    struct layouts_pass *write = layouts_begin(out, LAYOUTS_WRITE, "store");
    layouts_allow_pieces(read, LAYOUTS_SECTOR, pieces);
    layouts_allow_pieces(write, LAYOUTS_SECTOR, pieces);
    for (unsigned i = 0; i < 4; i++) {
        struct layouts_access access = {.bytes = tiles};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane,
                         (int64_t)(4 * i + lane % 4) * span + br_upch_sample(tiles, lane / 4, 0));
        layouts_access(read, &access);
    }
    layouts_end(read, 1, 1);
    for (unsigned high = 0; high < 2; high++) { /* rows u and U-1-u of 8 pairs, as of U = 16 */
        struct layouts_access access = {.bytes = 2 * tiles};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned u = lane / 4, row = high ? 15 - u : u;
            layouts_lane(&access, lane, (int64_t)row * span + br_upch_sample(tiles, lane % 4 * 2, 0));
        }
        layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);
    /* word i of a lane is time 4 i + lane % 4: the times of its rows of b, in order */
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned reg = 0; reg < 2; reg++)
            for (unsigned part = 0; part < 2; part++) {
                struct br_cell b = br_mma_f16_b(reg, part, lane);
                layouts_expect(report,
                               br_band_time(b.row) == 4 * (2 * reg + part) + lane % 4 && b.column == lane / 4,
                               "row %u of b is time %u", b.row, br_band_time(b.row));
            }
    /* the second sample of a tile's register c is the lane's upper half of bytes */
    for (unsigned q = 0; q < 4; q++)
        for (unsigned tile = 0; tile < tiles; tile++)
            layouts_expect(report,
                           br_upch_sample(tiles, 2 * q + 1, tile) ==
                                   br_upch_sample(tiles, 2 * q, tile) + tiles &&
                               br_upch_sample(tiles, 2 * q, tile) == 2 * q * tiles + tile,
                           "samples of tile %u are not beside each other", tile);
}

/* ---- folded ---- */

static int64_t item(unsigned factor, unsigned plane, unsigned pair, unsigned sample)
{
    return ((int64_t)plane * (factor / 4) + pair) * SPAN + sample;
}

static void folded(struct layouts *report, unsigned factor)
{
    unsigned warps = factor / 8, steps = factor / 32;
    layouts_variant(report, "folded, U = %u", factor);
    struct layouts_region *field = layouts_region(report, LAYOUTS_SHARED, "field", br_fold_words(factor), 4);
    struct layouts_pass *write = layouts_begin(field, LAYOUTS_WRITE, "fold");
    for (unsigned plane = 0; plane < 4; plane++)
        for (unsigned warp = 0; warp < warps; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned thread = warp * 32 + lane, quad = thread % 16, pair = thread / 16;
                layouts_lane_items(&access, lane, 4 * (int64_t)br_fold_place(factor, plane, pair, quad),
                                   item(factor, plane, pair, quad * 4));
            }
            layouts_access(write, &access);
        }
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(field, LAYOUTS_READ, "transform_fold");
    for (unsigned warp = 0; warp < warps; warp++) {
        struct br_fold_share share = br_fold_share(warp);
        for (unsigned step = 0; step < steps; step++)
            for (unsigned plane = 0; plane < 4; plane++)
                for (unsigned reg = 0; reg < 2; reg++) {
                    struct layouts_access access = {.bytes = 16};
                    for (unsigned lane = 0; lane < 32; lane++) {
                        /* rows of b are 16 step + 2 pair of the folded field, its columns 4 samples each
                         * (tiles) */
                        struct br_cell b = br_mma_f16_b(reg, 0, lane);
                        unsigned pair = step * 8 + b.row / 2;
                        layouts_lane_items(
                            &access, lane,
                            4 * (int64_t)br_fold_place(factor, plane, step * 8 + reg * 4 + lane % 4,
                                                       share.half * 8 + lane / 4),
                            item(factor, plane, pair,
                                 share.half * (SPAN / 2) + br_upch_sample(TILES, b.column, 0)));
                    }
                    layouts_access(read, &access);
                }
    }
    layouts_end(read, 2 * steps, 2 * steps); /* of a turn's two output steps, and by every 16 rows */
    /* every (step, rows, half) has a warp */
    unsigned seen = 0;
    for (unsigned warp = 0; warp < warps; warp++) {
        struct br_fold_share share = br_fold_share(warp);
        layouts_expect(report, share.rows < steps, "warp %u has no rows", warp);
        seen |= 1u << (share.rows * 4 + share.step * 2 + share.half);
    }
    layouts_expect(report, seen == (1u << warps) - 1 || warps == 32, "warps share out a turn twice");
    /* k and its partner: each time once */
    unsigned times = 0;
    for (unsigned k = 0; k < factor / 2; k++) times += k + br_fold_partner(factor, k);
    layouts_expect(report, times == factor * (factor - 1) / 2, "partners leave out a time");

    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)factor * SPAN, 1);
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "store");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, pieces);
    for (unsigned warp = 0; warp < warps; warp++) {
        struct br_fold_share share = br_fold_share(warp);
        if (share.step != 0) continue;
        for (unsigned upper = 0; upper < 2; upper++)
            for (unsigned high = 0; high < 2; high++) {
                struct layouts_access access = {.bytes = 8};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned u = share.rows * 16 + lane / 4 + 8 * upper, row = high ? factor - 1 - u : u;
                    layouts_lane(&access, lane,
                                 (int64_t)row * SPAN + share.half * (SPAN / 2) +
                                     br_upch_sample(TILES, lane % 4 * 2, 0));
                }
                layouts_access(store, &access);
            }
    }
    layouts_end(store, 1, 1);
}

void layouts_upchannelize(struct layouts *report)
{
    banded(report, 8);
    banded(report, 4);
    for (unsigned factor = 32; factor <= 128; factor *= 2) folded(report, factor);
}
