/* FRB stage 1 on a GPU by the 2-d autocorrelation. Replays the arithmetic of a warp in float64 with the
 * kernel's own layouts, from the places of the bytes to the directions, and compares it with the equation.
 * Then checks the memory accesses. */
#include "kernels/frb_grid/gpu/autocorr_2d/layout.h"
#include "tools/layouts/check.h"

#include <complex.h>
#include <math.h>

void layouts_frb_grid_autocorr_2d(struct layouts *report);

enum { MOST = 12, K = 8 };

#define UNIT ((double complex)I)

static double complex wave(unsigned part, unsigned of)
{
    return cexp(UNIT * 2 * M_PI * (double)(part % of) / (double)of);
}

/* ---- the arithmetic ---- */

static double part_of(double complex x, unsigned imaginary)
{
    return imaginary ? cimag(x) : creal(x);
}

/* x[sample][along][across]; v[part][lag][g][h] */
static void autocorrelate(struct layouts *report, unsigned L, double complex x[K][MOST][8],
                          double v[2][MOST][8][8])
{
    for (unsigned i = 0; i < L * L * 32 * 4 * 2; i++) { /* all of the left factors, 16 rows by 16 */
        unsigned m = i / 256 / L, lag = i / 256 % L, lane = i / 8 % 32, r = i / 2 % 4, b = i % 2;
        struct br_cell at = br_mma_f16_a(r, b, lane);
        unsigned sample = frb_autocorr_2d_sample(lane, b);
        if (m + lag >= L) continue;
        layouts_expect(report, at.column % 8 == sample, "sample %u for k %u", sample, at.column);
        double left = part_of(x[sample][m + lag][frb_autocorr_2d_cell(lane)], frb_autocorr_2d_factor_part(r));
        for (unsigned c = 0; c < 8; c++) /* the right factor: column c, row at.column */
            for (unsigned to = 0; to < 128; to++) {
                struct br_cell sum = br_mma_c(to % 4, to / 4);
                if (sum.row != at.row || sum.column != c) continue;
                unsigned h = frb_autocorr_2d_h(to / 4, to % 4), part = frb_autocorr_2d_part(to % 4);
                layouts_expect(report, h == c, "column %u is h %u", c, h);
                v[part][lag][frb_autocorr_2d_cell(to / 4)][h] +=
                    (frb_autocorr_2d_factor_negative(r) ? -left : left) *
                    part_of(x[sample][m][c], at.column / 8);
            }
    }
}

/* image[across][along] */
static void transform(unsigned L, double v[2][MOST][8][8], double image[16][2 * MOST])
{
    double sums[MOST / 4][16][8] = {{{0}}}; /* tile, row, column */
    for (unsigned tile = 0; tile < (L + 7) / 8; tile++) {
        double g[2][16][8] = {{{0}}}; /* part, row, lag */
        for (unsigned i = 0; i < 4 * 32 * 8; i++) {
            unsigned step = i / 256, lane = i / 8 % 32;
            struct br_cell at = br_mma_f16_a(i / 2 % 4, i % 2, lane);
            unsigned along_g = 2 * step + at.column / 8, h = at.column % 8;
            double complex w = wave(frb_autocorr_2d_row_across(at.row) * (along_g + 16 - h), 16);
            for (unsigned part = 0; part < 2; part++)
                for (unsigned lag = 0; lag < 8 && 8 * tile + lag < L; lag++)
                    g[part][at.row][lag] +=
                        part_of(w, frb_autocorr_2d_row_is_sine(at.row)) * v[part][8 * tile + lag][along_g][h];
        }
        for (unsigned i = 0; i < L / 4 * 16 * 8 * 8; i++) {
            unsigned t = i / 1024, row = i / 64 % 16, column = i / 8 % 8, lag = 8 * tile + i % 8, q = row % 8;
            double complex w = (lag ? 2 : 1) * wave(frb_autocorr_2d_along(t, column) * lag, 2 * L);
            if (lag >= L) continue;
            /* of row q and of row q + 8; q = 0 and q = 8 are separate directions */
            sums[t][row][column] += row < 8 || q == 0
                                        ? creal(w) * g[0][row][i % 8] - cimag(w) * g[1][row][i % 8]
                                        : creal(w) * g[1][row][i % 8] + cimag(w) * g[0][row][i % 8];
        }
    }
    for (unsigned i = 0; i < L / 4 * 4 * 32; i++) {
        unsigned tile = i / 128, r = i / 32 % 4, lane = i % 32,
                 across = frb_autocorr_2d_image_across(lane, r);
        struct br_cell plus = br_mma_c(r % 2, lane), minus = br_mma_c(r % 2 + 2, lane);
        double common = sums[tile][plus.row][plus.column], half = sums[tile][minus.row][minus.column];
        image[across][frb_autocorr_2d_image_along(tile, lane, r)] = lane < 4 ? (r / 2 ? half : common)
                                                                    : r / 2  ? common + half
                                                                             : common - half;
    }
}

static void replay(struct layouts *report, unsigned L, unsigned npol)
{
    double complex x[K][MOST][8];
    double v[2][MOST][8][8] = {{{{0}}}}, image[16][2 * MOST] = {{0}}, worst = 0, largest = 0;
    unsigned seen[K] = {0}, distinct = 0;
    for (unsigned i = 0; i < K * L * 8; i++) {
        unsigned k = i / 8 / L, m = i / 8 % L, g = i % 8;
        x[k][m][g] =
            (1 + (m * 7 + g * 3 + k) % 5) * cexp(UNIT * (m * m * 0.7 + g * 1.3 * m + g * g * g + k * k * m));
    }
    autocorrelate(report, L, x, v);
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
        unsigned sample = frb_autocorr_2d_sample(i / 2, i % 2), time = frb_autocorr_2d_time(npol, sample),
                 pol = frb_autocorr_2d_pol(npol, sample);
        layouts_expect(report, sample < K && pol < npol && time < frb_autocorr_2d_times(npol), "no sample %u",
                       sample);
        distinct += sample < K && seen[pol * frb_autocorr_2d_times(npol) + time]++ == 0;
    }
    layouts_expect(report, distinct == K, "%u of %d samples", distinct, K);
}

/* ---- the accesses ---- */

/* Bytes in order, read four at a time (autocorr_2d_field::fill with WORDS): dishes 4 i to 4 i + 3. */
static void words(struct layouts *report, unsigned L, unsigned npol)
{
    unsigned pitch = frb_autocorr_2d_pitch(L), row = frb_autocorr_2d_row(L),
             times = 4 * frb_autocorr_2d_times(npol), D = 8 * L;
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
            unsigned sample = frb_autocorr_2d_sample(lane, i % 2),
                     dish = frb_autocorr_2d_cell(lane) * L + i / 8 * 4;
            int64_t t = i / 2 % 4 * frb_autocorr_2d_times(npol) + frb_autocorr_2d_time(npol, sample),
                    at = frb_autocorr_2d_pol(npol, sample) * D + dish;
            layouts_lane_items(&access, lane, t * pitch + at, t * row + at);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void weights(struct layouts *report, unsigned L, unsigned npol)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "weights", (size_t)npol * L * 8 * 2, 4);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    for (unsigned i = 0; i < L / 4 * 2; i++) { /* weights, then offsets of four cells */
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned pol = frb_autocorr_2d_pol(npol, frb_autocorr_2d_sample(lane, 0)), at[4];
            for (unsigned k = 0; k < 4; k++)
                at[k] = frb_autocorr_2d_weight(L, pol, i / 2 * 4 + k, frb_autocorr_2d_cell(lane)) +
                        i % 2 * frb_autocorr_2d_offset();
            layouts_expect(report, at[1] == at[0] + 1 && at[2] == at[0] + 2 && at[3] == at[0] + 3,
                           "weights apart");
            layouts_lane_items(&access, lane, 4 * (int64_t)at[0], at[0]);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 2, 4);
}

static int64_t product(unsigned L, unsigned part, unsigned lag, unsigned g)
{
    return (int64_t)((part * L + lag) * 8 + g) * 8;
}

/* V between the accumulators and the transform: rows of eight h. */
static void products(struct layouts *report, unsigned L)
{
    struct layouts_region *v =
        layouts_region(report, LAYOUTS_SHARED, "products", frb_autocorr_2d_product(L, 2, 0, 0) / 2, 2);
    struct layouts_pass *pass = layouts_begin(v, LAYOUTS_WRITE, "store");
    for (unsigned i = 0; i < 2 * L; i++)
        layouts_padding(v, frb_autocorr_2d_product(L, i / L, i % L, 8) / 2,
                        (frb_autocorr_2d_lag_bytes() - 8 * 16) / 2);
    for (unsigned tile = 0; tile < L / 2; tile++) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned matrix = lane / 8, g = lane % 8;
            layouts_lane_items(&access, lane,
                               frb_autocorr_2d_store_row(L, lane) + frb_autocorr_2d_store(L, tile),
                               product(L, matrix / 2, 2 * tile + matrix % 2, g));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
    pass = layouts_begin(v, LAYOUTS_READ, "load");
    for (unsigned i = 0; i < (L + 7) / 8 * 4; i++) {
        struct layouts_access access = {.bytes = 16, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned matrix = lane / 8, lag = i / 4 * 8 + lane % 8, g = i % 4 * 2 + matrix % 2;
            layouts_lane_items(&access, lane,
                               frb_autocorr_2d_load_row(L, lane, i / 4) + frb_autocorr_2d_load(L, i % 4),
                               product(L, matrix / 2, lag < L ? lag : lag - 4, g));
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, L == 8 ? 1 : 2);
}

static void tables(struct layouts *report, unsigned L)
{
    unsigned tiles = (L + 7) / 8 * ((L + 7) / 8);
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "waves", (4 + (size_t)tiles) * 32, 16);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    for (unsigned i = 0; i < 4 + tiles; i++) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned n = i - 4,
                     at = i < 4 ? frb_autocorr_2d_wave_across(i, lane)
                                : frb_autocorr_2d_wave_along(L, n / ((L + 7) / 8), n % ((L + 7) / 8), lane);
            layouts_lane(&access, lane, 16 * (int64_t)at);
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

/* For 8 x 8 cells, directly to global memory. */
static void whole_image(struct layouts *report)
{
    struct layouts_region *region = layouts_region(report, LAYOUTS_GLOBAL, "image", 256, 2);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "write");
    for (unsigned r = 0; r < 4; r += 2) {
        struct layouts_access access = {.bytes = 8, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned at = frb_autocorr_2d_direction(8, false, frb_autocorr_2d_image_across(lane, r),
                                                    frb_autocorr_2d_image_along(0, lane, r));
            for (unsigned i = 0; i < 4; i++)
                access.item[lane][i] =
                    frb_autocorr_2d_direction(8, false, frb_autocorr_2d_image_across(lane, r + i % 2),
                                              frb_autocorr_2d_image_along(i / 2, lane, r + i % 2));
            layouts_lane(&access, lane, 2 * (int64_t)at);
            for (unsigned i = 0; i < 4; i++)
                layouts_expect(report, access.item[lane][i] == at + i, "four intensities are not together");
        }
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

/* Bytes of 8 x 8 cells in order, directly from global memory: each lane reads two time steps. */
static void whole_bytes(struct layouts *report, unsigned npol)
{
    unsigned times = frb_autocorr_2d_times(npol), row = 64 * npol;
    struct layouts_region *region = layouts_region(report, LAYOUTS_GLOBAL, "bytes", (size_t)times * row, 1);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "read");
    layouts_fill(region);
    if (npol == 1) layouts_allow_pieces(pass, 64, "a time of one polarisation is no more");
    for (unsigned i = 0; i < 2; i++) {
        struct layouts_access access = {.bytes = 8, .items = true};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned sample = frb_autocorr_2d_sample(lane, 0), time = frb_autocorr_2d_time(npol, sample) + i;
            int64_t at = time * row + frb_autocorr_2d_pol(npol, sample) * 64 + frb_autocorr_2d_cell(lane) * 8;
            layouts_expect(report, frb_autocorr_2d_time(npol, frb_autocorr_2d_sample(lane, i)) == time,
                           "another time");
            layouts_lane_items(&access, lane, at, at);
        }
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
                         2 * (int64_t)frb_autocorr_2d_direction(L, transposed,
                                                                frb_autocorr_2d_image_across(lane, r),
                                                                frb_autocorr_2d_image_along(tile, lane, r)));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

void layouts_frb_grid_autocorr_2d(struct layouts *report)
{
    for (unsigned L = 8; L <= MOST; L += 4)
        for (unsigned npol = 1; npol <= 2; npol++) {
            layouts_variant(report, "8 x %u cells, %u polarisation(s)", L, npol);
            replay(report, L, npol);
            words(report, L, npol);
            weights(report, L, npol);
            products(report, L);
            tables(report, L);
            if (L == 8) whole_bytes(report, npol), whole_image(report);
            image(report, L, false);
            image(report, L, true);
        }
}
