/* FRB stage 1 on a GPU, small grids. What a warp does is replayed in float64 with the kernel's own layouts,
 * from the bytes' places to the directions, and compared with the equation; and its accesses. */
#include "kernels/frb_grid/small_layout.h"
#include "tools/layouts/check.h"

#include <complex.h>
#include <math.h>
#include <string.h>

void layouts_frb_grid_small(struct layouts *report);

enum { MOST = 12, K = 8 };

#define UNIT ((double complex)I)

static double complex wave(unsigned turns, unsigned of)
{
    return cexp(UNIT * 2 * M_PI * (double)(turns % of) / (double)of);
}

/* In units of 8 bytes. */
static unsigned place(unsigned lag, unsigned g, unsigned h)
{
    return frb_small_product(0, lag, g, h) / 8;
}

/* ---- the arithmetic ---- */

/* x[sample][along][across] */
static void autocorrelate(unsigned L, double complex x[K][MOST][8], double complex *v)
{
    double complex sums[MOST / 2][16][8] = {{{0}}};
    for (unsigned m = 0; m < L; m += 2)
        for (unsigned tile = 0; 2 * tile + m < L; tile++)
            for (unsigned i = 0; i < 32 * 4 * 2; i++) { /* all of the left factor, 16 rows by 16 */
                unsigned lane = i / 8, r = i / 2 % 4, part = i % 2, cell = frb_small_factor(L, m, tile, r);
                struct br_cell at = br_mma_f16_a(r, part, lane);
                unsigned sample = frb_small_sample(lane, part), second = m + at.column / 8;
                if (cell == L) continue;
                for (unsigned h = 0; h < 8; h++) /* the right one: as many samples of cells m and m + 1 */
                    sums[tile][at.row][h] +=
                        x[sample][cell][frb_small_cell(lane)] * conj(x[at.column % 8][second][h]);
            }
    for (unsigned i = 0; i < L / 2 * 4 * 32; i++) {
        unsigned tile = i / 128, r = i / 32 % 4, lane = i % 32;
        struct br_cell at = br_mma_c(r, lane);
        v[place(frb_small_lag(tile, r), frb_small_cell(lane), frb_small_h(lane, r))] =
            sums[tile][at.row][at.column];
    }
}

/* image[across][along] */
static void transform(unsigned L, const double complex *v, double image[16][2 * MOST])
{
    for (unsigned tile = 0; tile < (L + 7) / 8; tile++) {
        double complex up[2][32] = {{0}}, down[2][32] = {{0}}, even[2][32], odd[2][32], g[16][8] = {{0}};
        for (unsigned i = 0; i < 2 * 32 * 8; i++) {
            unsigned r = i / 256, lane = i / 8 % 32, h = i % 8, lag = frb_small_diagonal_lag(tile, lane),
                     d = frb_small_difference(lane, r);
            if (lag >= L) continue;
            if (h + d < 8)
                up[r][lane] += v[place(lag, h + d, h)];
            else
                down[r][lane] += v[place(lag, h + d - 8, h)];
        }
        for (unsigned i = 0; i < 64; i++) {
            unsigned r = i / 32, lane = i % 32;
            double complex other = down[frb_small_opposite(lane, r)][frb_small_opposite_lane(lane)];
            even[r][lane] = up[r][lane] + other;
            odd[r][lane] = up[r][lane] - other;
        }
        for (unsigned lane = 0; lane < 32;
             lane++) /* right factor, column: lag; of a register the parts are d2 */
            for (unsigned part = 0; part < 2; part++)
                for (unsigned q = 0; q < 16; q++)
                    for (unsigned r = 0; r < 2; r++) {
                        struct br_cell at = br_mma_f16_b(r, part, lane);
                        double complex w = wave(q * frb_small_k_difference(at.row), 16);
                        g[q][at.column] +=
                            r == 0 ? creal(w) * even[part][lane] : UNIT * cimag(w) * odd[part][lane];
                    }
        for (unsigned q = 0; q < 16; q++)
            for (unsigned p = 0; p < 2 * L; p++)
                for (unsigned i = 0; i < 8 && 8 * tile + i < L; i++)
                    image[q][p] += (8 * tile + i ? 2 : 1) * creal(wave(p * (8 * tile + i), 2 * L) * g[q][i]);
    }
}

static void replay(struct layouts *report, unsigned L, unsigned npol)
{
    double complex x[K][MOST][8], v[MOST * 64] = {0};
    double image[16][2 * MOST] = {{0}}, worst = 0, largest = 0;
    unsigned seen[K] = {0}, distinct = 0;
    for (unsigned i = 0; i < K * L * 8; i++) {
        unsigned k = i / 8 / L, m = i / 8 % L, g = i % 8;
        x[k][m][g] =
            (1 + (m * 7 + g * 3 + k) % 5) * cexp(UNIT * (m * m * 0.7 + g * 1.3 * m + g * g * g + k * k * m));
    }
    autocorrelate(L, x, v);
    transform(L, v, image);
    for (unsigned q = 0; q < 16; q++)
        for (unsigned p = 0; p < 2 * L; p++) {
            double expected = 0;
            for (unsigned k = 0; k < K; k++) {
                double complex sum = 0;
                for (unsigned i = 0; i < L * 8; i++)
                    sum += x[k][i / 8][i % 8] * wave(i / 8 * p, 2 * L) * wave(i % 8 * q, 16);
                expected += creal(sum * conj(sum));
            }
            worst = fmax(worst, fabs(image[q][p] - expected));
            largest = fmax(largest, expected);
        }
    layouts_expect(report, worst < 1e-9 * largest, "the transform is off by %g of %g", worst, largest);
    for (unsigned i = 0; i < K; i++) {
        unsigned sample = frb_small_sample(i / 2, i % 2), time = frb_small_time(npol, sample),
                 pol = frb_small_pol(npol, sample);
        layouts_expect(report, sample < K && pol < npol && time < frb_small_times(npol), "no sample %u",
                       sample);
        distinct += sample < K && seen[pol * frb_small_times(npol) + time]++ == 0;
    }
    layouts_expect(report, distinct == K, "%u of %d samples", distinct, K);
}

/* ---- the accesses ---- */

/* Bytes that stand in order, to be read four at once (small_field::fill with WORDS): dishes 4 i to 4 i + 3.
 */
static void words(struct layouts *report, unsigned L, unsigned npol)
{
    unsigned pitch = frb_small_pitch(L), row = frb_small_row(L), times = 4 * frb_small_times(npol), D = 8 * L;
    struct layouts_region *raw = layouts_region(report, LAYOUTS_SHARED, "raw", (size_t)times * pitch, 1);
    struct layouts_pass *pass;
    for (unsigned t = 0; t < times; t++) layouts_padding(raw, (size_t)t * pitch + npol * D, pitch - npol * D);
    pass = layouts_begin(raw, LAYOUTS_WRITE, "stage");
    layouts_allow_wavefronts(pass, 8,
                             "rows of 64 and more bytes and 16 of padding, which makes the reads better");
    for (unsigned i = 0; i < times * npol * D / 16; i += 32) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32 && i + lane < times * npol * D / 16; lane++) {
            unsigned t = (i + lane) / (npol * D / 16), at = (i + lane) % (npol * D / 16) * 16;
            layouts_lane_items(&access, lane, (int64_t)t * pitch + at, (int64_t)t * row + at);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(raw, LAYOUTS_READ, "fill");
    layouts_allow_wavefronts(
        pass, 2, "the eight rows of cells are 8 or 12 bytes apart: every second bank, or some of both");
    for (unsigned i = 0; i < 4 * 2 * L / 4; i++) {
        struct layouts_access access = {.bytes = 4, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned sample = frb_small_sample(lane, i % 2), dish = frb_small_cell(lane) * L + i / 8 * 4;
            int64_t t = i / 2 % 4 * frb_small_times(npol) + frb_small_time(npol, sample),
                    at = frb_small_pol(npol, sample) * D + dish;
            layouts_lane_items(&access, lane, t * pitch + at, t * row + at);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void weights(struct layouts *report, unsigned L, unsigned npol)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "weights", (size_t)npol * L * 8, 4);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    for (unsigned i = 0; i < L / 4; i++) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned pol = frb_small_pol(npol, frb_small_sample(lane, 0)), at[4];
            for (unsigned k = 0; k < 4; k++)
                at[k] = frb_small_weight(L, pol, i * 4 + k, frb_small_cell(lane));
            layouts_expect(report, at[1] == at[0] + 1 && at[2] == at[0] + 2 && at[3] == at[0] + 3,
                           "weights apart");
            layouts_lane_items(&access, lane, 4 * (int64_t)at[0], at[0]);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 2, 4);
}

static int64_t product(unsigned lag, unsigned g, unsigned h)
{
    return (lag * 8 + g) * 8 + h;
}

static void products(struct layouts *report, unsigned L)
{
    struct layouts_region *v = layouts_region(report, LAYOUTS_SHARED, "products", (size_t)L * 64, 8);
    struct layouts_pass *pass = layouts_begin(v, LAYOUTS_WRITE, "store");
    for (unsigned lag = 0; lag < L; lag++) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned g = frb_small_cell(lane), h = frb_small_h(lane, 0);
            layouts_lane_items(&access, lane, 8 * (int64_t)place(lag, g, h), product(lag, g, h));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    for (unsigned i = 0; i < L * 64; i++) { /* wherever they begin; h + 4 is found by one more operation */
        unsigned lag = i / 64, g = i / 8 % 8, h = i % 8, at = frb_small_product(384, lag, g, h);
        layouts_expect(report,
                       at == 384 + 8 * place(lag, g, h) && (at ^ 32) == frb_small_product(384, lag, g, h ^ 4),
                       "product %u %u %u of 384 is at %u", lag, g, h, at);
    }
    pass = layouts_begin(v, LAYOUTS_READ, "diagonals");
    for (unsigned i = 0; i < (L + 7) / 8 * 16; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        unsigned g = i % 8, tile = i / 16;
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned lag = frb_small_diagonal_lag(tile, lane),
                     h = (g - frb_small_difference(lane, i / 8 % 2)) % 8;
            if (lag < L) layouts_lane_items(&access, lane, 8 * (int64_t)place(lag, g, h), product(lag, g, h));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void tables(struct layouts *report, unsigned L)
{
    unsigned tiles = (L + 7) / 8 * (L / 4);
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "waves", 64 + (size_t)tiles * 32, 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    for (unsigned i = 0; i < 1 + tiles; i++) {
        struct layouts_access access = {.bytes = i == 0 ? 16 : 8};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(
                &access, lane,
                i == 0 ? 16 * (int64_t)frb_small_wave_across(lane)
                       : 8 * (int64_t)frb_small_wave_along(L, (i - 1) / (L / 4), (i - 1) % (L / 4), lane));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void image(struct layouts *report, unsigned L, bool transposed)
{
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "image", (size_t)L * 32, 2);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "write");
    layouts_allow_wavefronts(pass, 4, "rows lie 32, 48 or 64 bytes apart; once in a block of time");
    for (unsigned i = 0; i < L / 4 * 4; i++) {
        struct layouts_access access = {.bytes = transposed ? 2 : 4};
        unsigned tile = i / 4, r = i % 4;
        if (!transposed && r % 2) continue;
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane,
                         2 * (int64_t)frb_small_direction(L, transposed, frb_small_image_across(lane, r),
                                                          frb_small_image_along(tile, lane, r)));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

void layouts_frb_grid_small(struct layouts *report)
{
    for (unsigned L = 8; L <= MOST; L += 4)
        for (unsigned npol = 1; npol <= 2; npol++) {
            layouts_variant(report, "8 x %u cells, %u polarisation(s)", L, npol);
            replay(report, L, npol);
            words(report, L, npol);
            weights(report, L, npol);
            products(report, L);
            tables(report, L);
            image(report, L, false);
            image(report, L, true);
        }
}
