/* FRB stage 1 on a GPU: every size of grid. The work of a warp is replayed in float64 with the kernel's own
 * layouts, from the cells to the directions, and compared with the equation; and all accesses whose places do
 * not depend on where the dishes are. */
#include "kernels/frb_grid/gpu/direct/layout.h"
#include "tools/layouts/check.h"

#include <complex.h>
#include <math.h>
#include <string.h>

void layouts_frb_grid_direct(struct layouts *report);

enum { MOST = 32, TILES = 4 };

#define UNIT ((double complex)I)

struct shape {
    unsigned M, N, m_tiles, n_tiles, sum_tiles, p_tiles; /* p_tiles: those of one warp */
};

/* ---- the arithmetic ---- */

/* Cosine and sine of the first transform: of direction p and cell m, from the tables' description in fft.cuh.
 */
static void wave_m(const struct shape *s, unsigned p, unsigned m, double *c, double *sine)
{
    *c = *sine = 0;
    if (p >= s->M || m >= s->M) return;
    *c = p == 0 ? m % 2 == 0 : cos(M_PI * p * m / s->M);
    *sine = p == 0 ? m % 2 == 1 : sin(M_PI * p * m / s->M);
}

static double wave_n(const struct shape *s, unsigned q, unsigned j, bool sine)
{
    if (q >= s->N || j >= (s->n_tiles < 2 ? s->N : s->N / 2)) return 0;
    double where = s->n_tiles < 2 ? j : j + 0.5;
    unsigned direction = sine && q == 0 ? s->N : q;
    double angle = M_PI * direction * where / s->N;
    return sine && !(s->n_tiles < 2 && q == 0) ? sin(angle) : cos(angle);
}

/* x[column][m], where columns are those of the tiles of n */
static void sums_and_differences(const struct shape *s, double complex x[TILES * 8][MOST])
{
    double complex y[TILES * 8][MOST];
    if (s->n_tiles < 2) return;
    memcpy(y, x, sizeof y);
    for (unsigned m = 0; m < MOST; m++) {
        for (unsigned column = 0; column < 8; column++)
            for (unsigned k = 0; k < s->n_tiles / 2; k++) {
                unsigned a = 8 * k + column, b = a + (s->n_tiles == 4 ? 16 : 8);
                x[a][m] = y[a][m] + y[b][m];
                x[b][m] = y[a][m] - y[b][m];
            }
        for (unsigned column = 0; s->n_tiles == 3 && column < 8; column++) /* lanes that are 16 apart */
            x[16 + column][m] = (column < 4 ? 1 : -1) * y[16 + column][m] + y[16 + (column ^ 4)][m];
    }
}

static void replay(struct layouts *report, const struct shape *s)
{
    double complex field[MOST][MOST], x[TILES * 8][MOST] = {{0}}, y[2][TILES * 8];
    double worst = 0, largest = 0;
    for (unsigned m = 0; m < s->M; m++)
        for (unsigned n = 0; n < s->N; n++)
            field[m][n] = cexp(UNIT * (m * m * 0.7 + n * 1.3 * m + n * n * n)) * (1 + (m * 7 + n * 3) % 5);
    for (unsigned nt = 0; nt < s->n_tiles; nt++)
        for (unsigned mt = 0; mt < s->m_tiles; mt++)
            for (unsigned i = 0; i < 64; i++) {
                unsigned lane = i / 2, m = frb_grid_cell_m(mt, lane, i % 2),
                         n = frb_grid_cell_n(s->N, nt, lane);
                if (m < s->M && n < s->N) x[8 * nt + lane / 4][8 * mt + 2 * (lane % 4) + i % 2] = field[m][n];
            }
    sums_and_differences(s, x);
    for (unsigned p = 0; p < s->M; p++) {
        memset(y, 0, sizeof y);
        for (unsigned column = 0; column < 8 * s->n_tiles; column++) {
            double complex c_sum = 0, s_sum = 0;
            for (unsigned mt = 0; mt < s->m_tiles; mt++)
                for (unsigned i = 0; i < 8; i++) { /* lanes of this p, both halves */
                    unsigned lane = p % 8 * 4 + i / 2;
                    double c, sine;
                    wave_m(s, frb_grid_wave_p(p / 8, lane), frb_grid_wave_m(mt, lane, i % 2), &c, &sine);
                    c_sum += c * x[column][8 * mt + i];
                    s_sum += sine * x[column][8 * mt + i];
                }
            y[0][column] = p == 0 ? c_sum + s_sum : c_sum + UNIT * s_sum;
            y[1][column] = p == 0 ? c_sum - s_sum : c_sum - UNIT * s_sum;
        }
        for (unsigned minus = 0; minus < 2; minus++)
            for (unsigned q = 0; q < s->N; q++) {
                double complex c = 0, sine = 0;
                for (unsigned k = 0; k < s->sum_tiles; k++)
                    for (unsigned column = 0; column < 8; column++) {
                        unsigned lane = q % 8 * 4 + column / 2;
                        unsigned a = 8 * frb_grid_sum_tile(s->n_tiles, 0, k) + column,
                                 b = 8 * frb_grid_sum_tile(s->n_tiles, 1, k) + column;
                        c += y[minus][a] * wave_n(s, frb_grid_wave_p(q / 8, lane),
                                                  frb_grid_wave_j(s->n_tiles, 0, k, lane, column % 2), false);
                        sine +=
                            y[minus][b] * wave_n(s, frb_grid_wave_p(q / 8, lane),
                                                 frb_grid_wave_j(s->n_tiles, 1, k, lane, column % 2), true);
                    }
                double even = creal(c * conj(c)) + creal(sine * conj(sine)),
                       odd = q == 0 ? creal(sine * conj(sine))
                                    : cimag(c) * creal(sine) - creal(c) * cimag(sine);
                double intensity[2] = {q == 0 ? even - odd : even + 2 * odd, q == 0 ? odd : even - 2 * odd};
                for (unsigned back = 0; back < 2; back++) {
                    double complex sum = 0;
                    unsigned down = frb_grid_direction(s->M, p, minus),
                             across = frb_grid_direction(s->N, q, back);
                    for (unsigned m = 0; m < s->M; m++)
                        for (unsigned n = 0; n < s->N; n++)
                            sum +=
                                field[m][n] *
                                cexp(UNIT * M_PI * ((double)(m * down) / s->M + (double)(n * across) / s->N));
                    double expected = creal(sum * conj(sum)), error = fabs(intensity[back] - expected);
                    if (error > worst) worst = error;
                    if (expected > largest) largest = expected;
                }
            }
    }
    layouts_expect(report, worst < 1e-9 * largest, "the transform is off by %g of %g", worst, largest);
}

/* ---- the accesses ---- */

static void cells(struct layouts *report, const struct shape *s)
{
    unsigned seen[MOST][MOST] = {{0}}, count = 0;
    for (unsigned i = 0; i < s->m_tiles * s->n_tiles * 64; i++) {
        unsigned mt = i / 64 / s->n_tiles, nt = i / 64 % s->n_tiles, lane = i / 2 % 32;
        unsigned m = frb_grid_cell_m(mt, lane, i % 2), n = frb_grid_cell_n(s->N, nt, lane);
        if (m < s->M && n < s->N) seen[m][n]++;
    }
    for (unsigned m = 0; m < s->M; m++)
        for (unsigned n = 0; n < s->N; n++) count += seen[m][n] == 1;
    layouts_expect(report, count == s->M * s->N, "%u of %u cells have one lane", count, s->M * s->N);
}

static void weights(struct layouts *report, const struct shape *s)
{
    unsigned pairs = s->m_tiles * s->n_tiles;
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, "weights", frb_grid_weights(pairs), 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "fill");
    layouts_fill(region);
    for (unsigned pair = 0; pair < pairs; pair += 2) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane, 8 * (int64_t)frb_grid_weight(pair, lane));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

static void tables(struct layouts *report, const char *name, unsigned outer, unsigned inner)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_GLOBAL, name, (size_t)outer * inner * 32, 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    for (unsigned i = 0; i < outer * inner; i++) {
        struct layouts_access access = {.bytes = 8};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane, 8 * (int64_t)frb_grid_wave(inner, i / inner, i % inner, lane));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

/* Sums that wait for the next call, and those of long blocks. */
static void sums(struct layouts *report, const struct shape *s, enum layouts_space space)
{
    struct layouts_region *region =
        layouts_region(report, space, "sums", (size_t)s->p_tiles * s->n_tiles * 2 * 32, 16);
    for (int read = 0; read < 2; read++) {
        struct layouts_pass *pass =
            layouts_begin(region, read ? LAYOUTS_READ : LAYOUTS_WRITE, read ? "add" : "store");
        for (unsigned i = 0; i < s->p_tiles * s->n_tiles * 2; i++) {
            struct layouts_access access = {.bytes = 16, .items = true};
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned at = frb_grid_sum(s->n_tiles, i / 2 / s->n_tiles, i / 2 % s->n_tiles, i % 2, lane);
                layouts_lane_items(&access, lane, 16 * (int64_t)at, i * 32 + lane);
            }
            layouts_access(pass, &access);
        }
        layouts_end(pass, 1, 1);
    }
}

/* write(): all groups of p, each of which has an image of its own in shared memory; together they fill one.
 */
static void image(struct layouts *report, const struct shape *s)
{
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "image", (size_t)4 * s->M * s->N, 2);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "write");
    layouts_allow_wavefronts(pass, 8, "rows lie 4 N bytes apart; once in a block of time");
    for (unsigned i = 0; i < s->m_tiles * 2 * s->n_tiles; i++) {
        unsigned minus = i % 2, nt = i / 2 % s->n_tiles, pt = i / 2 / s->n_tiles;
        struct layouts_access ups = {.bytes = 4}, first = {.bytes = 2}, second = {.bytes = 2};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned down = frb_grid_sum_p(pt, lane), across = frb_grid_sum_q(nt, lane, 0);
            if (down >= s->M || across >= s->N) continue;
            int64_t row = (int64_t)frb_grid_direction(s->M, down, minus) * 2 * s->N;
            layouts_lane(&ups, lane, 2 * (row + across));
            layouts_lane(&first, lane, 2 * (row + frb_grid_direction(s->N, across, 1)));
            layouts_lane(&second, lane, 2 * (row + frb_grid_direction(s->N, frb_grid_sum_q(nt, lane, 1), 1)));
        }
        if (!ups.active) continue;
        layouts_access(pass, &ups);
        layouts_access(pass, &first);
        layouts_access(pass, &second);
    }
    layouts_end(pass, 1, 1);
}

void layouts_frb_grid_direct(struct layouts *report)
{
    for (unsigned M = 8; M <= MOST; M += 4)
        for (unsigned N = 8; N <= MOST; N += 4) {
            struct shape s = {M, N, (M + 7) / 8, (N + 7) / 8, frb_grid_sum_tiles((N + 7) / 8), 0};
            s.p_tiles = frb_grid_p_tiles(s.m_tiles, s.n_tiles);
            layouts_variant(report, "%u x %u cells", M, N);
            cells(report, &s);
            replay(report, &s);
            weights(report, &s);
            tables(report, "along m", s.m_tiles, s.m_tiles);
            tables(report, "along n", s.n_tiles, s.sum_tiles);
            sums(report, &s, LAYOUTS_GLOBAL);
            sums(report, &s, LAYOUTS_SHARED);
            image(report, &s);
        }
}
