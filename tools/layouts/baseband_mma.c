/* The portable baseband beamformer (kernels/baseband/gpu/mma/tile.cuh): every access of every size of
 * tile. */
#include "kernels/baseband/gpu/mma/layout.h"
#include "kernels/common/fragments.h"
#include "tools/layouts/check.h"

void layouts_baseband_mma(struct layouts *report);

enum {
    TIMES = BR_TILE_TIMES,
    DISHES = BR_TILE_DISHES,
    FEW = BR_TILE_FEW,
    ROWS = BR_TILE_ROWS,
    STEP = BR_TILE_STEP,
    WARPS = BR_TILE_WARPS,
    THREADS = BR_TILE_THREADS,
    COLUMNS = BR_TILE_COLUMNS,
    FRAGMENT = BR_TILE_FRAGMENT
};

/* ---- the field ---- */

/* load(): chunk `chunk` of `size` dishes of a field of `dishes` and `pairs` channels and polarisations, of
 * which this is the first. */
static void load_field(struct layouts *report, struct layouts_region *field, int dishes, int pairs, int size,
                       int chunk)
{
    int stride = dishes * pairs, here = dishes - chunk * size < size ? dishes - chunk * size : size;
    int copy_rows = THREADS / (size / 16); /* that the block copies at once */
    struct layouts_region *e = layouts_region(report, LAYOUTS_GLOBAL, "e", (size_t)TIMES * (size_t)stride, 1);
    struct layouts_pass *read = layouts_begin(e, LAYOUTS_READ, "load, chunk %d", chunk);
    struct layouts_pass *write = layouts_begin(field, LAYOUTS_WRITE, "load, chunk %d", chunk);
    if (dishes % DISHES)
        layouts_allow_pieces(
            read, 16, "rows of dishes that are not a multiple of 128 begin and end within cache lines");
    layouts_fill(e);
    layouts_padding(e, 0, (size_t)TIMES * (size_t)stride);
    for (int pass = 0; pass < TIMES / copy_rows; pass++)
        for (int warp = 0; warp < WARPS; warp++) {
            struct layouts_access from = {.bytes = 16}, to = {.bytes = 16};
            for (int lane = 0; lane < 32; lane++) {
                int thread = warp * 32 + lane, row = br_tile_copy_row(size, thread, pass),
                    piece = br_tile_copy_piece(size, thread);
                if (piece * 16 < here)
                    layouts_lane(&from, (unsigned)lane, row * stride + chunk * size + piece * 16);
                layouts_lane_items(&to, (unsigned)lane, row * size + br_tile_field_place(size, row, piece),
                                   row * size + piece * 16);
            }
            layouts_access(read, &from);
            layouts_access(write, &to);
        }
    layouts_end(read, 0, 1);
    layouts_end(write, 1, 1);
}

/* multiply(): the MMA's operand b, which is the field. */
static void read_field(struct layouts_region *field, int size)
{
    struct layouts_pass *pass = layouts_begin(field, LAYOUTS_READ, "multiply");
    for (int warp = 0; warp < WARPS; warp++)
        for (int step = 0; step < size / STEP; step++)
            for (int j = 0; j < COLUMNS; j++) {
                struct layouts_access access = {.bytes = 8, .items = true};
                for (int lane = 0; lane < 32; lane++) {
                    int row = br_tile_time(warp, 0, lane / 4);
                    layouts_lane(&access, (unsigned)lane,
                                 (row + 2 * j) * size + br_tile_field_read(size, row, step, lane));
                    for (unsigned i = 0; i < 8; i++) {
                        struct br_cell cell = br_mma_s8_b(i / 4, i % 4, (unsigned)lane);
                        access.item[lane][i] = br_tile_time(warp, j, (int)cell.column) * size + step * STEP +
                                               br_tile_dish((int)cell.row);
                    }
                }
                layouts_access(pass, &access);
            }
    layouts_end(pass, 1, 1);
}

/* ---- weights ---- */

/* From the host's arrangement to the MMA's operand a. An item is [m][step][re, im][beam][dish]. */
static void weights(struct layouts *report, int mt, int size)
{
    int bytes = mt * (size / STEP) * 2 * FRAGMENT;
    struct layouts_region *given =
        layouts_region(report, LAYOUTS_GLOBAL, "arranged weights", (size_t)bytes, 1);
    struct layouts_region *here = layouts_region(report, LAYOUTS_SHARED, "weights", (size_t)bytes, 1);
    static int64_t
        item[BR_TILE_LARGEST * (DISHES / STEP) * 2 * FRAGMENT]; /* what stands where in the arranged ones */
    for (int i = 0; i < bytes; i++) item[i] = -1;
    for (int i = 0; i < bytes; i++) {
        int place = i / FRAGMENT * FRAGMENT + br_tile_weight_of(i % FRAGMENT / STEP, i % STEP);
        if (!layouts_expect(report, place >= 0 && place < bytes && item[place] < 0,
                            "weight %d stands where another does", i))
            return;
        item[place] = i;
    }

    struct layouts_pass *read = layouts_begin(given, LAYOUTS_READ, "load");
    struct layouts_pass *write = layouts_begin(here, LAYOUTS_WRITE, "load");
    for (int first = 0; first < bytes; first += 32 * 16) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (int lane = 0; lane < 32; lane++) {
            layouts_lane(&access, (unsigned)lane, first + lane * 16);
            for (int i = 0; i < 16; i++) access.item[lane][i] = item[first + lane * 16 + i];
        }
        layouts_access(write, &access);
        access.items = false;
        layouts_access(read, &access);
    }
    layouts_end(read, 1, 1);
    layouts_end(write, 1, 1);

    struct layouts_pass *pass = layouts_begin(here, LAYOUTS_READ, "multiply");
    for (int fragment = 0; fragment < bytes / FRAGMENT; fragment++)
        for (int warp = 0; warp < WARPS; warp++) {
            struct layouts_access access = {.bytes = 16, .items = true};
            for (int lane = 0; lane < 32; lane++) {
                layouts_lane(&access, (unsigned)lane, fragment * FRAGMENT + br_tile_weight_place(lane, 0, 0));
                for (unsigned i = 0; i < 16; i++) {
                    struct br_cell cell = br_mma_s8_a(i / 4, i % 4, (unsigned)lane);
                    access.item[lane][i] =
                        fragment * FRAGMENT + (int)cell.row * STEP + br_tile_dish((int)cell.column);
                }
            }
            layouts_access(pass, &access);
        }
    layouts_end(pass, WARPS, WARPS);
}

/* ---- the result ---- */

/* round_sums(): bytes of sums to shared memory, counts, and what it adds to the sums. */
static void write_result(struct layouts *report, struct layouts_region *out, int mt)
{
    struct layouts_region *rounding =
        layouts_region(report, LAYOUTS_GLOBAL, "rounding", (size_t)(mt * ROWS), 16);
    struct layouts_region *clamped =
        layouts_region(report, LAYOUTS_SHARED, "clamped", (size_t)(mt * ROWS), 4);
    struct layouts_pass *pass = layouts_begin(out, LAYOUTS_WRITE, "round_sums");
    struct layouts_pass *rounds = layouts_begin(rounding, LAYOUTS_READ, "round_sums");
    struct layouts_pass *counts = layouts_begin(clamped, LAYOUTS_WRITE, "round_sums, over four lanes");
    for (int beam = 0; beam < mt * ROWS; beam++)
        layouts_padding(out, (size_t)br_tile_out_place(beam, TIMES), BR_TILE_OUT_ROW - TIMES);
    for (int warp = 0; warp < WARPS; warp++)
        for (int m = 0; m < mt; m++)
            for (int upper = 0; upper < 2; upper++) {
                struct layouts_access access = {.bytes = 8, .items = true}, round = {.bytes = 16},
                                      count = {.bytes = 4};
                for (int lane = 0; lane < 32; lane++) {
                    int beam = br_tile_beam(m, upper, lane);
                    layouts_lane(&access, (unsigned)lane,
                                 br_tile_out_place(beam, br_tile_first_time(warp, lane)));
                    layouts_lane(&round, (unsigned)lane, beam * 16);
                    if (lane % 4 == 0) layouts_lane(&count, (unsigned)lane, beam * 4);
                    for (int i = 0; i < 8; i++) {
                        struct br_cell cell = br_mma_c((unsigned)(upper * 2 + i % 2), (unsigned)lane);
                        access.item[lane][i] =
                            (m * ROWS + (int)cell.row) * TIMES + br_tile_time(warp, i / 2, (int)cell.column);
                    }
                }
                layouts_access(pass, &access);
                layouts_access(rounds, &round);
                layouts_access(counts, &count);
            }
    layouts_end(pass, 1, 1);
    layouts_end(rounds, 4 * WARPS, 4 * WARPS);
    layouts_end(counts, WARPS, WARPS);
}

/* store() in pieces of 16 bytes, to rows of `times` in all. */
static void store_pieces(struct layouts *report, struct layouts_region *out, int mt, int times)
{
    int here = times < TIMES ? times : TIMES;
    struct layouts_region *result =
        layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)(mt * ROWS * times), 1);
    struct layouts_pass *read = layouts_begin(out, LAYOUTS_READ, "store, %d times", times);
    struct layouts_pass *write = layouts_begin(result, LAYOUTS_WRITE, "store, %d times", times);
    if (times % TIMES)
        layouts_allow_pieces(write, 16,
                             "rows of times that are not a multiple of 128 begin and end within cache lines");
    for (int pass = 0; pass * (THREADS / (TIMES / 16)) < mt * ROWS; pass++)
        for (int warp = 0; warp < WARPS; warp++) {
            struct layouts_access from = {.bytes = 16}, to = {.bytes = 16};
            for (int lane = 0; lane < 32; lane++) {
                int thread = warp * 32 + lane, beam = br_tile_copy_row(TIMES, thread, pass),
                    piece = br_tile_copy_piece(TIMES, thread) * 16;
                if (beam >= mt * ROWS || piece >= here) continue;
                layouts_lane_items(&from, (unsigned)lane, br_tile_out_place(beam, piece),
                                   beam * TIMES + piece);
                layouts_lane_items(&to, (unsigned)lane, beam * times + piece, beam * TIMES + piece);
            }
            layouts_access(read, &from);
            layouts_access(write, &to);
        }
    layouts_end(read, times < TIMES ? 0 : 1, 1);
    if (times > TIMES)
        layouts_padding(result, 0, (size_t)(mt * ROWS * times)); /* other tiles write the rest */
    layouts_end(write, 1, 1);
}

/* store() byte by byte. */
static void store_bytes(struct layouts *report, struct layouts_region *out, int mt, int times)
{
    struct layouts_region *result =
        layouts_region(report, LAYOUTS_GLOBAL, "out", (size_t)(mt * ROWS * times), 1);
    struct layouts_pass *read = layouts_begin(out, LAYOUTS_READ, "store of bytes, %d times", times);
    struct layouts_pass *write = layouts_begin(result, LAYOUTS_WRITE, "store of bytes, %d times", times);
    layouts_allow_pieces(write, 1, "rows begin anywhere");
    for (int beam = 0; beam < mt * ROWS; beam++)
        for (int first = 0; first < times; first += 32) {
            struct layouts_access from = {.bytes = 1}, to = {.bytes = 1};
            for (int lane = 0; lane < 32 && first + lane < times; lane++) {
                layouts_lane_items(&from, (unsigned)lane, br_tile_out_place(beam, first + lane),
                                   beam * TIMES + first + lane);
                layouts_lane_items(&to, (unsigned)lane, beam * times + first + lane,
                                   beam * TIMES + first + lane);
            }
            layouts_access(read, &from);
            layouts_access(write, &to);
        }
    layouts_end(read, 0, 1);
    layouts_end(write, 1, 1);
}

/* ---- what the comments say ---- */

static void sums(const void *context, const unsigned *in, unsigned *out)
{
    (void)context;
    struct br_cell cell = br_mma_c(in[2], in[3]);
    out[0] = in[0] * ROWS + cell.row;
    out[1] = (unsigned)br_tile_time((int)in[4], (int)in[1], (int)cell.column);
}

static void field_operand(const void *context, const unsigned *in, unsigned *out)
{
    (void)context;
    struct br_cell cell = br_mma_s8_b(in[2], in[0], in[3]);
    out[0] = (unsigned)br_tile_time((int)in[4], (int)in[1], (int)cell.column);
    out[1] = (unsigned)br_tile_dish((int)cell.row);
}

static void weight_operand(const void *context, const unsigned *in, unsigned *out)
{
    (void)context;
    struct br_cell cell = br_mma_s8_a(in[1], in[0], in[2]);
    out[0] = cell.row;
    out[1] = (unsigned)br_tile_dish((int)cell.column);
}

static void result_bytes(const void *context, const unsigned *in, unsigned *out)
{
    (void)context;
    out[0] = (unsigned)br_tile_beam(0, 0, (int)in[2]);
    out[1] = (unsigned)br_tile_first_time((int)in[3], (int)in[2]) + in[1] * 4 + in[0];
}

static void comments(struct layouts *report)
{
    static const char tile[] = "kernels/baseband/gpu/mma/tile.cuh";
    layouts_variant(report, "register assignments");
    layouts_comment(report, tile, "re, im [m][j][r]", "m j r t w", "beam time", sums, NULL);
    layouts_comment(report, tile, "e_re, e_im, e_not_im [j][r]", "b j r t w", "time dish", field_operand,
                    NULL);
    layouts_comment(report, tile, "a_re, a_im  simd", "b r t", "beam dish", weight_operand, NULL);
    layouts_comment(report, tile, "bytes[r]", "b r t w", "beam time", result_bytes, NULL);
}

void layouts_baseband_mma(struct layouts *report)
{
    static const int dishes[] = {16, 48, 64, 128, 272, 512, 1024};
    for (size_t i = 0; i < sizeof dishes / sizeof *dishes; i++) {
        layouts_variant(report, "portable, D=%d", dishes[i]);
        for (int size = dishes[i] <= FEW ? FEW : DISHES; size <= DISHES; size *= 2)
            for (int chunk = 0; chunk * size < dishes[i]; chunk++) {
                struct layouts_region *field =
                    layouts_region(report, LAYOUTS_SHARED, "field", (size_t)(TIMES * size), 1);
                load_field(report, field, dishes[i], 2, size, chunk);
                read_field(field, size);
            }
    }
    for (int mt = 1; mt <= BR_TILE_LARGEST; mt++) {
        layouts_variant(report, "portable, MT=%d", mt);
        weights(report, mt, DISHES);
        weights(report, mt, FEW);
        struct layouts_region *out =
            layouts_region(report, LAYOUTS_SHARED, "out", (size_t)(mt * ROWS * BR_TILE_OUT_ROW), 1);
        write_result(report, out, mt);
        store_pieces(report, out, mt, 128);
        store_pieces(report, out, mt, 512);
        store_pieces(report, out, mt, 48);
        store_bytes(report, out, mt, 77);
    }
    comments(report);
}
