/* The filterbank's tensor-core kernels: shared memory of mma/pfb_u32up.cuh, wgmma/pfb_u16.cuh,
 * wgmma/pfb_u128.cuh and wgmma/pfb_u32_64.cuh, and what warps load and store. */
#include "kernels/common/fragments.h"
#include "kernels/upchannelize/gpu/layout.h"
#include "tools/layouts/check.h"

void layouts_upchannelize(struct layouts *report);

enum { CHUNK = BR_PFB_CHUNK, SPAN = BR_PFB_U32UP_SPAN, TILES = BR_PFB_U32UP_TILES };

static const char pieces[] = "a warp has 64 samples or fewer of a row; the block's other warps, or its "
                             "neighbour, have the line's rest";

/* ---- mma/pfb_u16.cuh ---- */

/* A chunk of a field of one channel: every sample is loaded once, by the lane that has it in b; outputs are
 * stored once. */
static void check_mma_u16(struct layouts *report, unsigned tiles)
{
    unsigned span = tiles * 8;
    layouts_variant(report, "mma_pfb_u16, %u tiles", tiles);
    struct layouts_region *e = layouts_region(report, LAYOUTS_GLOBAL, "e", (size_t)CHUNK * span, 1);
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)CHUNK * span, 1);
    layouts_fill(e);
    struct layouts_pass *read = layouts_begin(e, LAYOUTS_READ, "load_chunk");
    struct layouts_pass *write = layouts_begin(out, LAYOUTS_WRITE, "store");
    layouts_allow_pieces(read, LAYOUTS_SECTOR, pieces);
    layouts_allow_pieces(write, LAYOUTS_SECTOR, pieces);
    for (unsigned i = 0; i < 4; i++) {
        struct layouts_access access = {.bytes = tiles};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane,
                         (int64_t)(4 * i + lane % 4) * span + br_pfb_sample(tiles, lane / 4, 0));
        layouts_access(read, &access);
    }
    layouts_end(read, 1, 1);
    for (unsigned high = 0; high < 2; high++) { /* rows u and U-1-u of 8 pairs, as of U = 16 */
        struct layouts_access access = {.bytes = 2 * tiles};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned u = lane / 4, row = high ? 15 - u : u;
            layouts_lane(&access, lane, (int64_t)row * span + br_pfb_sample(tiles, lane % 4 * 2, 0));
        }
        layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);
    /* word i of a lane is time 4 i + lane % 4: the times of its rows of b, in order */
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned reg = 0; reg < 2; reg++)
            for (unsigned part = 0; part < 2; part++) {
                struct br_cell b = br_mma_f16_b(reg, part, lane);
                layouts_expect(
                    report, br_pfb_u16_time(b.row) == 4 * (2 * reg + part) + lane % 4 && b.column == lane / 4,
                    "row %u of b is time %u", b.row, br_pfb_u16_time(b.row));
            }
    /* the second sample of a tile's register c is the lane's upper half of bytes */
    for (unsigned q = 0; q < 4; q++)
        for (unsigned tile = 0; tile < tiles; tile++)
            layouts_expect(report,
                           br_pfb_sample(tiles, 2 * q + 1, tile) ==
                                   br_pfb_sample(tiles, 2 * q, tile) + tiles &&
                               br_pfb_sample(tiles, 2 * q, tile) == 2 * q * tiles + tile,
                           "samples of tile %u are not next to each other", tile);
}

/* ---- mma/pfb_u32up.cuh ---- */

static int64_t item(unsigned factor, unsigned plane, unsigned pair, unsigned sample)
{
    return ((int64_t)plane * (factor / 4) + pair) * SPAN + sample;
}

static void check_mma_u32up(struct layouts *report, unsigned factor)
{
    unsigned warps = factor / 8, steps = factor / 32;
    layouts_variant(report, "mma_pfb_u32up, U = %u", factor);
    struct layouts_region *field =
        layouts_region(report, LAYOUTS_SHARED, "field", br_pfb_u32up_words(factor), 4);
    struct layouts_pass *write = layouts_begin(field, LAYOUTS_WRITE, "filter_to_shared");
    for (unsigned plane = 0; plane < 4; plane++)
        for (unsigned warp = 0; warp < warps; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned thread = warp * 32 + lane, quad = thread % 16, pair = thread / 16;
                layouts_lane_items(&access, lane, 4 * (int64_t)br_pfb_u32up_place(factor, plane, pair, quad),
                                   item(factor, plane, pair, quad * 4));
            }
            layouts_access(write, &access);
        }
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(field, LAYOUTS_READ, "transform_u32up");
    for (unsigned warp = 0; warp < warps; warp++) {
        struct br_pfb_u32up_share share = br_pfb_u32up_share(warp);
        for (unsigned step = 0; step < steps; step++)
            for (unsigned plane = 0; plane < 4; plane++)
                for (unsigned reg = 0; reg < 2; reg++) {
                    struct layouts_access access = {.bytes = 16};
                    for (unsigned lane = 0; lane < 32; lane++) {
                        /* rows of b are 16 step + 2 pair, its columns 4 samples each
                         * (tiles) */
                        struct br_cell b = br_mma_f16_b(reg, 0, lane);
                        unsigned pair = step * 8 + b.row / 2;
                        layouts_lane_items(&access, lane,
                                           4 * (int64_t)br_pfb_u32up_place(factor, plane,
                                                                           step * 8 + reg * 4 + lane % 4,
                                                                           share.half * 8 + lane / 4),
                                           item(factor, plane, pair,
                                                share.half * (SPAN / 2) + br_pfb_sample(TILES, b.column, 0)));
                    }
                    layouts_access(read, &access);
                }
    }
    layouts_end(read, 2 * steps, 2 * steps); /* of an iteration's two output steps, and by every 16 rows */
    /* every (step, rows, half) has a warp */
    unsigned seen = 0;
    for (unsigned warp = 0; warp < warps; warp++) {
        struct br_pfb_u32up_share share = br_pfb_u32up_share(warp);
        layouts_expect(report, share.rows < steps, "warp %u has no rows", warp);
        seen |= 1u << (share.rows * 4 + share.step * 2 + share.half);
    }
    layouts_expect(report, seen == (1u << warps) - 1 || warps == 32,
                   "two warps share out the same part of an iteration");
    /* k and its partner: each time once */
    unsigned times = 0;
    for (unsigned k = 0; k < factor / 2; k++) times += k + br_pfb_u32up_partner(factor, k);
    layouts_expect(report, times == factor * (factor - 1) / 2, "partners leave out a time");

    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)factor * SPAN, 1);
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "store");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, pieces);
    for (unsigned warp = 0; warp < warps; warp++) {
        struct br_pfb_u32up_share share = br_pfb_u32up_share(warp);
        if (share.step != 0) continue;
        for (unsigned upper = 0; upper < 2; upper++)
            for (unsigned high = 0; high < 2; high++) {
                struct layouts_access access = {.bytes = 8};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned u = share.rows * 16 + lane / 4 + 8 * upper, row = high ? factor - 1 - u : u;
                    layouts_lane(&access, lane,
                                 (int64_t)row * SPAN + share.half * (SPAN / 2) +
                                     br_pfb_sample(TILES, lane % 4 * 2, 0));
                }
                layouts_access(store, &access);
            }
    }
    layouts_end(store, 1, 1);
}

/* ---- Hopper ---- */

enum { PIECE = BR_PFB_SPAN };

/* Which time the rows of a window have in shared memory. */
enum order { IN_ORDER, SPLIT, TIMES_APART };

static unsigned place_of(enum order order, unsigned rows, unsigned row)
{
    switch (order) {
    case SPLIT:
        return br_pfb_u128_time(rows, row);
    case TIMES_APART:
        return br_pfb_u32_64_time(rows, row);
    case IN_ORDER:
    default:
        return row;
    }
}

/* `rows` rows of a warpgroup's 64 samples or levels from global to shared memory (`in`), or back, 16 bytes a
 * thread. */
static void carried(struct layouts_region *global, struct layouts_region *shared, unsigned rows,
                    enum order order, bool in)
{
    const char *name = in ? "stage" : "store";
    struct layouts_pass *there = layouts_begin(global, in ? LAYOUTS_READ : LAYOUTS_WRITE, "%s", name);
    struct layouts_pass *here = layouts_begin(shared, in ? LAYOUTS_WRITE : LAYOUTS_READ, "%s", name);
    layouts_allow_pieces(there, LAYOUTS_SECTOR, pieces);
    for (unsigned i = 0; i < rows / 32; i++)
        for (unsigned warp = 0; warp < 4; warp++) {
            struct layouts_access in_global = {.bytes = 16}, in_shared = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned thread = warp * 32 + lane,
                         at = place_of(order, rows, thread / 4 + 32 * i) * PIECE + thread % 4 * 16;
                layouts_lane(&in_global, lane, at);
                layouts_lane_items(&in_shared, lane,
                                   br_pfb_row_place(thread / 4, thread % 4) + i * 32 * PIECE, at);
            }
            layouts_access(there, &in_global);
            layouts_access(here, &in_shared);
        }
    layouts_end(there, 1, 1);
    layouts_end(here, 1, 1);
}

/* The accelerator puts a box's rows where br_pfb_row_place has them; those of the field are the times that
 * are 0 modulo `sets`, then those that are 1, ... */
static void boxed(struct layouts *report, unsigned rows, enum order order, unsigned sets)
{
    for (unsigned row = 0; row < rows; row++) {
        layouts_expect(report, place_of(order, rows, row) == row % (rows / sets) * sets + row / (rows / sets),
                       "row %u of a box is not time %u", row, place_of(order, rows, row));
        for (unsigned piece = 0; piece < PIECE / 16; piece++)
            layouts_expect(report,
                           br_pfb_row_place(row, piece) == br_swizzle_64_bytes(row * PIECE + piece * 16),
                           "piece %u of row %u is not where the accelerator puts it", piece, row);
    }
}

/* `rows` times of a warpgroup's 64 samples: from global memory, to shared memory, and to registers by
 * ldmatrix, `matrices` of 8 times at once. split: even times before odd ones. */
static void staged(struct layouts *report, unsigned rows, unsigned matrices, bool split)
{
    struct layouts_region *e = layouts_region(report, LAYOUTS_GLOBAL, "e", (size_t)rows * PIECE, 1);
    struct layouts_region *field = layouts_region(report, LAYOUTS_SHARED, "field", (size_t)rows * PIECE, 1);
    layouts_fill(e);
    for (unsigned row = 0; row < 32 && split; row++) /* as a thread finds its i-th from its first */
        for (unsigned i = 0; i < rows / 32; i++) {
            unsigned time = br_pfb_u128_time(rows, row) + br_pfb_u128_time(rows, 32 * i);
            layouts_expect(report, time == br_pfb_u128_time(rows, row + 32 * i), "row %u has time %u",
                           row + 32 * i, time);
        }
    carried(e, field, rows, split ? SPLIT : IN_ORDER, true);
    struct layouts_pass *read = layouts_begin(field, LAYOUTS_READ, "load_transposed");
    for (unsigned first = 0; first < rows; first += 8 * matrices)
        for (unsigned warp = 0; warp < 4; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 8 * matrices; lane++) {
                unsigned time = split ? br_pfb_u128_time(rows, first + lane) : first + lane;
                layouts_lane_items(&access, lane, br_pfb_row_place(lane, warp) + first * PIECE,
                                   time * PIECE + warp * 16);
            }
            layouts_access(read, &access);
        }
    layouts_end(read, 1, 1);
    /* a register of ldmatrix, transposed, has times 2 q and 2 q + 1 of samples 2 n and 2 n + 1: a's times,
     * which are the product's in their order */
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned reg = 0; reg < 4; reg++)
            for (unsigned part = 0; part < 2; part++) {
                struct br_cell a = br_mma_f16_a(reg, part, lane);
                layouts_expect(
                    report, a.column == reg / 2 * 8 + lane % 4 * 2 + part && a.row == reg % 2 * 8 + lane / 4,
                    "register %u of the operand has time %u", reg, a.column);
            }
}

/* `rows` fine channels of 64 samples of levels, of which stmatrix writes `lanes` at once: `first` and `step`
 * are those of each lane's. Then to global memory. split: after half of the steps as many are left out. */
static void stored(struct layouts *report, unsigned rows, unsigned lanes, const unsigned first[32],
                   const int step[32], bool split)
{
    unsigned half = rows / 64;
    struct layouts_region *levels = layouts_region(report, LAYOUTS_SHARED, "levels", (size_t)rows * PIECE, 1);
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)rows * PIECE, 1);
    struct layouts_pass *write = layouts_begin(levels, LAYOUTS_WRITE, "store_transposed");
    for (unsigned i = 0; i < rows / lanes; i++)
        for (unsigned warp = 0; warp < 4; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < lanes; lane++) {
                int64_t down = (int64_t)(split ? i % half + i / half * 2 * half : i) * step[lane],
                        row = first[lane] + down;
                layouts_lane_items(&access, lane, (int64_t)br_pfb_row_place(first[lane], warp) + down * PIECE,
                                   row * PIECE + warp * 16);
            }
            layouts_access(write, &access);
        }
    layouts_end(write, 1, 1);
    carried(out, levels, rows, IN_ORDER, false);
}

static void read_columns(struct layouts_pass *pass, unsigned from, unsigned columns)
{
    for (unsigned column = 0; column < columns; column += 8)
        for (unsigned k = 0; k < 2; k++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 8; lane++)
                layouts_lane(&access, lane, br_wgmma_plain_place(from + column + lane, k * 16, 128, 256));
            layouts_access(pass, &access);
        }
}

static void check_wgmma_u16(struct layouts *report)
{
    enum { lags = BR_PFB_LAGS, chunks = lags };
    unsigned columns = (2 * lags - 1) * 16, first[32];
    int step[32];
    layouts_variant(report, "wgmma_pfb_u16");
    staged(report, chunks * CHUNK, 4, false);
    /* columns of coefficients, K-major in core matrices: read by wgmma from any position of the ring */
    struct layouts_region *b = layouts_region(report, LAYOUTS_SHARED, "matrix", (size_t)columns * CHUNK, 2);
    layouts_fill(b);
    struct layouts_pass *read = layouts_begin(b, LAYOUTS_READ, "products");
    for (unsigned ring = 0; ring < lags; ring++) {
        unsigned start = br_pfb_lag_block(lags, ring);
        /* block `ring` of the ring has lag 0, the one after it lag 1 */
        for (unsigned block = 0; block < lags; block++)
            layouts_expect(report, (start + block) % lags == (block + lags - ring) % lags,
                           "block %u has another lag when the ring is at %u", block, ring);
        read_columns(read, start * 16, lags * 16);
    }
    layouts_end(read, 0, lags);
    for (unsigned lane = 0; lane < 16; lane++) { /* a chunk's u and U-1-u of 8 pairs */
        first[lane] = lane;
        step[lane] = 16;
    }
    stored(report, chunks * CHUNK, 16, first, step, false);
}

/* A column is cut into pieces that follow each other, none of them longer than what each block has then. */
static void cut(struct layouts *report, unsigned columns, unsigned chunks, unsigned blocks)
{
    unsigned from[BR_PFB_PIECES + 1], count = br_pfb_cut_columns(from, columns, chunks, blocks);
    layouts_variant(report, "%u columns of %u chunks by %u blocks", columns, chunks, blocks);
    layouts_expect(report, count >= 1 && count <= BR_PFB_PIECES && from[0] == 0 && from[count] == chunks,
                   "%u pieces end at %u", count, from[count]);
    for (unsigned i = 0; i < count; i++) {
        layouts_expect(report, from[i + 1] > from[i], "piece %u is empty", i);
        layouts_expect(report, i == 0 || i + 1 >= count || from[i + 1] - from[i] <= from[i] - from[i - 1],
                       "piece %u is longer than the one before it", i);
    }
}

static void check_wgmma_u128(struct layouts *report, unsigned factor)
{
    unsigned first[32];
    int step[32];
    layouts_variant(report, "wgmma_pfb_u128, U = %u", factor);
    staged(report, factor, 1, true); /* of several windows at once */
    boxed(report, factor, SPLIT, 2);
    struct layouts_region *taps = layouts_region(report, LAYOUTS_SHARED, "taps", (size_t)factor / 8 * 64, 1);
    struct layouts_region *starts =
        layouts_region(report, LAYOUTS_SHARED, "starts", (size_t)factor / 8 * 64, 1);
    layouts_fill(taps);
    layouts_fill(starts);
    struct layouts_pass *of_taps = layouts_begin(taps, LAYOUTS_READ, "taps");
    struct layouts_pass *of_starts = layouts_begin(starts, LAYOUTS_READ, "starts");
    for (unsigned half = 0; half < factor / 8; half++) {
        struct layouts_access tap = {.bytes = 16}, start = {.bytes = 8};
        for (unsigned lane = 0; lane < 32; lane++) {
            layouts_lane(&tap, lane, half * 64 + lane % 4 * 16);
            layouts_lane(&start, lane, half * 64 + lane % 4 * 16);
        }
        layouts_access(of_taps, &tap);
        layouts_access(of_starts, &start);
    }
    layouts_end(of_taps, 8, 8);
    layouts_end(of_starts, 0, 8);  /* half of each is nothing */
    unsigned columns = factor / 2; /* four fine channels' cos and sin */
    struct layouts_region *b = layouts_region(report, LAYOUTS_SHARED, "matrix", (size_t)columns * factor, 2);
    layouts_fill(b);
    struct layouts_pass *product = layouts_begin(b, LAYOUTS_READ, "products");
    for (unsigned chunk = 0; chunk < factor / 16; chunk++) read_columns(product, chunk * columns, columns);
    layouts_end(product, 1, 1);
    for (unsigned lane = 0; lane < 32; lane++) { /* 16 u and their U-1-u */
        first[lane] = lane < 16 ? lane : factor - 1 - lane % 16;
        step[lane] = lane < 16 ? 16 : -16;
    }
    stored(report, factor, 32, first, step, true);
}

/* A window, whose rows are times in br_pfb_u32_64_time's order, and its levels. */
static void check_wgmma_u32_64(struct layouts *report, unsigned factor)
{
    enum { lags = BR_PFB_TAPS };
    unsigned sets = factor / 16, columns = (4 * lags - 3) * 16;
    layouts_variant(report, "wgmma_pfb_u32_64, U = %u", factor);
    struct layouts_region *e = layouts_region(report, LAYOUTS_GLOBAL, "e", (size_t)factor * PIECE, 1);
    struct layouts_region *field = layouts_region(report, LAYOUTS_SHARED, "field", (size_t)factor * PIECE, 1);
    struct layouts_region *levels =
        layouts_region(report, LAYOUTS_SHARED, "levels", (size_t)factor * PIECE, 1);
    struct layouts_region *out = layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)factor * PIECE, 1);
    layouts_fill(e);
    for (unsigned row = 0; row < 32; row++) { /* as a thread finds its second row from its first */
        unsigned second = row + 32, time = br_pfb_u32_64_time(factor, row) + br_pfb_u32_64_time(factor, 32);
        layouts_expect(report, second >= factor || br_pfb_u32_64_time(factor, second) == time,
                       "row %u is time %u", second, time);
    }
    carried(e, field, factor, TIMES_APART, true);
    boxed(report, factor, TIMES_APART, sets);
    struct layouts_pass *read = layouts_begin(field, LAYOUTS_READ, "load_words");
    for (unsigned set = 0; set < sets; set++)
        for (unsigned warp = 0; warp < 4; warp++)
            for (unsigned late = 0; late < 2; late++) { /* one matrix of ldmatrix after the other */
                struct layouts_access access = {.bytes = 16};
                for (unsigned lane = 0; lane < 8; lane++) {
                    unsigned k = late * 8 + lane, time = k * sets + set;
                    layouts_lane_items(&access, lane, br_pfb_row_place(k, warp) + set * CHUNK * PIECE,
                                       time * PIECE + warp * 16);
                }
                layouts_access(read, &access);
            }
    layouts_end(read, 1, 1);
    for (unsigned lane = 0; lane < 32; lane++) /* a lane's times are all unpacked alike */
        for (unsigned reg = 0; reg < 4; reg++)
            for (unsigned part = 0; part < 2; part++) {
                struct br_cell a = br_mma_f16_a(reg, part, lane);
                layouts_expect(report,
                               br_pfb_u32_64_is_negated(a.column) == br_pfb_u32_64_is_negated(lane % 4 * 2),
                               "row %u of a set is not unpacked as the lane's others", a.column);
            }

    struct layouts_region *starts = layouts_region(report, LAYOUTS_SHARED, "starts", (size_t)sets * 32, 1);
    struct layouts_region *scales = layouts_region(report, LAYOUTS_SHARED, "scales", (size_t)sets * 32, 1);
    layouts_fill(starts);
    layouts_fill(scales);
    struct layouts_pass *of_starts = layouts_begin(starts, LAYOUTS_READ, "starts");
    struct layouts_pass *of_scales = layouts_begin(scales, LAYOUTS_READ, "scales");
    for (unsigned set = 0; set < sets; set++) {
        struct layouts_access start = {.bytes = 8}, scale[2] = {{.bytes = 4}, {.bytes = 4}};
        for (unsigned lane = 0; lane < 32; lane++) {
            layouts_lane(&start, lane, set * 32 + lane % 4 * 8);
            for (unsigned mirror = 0; mirror < 2; mirror++)
                layouts_lane(&scale[mirror], lane, set * 32 + lane % 4 * 8 + mirror * 4);
        }
        layouts_access(of_starts, &start);
        layouts_access(of_scales, &scale[0]);
        layouts_access(of_scales, &scale[1]);
    }
    layouts_end(of_starts, 8, 8);
    layouts_end(of_scales, 8, 8);

    struct layouts_region *b =
        layouts_region(report, LAYOUTS_SHARED, "matrices", (size_t)sets * columns * CHUNK, 2);
    layouts_fill(b);
    struct layouts_pass *product = layouts_begin(b, LAYOUTS_READ, "products");
    for (unsigned ring = 0; ring < lags; ring++)
        for (unsigned set = 0; set < sets; set++)
            read_columns(product, set * columns + br_pfb_lag_block(lags, ring) * 16, lags * 16);
    for (unsigned i = 1; i < lags; i++)
        for (unsigned set = 0; set < sets; set++)
            read_columns(product, set * columns + br_pfb_u32_64_first_block(lags, i) * 16, lags * 16);
    layouts_end(product, 1, lags);
    /* block k of the ring is output k of a thread block, and gets its window's lag or none */
    for (unsigned k = 0; k < lags; k++) {
        for (unsigned ring = 0; ring < lags; ring++)
            layouts_expect(
                report, br_pfb_u32_64_lag(lags, br_pfb_lag_block(lags, ring) + k) == (k + lags - ring) % lags,
                "block %u has another lag when the ring is at %u", k, ring);
        for (unsigned i = 1; i < lags; i++) {
            unsigned lag = br_pfb_u32_64_lag(lags, br_pfb_u32_64_first_block(lags, i) + k);
            layouts_expect(report, k < i ? lag == k + lags - i : lag >= lags,
                           "block %u has lag %u of a window %u before the first output", k, lag, lags - i);
        }
    }

    struct layouts_pass *write = layouts_begin(levels, LAYOUTS_WRITE, "store_transposed");
    for (unsigned i = 0; i < factor / 32; i++) /* four times eight fine channels */
        for (unsigned warp = 0; warp < 4; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned word = i * 4 + lane / 8, u = lane % 8 + word % sets * 16,
                         place = br_pfb_row_place(br_pfb_u32_64_channel(factor, lane), warp);
                if (word >= sets) u = factor - 1 - u;
                if (i == 1) place = factor * PIECE - 16 - place; /* as a thread finds it */
                layouts_lane_items(&access, lane, place, u * PIECE + warp * 16);
            }
            layouts_access(write, &access);
        }
    layouts_end(write, 1, 1);
    carried(out, levels, factor, IN_ORDER, false);
}

void layouts_upchannelize(struct layouts *report)
{
    check_mma_u16(report, 8);
    check_mma_u16(report, 4);
    for (unsigned factor = 32; factor <= 128; factor *= 2) check_mma_u32up(report, factor);
    check_wgmma_u16(report);
    static const unsigned columns[] = {1, 3, 80, 464, 528, 768, 100000}, chunks[] = {1, 5, 37, 512, 4352};
    for (unsigned i = 0; i < sizeof columns / sizeof *columns; i++)
        for (unsigned k = 0; k < sizeof chunks / sizeof *chunks; k++) cut(report, columns[i], chunks[k], 528);
    check_wgmma_u128(report, 128);
    check_wgmma_u32_64(report, 32);
    check_wgmma_u32_64(report, 64);
}
