/* FRB stage 1 on a GPU, grids of 12 to 24 cells each way: what a block of threads does is replayed in float64
 * with the kernel's own layouts, from the cells' places to the image, and compared with the equation. */
#include "tools/layouts/frb_grid_autocorr_1d.h"

#include <complex.h>
#include <math.h>
#include <string.h>

void layouts_frb_grid_autocorr_1d_sums(struct layouts *report);

enum { MOST = 32 };

#define UNIT ((double complex)I)

static const double NOTHING = 1e30; /* where nothing has been written */

static double complex wave(unsigned part, unsigned of)
{
    return cexp(UNIT * 2 * M_PI * (double)(part % of) / (double)of);
}

/* Right factor of a product along n: x of one row of cells as the lanes have it, k of 16, column: sample. */
struct factor {
    double complex b[16][8];
};

/* Sums (or differences) of pairs 2 i and 2 i + 1; or of both halves of pair 2, see frb_autocorr_1d_wave. */
static void sums_and_differences(const struct grid *g, struct factor *f, double complex x[K][MOST],
                                 unsigned half, unsigned pair, bool difference)
{
    const bool both = g->NT == 3 && pair == 2;
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned part = 0; part < 2; part++) {
            const struct br_cell at = br_mma_f16_b(half, part, lane);
            const unsigned n = frb_autocorr_1d_cell_n(g->N, pair, lane, both ? 0 : part),
                           other =
                               frb_autocorr_1d_cell_n(g->N, both ? pair : pair + 1, lane, both ? 1 : part);
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
            if (!frb_autocorr_1d_wave(g->NT, tile, row, k, &q, &sine, &j) || q >= g->N || j >= g->N / 2)
                continue;
            const double angle = M_PI * (sine && q == 0 ? g->N : q) * (2 * j + 1) / (2 * g->N);
            for (unsigned s = 0; s < K; s++) c[row][s] += (sine ? sin(angle) : cos(angle)) * f->b[k][s];
        }
}

/* y[direction][sample] of a row of cells x[sample][n]. */
static void along_n(const struct grid *g, double complex x[K][MOST], double complex y[2 * MOST][K])
{
    struct factor sums = {{{0}}}, differences = {{{0}}};
    double complex c[4][16][8] = {{{0}}}, cosines[32][K] = {{0}}, sines[32][K] = {{0}};
    sums_and_differences(g, &sums, x, 0, 0, false);
    sums_and_differences(g, &differences, x, 0, 0, true);
    if (g->NT > 2) {
        sums_and_differences(g, &sums, x, 1, 2, false);
        sums_and_differences(g, &differences, x, 1, 2, true);
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
            y[frb_autocorr_1d_direction(g->N, q, 0)][s] = cosines[q][s] + paired * UNIT * sines[q][s];
            y[frb_autocorr_1d_direction(g->N, q, 1)][s] = paired * cosines[q][s] - UNIT * sines[q][s];
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
                const unsigned odd = lane % 2, other = frb_autocorr_1d_partner(lane),
                               mine_wraps = odd && lane / 4 < 2, other_wraps = !odd && other / 4 < 2;
                u[i][d][lane] = t[2 * i + odd][d + mine_wraps][lane] + t[2 * i + odd][d + other_wraps][other];
            }
    for (unsigned d = 0; d < g->MT; d++)
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned upper = lane / 2 % 2, other = lane ^ 18;
            const unsigned late[2] = {upper && (lane / 4 - 2 * (lane % 2)) % 8 < 4,
                                      !upper && (other / 4 - 2 * (other % 2)) % 8 < 4};
            lag[lane % 4][8 * d + frb_autocorr_1d_residue(lane)] =
                u[upper][d + late[0]][lane] + u[upper][d + late[1]][other];
        }
}

/* The contribution of a lag's real (k even) or imaginary part to the even part (row < 8) of direction p, or
 * to the odd one; for p = 0 these are what even and odd lags add. */
static double lag_wave(unsigned M, unsigned tile, unsigned step, unsigned row, unsigned k)
{
    const unsigned p = frb_autocorr_1d_p(M, tile, row % 8), lag = frb_autocorr_1d_k_lag(step, k),
                   odd = row / 8;
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
                       "intensity %u is not a place, or is written twice and differs", place))
        image[place] = intensity;
}

/* The image of the lags of all directions. */
static void draw(struct layouts *report, const struct grid *g, double complex lag[2 * MOST][MOST],
                 bool transposed, double *image)
{
    for (unsigned i = 0; i < 4 * g->M * g->N; i++) image[i] = NOTHING;
    for (unsigned i = 0; i < frb_autocorr_1d_units(g->MT, g->N); i++) {
        const unsigned tile = i % g->MT, first = 8 * (i / g->MT);
        double c[16][8] = {{0}};
        for (unsigned j = 0; j < g->MT * 16 * 16 * 8; j++) {
            const unsigned step = j / (16 * 16 * 8), row = j / (16 * 8) % 16, k = j / 8 % 16, column = j % 8;
            const double complex one = lag[first + column][frb_autocorr_1d_k_lag(step, k)];
            c[row][column] += lag_wave(g->M, tile, step, row, k) * (k % 2 ? cimag(one) : creal(one));
        }
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned simd = 0; simd < 2; simd++) {
                const struct br_cell even = br_mma_c(simd, lane), odd = br_mma_c(2 + simd, lane);
                const unsigned p = frb_autocorr_1d_p(g->M, tile, lane / 4),
                               opposite = frb_autocorr_1d_direction(g->M, p, 1),
                               q = first + 2 * (lane % 4) + simd;
                layouts_expect(report, p / 8 == tile && p < g->M, "direction %u is not of tile %u", p, tile);
                const double one = c[even.row][even.column], other = c[odd.row][odd.column];
                put(report, g, image, frb_autocorr_1d_place(g->M, g->N, transposed, p, q), one + other);
                put(report, g, image, frb_autocorr_1d_place(g->M, g->N, transposed, opposite, q),
                    one - other);
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
        const unsigned q = frb_autocorr_1d_mine(g->warps, i / QW, i % QW);
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

/* ---- the same by wgmma ---- */

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
        const unsigned lane = i / 4, high = i / 2 % 2, simd = i % 2, m = frb_autocorr_1d_group_m(lane % 32),
                       sample = lane / 32 + 4 * high;
        double complex cell[3][2] = {{0}};
        for (unsigned j = 0; j < 2 * g->NT; j++) {
            const unsigned n = frb_autocorr_1d_cell_n(g->N, j / 2, lane % 32, j % 2);
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
    const unsigned directions = g->warps * QW, bytes = frb_autocorr_1d_table_bytes(g->NT, directions);
    unsigned count = 0;
    for (unsigned i = 0; i < 2 * MOST * 96; i++) table[i] = NOTHING;
    for (unsigned third = 0; third < g->NT - 1; third++)
        for (unsigned i = 0; i < (directions << third) * 16; i++, count++) {
            const unsigned column = i / 16, k = i % 16, q = column % directions,
                           place = frb_autocorr_1d_table(directions, third, column, k);
            unsigned j;
            const unsigned what = frb_autocorr_1d_group_wave(third, column / directions, k, &j);
            const double angle = M_PI * q * (2 * j + 1) / (2 * g->N);
            if (!layouts_expect(report, place % 2 == 0 && place < bytes && table[place / 2] == NOTHING,
                                "the factor of column %u, k %u has no place of its own", column, k))
                return false;
            table[place / 2] = what == FRB_AUTOCORR_1D_NOTHING || q >= 2 * g->N || j >= g->N / 2 ? 0
                               : what == FRB_AUTOCORR_1D_COSINE                                  ? cos(angle)
                               : what == FRB_AUTOCORR_1D_SINE                                    ? sin(angle)
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
    const unsigned directions = g->warps * QW, third = frb_autocorr_1d_table(directions, 1, 0, 0);
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

static void check(struct layouts *report, const struct grid *g)
{
    replay(report, g);
    by_wgmma(report, g);
}

void layouts_frb_grid_autocorr_1d_sums(struct layouts *report)
{
    for_grids(report, check);
}
