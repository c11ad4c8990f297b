/* The baseband beamformer for Hopper (kernels/baseband/gpu/wgmma/persistent.cuh, small_frames.cuh): every
 * access of every variant. */
#include "kernels/baseband/gpu/wgmma/layout.h"
#include "tools/layouts/check.h"

void layouts_baseband_wgmma(struct layouts *report);

enum { TIMES = 128, DISHES = 128, WARPS = 4, MOST = 3 * 96 * DISHES };

/* Time, in a piece, of a row of the 64 of product m. */
static unsigned time_of_row(unsigned mt, unsigned m, unsigned row)
{
    return br_hopper_time(mt, m, row / 8 % 2, row % 8 * 4, row / 16);
}

/* ---- the field ---- */

/* A stage as the accelerator writes it, and multiply()'s reads, which must bring what the product's operand a
 * wants where. An item is [time][dish]. */
static void field(struct layouts *report, unsigned mt)
{
    struct layouts_region *stage =
        layouts_region(report, LAYOUTS_SHARED, "stage", (size_t)mt * 64 * DISHES, 1);
    struct layouts_pass *write = layouts_begin(stage, LAYOUTS_WRITE, "box of the field");
    for (unsigned time = 0; time < 64 * mt; time++) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned sixteen = 0; sixteen < 8; sixteen++)
            layouts_lane_items(&access, sixteen, br_hopper_field(time, sixteen),
                               time * DISHES + sixteen * 16);
        layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);

    struct layouts_pass *read = layouts_begin(stage, LAYOUTS_READ, "multiply");
    for (unsigned warp = 0; warp < WARPS; warp++)
        for (unsigned load = 0; load < 4 * mt; load++) {
            unsigned half = load % 2, upper = load / 2 % 2, m = load / 4;
            struct layouts_access access = {.bytes = 16, .items = true};
            for (unsigned lane = 0; lane < 32; lane++) {
                layouts_lane(&access, lane,
                             br_hopper_field(br_hopper_time(mt, m, upper, lane, warp), half * 4 + lane % 4));
                for (unsigned i = 0; i < 16; i++) {
                    unsigned step = i / 8, k4 = i / 4 % 2;
                    struct br_cell cell = br_wgmma_s8_a(upper + 2 * k4, i % 4, warp * 32 + lane);
                    access.item[lane][i] =
                        time_of_row(mt, m, cell.row) * DISHES + half * 64 + br_hopper_dish(step, cell.column);
                }
            }
            layouts_access(read, &access);
        }
    layouts_end(read, 1, 1);
}

/* ---- weights ---- */

/* A chunk's weights: all places are different; the windows that the products' operand b reads. An item is
 * [part][beam][dish]. */
static void weights(struct layouts *report, unsigned beams)
{
    static int64_t item[MOST];
    unsigned bytes = 3 * beams * DISHES;
    for (unsigned i = 0; i < bytes; i++) item[i] = -1;
    for (unsigned i = 0; i < bytes; i++) {
        unsigned place = br_hopper_weight(beams, i / DISHES / beams, i / DISHES % beams, i % DISHES);
        if (!layouts_expect(report, place < bytes && item[place] < 0, "weight %u stands where another does",
                            i))
            return;
        item[place] = i;
    }
    struct layouts_region *here = layouts_region(report, LAYOUTS_SHARED, "weights", bytes, 1);
    struct layouts_region *given = layouts_region(report, LAYOUTS_GLOBAL, "arranged weights", bytes, 1);
    struct layouts_pass *write = layouts_begin(here, LAYOUTS_WRITE, "bulk load");
    struct layouts_pass *load = layouts_begin(given, LAYOUTS_READ, "bulk load");
    for (unsigned first = 0; first < bytes; first += 512) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            layouts_lane(&access, lane, first + lane * 16);
            for (unsigned i = 0; i < 16; i++) access.item[lane][i] = item[first + lane * 16 + i];
        }
        layouts_access(write, &access);
        access.items = false;
        layouts_access(load, &access);
    }
    layouts_end(write, 1, 1);
    layouts_end(load, 1, 1);

    /* A column's bytes of k: 16 from each of 8 columns at once. Window 0: for the real part of the field, 1:
     * the imaginary one. */
    struct layouts_pass *read = layouts_begin(here, LAYOUTS_READ, "operand b");
    for (unsigned one = 0; one < 2 * 2 * 2 * 2; one++) {
        unsigned window = one % 2, half = one / 2 % 2, step = one / 4 % 2, sixteen = one / 8;
        for (unsigned first = 0; first < 2 * beams; first += 8) {
            struct layouts_access access = {.bytes = 16, .items = true};
            for (unsigned lane = 0; lane < 8; lane++) {
                unsigned column = first + lane, row = (1 - window) * beams + column;
                layouts_lane(&access, lane, br_wgmma_128_place(row, half * 64 + step * 32 + sixteen * 16));
                for (unsigned i = 0; i < 16; i++)
                    access.item[lane][i] = row * DISHES + half * 64 + br_hopper_dish(step, sixteen * 16 + i);
            }
            layouts_access(read, &access);
        }
    }
    layouts_end(read, 1, 2);

    struct layouts_region *scales = layouts_region(report, LAYOUTS_SHARED, "scales", beams, 4);
    struct layouts_pass *place = layouts_begin(scales, LAYOUTS_WRITE, "place_scales");
    for (unsigned first = 0; first < beams; first += 32) {
        struct layouts_access access = {.bytes = 4};
        for (unsigned lane = 0; lane < 32 && first + lane < beams; lane++)
            layouts_lane_items(&access, lane, (first + lane) * 4, first + lane);
        layouts_access(place, &access);
    }
    layouts_end(place, 1, 1);
    struct layouts_pass *scale = layouts_begin(scales, LAYOUTS_READ, "round_sums");
    for (unsigned j = 0; j < beams / 8; j++) {
        struct layouts_access access = {.bytes = 8};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane_items(&access, lane, (j * 8 + lane % 4 * 2) * 4, j * 8 + lane % 4 * 2);
        layouts_access(scale, &access);
    }
    layouts_end(scale, 8, 8);
}

/* A chunk's weights in the kernel for few tiles: parts of those of 96 beams, brought as one box; each
 * part is an operand b. An item is [part][beam][dish]. */
static void small_weights(struct layouts *report)
{
    enum { BEAMS = 48, BYTES = 2 * BEAMS * DISHES };
    static int64_t given[2][3 * 96 * DISHES], item[BYTES];
    for (unsigned upper = 0; upper < 2; upper++)
        for (unsigned i = 0; i < 3 * 96 * DISHES; i++) given[upper][i] = -1;
    for (unsigned i = 0; i < 2 * 2 * BEAMS * DISHES; i++) {
        unsigned dish = i % DISHES, beam = i / DISHES % BEAMS, part = i / DISHES / BEAMS % 2,
                 upper = i / BYTES;
        given[upper][br_hopper_weight(96, part + 1, upper * BEAMS + beam, dish)] =
            (part * BEAMS + beam) * DISHES + dish;
    }
    for (unsigned i = 0; i < BYTES; i++) item[i] = -1;
    for (unsigned i = 0; i < BYTES; i++)
        item[br_hopper_small_weight(i / DISHES / BEAMS, i / DISHES % BEAMS, i % DISHES)] = i;
    struct layouts_region *here = layouts_region(report, LAYOUTS_SHARED, "weights", BYTES, 1);
    struct layouts_pass *write = layouts_begin(here, LAYOUTS_WRITE, "box of weights");
    for (unsigned upper = 0; upper < 2; upper++)
        for (unsigned part = 0; part < 2; part++)
            for (unsigned first = 0; first < BEAMS * DISHES; first += 512) {
                struct layouts_access access = {.bytes = 16, .items = true};
                for (unsigned lane = 0; lane < 32; lane++) {
                    struct br_cell box = br_hopper_small_box(upper);
                    unsigned at = first + lane * 16, to = part * BEAMS * DISHES + at,
                             from = ((box.row + part) * 96 + box.column) * DISHES + at;
                    layouts_lane(&access, lane, to);
                    for (unsigned i = 0; i < 16; i++) {
                        int64_t is = given[upper][from + i];
                        layouts_expect(report, is == item[to + i],
                                       "weight %lld is brought to the place of %lld", (long long)is,
                                       (long long)item[to + i]);
                        access.item[lane][i] = is;
                    }
                }
                if (upper == 0) layouts_access(write, &access);
            }
    layouts_end(write, 1, 1);

    struct layouts_pass *read = layouts_begin(here, LAYOUTS_READ, "operand b");
    for (unsigned one = 0; one < 2 * 2 * 2 * 2; one++) {
        unsigned part = one % 2, half = one / 2 % 2, step = one / 4 % 2, sixteen = one / 8;
        for (unsigned first = 0; first < BEAMS; first += 8) {
            struct layouts_access access = {.bytes = 16, .items = true};
            for (unsigned lane = 0; lane < 8; lane++) {
                unsigned row = part * BEAMS + first + lane;
                layouts_lane(&access, lane, br_wgmma_128_place(row, half * 64 + step * 32 + sixteen * 16));
                for (unsigned i = 0; i < 16; i++)
                    access.item[lane][i] = row * DISHES + half * 64 + br_hopper_dish(step, sixteen * 16 + i);
            }
            layouts_access(read, &access);
        }
    }
    layouts_end(read, 1, 1);
}

/* ---- the result ---- */

/* Beam and time, in a piece, of a thread's register of sums, as beam * TIMES + time; part: im. */
static int64_t sum_item(struct layouts *report, unsigned beams, unsigned mt, unsigned m, unsigned reg,
                        unsigned lane, unsigned warp)
{
    struct br_cell re = br_wgmma_c(reg, warp * 32 + lane), im = br_wgmma_c(beams / 2 + reg, warp * 32 + lane);
    layouts_expect(report, re.row == im.row && re.column + beams == im.column,
                   "register %u of lane %u has no imaginary part", reg, lane);
    return re.column * TIMES + time_of_row(mt, m, re.row);
}

/* store_half(): both halves of a tile, as two blocks would bring them from `bytes` to global memory. */
static void halves(struct layouts *report, struct layouts_region *bytes, unsigned beams)
{
    struct layouts_region *out =
        layouts_region(report, LAYOUTS_GLOBAL, "out, halves", (size_t)beams * TIMES, 1);
    struct layouts_pass *read = layouts_begin(bytes, LAYOUTS_READ, "store, half a tile");
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "store, half a tile");
    layouts_allow_pieces(store, LAYOUTS_SECTOR,
                         "a block's first and last tile may be half a tile: 64 times of a beam");
    for (unsigned half = 0; half < 2; half++)
        for (unsigned i = 0; i < beams / 32; i++)
            for (unsigned warp = 0; warp < WARPS; warp++) {
                struct layouts_access from = {.bytes = 16}, to = {.bytes = 16};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned beam = br_hopper_half_beam(i, warp, lane), time = half * 64 + lane % 4 * 16;
                    layouts_lane_items(&from, lane, br_hopper_out(beam, time), beam * TIMES + time);
                    layouts_lane_items(&to, lane, beam * TIMES + time, beam * TIMES + time);
                }
                layouts_access(read, &from);
                layouts_access(store, &to);
            }
    layouts_end(read, 1, 1);
    layouts_end(store, 1, 1);
}

/* round_sums(), and all ways of store(). An item is [beam][time]. */
static void result(struct layouts *report, unsigned beams, unsigned mt)
{
    unsigned pieces = 2 / mt;
    struct layouts_region *bytes = layouts_region(report, LAYOUTS_SHARED, "out", (size_t)beams * TIMES, 1);
    struct layouts_pass *write = layouts_begin(bytes, LAYOUTS_WRITE, "round_sums");
    for (unsigned piece = 0; piece < pieces; piece++)
        for (unsigned warp = 0; warp < WARPS; warp++)
            for (unsigned j = 0; j < beams / 8; j++)
                for (unsigned e = 0; e < 2; e++) {
                    struct layouts_access access = {.bytes = 2 * mt, .items = true};
                    for (unsigned lane = 0; lane < 32; lane++) {
                        unsigned time = piece * 64 + br_hopper_time(mt, 0, 0, lane, warp);
                        layouts_lane(&access, lane, br_hopper_out(lane % 4 * 2 + e, time) + j * 8 * TIMES);
                        for (unsigned i = 0; i < 2 * mt; i++)
                            access.item[lane][i] = piece * 64 + sum_item(report, beams, mt, i / 2,
                                                                         j * 4 + i % 2 * 2 + e, lane, warp);
                    }
                    layouts_access(write, &access);
                }
    layouts_end(write, 1, 1);

    struct layouts_pass *box = layouts_begin(bytes, LAYOUTS_READ, "store, a box");
    for (unsigned beam = 0; beam < beams; beam++) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 8; lane++)
            layouts_lane_items(&access, lane, br_hopper_out(beam, lane * 16), beam * TIMES + lane * 16);
        layouts_access(box, &access);
    }
    layouts_end(box, 1, 1);

    struct layouts_region *out =
        layouts_region(report, LAYOUTS_GLOBAL, "out, any number of times", (size_t)beams * TIMES, 1);
    struct layouts_pass *read = layouts_begin(bytes, LAYOUTS_READ, "store, by threads");
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "store, by threads");
    layouts_allow_pieces(store, 1,
                         "frames of a number of times that is not a multiple of 16 have no aligned rows");
    for (unsigned beam = 0; beam < beams; beam++)
        for (unsigned first = 0; first < TIMES; first += 32) {
            struct layouts_access from = {.bytes = 1}, to = {.bytes = 1};
            for (unsigned lane = 0; lane < 32; lane++) {
                layouts_lane_items(&from, lane, br_hopper_out(beam, first + lane),
                                   beam * TIMES + first + lane);
                layouts_lane_items(&to, lane, beam * TIMES + first + lane, beam * TIMES + first + lane);
            }
            layouts_access(read, &from);
            layouts_access(store, &to);
        }
    layouts_end(read, 1, 1);
    layouts_end(store, 1, 1);
    if (mt == 1) halves(report, bytes, beams);
}

/* store_int8(): whole rows of times, 16 bits each. An item is [beam][time]. */
static void bytes_end(struct layouts *report, unsigned beams, unsigned mt)
{
    struct layouts_region *out =
        layouts_region(report, LAYOUTS_GLOBAL, "out, int8", (size_t)beams * TIMES, 2);
    struct layouts_pass *store = layouts_begin(out, LAYOUTS_WRITE, "store_int8");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, "eight lanes have 16 or 32 times of a beam");
    for (unsigned piece = 0; piece < 2 / mt; piece++)
        for (unsigned warp = 0; warp < WARPS; warp++)
            for (unsigned i = 0; i < beams / 4; i++) {
                struct layouts_access access = {.bytes = 4 * mt, .items = true};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned time = piece * 64 * mt + br_hopper_time(mt, 0, 0, lane, warp);
                    layouts_lane(&access, lane, (int64_t)(br_hopper_beam(i, lane) * TIMES + time) * 2);
                    for (unsigned k = 0; k < 2 * mt; k++)
                        access.item[lane][k] =
                            piece * 64 +
                            sum_item(report, beams, mt, k / 2, i / 2 * 4 + k % 2 * 2 + i % 2, lane, warp);
                }
                layouts_access(store, &access);
            }
    layouts_end(store, 1, 1);
}

/* store_samples(), an item is [time][beam], and store_groups(), [group of times][beam]. */
static void power_ends(struct layouts *report, unsigned beams, unsigned mt)
{
    struct layouts_region *samples =
        layouts_region(report, LAYOUTS_GLOBAL, "powers of samples", (size_t)64 * mt * beams, 4);
    struct layouts_region *groups =
        layouts_region(report, LAYOUTS_GLOBAL, "powers of groups", (size_t)4 * mt * beams, 4);
    struct layouts_pass *store = layouts_begin(samples, LAYOUTS_WRITE, "store_samples");
    struct layouts_pass *sum = layouts_begin(groups, LAYOUTS_WRITE, "store_groups");
    layouts_allow_pieces(store, LAYOUTS_SECTOR, "four lanes have the same times of eight beams");
    layouts_allow_pieces(sum, 4, "four lanes have the same group of every second beam");
    for (unsigned warp = 0; warp < WARPS; warp++) {
        for (unsigned i = 0; i < beams / 4; i += 2)
            for (unsigned k = 0; k < 2 * mt; k++) {
                struct layouts_access access = {.bytes = 8, .items = true};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned time = br_hopper_time(mt, 0, 0, lane, warp) + k, beam = br_hopper_beam(i, lane);
                    int64_t item = sum_item(report, beams, mt, k / 2, i * 2 + k % 2 * 2, lane, warp);
                    layouts_expect(report, item == beam * TIMES + time, "sum %u of lane %u is another's", i,
                                   lane);
                    layouts_lane_items(&access, lane, (int64_t)(time * beams + beam) * 4,
                                       time * beams + beam);
                }
                layouts_access(store, &access);
            }
        for (unsigned i = 0; i < beams / (mt == 1 ? 32 : 16); i++) {
            struct layouts_access access = {.bytes = 4};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned group = br_hopper_time(mt, 0, 0, lane, warp) / 16,
                         beam = br_hopper_beam(br_hopper_group_first(mt, beams / 4, lane) + i, lane);
                layouts_lane_items(&access, lane, (int64_t)(group * beams + beam) * 4, group * beams + beam);
            }
            layouts_access(sum, &access);
        }
    }
    layouts_end(store, 1, 1);
    layouts_end(sum, 1, 1);
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < (mt == 1 ? 3u : 2u); i++)
            layouts_expect(report,
                           br_hopper_time(mt, 0, 0, lane ^ br_hopper_group_bit(mt, i), 0) ==
                               (br_hopper_time(mt, 0, 0, lane, 0) ^ 2 * mt << i),
                           "halving %u of lane %u does not add neighbours", i, lane);
}

/* ---- register assignments ---- */

static void time1(const void *context, const unsigned *physical, unsigned *logical)
{
    (void)context;
    logical[0] = br_hopper_time(1, 0, physical[2], physical[1] * 4, physical[0]);
}

static void time2(const void *context, const unsigned *physical, unsigned *logical)
{
    (void)context;
    logical[0] = br_hopper_time(2, physical[2], physical[3], physical[1] * 4, physical[0]);
}

static void dish_of_k(const void *context, const unsigned *physical, unsigned *logical)
{
    (void)context;
    logical[0] = br_hopper_dish(physical[1], physical[0]);
}

/* packed: the 16 bytes of one read. */
static void packed(const void *context, const unsigned *physical, unsigned *logical)
{
    (void)context;
    logical[0] = physical[2] % 4 * 16 + physical[1] * 4 + physical[0];
    logical[1] = physical[2] / 4;
}

static void sums(const void *context, const unsigned *physical, unsigned *logical)
{
    (void)context;
    struct br_cell cell = br_wgmma_c(physical[0], physical[1]);
    logical[0] = cell.column / 16;
    logical[1] = cell.column % 16;
    logical[2] = cell.row / 8;
    logical[3] = cell.row % 8;
}

static void comments(struct layouts *report)
{
    static const char layout[] = "kernels/baseband/gpu/wgmma/layout.h",
                      kernel[] = "kernels/baseband/gpu/wgmma/persistent.cuh",
                      round[] = "kernels/baseband/gpu/wgmma/round.cuh",
                      few[] = "kernels/baseband/gpu/wgmma/small_frames.cuh";
    layouts_variant(report, "register assignments");
    layouts_comment(report, layout, "mt of 1:", "warp row upper", "t", time1, NULL);
    layouts_comment(report, layout, "mt of 2:", "warp row m upper", "t", time2, NULL);
    layouts_comment(report, layout, "dish of k:", "k step", "d", dish_of_k, NULL);
    layouts_comment(report, kernel, "packed [MT][upper]", "b r t", "dish row", packed, NULL);
    layouts_comment(report, few, "packed [MT][upper]", "b r t", "dish row", packed, NULL);
    layouts_comment(report, round, "sums [MT][BEAMS], of 16 beams", "r t", "im beam upper row", sums, NULL);
    for (unsigned dish = 0; dish < 64; dish++) {
        struct br_cell k = br_hopper_k(dish);
        layouts_expect(report, br_hopper_dish(k.row, k.column) == dish, "dish %u comes back as another",
                       dish);
    }
}

void layouts_baseband_wgmma(struct layouts *report)
{
    static const unsigned beams[] = {16, 32, 64, 96};
    comments(report);
    for (int i = 0; i < 4; i++) {
        unsigned mt = beams[i] > 32 ? 1 : 2;
        layouts_variant(report, "%u beams", beams[i]);
        field(report, mt);
        weights(report, beams[i]);
        result(report, beams[i], mt);
        bytes_end(report, beams[i], mt);
        power_ends(report, beams[i], mt);
    }
    layouts_variant(report, "few tiles, 48 beams");
    field(report, 2);
    small_weights(report);
    result(report, 48, 2);
}
