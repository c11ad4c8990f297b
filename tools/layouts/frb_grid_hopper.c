/* FRB stage 1 for Hopper: every size of grid. What a warp does is replayed in float64 with the kernel's own
 * layouts, from the cells to the directions, and compared with the equation; and all accesses whose places do
 * not depend on where the dishes are. */
#include "kernels/frb_grid/hopper_layout.h"
#include "tools/layouts/check.h"

#include <complex.h>
#include <math.h>
#include <string.h>

void layouts_frb_grid_hopper(struct layouts *report);

enum { MOST = 24, GROUPS = 3, TILES = 3 };

#define UNIT ((double complex)I)

struct shape {
    unsigned M, N, m_groups, n_groups, tiles, steps;
};

/* ---- the arithmetic ---- */

/* What the tables hold for a member of a group: cosines for the cells behind the middle, sines for their
 * mirror images. */
static double wave(unsigned cells, unsigned group, unsigned member, unsigned direction)
{
    unsigned groups = frb_hopper_groups(cells), distance = frb_hopper_distance(groups, group, member);
    double angle = M_PI * direction * (distance + 0.5) / cells;
    if (distance >= cells / 2 || direction >= 2 * cells) return 0;
    return frb_hopper_mirrored(groups, group, member) ? sin(angle) : cos(angle);
}

/* Folds one axis: x[group * 8 + member], `stride` apart. */
static void fold(unsigned groups, double complex *x, unsigned stride)
{
    for (unsigned g = 0; g + 1 < groups; g += 2)
        for (unsigned i = 0; i < 8; i++) {
            double complex *a = &x[(8 * g + i) * stride], *b = &x[(8 * g + 8 + i) * stride], sum = *a + *b;
            *b = UNIT * (*a - *b);
            *a = sum;
        }
    for (unsigned i = 0; groups % 2 && i < 4; i++) { /* lanes `apart` */
        double complex *a = &x[(8 * (groups - 1) + i) * stride], *b = &x[(8 * (groups - 1) + i + 4) * stride],
                       sum = *a + UNIT * *b;
        *b = *b + UNIT * *a;
        *a = sum;
    }
}

static void replay(struct layouts *report, const struct shape *s)
{
    double complex field[MOST][MOST], x[8 * GROUPS][8 * GROUPS] = {{0}}, y[2 * MOST][8 * GROUPS] = {{0}};
    double worst = 0, largest = 0;
    for (unsigned m = 0; m < s->M; m++)
        for (unsigned n = 0; n < s->N; n++)
            field[m][n] = cexp(UNIT * (m * m * 0.7 + n * 1.3 * m + n * n * n)) * (1 + (m * 7 + n * 3) % 5);
    for (unsigned i = 0; i < s->n_groups * s->m_groups * 64; i++) {
        unsigned n_group = i / 64 / s->m_groups, m_group = i / 64 % s->m_groups, lane = i / 2 % 32;
        unsigned m_member = frb_hopper_member_m(lane, i % 2), n_member = frb_hopper_member_n(lane);
        unsigned m = frb_hopper_cell(s->M, m_group, m_member), n = frb_hopper_cell(s->N, n_group, n_member);
        unsigned turns = frb_hopper_turned(s->m_groups, m_group, m_member) +
                         frb_hopper_turned(s->n_groups, n_group, n_member);
        if (m < s->M && n < s->N)
            x[8 * n_group + n_member][8 * m_group + m_member] = field[m][n] * cpow(-UNIT, turns);
    }
    for (unsigned n = 0; n < 8 * s->n_groups; n++) fold(s->m_groups, x[n], 1);
    for (unsigned m = 0; m < 8 * s->m_groups; m++) fold(s->n_groups, &x[0][m], 8 * GROUPS);
    for (unsigned i = 0; i < s->tiles * 64; i++) {
        unsigned tile = i / 64, lane = i / 2 % 32, below = i % 2, p = frb_hopper_wave_p(tile, lane, below);
        if (lane % 4 || p >= 2 * s->M) continue; /* all lanes of a row together */
        for (unsigned n = 0; n < 8 * s->n_groups; n++)
            for (unsigned m = 0; m < 8 * s->m_groups; m++) y[p][n] += wave(s->M, m / 8, m % 8, p) * x[n][m];
    }
    for (unsigned p = 0; p < 2 * s->M; p++)
        for (unsigned q = 0; q < 2 * s->N; q++) {
            double part[2] = {0}, got;
            double complex sum = 0;
            for (unsigned imaginary = 0; imaginary < 2; imaginary++)
                for (unsigned step = 0; step < s->steps; step++)
                    for (unsigned k = 0; k < 16; k++) {
                        /* left factor: as hopper_image::start puts it together */
                        bool both = 2 * step + 1 == s->n_groups;
                        unsigned n_group = both ? 2 * step : 2 * step + k / 8;
                        double complex left = y[p][8 * n_group + k % 8];
                        double a = (both ? k / 8 : imaginary) ? cimag(left) : creal(left);
                        unsigned group = frb_hopper_table_group(
                            s->n_groups, frb_hopper_table_step(s->n_groups, step, imaginary) + k / 8);
                        if (group < s->n_groups) part[imaginary] += a * wave(s->N, group, k % 8, q);
                    }
            got = part[0] * part[0] + part[1] * part[1];
            for (unsigned m = 0; m < s->M; m++)
                for (unsigned n = 0; n < s->N; n++)
                    sum +=
                        field[m][n] * cexp(UNIT * M_PI * ((double)(m * p) / s->M + (double)(n * q) / s->N));
            double expected = creal(sum * conj(sum)), error = fabs(got - expected);
            if (error > worst) worst = error;
            if (expected > largest) largest = expected;
        }
    layouts_expect(report, worst < 1e-9 * largest, "the transform is off by %g of %g", worst, largest);
}

/* ---- the accesses ---- */

static void cells(struct layouts *report, const struct shape *s)
{
    unsigned seen[MOST][MOST] = {{0}}, count = 0;
    for (unsigned i = 0; i < s->n_groups * s->m_groups * 64; i++) {
        unsigned lane = i / 2 % 32,
                 m = frb_hopper_cell(s->M, i / 64 % s->m_groups, frb_hopper_member_m(lane, i % 2)),
                 n = frb_hopper_cell(s->N, i / 64 / s->m_groups, frb_hopper_member_n(lane));
        if (m < s->M && n < s->N) seen[m][n]++;
    }
    for (unsigned m = 0; m < s->M; m++)
        for (unsigned n = 0; n < s->N; n++) count += seen[m][n] == 1;
    layouts_expect(report, count == s->M * s->N, "%u of %u cells have one lane", count, s->M * s->N);
}

/* What every lane loads in turn, from device memory or from shared memory. */
static void tables(struct layouts *report, enum layouts_space space, const char *name, unsigned count,
                   unsigned bytes)
{
    struct layouts_region *region = layouts_region(report, space, name, (size_t)count * 32, bytes);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "load");
    layouts_fill(region);
    for (unsigned i = 0; i < count; i++) {
        struct layouts_access access = {.bytes = bytes};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane(&access, lane, (int64_t)bytes * frb_hopper_weight(i, lane));
        layouts_access(pass, &access);
    }
    layouts_end(pass, 1, 1);
}

/* The second transform's table: 8 columns of 16 bytes at once, of all products, the groups that these must
 * find there. */
static void second(struct layouts *report, const struct shape *s)
{
    unsigned groups = frb_hopper_table_groups(s->n_groups), leading = frb_hopper_table_leading(s->N);
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "table", frb_hopper_table_bytes(s->N) / 2, 2);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "make");
    for (unsigned k_group = 0; k_group < groups; k_group++)
        for (unsigned q = 0; q < 2 * s->N; q += 8) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned i = 0; i < 8; i++)
                layouts_lane_items(
                    &access, i, br_wgmma_plain_place(q + i, 16 * k_group, leading, 128),
                    ((int64_t)frb_hopper_table_group(s->n_groups, k_group) * 2 * s->N + q + i) * 8);
            layouts_access(write, &access);
        }
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "multiply");
    for (unsigned i = 0; i < 2 * s->steps * 2; i++) {
        unsigned imaginary = i % 2, step = i / 2 % s->steps, half = i / 2 / s->steps;
        unsigned k_group = frb_hopper_table_step(s->n_groups, step, imaginary) + half;
        bool both = 2 * step + 1 == s->n_groups;
        unsigned wanted = !both ? 2 * step + half : half == imaginary ? 2 * step : s->n_groups;
        for (unsigned q = 0; q < 2 * s->N; q += 8) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned j = 0; j < 8; j++)
                layouts_lane_items(&access, j, (int64_t)k_group * leading + q / 8 * 128 + j * 16,
                                   ((int64_t)wanted * 2 * s->N + q + j) * 8);
            layouts_access(read, &access);
        }
    }
    layouts_end(read, 1, 2);
}

/* Sums that wait for the next call, and those of long blocks. */
static void kept(struct layouts *report, const struct shape *s, enum layouts_space space)
{
    struct layouts_region *region =
        layouts_region(report, space, "sums", frb_hopper_kept_count(s->M, s->N), 16);
    for (int read = 0; read < 2; read++) {
        struct layouts_pass *pass =
            layouts_begin(region, read ? LAYOUTS_READ : LAYOUTS_WRITE, read ? "add" : "store");
        for (unsigned i = 0; i < s->tiles * (s->N / 4) * 4; i++) {
            unsigned warp = i % 4, four = i / 4 % (s->N / 4), tile = i / s->N;
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32; lane++)
                layouts_lane_items(&access, lane,
                                   16 * (int64_t)frb_hopper_kept(s->N, tile, four, 32 * warp + lane),
                                   i * 32 + lane);
            layouts_access(pass, &access);
        }
        layouts_end(pass, 1, 1);
    }
}

/* The four warps' images: sums of all lanes go in, rows come out. */
static void image(struct layouts *report, const struct shape *s)
{
    unsigned pitch = frb_hopper_pitch(s->N), rows = 4 * 2 * s->M;
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "images", (size_t)rows * pitch, 4);
    for (unsigned row = 0; row < rows; row++)
        if (pitch > 2 * s->N) layouts_padding(region, (size_t)row * pitch + 2 * s->N, pitch - 2 * s->N);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "spread");
    for (unsigned i = 0; i < 4 * s->tiles * s->N; i += 2) {
        unsigned warp = i / s->N / s->tiles, tile = i / s->N % s->tiles, r = i % s->N;
        struct layouts_access access = {.bytes = 8};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned p = frb_hopper_sum_p(tile, r, lane), q = frb_hopper_sum_q(r, lane);
            if (p < 2 * s->M)
                layouts_lane_items(&access, lane, 4 * (int64_t)frb_hopper_image(s->M, s->N, warp, p, q),
                                   ((int64_t)warp * 2 * s->M + p) * 2 * s->N + q);
        }
        if (access.active) layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "write");
    layouts_allow_wavefronts(read, 8, "rows end with gaps; once in a block of time");
    for (unsigned first = 0; first < s->M * s->N; first += 32)
        for (unsigned warp = 0; warp < 4; warp++) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 32 && first + lane < s->M * s->N; lane++) {
                unsigned p = (first + lane) / (s->N / 2), q = (first + lane) % (s->N / 2) * 4;
                layouts_lane_items(&access, lane, 4 * (int64_t)frb_hopper_image(s->M, s->N, warp, p, q),
                                   ((int64_t)warp * 2 * s->M + p) * 2 * s->N + q);
            }
            layouts_access(read, &access);
        }
    layouts_end(read, 1, 1);
}

static void samples(struct layouts *report)
{
    for (unsigned npol = 1; npol <= 2; npol++) {
        unsigned seen = 0;
        for (unsigned warp = 0; warp < 4; warp++)
            seen |= 1u << (frb_hopper_time(npol, warp) * npol + frb_hopper_pol(npol, warp));
        layouts_expect(report, seen == 15 && frb_hopper_times(npol) * npol == 4,
                       "each of four samples has a warp");
    }
}

void layouts_frb_grid_hopper(struct layouts *report)
{
    for (unsigned M = 16; M <= MOST; M += 4)
        for (unsigned N = 16; N <= MOST; N += 4) {
            struct shape s = {M, N, frb_hopper_groups(M), frb_hopper_groups(N), frb_hopper_tiles(M), 0};
            s.steps = (s.n_groups + 1) / 2;
            layouts_variant(report, "%u x %u cells", M, N);
            cells(report, &s);
            samples(report);
            replay(report, &s);
            for (int space = 0; space < 2; space++) {
                tables(report, space ? LAYOUTS_SHARED : LAYOUTS_GLOBAL, "weights", s.n_groups * s.m_groups,
                       8);
                tables(report, space ? LAYOUTS_SHARED : LAYOUTS_GLOBAL, "dishes", s.n_groups * s.m_groups, 4);
                tables(report, space ? LAYOUTS_SHARED : LAYOUTS_GLOBAL, "wave", s.tiles * s.m_groups, 8);
                kept(report, &s, space ? LAYOUTS_SHARED : LAYOUTS_GLOBAL);
            }
            second(report, &s);
            image(report, &s);
        }
}
