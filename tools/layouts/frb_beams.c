/* FRB stage 2 on a GPU: places in shared memory of beams in any directions on Hopper, and of a grid's beams
 * where a whole time step of the field is there at once. */
#include "kernels/common/fragments.h"
#include "kernels/frb_beams/gpu/layout.h"
#include "tools/layouts/check.h"

void layouts_frb_beams(struct layouts *report);

/* --- wgmma/arbitrary.cuh ----------------------------------------------------------------------------- */

enum { STEPS = 64 }; /* NT */

/* U_p of a warp's 16 MB beams: made by the lanes (g, c), each in every fourth iteration, and read by
 * all lanes (g, ..), iteration by iteration. */
static void weights_p(struct layouts *report, unsigned iterations, unsigned ps, unsigned blocks)
{
    size_t count = (size_t)iterations * blocks * 16 * ps;
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "U_p", count, 2);
    struct layouts_pass *made = layouts_begin(region, LAYOUTS_WRITE, "made");
    layouts_allow_wavefronts(made, 8, "weights are made once for all time steps of a tile of beams");
    for (unsigned mb = 0; mb < blocks; mb++)
        for (unsigned h = 0; h < 2; h++)
            for (unsigned first = 0; first < iterations; first += 4)
                for (unsigned i = 0; i < ps; i += 4) {
                    struct layouts_access access = {.bytes = 8};
                    for (unsigned lane = 0; lane < 32; lane++) {
                        unsigned row = h * 8 + lane / 4, iteration = first + lane % 4;
                        if (iteration < iterations)
                            layouts_lane_items(&access, lane,
                                               br_frb_beams_p_place(iteration, mb, blocks, row, ps) + 2 * i,
                                               ((int64_t)(iteration * blocks + mb) * 16 + row) * ps + i);
                    }
                    layouts_access(made, &access);
                }
    layouts_end(made, 1, 1);

    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "an iteration");
    for (unsigned iteration = 0; iteration < iterations; iteration++)
        for (unsigned mb = 0; mb < blocks; mb++)
            for (unsigned i = 0; i < ps / 4; i++) {
                struct layouts_access access = {.bytes = 16, .items = true};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned g = lane / 4;
                    layouts_lane(&access, lane, br_frb_beams_p_place(iteration, mb, blocks, g, ps) + 16 * i);
                    /* words of u_p[h][ps / 2] */
                    for (unsigned half = 0; half < 8; half++) {
                        unsigned at = 8 * i + half, h = at / ps, p = at % ps;
                        access.item[lane][half] =
                            ((int64_t)(iteration * blocks + mb) * 16 + 8 * h + g) * ps + p;
                    }
                }
                layouts_access(read, &access);
            }
    layouts_end(read, 4, 4);
}

/* The field as the tensor memory accelerator writes it, and as wgmma reads it: k's of 16, all time steps. */
static void field_box(struct layouts *report)
{
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "field", STEPS * 64, 2);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "box"), *read;
    for (unsigned step = 0; step < STEPS; step++) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned piece = 0; piece < 8; piece++)
            layouts_lane_items(&access, piece, br_wgmma_128_place(step, piece * 16),
                               (int64_t)step * 64 + piece * 8);
        layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);
    read = layouts_begin(region, LAYOUTS_READ, "wgmma");
    for (unsigned k = 0; k < 64; k += 8)
        for (unsigned first = 0; first < STEPS; first += 8) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned row = 0; row < 8; row++)
                layouts_lane_items(&access, row, br_wgmma_128_place(first + row, 2 * k),
                                   (int64_t)(first + row) * 64 + k);
            layouts_access(read, &access);
        }
    layouts_end(read, 1, 1);
}

/* Results of a group, transposed by stmatrix, as the tensor memory accelerator wants them. */
static void results(struct layouts *report)
{
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "results", STEPS * 64, 2);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "stmatrix"), *read;
    for (unsigned warp = 0; warp < 4; warp++)
        for (unsigned j = 0; j < STEPS / 8; j += 2) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++) {
                /* Register i of the four is j + i / 2, rows 8 (i % 2) to 8 (i % 2) + 7 of the warp's 16
                 * beams. */
                unsigned step = (j + lane / 16) * 8 + lane % 8, octet = warp * 2 + lane / 8 % 2;
                struct br_cell cell = br_wgmma_c((j + lane / 16) * 4 + lane / 8 % 2 * 2, warp * 32);
                layouts_expect(report, cell.row == octet * 8 && cell.column == step / 8 * 8,
                               "results: step %u, octet %u", step, octet);
                layouts_lane_items(&access, lane, br_frb_beams_out_place(step, octet),
                                   (int64_t)step * 64 + octet * 8);
            }
            layouts_access(write, &access);
        }
    layouts_end(write, 1, 1);
    read = layouts_begin(region, LAYOUTS_READ, "box");
    for (unsigned step = 0; step < STEPS; step++) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned piece = 0; piece < 8; piece++)
            layouts_lane_items(&access, piece, br_swizzle_128_bytes(step * 128 + piece * 16),
                               (int64_t)step * 64 + piece * 8);
        layouts_access(read, &access);
    }
    layouts_end(read, 1, 1);
}

/* --- grid_whole.cuh ----------------------------------------------------------------------------------- */

/* A time step's field: copies of 16 bytes by a team, four matrices of 8 rows at a time by each of its warps.
 */
static void whole_field(struct layouts *report, unsigned np, unsigned nq, unsigned qt, unsigned warps)
{
    unsigned p_blocks = (np + 15) / 16, row = br_frb_beams_row(qt), octets = nq / 8;
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "field", (size_t)p_blocks * 16 * row, 16);
    for (unsigned p = 0; p < p_blocks * 16; p++) layouts_padding(region, (size_t)p * row + row - 1, 1);
    struct layouts_pass *zero = layouts_begin(region, LAYOUTS_WRITE, "zero");
    for (unsigned first = 0; first < p_blocks * 16 * row; first += 32) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 32 && first + lane < p_blocks * 16 * row; lane++)
            layouts_lane_items(&access, lane, (first + lane) * 16,
                               (int64_t)(first + lane) / row * 1024 + (first + lane) % row);
        layouts_access(zero, &access);
    }
    layouts_end(zero, 1, 1);
    struct layouts_pass *copy = layouts_begin(region, LAYOUTS_WRITE, "copy");
    layouts_allow_wavefronts(copy, 8,
                             "rows are an odd number of pieces apart, and a copy goes over their ends");
    for (unsigned first = 0; first < np * octets; first += 32) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 32 && first + lane < np * octets; lane++) {
            unsigned p = (first + lane) / octets, octet = (first + lane) % octets;
            layouts_lane_items(&access, lane, (p * row + octet) * 16, (int64_t)p * 1024 + octet);
        }
        layouts_access(copy, &access);
    }
    layouts_end(copy, 0, 1);
    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "ldmatrix");
    for (unsigned warp = 0; warp < warps; warp++)
        for (unsigned block = 0; block < p_blocks; block++)
            for (unsigned k = 0; k < qt; k++) {
                struct layouts_access access = {.bytes = 16};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned p = block * 16 + lane / 16 * 8 + lane % 8, octet = lane / 8 % 2 + 2 * k;
                    layouts_lane_items(&access, lane, (p * row + octet) * 16, (int64_t)p * 1024 + octet);
                }
                layouts_access(read, &access);
            }
    layouts_end(read, warps, warps);
}

/* A time step's beams of a team, put in by each warp as it has them, taken out in order. */
static void whole_results(struct layouts *report, unsigned bx, unsigned by, unsigned it, unsigned warps)
{
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "beams", (size_t)bx * by, 2);
    struct layouts_pass *put = layouts_begin(region, LAYOUTS_WRITE, "put"), *take;
    if (by * 2 / 16 % 8 != 4)
        layouts_allow_wavefronts(
            put, 16, "beams of a time step leave as one piece of memory, so that rows cannot be set apart");
    for (unsigned warp = 0; warp < warps; warp++)
        for (unsigned m = 0; m < it; m++)
            for (unsigned half = 0; half < 2; half++) {
                struct layouts_access access = {.bytes = 16};
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned i = m * 16 + half * 8 + lane / 4, j = warp * 32 + lane % 4 * 8;
                    if (i < bx && j < by)
                        layouts_lane_items(&access, lane, br_frb_beams_put_place(i, j, by),
                                           (int64_t)i * by + j);
                }
                if (access.active) layouts_access(put, &access);
            }
    layouts_end(put, 1, 1);
    take = layouts_begin(region, LAYOUTS_READ, "take");
    for (unsigned first = 0; first < bx * by / 8; first += 32) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 32 && first + lane < bx * by / 8; lane++)
            layouts_lane_items(&access, lane, (int64_t)(first + lane) * 16, (int64_t)(first + lane) * 8);
        layouts_access(take, &access);
    }
    layouts_end(take, 1, 1);
}

void layouts_frb_beams(struct layouts *report)
{
    static const unsigned iterations_of[][2] = {
        {12, 4}, {2, 8}, {8, 4}, {3, 8}, {1, 4}}; /* iterations, p's in each */
    for (unsigned blocks = 2; blocks <= 3; blocks++)
        for (unsigned i = 0; i < sizeof iterations_of / sizeof *iterations_of; i++) {
            layouts_variant(report, "Hopper, MB=%u iterations=%u of %u", blocks, iterations_of[i][0],
                            iterations_of[i][1]);
            weights_p(report, iterations_of[i][0], iterations_of[i][1], blocks);
        }
    layouts_variant(report, "Hopper, boxes");
    field_box(report);
    results(report);
    static const unsigned grid[][4] = {
        {48, 48, 96, 96}, {16, 24, 32, 48}, {32, 32, 64, 64}, {44, 48, 33, 8}, {6, 40, 20, 128}};
    for (unsigned i = 0; i < sizeof grid / sizeof *grid; i++) {
        unsigned np = grid[i][0], nq = grid[i][1], bx = grid[i][2], by = grid[i][3], warps = (by + 31) / 32;
        layouts_variant(report, "grid, %u x %u to %u x %u", np, nq, bx, by);
        whole_field(report, np, nq, (nq + 15) / 16, warps);
        whole_results(report, bx, by, bx <= 32 ? 2 : bx <= 64 ? 4 : 6, warps);
    }
}
