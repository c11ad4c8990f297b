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

static const double NOTHING = 1e30; /* where nothing has been written */

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

/* What a lag's real (k even) or imaginary part adds to the even part (row < 8) of direction p, or to the odd
 * one; for p = 0 these are what even and odd lags add. */
static double turned(unsigned M, unsigned tile, unsigned step, unsigned row, unsigned k)
{
    const unsigned p = frb_lags_p(M, tile, row % 8), lag = frb_lags_k_lag(step, k), odd = row / 8;
    const double c = lag == 0 ? 1 : 2, angle = M_PI * p * lag / M;
    if (lag >= M) return 0;
    if (p == 0) return k % 2 || lag % 2 != odd ? 0 : c;
    return odd != k % 2 ? 0 : odd ? -c * sin(angle) : c * cos(angle);
}

/* A direction of the image; what is written twice is the same. */
static void put(struct layouts *report, const struct grid *g, double *image, unsigned place, double intensity)
{
    if (layouts_expect(report,
                       place < 4 * g->M * g->N && (image[place] == NOTHING || image[place] == intensity),
                       "intensity %u is no place, or written twice and differs", place))
        image[place] = intensity;
}

/* The image of the lags of all directions. */
static void draw(struct layouts *report, const struct grid *g, double complex lag[2 * MOST][MOST],
                 bool transposed, double *image)
{
    for (unsigned i = 0; i < 4 * g->M * g->N; i++) image[i] = NOTHING;
    for (unsigned i = 0; i < frb_lags_units(g->MT, g->N); i++) {
        const unsigned tile = i % g->MT, first = 8 * (i / g->MT);
        double c[16][8] = {{0}};
        for (unsigned j = 0; j < g->MT * 16 * 16 * 8; j++) {
            const unsigned step = j / (16 * 16 * 8), row = j / (16 * 8) % 16, k = j / 8 % 16, column = j % 8;
            const double complex one = lag[first + column][frb_lags_k_lag(step, k)];
            c[row][column] += turned(g->M, tile, step, row, k) * (k % 2 ? cimag(one) : creal(one));
        }
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned simd = 0; simd < 2; simd++) {
                const struct br_cell even = br_mma_c(simd, lane), odd = br_mma_c(2 + simd, lane);
                const unsigned p = frb_lags_p(g->M, tile, lane / 4),
                               opposite = frb_lags_direction(g->M, p, 1), q = first + 2 * (lane % 4) + simd;
                layouts_expect(report, p / 8 == tile && p < g->M, "direction %u is not of tile %u", p, tile);
                const double one = c[even.row][even.column], other = c[odd.row][odd.column];
                put(report, g, image, frb_lags_place(g->M, g->N, transposed, p, q), one + other);
                put(report, g, image, frb_lags_place(g->M, g->N, transposed, opposite, q), one - other);
            }
    }
}

static void replay(struct layouts *report, const struct grid *g)
{
    static double complex x[MOST][K][MOST], y[2 * MOST][MOST][K], half[2 * MOST][K], lag[2 * MOST][MOST];
    static double image[2][4 * MOST * MOST];
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
    draw(report, g, lag, false, image[0]);
    draw(report, g, lag, true, image[1]);
    for (unsigned i = 0; i < g->warps * QW; i++) {
        const unsigned q = frb_lags_mine(g->warps, i / QW, i % QW);
        if (q < 2 * g->N) seen[q]++;
    }
    for (unsigned q = 0; q < 2 * g->N; q++)
        layouts_expect(report, seen[q] == 1, "direction %u is done %u times", q, seen[q]);
    for (unsigned p = 0; p < 2 * g->M; p++)
        for (unsigned q = 0; q < 2 * g->N; q++) {
            const double got = image[0][p * 2 * g->N + q];
            double expected = 0;
            layouts_expect(report, got != NOTHING && got == image[1][q * 2 * g->M + p],
                           "direction %u, %u is not written, or differs when transposed", p, q);
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

/* The same by wgmma. A row is of a cell m of eight and a sample. */
static unsigned row_m(unsigned row)
{
    return row % 8;
}

static unsigned row_sample(unsigned row)
{
    return row / 16 + row / 8 % 2 * 4;
}

static void hold(double a[64][16], unsigned reg, unsigned simd, unsigned lane, double value)
{
    const struct br_cell at = br_wgmma_f16_a(reg, simd, lane);
    a[at.row][at.column] = value;
}

/* Left factors for real parts, for imaginary ones, and of three tiles for both: sums and differences of
 * mirror images, as each lane makes them of its cells x[m][sample][n]. */
static void fold_in_groups(const struct grid *g, double a[3][64][16], double complex x[8][K][MOST])
{
    for (unsigned i = 0; i < 128 * 4; i++) {
        const unsigned lane = i / 4, high = i / 2 % 2, simd = i % 2, m = frb_lags_group_m(lane % 32),
                       sample = lane / 32 + 4 * high;
        double complex cell[3][2] = {{0}};
        for (unsigned j = 0; j < 2 * g->NT; j++) {
            const unsigned n = frb_lags_cell_n(g->N, j / 2, lane % 32, j % 2);
            if (n < g->N) cell[j / 2][j % 2] = x[m][sample][n];
        }
        const double complex sum = cell[0][simd] + cell[1][simd], difference = cell[0][simd] - cell[1][simd],
                             lone = simd ? cell[2][0] - cell[2][1] : cell[2][0] + cell[2][1];
        hold(a[0], high, simd, lane, creal(sum));
        hold(a[0], 2 + high, simd, lane, -cimag(difference));
        hold(a[1], high, simd, lane, cimag(sum));
        hold(a[1], 2 + high, simd, lane, creal(difference));
        hold(a[2], high, simd, lane, creal(lone));
        hold(a[2], 2 + high, simd, lane, cimag(lone));
    }
}

/* Right factors, where they stand in shared memory, in units of 2 bytes, each in a place of its own. */
static bool make_table(struct layouts *report, const struct grid *g, double *table)
{
    const unsigned directions = g->warps * QW, bytes = frb_lags_table_bytes(g->NT, directions);
    unsigned count = 0;
    for (unsigned i = 0; i < 2 * MOST * 96; i++) table[i] = NOTHING;
    for (unsigned third = 0; third < g->NT - 1; third++)
        for (unsigned i = 0; i < (directions << third) * 16; i++, count++) {
            const unsigned column = i / 16, k = i % 16, q = column % directions,
                           place = frb_lags_table(directions, third, column, k);
            unsigned j;
            const unsigned what = frb_lags_group_wave(third, column / directions, k, &j);
            const double angle = M_PI * q * (2 * j + 1) / (2 * g->N);
            if (!layouts_expect(report, place % 2 == 0 && place < bytes && table[place / 2] == NOTHING,
                                "the factor of column %u, k %u has no place of its own", column, k))
                return false;
            table[place / 2] = what == 0 || q >= 2 * g->N || j >= g->N / 2 ? 0
                               : what == 1                                 ? cos(angle)
                               : what == 2                                 ? sin(angle)
                                                                           : -sin(angle);
        }
    return layouts_expect(report, 2 * count == bytes, "the right factors take %u bytes, not %u", 2 * count,
                          bytes);
}

/* c += a by the right factor that begins `from` bytes behind the table's start, as wgmma finds it. */
static void multiply_in_groups(const struct grid *g, double c[64][2 * MOST], double a[64][16],
                               const double *table, unsigned from)
{
    for (unsigned i = 0; i < g->warps * QW * 16; i++) {
        const unsigned column = i / 16, k = i % 16;
        const double b = table[(from + br_wgmma_plain_place(column, 2 * k, 128, 256)) / 2];
        for (unsigned row = 0; row < 64; row++) c[row][column] += a[row][k] * b;
    }
}

static void by_wgmma(struct layouts *report, const struct grid *g)
{
    static double complex x[8][K][MOST];
    static double table[2 * MOST * 96]; /* more than there are */
    double a[3][64][16] = {{{0}}}, c[2][64][2 * MOST] = {{{0}}}, worst = 0;
    const unsigned directions = g->warps * QW, third = frb_lags_table(directions, 1, 0, 0);
    memset(x, 0, sizeof x);
    for (unsigned i = 0; i < 8 * K * g->N; i++)
        x[i / g->N / K][i / g->N % K][i % g->N] = cexp(UNIT * (0.3 * i * i + 0.7 * i)) * (1 + i % 3);
    fold_in_groups(g, a, x);
    if (!make_table(report, g, table)) return;
    for (unsigned part = 0; part < 2; part++) {
        multiply_in_groups(g, c[part], a[part], table, 0);
        if (g->NT == 3) multiply_in_groups(g, c[part], a[2], table, third + part * directions * 32);
    }
    for (unsigned i = 0; i < 64 * 2 * g->N; i++) {
        const unsigned row = i % 64, q = i / 64;
        double complex expected = 0;
        for (unsigned n = 0; n < g->N; n++)
            expected +=
                x[row_m(row)][row_sample(row)][n] * cexp(UNIT * M_PI * q * (n - (g->N - 1) / 2.0) / g->N);
        worst = fmax(worst, cabs(c[0][row][q] + UNIT * c[1][row][q] - expected));
    }
    layouts_expect(report, worst < 1e-9, "the transform by wgmma is off by %g", worst);
}

/* ---- the accesses ---- */

/* A step's samples, each of them once. */
static void samples(struct layouts *report, unsigned npol)
{
    const unsigned times = frb_lags_times(npol);
    unsigned seen[K] = {0};
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
}

/* Bytes of a step, of `row` dishes in each row of cells, in the order of n; then of the cells (dishes in
 * another order meet in banks as chance has it). */
static void bytes(struct layouts *report, const struct grid *g, unsigned row, unsigned gap, bool in_groups)
{
    const unsigned D = g->M * row, pitch = frb_lags_pitch(g->MT, g->NT);
    struct layouts_region *raw = layouts_region(report, LAYOUTS_SHARED, "raw", (size_t)K * pitch, 1);
    struct layouts_pass *pass = layouts_begin(raw, LAYOUTS_WRITE, "stage");
    layouts_expect(report, frb_lags_byte(64 * g->MT * g->NT - 1, gap) < pitch, "not all dishes have room");
    for (unsigned i = 0; i < K * pitch; i++) {
        const unsigned line = i % pitch / (128 + gap), at = i % pitch % (128 + gap);
        if (at >= 128 || line * 128 + at >= D) layouts_padding(raw, i, 1);
    }
    for (unsigned i = 0; i < K * 1024; i += 512) {
        struct layouts_access access = {.bytes = 16, .items = true};
        const unsigned k = i / 1024, first = i % 1024;
        for (unsigned lane = 0; lane < 32 && first + 16 * lane < D; lane++)
            layouts_lane_items(&access, lane,
                               (int64_t)k * pitch + frb_lags_byte(first, gap) + frb_lags_byte(16 * lane, gap),
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
                           m = in_groups ? eighth / 8 * 8 + frb_lags_group_m(lane) : eighth,
                           n = frb_lags_cell_n(g->N, i / 2 % g->NT, lane, i % 2), d = m * row + n;
            if (m < g->M && n < row)
                layouts_lane_items(&access, lane, (int64_t)k * pitch + frb_lags_byte(d, gap),
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
                           m = in_groups ? row / 4 * 8 + frb_lags_group_m(lane) : row;
            layouts_lane(
                &access, lane,
                8 * (int64_t)frb_lags_weight(g->NT, frb_lags_pol(npol, sample), m, i % g->NT, M, lane));
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
            layouts_lane_items(&store, lane, frb_lags_kept_weight(lane), item);
        layouts_lane_items(&load, lane, frb_lags_kept_weight(lane), item);
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
    const unsigned slots = g->warps * QW, pitch = frb_lags_y_pitch(g->MT);
    struct layouts_region *y = layouts_region(report, LAYOUTS_SHARED, "y", (size_t)slots * pitch / 8, 8);
    struct layouts_pass *pass = layouts_begin(y, LAYOUTS_WRITE, "transform");
    for (unsigned i = 0; i < slots * pitch / 8; i++)
        if (i / (pitch / 8) >= 2 * g->N || i % (pitch / 8) >= 32 * g->MT) layouts_padding(y, i, 1);
    for (unsigned i = 0; i < 8 * g->MT * g->NT * 2; i++) {
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
            layouts_lane_items(&access, lane, frb_lags_y(g->MT, direction, m, lane % 4),
                               half_transformed(direction, m, lane % 4));
            if (direction >= 2 * g->N) access.item[lane][0] = LAYOUTS_ANY; /* nobody wants their lags */
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

/* The lane of which a register that is stored or loaded as a matrix, turned, has a row's element `column`, in
 * its half row % 2. */
static unsigned turned_lane(unsigned row, unsigned column)
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
    const unsigned slots = g->warps * QW, pitch = frb_lags_group_y_pitch(g->MT);
    struct layouts_region *y =
        layouts_region(report, LAYOUTS_SHARED, "y, in groups", (size_t)slots * pitch / 2, 2);
    struct layouts_pass *pass = layouts_begin(y, LAYOUTS_WRITE, "stmatrix");
    layouts_expect(report, pitch <= frb_lags_y_pitch(g->MT), "there is room for less than %u bytes", pitch);
    for (unsigned i = 0; i < slots * pitch / 2; i++)
        if (i % (pitch / 2) >= 128 * g->MT) layouts_padding(y, i, 1);
    for (unsigned q = 0; q < slots; q += 16)
        for (unsigned i = 0; i < g->MT * 2 * 4; i++) {
            struct layouts_access access = {.bytes = 16, .items = true};
            const unsigned tile = i / 8, part = i / 4 % 2, warp = i % 4;
            for (unsigned lane = 0; lane < (q + 16 <= slots ? 32 : 16); lane++) {
                layouts_lane(&access, lane,
                             frb_lags_group_store(g->MT, warp, lane) +
                                 frb_lags_group_y(g->MT, q, tile, part, 0));
                for (unsigned j = 0; j < 8; j++) {
                    const struct br_cell at =
                        br_wgmma_c(2 * (q / 4 + lane / 8) + lane % 2, 32 * warp + turned_lane(lane % 8, j));
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
                         frb_lags_group_load(g->MT, frb_lags_mine(g->warps, warp, 0), lane) +
                             further * g->warps * pitch + tile * 256);
            for (unsigned j = 0; j < 8; j++) {
                const struct br_cell at = br_mma_f16_b(0, lane % 2, turned_lane(lane % 8, j));
                access.item[lane][j] = group_transformed(frb_lags_mine(g->warps, warp, further),
                                                         8 * tile + at.column, lane / 8, at.row);
            }
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
            layouts_lane_items(&access, lane,
                               frb_lags_lag(g->MT, lane / 4, frb_lags_k_lag(0, 2 * (lane % 4))) +
                                   tile * frb_lags_lag(g->MT, 8, 0) + step * 32,
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
    for (unsigned i = 0; i < frb_lags_units(g->MT, g->N) * 4; i++) {
        struct layouts_access access = {.bytes = pairs ? 4 : 2};
        const unsigned tile = i / 4 / (g->N / 4), first = 8 * (i / 4 % (g->N / 4)), minus = i / 2 % 2;
        if (pairs && i % 2) continue;
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned p = frb_lags_p(g->M, tile, lane / 4), q = first + 2 * (lane % 4) + i % 2;
            layouts_lane(
                &access, lane,
                2 * (int64_t)frb_lags_place(g->M, g->N, transposed, frb_lags_direction(g->M, p, minus), q));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, g->M % 8 == 0 ? 1 : 2);
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
                    samples(report, npol);
                    weights(report, &g, npol, false);
                    weights(report, &g, npol, true);
                }
                for (unsigned in_groups = 0; in_groups < 2; in_groups++) {
                    bytes(report, &g, N, 0, in_groups);
                    if (M == 24 && N == 24) bytes(report, &g, 22, 32, in_groups);
                }
                kept_weights(report);
                transformed(report, &g);
                transformed_in_groups(report, &g);
                lags(report, &g);
                image(report, &g, false, true);
                image(report, &g, false, false);
                image(report, &g, true, false);
            }
}
