/* The filterbank's tensor-core kernels: shared memory of folded.cuh, warpgroup.cuh and twostep.cuh, and what
 * warps load and store. */
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

/* ---- Hopper ---- */

enum { PIECE = BR_WALK_PIECE, WALK = BR_WALK_SPAN };

/* A warp's 16 times of its 32 samples: from global memory, `apart` rows from one to the next, to shared
 * memory and to registers, where they must be the operand's. */
static void staged(struct layouts *report, unsigned apart)
{
    struct layouts_region *e = layouts_region(report, LAYOUTS_GLOBAL, "e", (size_t)BAND * apart * PIECE, 1);
    struct layouts_region *stage = layouts_region(report, LAYOUTS_SHARED, "staged", BAND * PIECE, 1);
    layouts_fill(e);
    struct layouts_pass *load = layouts_begin(e, LAYOUTS_READ, "stage_times");
    layouts_allow_pieces(load, LAYOUTS_SECTOR, pieces);
    struct layouts_access access = {.bytes = 16}, to = {.bytes = 16};
    for (unsigned lane = 0; lane < 32; lane++) {
        layouts_lane(&access, lane, (int64_t)(lane / 2) * apart * PIECE + lane % 2 * 16);
        layouts_lane_items(&to, lane, br_walk_stage(lane / 2, lane % 2 * 16),
                           (int64_t)(lane / 2) * PIECE + lane % 2 * 16);
    }
    layouts_access(load, &access);
    layouts_end(load, 0, 1);
    struct layouts_pass *write = layouts_begin(stage, LAYOUTS_WRITE, "stage_times");
    layouts_access(write, &to);
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(stage, LAYOUTS_READ, "read_staged");
    for (unsigned i = 0; i < 4; i++) {
        struct layouts_access word = {.bytes = 4};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned first = br_walk_sample(lane / 4, 0);
            struct br_cell a = br_mma_f16_a(i / 2 * 2, i % 2, lane); /* its times */
            layouts_lane_items(&word, lane, br_walk_stage(lane % 4, first) + br_walk_stage(4 * i, 0),
                               (int64_t)br_band_time(a.column) * PIECE + first);
        }
        layouts_access(read, &word);
    }
    layouts_end(read, 1, 1);
    /* rows of a's tiles are a lane's four samples beside each other */
    for (unsigned row = 0; row < 16; row++)
        for (unsigned tile = 0; tile < 2; tile++)
            layouts_expect(report, br_walk_sample(row, tile) == row % 8 * 4 + tile * 2 + row / 8,
                           "row %u of tile %u is sample %u", row, tile, br_walk_sample(row, tile));
}

/* Columns of coefficients, K-major in core matrices: written plainly, read by wgmma from any position of the
 * ring. */
static void matrix(struct layouts *report, unsigned lags, unsigned rows)
{
    unsigned columns = (2 * lags - 1) * rows;
    struct layouts_region *b = layouts_region(report, LAYOUTS_SHARED, "matrix", columns * BAND, 2);
    layouts_fill(b);
    struct layouts_pass *read = layouts_begin(b, LAYOUTS_READ, "products");
    for (unsigned ring = 0; ring < lags; ring++) {
        unsigned start = br_walk_block(lags, ring) * rows;
        /* block `ring` of the ring has lag 0, the one after it lag 1 */
        for (unsigned block = 0; block < lags; block++)
            layouts_expect(report, (start / rows + block) % lags == (block + lags - ring) % lags,
                           "block %u has another lag when the ring is at %u", block, ring);
        for (unsigned column = 0; column < lags * rows; column += 8)
            for (unsigned k = 0; k < 2; k++) {
                struct layouts_access access = {.bytes = 16};
                for (unsigned lane = 0; lane < 8; lane++)
                    layouts_lane(&access, lane,
                                 br_wgmma_plain_place(start + column + lane, k * 16, 128, 256));
                layouts_access(read, &access);
            }
    }
    layouts_end(read, 0, lags);
}

static void walking(struct layouts *report, unsigned lags, unsigned rows)
{
    layouts_variant(report, "walking, %u lags of %u sums", lags, rows);
    staged(report, 1);
    matrix(report, lags, rows);
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)rows * PIECE, 1);
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "finish");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, pieces);
    for (unsigned group = 0; group < rows / 16; group++)
        for (unsigned k = 0; k < 4; k++) { /* as of U = rows: u and U-1-u of both pairs */
            struct layouts_access access = {.bytes = 4};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned u = group * 8 + lane % 4 * 2 + k % 2, row = k / 2 ? rows - 1 - u : u;
                layouts_lane(&access, lane, (int64_t)row * PIECE + br_walk_sample(lane / 4, 0));
            }
            layouts_access(store, &access);
        }
    layouts_end(store, 1, 1);
}

static void lane_words(struct layouts_access *access, unsigned lane, int64_t at, const int64_t *items,
                       unsigned count)
{
    layouts_lane(access, lane, at);
    access->items = true;
    for (unsigned i = 0; i < count; i++) access->item[lane][i] = items[i];
}

/* The exchange's words: (C, S) of a residue, pair, part and sample. */
static int64_t exchanged(unsigned r, unsigned p, unsigned part, unsigned sample)
{
    return ((int64_t)(r * 8 + p) * 2 + part) * WALK + sample;
}

static void two_steps(struct layouts *report)
{
    layouts_variant(report, "two steps");
    staged(report, BR_TWO_WALKS);
    matrix(report, 4, 16);
    struct layouts_region *field = layouts_region(report, LAYOUTS_SHARED, "exchange", br_two_words(), 4);
    struct layouts_pass *write = layouts_begin(field, LAYOUTS_WRITE, "step 1");
    for (unsigned r = 0; r < BR_TWO_WALKS; r++)
        for (unsigned warp = 0; warp < 4; warp++)
            for (unsigned i = 0; i < 8; i++) { /* pair 2, then tile and half of its rows */
                struct layouts_access access = {.bytes = 8};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned p = lane % 4 + i / 4 * 4, row = lane / 4 + i % 2 * 8,
                             sample = warp * PIECE + br_walk_sample(row, i / 2 % 2);
                    int64_t items[2] = {exchanged(r, p, 0, sample), exchanged(r, p, 1, sample)};
                    lane_words(&access, lane, 4 * (int64_t)br_two_place(r, p, sample), items, 2);
                    /* as the kernel has it: from the lane's first, by constants */
                    layouts_expect(report,
                                   br_two_place(r, p, sample) ==
                                       br_two_place(r, lane % 4, warp * PIECE + br_walk_sample(lane / 4, 0)) +
                                           br_two_row(0, i / 4 * 4, br_walk_sample(i % 2 * 8, i / 2 % 2)) -
                                           br_two_row(0, 0, 0),
                                   "places in the exchange are not constants apart");
                }
                layouts_access(write, &access);
            }
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(field, LAYOUTS_READ, "step 2");
    for (unsigned r = 0; r < BR_TWO_WALKS; r++)
        for (unsigned warp = 0; warp < 4; warp++)
            for (unsigned i = 0; i < 4; i++) { /* pair 0, tile */
                unsigned p = 2 * r + i / 2;
                struct layouts_access access = {.bytes = 16};
                for (unsigned lane = 0; lane < 32; lane++) {
                    /* row lane % 8 of matrix lane / 8: register lane / 8 of a */
                    struct br_cell a = br_mma_f16_a(lane / 8, 0, lane % 8 * 4);
                    unsigned sample = warp * PIECE + br_walk_sample(a.row, i % 2), plane = a.column / 8;
                    int64_t items[4];
                    for (unsigned word = 0; word < 4; word++)
                        items[word] = exchanged(br_two_residue(plane * 8 + word * 2, p), p, word % 2, sample);
                    lane_words(&access, lane, 4 * (int64_t)br_two_row(2 * plane, p, sample), items, 4);
                }
                layouts_access(read, &access);
            }
    layouts_end(read, 1, 1);
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", 64 * PIECE, 1);
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "finish");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, pieces);
    for (unsigned p = 0; p < 8; p++)
        for (unsigned mirrored = 0; mirrored < 2; mirrored++) {
            struct layouts_access access = {.bytes = 4};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned u = p + 16 * (lane % 4), row = mirrored ? 63 - u : u;
                layouts_lane(&access, lane, (int64_t)row * PIECE + br_walk_sample(lane / 4, 0));
            }
            layouts_access(store, &access);
        }
    layouts_end(store, 1, 1);
}

void layouts_upchannelize(struct layouts *report)
{
    banded(report, 8);
    banded(report, 4);
    for (unsigned factor = 32; factor <= 128; factor *= 2) folded(report, factor);
    for (unsigned lags = 2; lags <= 4; lags++) walking(report, lags, 16);
    walking(report, 4, 32);
    two_steps(report);
}
