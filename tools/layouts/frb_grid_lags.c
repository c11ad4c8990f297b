/* FRB stage 1 on a GPU, grids of 12 to 24 cells each way. What a block of threads does is replayed in float64
 * with the kernel's own layouts, from the cells' places to the directions, and compared with the equation;
 * and its accesses. */
#include "kernels/common/fragments.h"
#include "kernels/frb_grid/lags_layout.h"
#include "tools/layouts/check.h"

#include <complex.h>
#include <math.h>
#include <string.h>

void layouts_frb_grid_lags(struct layouts *report);

enum { MOST = 32, K = 8, QW = 4 };

#define UNIT ((double complex)I)

/* A variant of the kernel: rows of cells of a warp, warps that multiply. */
struct grid {
    unsigned M, N, MT, NT, rows, warps;
};

static double complex wave(unsigned turns, unsigned of)
{
    return cexp(UNIT * 2 * M_PI * (double)(turns % of) / (double)of);
}

/* ---- the arithmetic ---- */

/* Right factor of a product along n: x of one row of cells as the lanes have it, k of 16, column: sample. */
struct factor {
    double complex b[16][8];
};

/* Sums (or differences) of pairs 2 i and 2 i + 1; or of both halves of pair 2, see frb_lags_wave. */
static void fold(const struct grid *g, struct factor *f, double complex x[K][MOST], unsigned half,
                 unsigned pair, bool difference)
{
    const bool both = g->NT == 3 && pair == 2;
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned part = 0; part < 2; part++) {
            const struct br_cell at = br_mma_f16_b(half, part, lane);
            const unsigned n = frb_lags_cell_n(g->N, pair, lane, both ? 0 : part),
                           other = frb_lags_cell_n(g->N, both ? pair : pair + 1, lane, both ? 1 : part);
            const double complex one = n < g->N ? x[at.column][n] : 0,
                                 two = other < g->N ? x[at.column][other] : 0;
            f->b[at.row][at.column] = (both ? part : difference) ? one - two : one + two;
        }
}

/* c[row] += tile of waves by f, of which only k < 8 count when `half`. */
static void multiply(const struct grid *g, double complex c[16][8], unsigned tile, const struct factor *f)
{
    for (unsigned row = 0; row < 16; row++)
        for (unsigned k = 0; k < 16; k++) {
            unsigned q, sine, j;
            if (!frb_lags_wave(g->NT, tile, row, k, &q, &sine, &j) || q >= g->N || j >= g->N / 2) continue;
            const double angle = M_PI * (sine && q == 0 ? g->N : q) * (2 * j + 1) / (2 * g->N);
            for (unsigned s = 0; s < K; s++) c[row][s] += (sine ? sin(angle) : cos(angle)) * f->b[k][s];
        }
}

/* y[direction][sample] of a row of cells x[sample][n]. */
static void along_n(const struct grid *g, double complex x[K][MOST], double complex y[2 * MOST][K])
{
    struct factor sums = {{{0}}}, differences = {{{0}}};
    double complex c[4][16][8] = {{{0}}}, cosines[32][K] = {{0}}, sines[32][K] = {{0}};
    fold(g, &sums, x, 0, 0, false);
    fold(g, &differences, x, 0, 0, true);
    if (g->NT > 2) {
        fold(g, &sums, x, 1, 2, false);
        fold(g, &differences, x, 1, 2, true);
    }
    if (g->NT == 4) {
        for (unsigned i = 0; i < 4; i++) multiply(g, c[i], i, i < 2 ? &sums : &differences);
    } else {
        multiply(g, c[0], 0, &sums);
        multiply(g, c[1], 1, &differences);
        if (g->NT == 3) multiply(g, c[2], 2, &sums), multiply(g, c[2], 3, &differences);
    }
    for (unsigned q = 0; q < 8 * g->NT; q++)
        for (unsigned s = 0; s < K; s++)
            if (g->NT == 4)
                cosines[q][s] = c[q / 16][q % 16][s], sines[q][s] = c[2 + q / 16][q % 16][s];
            else
                cosines[q][s] = c[q < 16 ? 0 : 2][q % 16][s],
                sines[q][s] = c[q < 16 ? 1 : 2][q < 16 ? q : q - 8][s];
    for (unsigned q = 0; q < g->N; q++)
        for (unsigned s = 0; s < K; s++) {
            const double paired = q > 0;
            y[frb_lags_direction(g->N, q, 0)][s] = cosines[q][s] + paired * UNIT * sines[q][s];
            y[frb_lags_direction(g->N, q, 1)][s] = paired * cosines[q][s] - UNIT * sines[q][s];
        }
}

/* Lags of four directions, y[4][m][sample]: lag[4][8 MT]. */
static void correlate(const struct grid *g, double complex y[4][MOST][K], double complex lag[4][MOST])
{
    double complex t[4][5][32] = {{{0}}}, u[2][5][32] = {{{0}}};
    for (unsigned i = 0; i < 4; i++) {
        double complex sum[5][8][8] = {{{0}}};
        for (unsigned b = 0; b < g->MT; b++)
            for (unsigned a = b; a < g->MT; a++)
                for (unsigned j = 0; j < 64 * K; j++)
                    sum[a - b][j / K / 8][j / K % 8] +=
                        y[i][8 * a + j / K / 8][j % K] * conj(y[i][8 * b + j / K % 8][j % K]);
        for (unsigned d = 0; d < g->MT; d++)
            for (unsigned lane = 0; lane < 32; lane++) {
                const struct br_cell mine = br_mma_c(0, lane), next = br_mma_c(1, (lane + 4) % 32);
                t[i][d][lane] =
                    sum[d][mine.row][mine.column] + sum[next.row == 0 ? d + 1 : d][next.row][next.column];
            }
    }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned d = 0; d < g->MT; d++)
            for (unsigned lane = 0; lane < 32; lane++) {
                const unsigned odd = lane % 2, other = frb_lags_partner(lane),
                               mine_wraps = odd && lane / 4 < 2, other_wraps = !odd && other / 4 < 2;
                u[i][d][lane] = t[2 * i + odd][d + mine_wraps][lane] + t[2 * i + odd][d + other_wraps][other];
            }
    for (unsigned d = 0; d < g->MT; d++)
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned upper = lane / 2 % 2, other = lane ^ 18;
            const unsigned late[2] = {upper && (lane / 4 - 2 * (lane % 2)) % 8 < 4,
                                      !upper && (other / 4 - 2 * (other % 2)) % 8 < 4};
            lag[lane % 4][8 * d + frb_lags_residue(lane)] =
                u[upper][d + late[0]][lane] + u[upper][d + late[1]][other];
        }
}

static void replay(struct layouts *report, const struct grid *g)
{
    static double complex x[MOST][K][MOST], y[2 * MOST][MOST][K], half[2 * MOST][K], lag[2 * MOST][MOST];
    double worst = 0, largest = 0;
    unsigned seen[2 * MOST] = {0};
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    for (unsigned m = 0; m < g->M; m++) {
        for (unsigned i = 0; i < K * g->N; i++) {
            const unsigned k = i / g->N, n = i % g->N;
            x[m][k][n] = (1 + (m * 7 + n * 3 + k) % 5) *
                         cexp(UNIT * (m * m * 0.7 + n * 1.3 * m + n * n * n + k * k * m + k * 0.1 * n));
        }
        along_n(g, x[m], half);
        for (unsigned q = 0; q < 2 * g->N; q++) memcpy(y[q][m], half[q], sizeof y[q][m]);
    }
    for (unsigned q = 0; q < 2 * g->N; q += 4) correlate(g, &y[q], &lag[q]);
    for (unsigned i = 0; i < g->warps * QW; i++) {
        const unsigned q = frb_lags_mine(g->warps, i / QW, i % QW);
        if (q < 2 * g->N) seen[q]++;
    }
    for (unsigned q = 0; q < 2 * g->N; q++)
        layouts_expect(report, seen[q] == 1, "direction %u is done %u times", q, seen[q]);
    for (unsigned p = 0; p < 2 * g->M; p++)
        for (unsigned q = 0; q < 2 * g->N; q++) {
            double expected = 0, got = creal(lag[q][0]);
            for (unsigned l = 1; l < g->M; l++) got += 2 * creal(wave(p * l, 2 * g->M) * lag[q][l]);
            for (unsigned k = 0; k < K && (p * q % 7 == 0 || q < 2); k++) {
                double complex sum = 0;
                for (unsigned i = 0; i < g->M * g->N; i++)
                    sum += x[i / g->N][k][i % g->N] * wave(i / g->N * p, 2 * g->M) *
                           wave(i % g->N * q, 2 * g->N);
                expected += creal(sum * conj(sum));
            }
            if (p * q % 7 != 0 && q >= 2) continue;
            worst = fmax(worst, fabs(got - expected));
            largest = fmax(largest, expected);
        }
    layouts_expect(report, worst < 1e-9 * largest, "the transform is off by %g of %g", worst, largest);
}

/* The transform by wgmma: each register of a and c means what the layout says, and the right factor stands
 * where wgmma looks for it; then the product is the transform. */
static void by_wgmma(struct layouts *report, const struct grid *g)
{
    static double complex x[8][K][MOST], y[2 * MOST][8][K];
    const unsigned directions = g->warps * QW;
    double worst = 0;
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    for (unsigned i = 0; i < 8 * K * g->N; i++)
        x[i / g->N / K][i / g->N % K][i % g->N] = cexp(UNIT * (0.3 * i * i + 0.7 * i)) * (1 + i % 3);
    for (unsigned lane = 0; lane < 128; lane++) {
        const unsigned m = lane / 32 * 2 + frb_lags_group_m(lane % 32), s = frb_lags_group_sample(lane % 32);
        for (unsigned high = 0; high < 2; high++) {
            const unsigned row = br_wgmma_f16_a(high, 0, lane).row;
            for (unsigned tile = 0; tile < directions / 4; tile++)
                for (unsigned simd = 0; simd < 2; simd++) {
                    const struct br_cell at = br_wgmma_c(4 * tile + 2 * high + simd, lane);
                    const unsigned q = frb_lags_group_direction(tile, lane % 32);
                    layouts_expect(report, at.row == row && at.column == 2 * q + simd,
                                   "c[%u] of lane %u is of row %u, column %u", 2 * tile + high, lane, at.row,
                                   at.column);
                }
            /* All that a row's four lanes put in, to each column. */
            for (unsigned i = 0; i < g->NT * 4; i++) {
                const unsigned pair = i / 4, simd = i % 2, part = i / 2 % 2,
                               k = br_wgmma_f16_a(2 * part + high, simd, lane).column,
                               n = frb_lags_cell_n(g->N, pair, lane, simd);
                const double complex value = n < g->N ? x[m][s + 4 * high][n] : 0;
                for (unsigned column = 0; column < 2 * directions; column++) {
                    const unsigned place = frb_lags_table(directions, pair, column, part, lane % 4, simd),
                                   q = column / 2;
                    if (!layouts_expect(report,
                                        place == pair * frb_lags_table_bytes(1, directions) +
                                                     br_wgmma_plain_place(column, 2 * k, 128, 256),
                                        "the factor of column %u, k %u stands at %u", column, k, place) ||
                        n >= g->N || q >= 2 * g->N)
                        continue;
                    const double complex turned =
                        wave(q * n, 2 * g->N) * (part ? UNIT * cimag(value) : creal(value));
                    y[q][m][s + 4 * high] += column % 2 ? UNIT * cimag(turned) : creal(turned);
                }
            }
        }
    }
    for (unsigned i = 0; i < 2 * g->N * 8 * K; i++) {
        const unsigned q = i / (8 * K), m = i / K % 8, s = i % K;
        double complex expected = 0;
        for (unsigned n = 0; n < g->N; n++) expected += x[m][s][n] * wave(q * n, 2 * g->N);
        worst = fmax(worst, cabs(y[q][m][s] - expected));
    }
    layouts_expect(report, worst < 1e-9, "the transform by wgmma is off by %g", worst);
}

/* ---- the accesses ---- */

/* Bytes of a step; then of the cells, with dishes in the order of n (others meet in banks as chance has it).
 */
static void bytes(struct layouts *report, const struct grid *g, unsigned npol, bool in_groups)
{
    const unsigned D = g->M * g->N, pitch = frb_lags_pitch(g->MT, g->NT, in_groups),
                   times = frb_lags_times(npol);
    unsigned seen[K] = {0};
    struct layouts_region *raw = layouts_region(report, LAYOUTS_SHARED, "raw", (size_t)K * pitch, 1);
    struct layouts_pass *pass = layouts_begin(raw, LAYOUTS_WRITE, "stage");
    for (unsigned k = 0; k < K; k++) layouts_padding(raw, (size_t)k * pitch + D, pitch - D);
    layouts_allow_wavefronts(
        pass, 8, "samples are 16 or 32 bytes longer than a multiple of 128, which makes the reads better");
    for (unsigned i = 0; i < K * D / 16; i += 32) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32 && i + lane < K * D / 16; lane++) {
            const unsigned k = (i + lane) / (D / 16), at = (i + lane) % (D / 16) * 16;
            layouts_lane_items(&access, lane, (int64_t)k * pitch + at, (int64_t)k * D + at);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    for (unsigned k = 0; k < K; k++) {
        const unsigned time = frb_lags_time(npol, k), pol = frb_lags_pol(npol, k);
        layouts_expect(report, frb_lags_sample(npol, time, pol) == k, "sample %u is copied to another one",
                       k);
        layouts_expect(report, pol == frb_lags_pol(npol, (k + 4) % K), "samples %u and 4 further are apart",
                       k);
        if (layouts_expect(report, pol < npol && time < times, "no sample %u", k)) seen[pol * times + time]++;
    }
    for (unsigned k = 0; k < K; k++)
        layouts_expect(report, seen[k] == 1, "sample %u is there %u times", k, seen[k]);
    pass = layouts_begin(raw, LAYOUTS_READ, "cells");
    layouts_allow_wavefronts(pass, 3, "the four cells of a sample may begin in any of its banks");
    for (unsigned i = 0; in_groups && i < g->M * g->NT * 2; i++) {
        struct layouts_access access = {.bytes = 1, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = i / 4 / g->NT * 2 + frb_lags_group_m(lane),
                           k = frb_lags_group_sample(lane) + i % 2 * 4,
                           n = frb_lags_cell_n(g->N, i / 4 % g->NT, lane, i / 2 % 2), d = m * g->N + n;
            if (n < g->N) layouts_lane_items(&access, lane, (int64_t)k * pitch + d, (int64_t)k * D + d);
        }
        layouts_access(pass, &access);
    }
    for (unsigned i = 0; !in_groups && i < g->M * g->NT * 2; i++) {
        struct layouts_access access = {.bytes = 1, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = i / 2 / g->NT, n = frb_lags_cell_n(g->N, i / 2 % g->NT, lane, i % 2),
                           d = m * g->N + n;
            if (n < g->N)
                layouts_lane_items(&access, lane, (int64_t)(lane / 4) * pitch + d,
                                   (int64_t)(lane / 4) * D + d);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void weights(struct layouts *report, const struct grid *g, unsigned npol)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "weights", (size_t)npol * g->M * g->NT * 4, 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    layouts_allow_pieces(pass, LAYOUTS_SECTOR, "four lanes of each polarisation; once in a run of blocks");
    for (unsigned i = 0; i < g->M * g->NT; i++) {
        struct layouts_access access = {.bytes = 8};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane,
                         8 * (int64_t)frb_lags_weight(g->NT, frb_lags_pol(npol, lane / 4), i / g->NT,
                                                      i % g->NT, g->M, lane));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 8 / npol, 8 / npol);
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
            layouts_lane_items(&store, lane, frb_lags_kept_weight(lane), item);
        layouts_lane_items(&load, lane, frb_lags_kept_weight(lane), item);
    }
    layouts_access(pass, &store);
    layouts_end(pass, 1, 1);
    pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_access(pass, &load);
    layouts_end(pass, 4, 4);
}

/* The same of a warp's rows where warpgroups transform. */
static void group_weights(struct layouts *report, const struct grid *g, unsigned npol)
{
    const unsigned row = g->NT * 4, bytes = frb_lags_group_weight(g->NT, g->MT, 0, 0, 0, 0);
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "weights of a warp", bytes / 8, 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "store");
    for (unsigned i = 0; npol == 1 && i < g->MT; i++) layouts_padding(region, (i * 2 + 1) * 2 * row, 2 * row);
    layouts_allow_wavefronts(pass, 4, "one polarisation leaves gaps; once in a run of blocks");
    for (unsigned i = 0; i < g->MT * 4 * row; i += 32) {
        struct layouts_access access = {.bytes = 8, .items = true};
        for (unsigned lane = 0; lane < 32 && i + lane < g->MT * 4 * row; lane++) {
            const unsigned at = (i + lane) / row, tile = at / 4, pol = at / 2 % 2;
            if (pol < npol)
                layouts_lane_items(&access, lane,
                                   frb_lags_group_weight(g->NT, tile, pol, at % 2, 0, 0) +
                                       (i + lane) % row * 8,
                                   ((tile * 2 + pol) * 2 + at % 2) * row + (i + lane) % row);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(region, LAYOUTS_READ, "load");
    if (g->NT == 2) layouts_allow_wavefronts(pass, 4, "once in a run of blocks: they stay in registers");
    for (unsigned i = 0; i < g->MT * g->NT; i++) { /* samples s and s + 4 have the same ones */
        struct layouts_access access = {.bytes = 8, .items = true};
        const unsigned tile = i / g->NT, pair = i % g->NT;
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = frb_lags_group_m(lane), pol = frb_lags_pol(npol, frb_lags_group_sample(lane));
            layouts_lane_items(&access, lane, frb_lags_group_weight(g->NT, tile, pol, m, pair, lane),
                               ((tile * 2 + pol) * 2 + m) * row + pair * 4 + lane % 4);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 4 / npol, 4 / npol);
}

static int64_t half_transformed(unsigned direction, unsigned m, unsigned l)
{
    return ((int64_t)direction * 64 + m) * 4 + l;
}

static void transformed(struct layouts *report, const struct grid *g, bool in_groups)
{
    const unsigned slots = g->warps * QW, pitch = frb_lags_y_pitch(g->MT);
    struct layouts_region *y = layouts_region(report, LAYOUTS_SHARED, "y", (size_t)slots * pitch / 8, 8);
    struct layouts_pass *pass = layouts_begin(y, LAYOUTS_WRITE, "transform");
    for (unsigned i = 0; i < slots * pitch / 8; i++) {
        const unsigned direction = i / (pitch / 8), m = i % (pitch / 8) / 4;
        if (direction >= 2 * g->N || m >= g->M) layouts_padding(y, i, 1); /* stays zero */
    }
    for (unsigned i = 0; in_groups && i < g->MT * slots; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = i / slots * 8 + i % 4 * 2 + frb_lags_group_m(lane),
                           direction = frb_lags_group_direction(i % slots / 4, lane),
                           s = frb_lags_group_sample(lane);
            if (m < g->M && direction < 2 * g->N)
                layouts_lane_items(&access, lane, frb_lags_y(g->MT, direction, m, s),
                                   half_transformed(direction, m, s));
        }
        layouts_access(pass, &access);
    }
    for (unsigned i = 0; !in_groups && i < g->M * g->NT * 2; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = frb_lags_row(g->rows, i / 2 / g->NT / g->rows, i / 2 / g->NT % g->rows),
                           q = i / 2 % g->NT * 8 + lane / 4,
                           direction = q < g->N ? frb_lags_direction(g->N, q, i % 2) : 0;
            if (q < g->N)
                layouts_lane_items(&access, lane, frb_lags_y(g->MT, direction, m, lane % 4),
                                   half_transformed(direction, m, lane % 4));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(y, LAYOUTS_READ, "multiply");
    for (unsigned i = 0; i < slots * g->MT; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        const unsigned direction = frb_lags_mine(g->warps, i / g->MT / QW, i / g->MT % QW);
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = i % g->MT * 8 + lane / 4;
            const bool written = direction < 2 * g->N && m < g->M;
            layouts_lane_items(&access, lane, frb_lags_y(g->MT, direction, m, lane % 4),
                               half_transformed(direction, m, lane % 4));
            if (!written) access.item[lane][0] = LAYOUTS_ANY;
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void lags(struct layouts *report, const struct grid *g)
{
    const unsigned slots = g->warps * QW, pitch = frb_lags_lag(g->MT, 1, 0);
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "lags", (size_t)slots * pitch / 4, 4);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "store");
    for (unsigned i = 0; i < slots; i++)
        layouts_padding(region, i * (size_t)pitch / 4 + 8 * (size_t)g->MT, pitch / 4 - 8 * g->MT);
    layouts_allow_wavefronts(pass, 4, "four directions; once in a block of time");
    for (unsigned i = 0; i < g->warps * g->MT; i++) {
        struct layouts_access access = {.bytes = 4, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned direction = frb_lags_mine(g->warps, i / g->MT, lane % QW),
                           lag = i % g->MT * 8 + frb_lags_residue(lane);
            layouts_lane_items(&access, lane, frb_lags_lag(g->MT, direction, lag),
                               (int64_t)direction * 64 + lag);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(region, LAYOUTS_READ, "turn");
    for (unsigned i = 0; i < frb_lags_units(g->MT, g->N) * g->MT; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        const unsigned tile = i / g->MT / g->MT, step = i % g->MT;
        for (unsigned lane = 0; lane < 32; lane++) {
            const struct br_cell at = br_mma_f16_b(0, 0, lane), next = br_mma_f16_b(1, 0, lane);
            const unsigned direction = 8 * tile + at.column, lag = frb_lags_k_lag(step, at.row);
            layouts_expect(report, frb_lags_k_lag(step, next.row) == lag + 1, "lags %u and not the next one",
                           lag);
            layouts_lane_items(&access, lane, frb_lags_lag(g->MT, direction, lag),
                               (int64_t)direction * 64 + lag);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, g->MT * (2 * g->N == slots), g->MT);
}

static void image(struct layouts *report, const struct grid *g, bool transposed)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "image", (size_t)4 * g->M * g->N, 2);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "draw");
    layouts_allow_wavefronts(pass, transposed ? 8 : 4,
                             "rows are as long as in device memory; once in a block of time");
    for (unsigned i = 0; i < frb_lags_units(g->MT, g->N) * 4; i++) {
        struct layouts_access access = {.bytes = transposed ? 2 : 4};
        const unsigned unit = i / 4, second = i % 2;
        if (!transposed && second) continue;
        for (unsigned lane = 0; lane < 32; lane++) {
            const struct br_cell at = br_mma_c(0, lane);
            const unsigned p = 8 * (unit % g->MT) + at.row, q = 8 * (unit / g->MT) + at.column + second;
            if (p < g->M)
                layouts_lane(&access, lane,
                             2 * (int64_t)frb_lags_place(g->M, g->N, transposed,
                                                         frb_lags_direction(g->M, p, i / 2 % 2), q));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

void layouts_frb_grid_lags(struct layouts *report)
{
    static const unsigned variants[][4] = {{2, 2, 4, 8}, {2, 3, 2, 10}, {2, 3, 2, 12}, {3, 3, 3, 12}};
    for (unsigned M = 12; M <= 24; M += 4)
        for (unsigned N = 12; N <= 24; N += 4)
            for (unsigned i = 0; i < 4; i++) {
                const unsigned *v = variants[i];
                const struct grid g = {M, N, v[0], v[1], v[2], v[3]};
                if ((M + 7) / 8 != g.MT || (N + 7) / 8 != g.NT || g.warps * QW < 2 * N) continue;
                layouts_variant(report, "%u x %u cells, %u rows a warp, %u warps of %d directions", M, N,
                                g.rows, g.warps, QW);
                replay(report, &g);
                by_wgmma(report, &g);
                for (unsigned npol = 1; npol <= 2; npol++) {
                    bytes(report, &g, npol, false);
                    bytes(report, &g, npol, true);
                    weights(report, &g, npol);
                    group_weights(report, &g, npol);
                }
                kept_weights(report);
                transformed(report, &g, false);
                transformed(report, &g, true);
                lags(report, &g);
                image(report, &g, false);
                image(report, &g, true);
            }
}
