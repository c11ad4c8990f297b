/* FRB stage 1 on a GPU, grids of 12 to 24 cells each way: the accesses of a block of threads. */
#include "tools/layouts/frb_grid_autocorr_1d.h"

void layouts_frb_grid_autocorr_1d(struct layouts *report);

/* A step's samples, each of them once. */
static void samples(struct layouts *report, unsigned npol)
{
    const unsigned times = frb_autocorr_1d_times(npol);
    unsigned seen[K] = {0};
    for (unsigned k = 0; k < K; k++) {
        const unsigned time = frb_autocorr_1d_time(npol, k), pol = frb_autocorr_1d_pol(npol, k);
        layouts_expect(report, frb_autocorr_1d_sample(npol, time, pol) == k,
                       "sample %u is copied to another one", k);
        layouts_expect(report, pol == frb_autocorr_1d_pol(npol, (k + 4) % K),
                       "samples %u and 4 further are apart", k);
        if (layouts_expect(report, pol < npol && time < times, "no sample %u", k)) seen[pol * times + time]++;
    }
    for (unsigned k = 0; k < K; k++)
        layouts_expect(report, seen[k] == 1, "sample %u is there %u times", k, seen[k]);
}

/* Bytes of a step, of `row` dishes in each row of cells, in the order of n; then of the cells (dishes in
 * another order meet in banks as chance has it). */
static void bytes(struct layouts *report, const struct grid *g, unsigned row, unsigned gap, bool in_groups)
{
    const unsigned D = g->M * row, pitch = frb_autocorr_1d_pitch(g->MT, g->NT);
    struct layouts_region *raw = layouts_region(report, LAYOUTS_SHARED, "raw", (size_t)K * pitch, 1);
    struct layouts_pass *pass = layouts_begin(raw, LAYOUTS_WRITE, "stage");
    layouts_expect(report, frb_autocorr_1d_byte(64 * g->MT * g->NT - 1, gap) < pitch,
                   "not all dishes have room");
    for (unsigned i = 0; i < K * pitch; i++) {
        const unsigned line = i % pitch / (128 + gap), at = i % pitch % (128 + gap);
        if (at >= 128 || line * 128 + at >= D) layouts_padding(raw, i, 1);
    }
    for (unsigned i = 0; i < K * 1024; i += 512) {
        struct layouts_access access = {.bytes = 16, .items = true};
        const unsigned k = i / 1024, first = i % 1024;
        for (unsigned lane = 0; lane < 32 && first + 16 * lane < D; lane++)
            layouts_lane_items(&access, lane,
                               (int64_t)k * pitch + frb_autocorr_1d_byte(first, gap) +
                                   frb_autocorr_1d_byte(16 * lane, gap),
                               (int64_t)k * D + first + 16 * lane);
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    /* A lane whose cell has no dish reads the byte of another one's. */
    pass = layouts_begin(raw, LAYOUTS_READ, in_groups ? "cells, in groups" : "cells");
    for (unsigned i = 0; i < 8 * g->MT * g->NT * 2; i++) {
        struct layouts_access access = {.bytes = 1, .items = true};
        const unsigned eighth = i / 2 / g->NT;
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned k = in_groups ? eighth % 8 : lane / 4,
                           m = in_groups ? eighth / 8 * 8 + frb_autocorr_1d_group_m(lane) : eighth,
                           n = frb_autocorr_1d_cell_n(g->N, i / 2 % g->NT, lane, i % 2), d = m * row + n;
            if (m < g->M && n < row)
                layouts_lane_items(&access, lane, (int64_t)k * pitch + frb_autocorr_1d_byte(d, gap),
                                   (int64_t)k * D + d);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void weights(struct layouts *report, const struct grid *g, unsigned npol, bool in_groups)
{
    const unsigned M = 8 * g->MT, warps = in_groups ? 4 * g->MT : M, each = (in_groups ? 4 : 8) / npol;
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "weights", (size_t)npol * M * g->NT * 4, 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, in_groups ? "load, in groups" : "load");
    layouts_fill(region);
    layouts_allow_pieces(pass, LAYOUTS_SECTOR, "a pair of a row of cells; once in a run of blocks");
    for (unsigned i = 0; i < warps * g->NT; i++) {
        struct layouts_access access = {.bytes = 8};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned row = i / g->NT, sample = in_groups ? row % 4 : lane / 4,
                           m = in_groups ? row / 4 * 8 + frb_autocorr_1d_group_m(lane) : row;
            layouts_lane(&access, lane,
                         8 * (int64_t)frb_autocorr_1d_weight(g->NT, frb_autocorr_1d_pol(npol, sample), m,
                                                             i % g->NT, M, lane));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, each, each);
}

/* One pair of cells of a row of which the weights are not kept in registers. */
static void kept_weights(struct layouts *report)
{
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "kept weights", 8, 8);
    struct layouts_access store = {.bytes = 8, .items = true}, load = {.bytes = 8, .items = true};
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "store");
    for (unsigned lane = 0; lane < 32; lane++) {
        const int64_t item = lane / 8 % 2 * 4 + lane % 4; /* half of the samples, cells */
        if (lane / 16 == 0 && lane / 4 % 2 == 0)
            layouts_lane_items(&store, lane, frb_autocorr_1d_kept_weight(lane), item);
        layouts_lane_items(&load, lane, frb_autocorr_1d_kept_weight(lane), item);
    }
    layouts_access(pass, &store);
    layouts_end(pass, 1, 1);
    pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_access(pass, &load);
    layouts_end(pass, 4, 4);
}

static int64_t half_transformed(unsigned direction, unsigned m, unsigned l)
{
    return ((int64_t)direction * 64 + m) * 4 + l;
}

static void transformed(struct layouts *report, const struct grid *g)
{
    const unsigned slots = g->warps * QW, pitch = frb_autocorr_1d_y_pitch(g->MT);
    struct layouts_region *y = layouts_region(report, LAYOUTS_SHARED, "y", (size_t)slots * pitch / 8, 8);
    struct layouts_pass *pass = layouts_begin(y, LAYOUTS_WRITE, "transform");
    for (unsigned i = 0; i < slots * pitch / 8; i++)
        if (i / (pitch / 8) >= 2 * g->N || i % (pitch / 8) >= 32 * g->MT) layouts_padding(y, i, 1);
    for (unsigned i = 0; i < 8 * g->MT * g->NT * 2; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = frb_autocorr_1d_row(g->rows, i / 2 / g->NT / g->rows, i / 2 / g->NT % g->rows),
                           q = i / 2 % g->NT * 8 + lane / 4,
                           direction = q < g->N ? frb_autocorr_1d_direction(g->N, q, i % 2) : 0;
            if (q < g->N)
                layouts_lane_items(&access, lane, frb_autocorr_1d_y(g->MT, direction, m, lane % 4),
                                   half_transformed(direction, m, lane % 4));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(y, LAYOUTS_READ, "multiply");
    for (unsigned i = 0; i < slots * g->MT; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        const unsigned direction = frb_autocorr_1d_mine(g->warps, i / g->MT / QW, i / g->MT % QW);
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = i % g->MT * 8 + lane / 4;
            layouts_lane_items(&access, lane, frb_autocorr_1d_y(g->MT, direction, m, lane % 4),
                               half_transformed(direction, m, lane % 4));
            if (direction >= 2 * g->N) access.item[lane][0] = LAYOUTS_ANY; /* nobody wants their lags */
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

/* The lane of which a register that is stored or loaded as a matrix, transposed, has a row's element
 * `column`, in its half row % 2. */
static unsigned transposed_lane(unsigned row, unsigned column)
{
    return 4 * column + row / 2;
}

static int64_t group_transformed(unsigned direction, unsigned m, unsigned part, unsigned sample)
{
    return (((int64_t)direction * 64 + m) * 2 + part) * K + sample;
}

/* From the registers that wgmma leaves to those that mma.sync takes. */
static void transformed_in_groups(struct layouts *report, const struct grid *g)
{
    const unsigned slots = g->warps * QW, pitch = frb_autocorr_1d_group_y_pitch(g->MT);
    struct layouts_region *y =
        layouts_region(report, LAYOUTS_SHARED, "y, in groups", (size_t)slots * pitch / 2, 2);
    struct layouts_pass *pass = layouts_begin(y, LAYOUTS_WRITE, "stmatrix");
    layouts_expect(report, pitch <= frb_autocorr_1d_y_pitch(g->MT), "there is room for less than %u bytes",
                   pitch);
    for (unsigned i = 0; i < slots * pitch / 2; i++)
        if (i % (pitch / 2) >= 128 * g->MT) layouts_padding(y, i, 1);
    for (unsigned q = 0; q < slots; q += 16)
        for (unsigned i = 0; i < g->MT * 2 * 4; i++) {
            struct layouts_access access = {.bytes = 16, .items = true};
            const unsigned tile = i / 8, part = i / 4 % 2, warp = i % 4;
            for (unsigned lane = 0; lane < (q + 16 <= slots ? 32 : 16); lane++) {
                layouts_lane(&access, lane,
                             frb_autocorr_1d_group_store(g->MT, warp, lane) +
                                 frb_autocorr_1d_group_y(g->MT, q, tile, part, 0));
                for (unsigned j = 0; j < 8; j++) {
                    const struct br_cell at = br_wgmma_c(2 * (q / 4 + lane / 8) + lane % 2,
                                                         32 * warp + transposed_lane(lane % 8, j));
                    access.item[lane][j] =
                        group_transformed(at.column, 8 * tile + row_m(at.row), part, row_sample(at.row));
                }
            }
            layouts_access(pass, &access);
        }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(y, LAYOUTS_READ, "ldmatrix");
    for (unsigned i = 0; i < slots * g->MT; i++) {
        struct layouts_access access = {.bytes = 16, .items = true};
        const unsigned tile = i % g->MT, warp = i / g->MT / QW, further = i / g->MT % QW;
        for (unsigned lane = 0; lane < 16; lane++) {
            layouts_lane(&access, lane,
                         frb_autocorr_1d_group_load(g->MT, frb_autocorr_1d_mine(g->warps, warp, 0), lane) +
                             further * g->warps * pitch + tile * 256);
            for (unsigned j = 0; j < 8; j++) {
                const struct br_cell at = br_mma_f16_b(0, lane % 2, transposed_lane(lane % 8, j));
                access.item[lane][j] = group_transformed(frb_autocorr_1d_mine(g->warps, warp, further),
                                                         8 * tile + at.column, lane / 8, at.row);
            }
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void lags(struct layouts *report, const struct grid *g)
{
    const unsigned slots = g->warps * QW, pitch = frb_autocorr_1d_lag(g->MT, 1, 0);
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "lags", (size_t)slots * pitch / 4, 4);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "store");
    for (unsigned i = 0; i < slots; i++)
        layouts_padding(region, i * (size_t)pitch / 4 + 8 * (size_t)g->MT, pitch / 4 - 8 * g->MT);
    layouts_allow_wavefronts(pass, 4, "four directions; once in a block of time");
    for (unsigned i = 0; i < g->warps * g->MT; i++) {
        struct layouts_access access = {.bytes = 4, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned direction = frb_autocorr_1d_mine(g->warps, i / g->MT, lane % QW),
                           lag = i % g->MT * 8 + frb_autocorr_1d_residue(lane);
            layouts_lane_items(&access, lane, frb_autocorr_1d_lag(g->MT, direction, lag),
                               (int64_t)direction * 64 + lag);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(region, LAYOUTS_READ, "transform");
    for (unsigned i = 0; i < frb_autocorr_1d_units(g->MT, g->N) * g->MT; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        const unsigned tile = i / g->MT / g->MT, step = i % g->MT;
        for (unsigned lane = 0; lane < 32; lane++) {
            const struct br_cell at = br_mma_f16_b(0, 0, lane), next = br_mma_f16_b(1, 0, lane);
            const unsigned direction = 8 * tile + at.column, lag = frb_autocorr_1d_k_lag(step, at.row);
            layouts_expect(report, frb_autocorr_1d_k_lag(step, next.row) == lag + 1,
                           "lags %u and not the next one", lag);
            layouts_lane_items(
                &access, lane,
                frb_autocorr_1d_lag(g->MT, lane / 4, frb_autocorr_1d_k_lag(0, 2 * (lane % 4))) +
                    tile * frb_autocorr_1d_lag(g->MT, 8, 0) + step * 32,
                (int64_t)direction * 64 + lag);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, g->MT * (2 * g->N == slots), g->MT);
}

/* An image, to device memory: by pairs of directions q, if it is not transposed and aligned to 4 bytes. */
static void image(struct layouts *report, const struct grid *g, bool transposed, bool pairs)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "image", (size_t)4 * g->M * g->N, 2);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE,
                                              pairs        ? "draw pairs"
                                              : transposed ? "draw, transposed"
                                                           : "draw");
    layouts_allow_pieces(pass, pairs ? 16 : 2,
                         transposed
                             ? "eight p side by side, opposite ones backwards: the next tile of p follows"
                         : pairs ? "eight q side by side: the next tile of q follows at once"
                                 : "every other one of eight q, as the image is not aligned to pairs");
    for (unsigned i = 0; i < frb_autocorr_1d_units(g->MT, g->N) * 4; i++) {
        struct layouts_access access = {.bytes = pairs ? 4 : 2};
        const unsigned tile = i / 4 / (g->N / 4), first = 8 * (i / 4 % (g->N / 4)), minus = i / 2 % 2;
        if (pairs && i % 2) continue;
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned p = frb_autocorr_1d_p(g->M, tile, lane / 4), q = first + 2 * (lane % 4) + i % 2;
            layouts_lane(&access, lane,
                         2 * (int64_t)frb_autocorr_1d_place(g->M, g->N, transposed,
                                                            frb_autocorr_1d_direction(g->M, p, minus), q));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, g->M % 8 == 0 ? 1 : 2);
}

static void check(struct layouts *report, const struct grid *g)
{
    for (unsigned npol = 1; npol <= 2; npol++) {
        samples(report, npol);
        weights(report, g, npol, false);
        weights(report, g, npol, true);
    }
    for (unsigned in_groups = 0; in_groups < 2; in_groups++) {
        bytes(report, g, g->N, 0, in_groups);
        if (g->M == 24 && g->N == 24) bytes(report, g, 22, 32, in_groups);
    }
    kept_weights(report);
    transformed(report, g);
    transformed_in_groups(report, g);
    lags(report, g);
    image(report, g, false, true);
    image(report, g, false, false);
    image(report, g, true, false);
}

void layouts_frb_grid_autocorr_1d(struct layouts *report)
{
    for_grids(report, check);
}
