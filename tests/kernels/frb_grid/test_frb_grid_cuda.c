/* FRB stage 1 on a GPU: against the equation where that is quick, against the CPU (which is tested against
 * the equation) on larger shapes; and what must not change a bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/closeness.h"
#include "tests/kernels/frb_grid/grid_gpu.h"

static double worst_seen; /* rms error */

/* To the normative tolerance; elements that are much larger than it may be off by one unit in the last
 * place. */
static void assert_close(const struct run *r, const uint16_t *a, const uint16_t *b, size_t count)
{
    struct closeness c = {0};
    closeness_add(&c, a, b, count, 0x1p-10);
    for (size_t i = 0; i < count; i++) assert_true(br_half_to_float(a[i]) >= 0);
    double relative = closeness_error(&c);
    if (relative > worst_seen) worst_seen = relative;
    if (!closeness_suffices(&c))
        fail_msg("%u x %u, D %zu, P %zu, F %zu, T_ds %u: relative rms error %g, worst %g, rms %g",
                 r->params.grid_m, r->params.grid_n, r->params.ndishes, r->params.npol, r->params.nchannels,
                 r->params.downsample, relative, c.worst, closeness_rms(&c));
}

/* In one call and in many, against the other backend; frees the run. */
static void check(struct run r, enum br_backend other)
{
    size_t count = r.params.nchannels * r.cells;
    struct image a = compute(&r, BR_CUDA, 0), b = compute(&r, BR_CUDA, pick(1, r.T)),
                 c = compute(&r, other, 0);
    assert_same(&r, &a, &b);
    assert_memory_equal(a.valid, c.valid, r.params.nchannels * a.blocks);
    assert_close(&r, a.out, c.out, count * a.blocks);
    release(&a);
    release(&b);
    release(&c);
    finish(&r);
}

/* One tile and more along both axes, ragged and not; blocks around the sizes of batches and chunks. */
static void edges(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 8}, {8, 12}, {12, 8}, {16, 20}, {20, 24}, {28, 32}, {32, 28}};
    for (size_t i = 0; i < 14; i++) {
        size_t P = 1 + i % 2, F = 1 + i / 2 % 3;
        unsigned downsample = (unsigned)(i % 3 ? pick(1, 5) : 17);
        struct run r = make(pick(1, 20), F, P, grid[i % 7][0], grid[i % 7][1], pick(1, 24), downsample,
                            i % 3 == 1 ? F : i % 3 / 2, i % 4 == 0 ? 30 : 0);
        r.off_e = i < 7 ? 0 : pick(0, 17);
        r.off_out = i % 5 == 4 ? pick(1, 20) : 0;
        check(r, BR_REFERENCE);
    }
}

/* Grids for which the autocorrelation is summed: blocks of one piece and of several, whole and not, with
 * dishes in order (four at once) and anywhere, bytes aligned to 16, to 4 and not at all. */
static void small_grids(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 8}, {8, 12}, {12, 8}},
                          length[] = {4, 5, 8, 13, 40, 63, 64, 65, 128, 130};
    bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t i = 0; i < (quick ? 12 : 60); i++) {
        unsigned M = grid[i % 3][0], N = grid[i % 3][1], T = length[i % 10];
        size_t F = pick(1, 3), P = 1 + i / 2 % 2,
               D = i % 4 == 0 ? (size_t)M * N : pick(1, (size_t)M * N / 4) * 4;
        struct run r =
            make(pick(1, 3 * T), F, P, M, N, D, T, i % 3 == 1 ? F : i % 3 / 2, i % 5 == 1 ? 30 : 0);
        for (size_t d = 0; i % 2 == 0 && d < D; d++)
            r.cell[2 * d] = (uint16_t)(d / N), r.cell[2 * d + 1] = (uint16_t)(d % N);
        r.off_e = i % 7 == 3 ? 4 : i % 7 == 5 ? pick(1, 17) : 0;
        check(r, T * D > 1000 ? BR_CPU : BR_REFERENCE);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Grids of which the lags along one axis are summed: every pair of sizes, blocks of one piece and of several,
 * whole and not, bytes aligned to 16, to 4 and not at all, more of them than threads copy at once. */
static void lag_grids(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {8, 12, 15, 16, 40, 63, 64, 65, 128, 130, 200};
    bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t i = 0; i < (quick ? 12 : 72); i++) {
        unsigned M = 12 + 4 * (unsigned)(i % 6), N = 12 + 4 * (unsigned)(i / 6 % 6), T = length[i % 11];
        size_t F = pick(1, 3), P = 1 + i / 2 % 2,
               D = i % 4 == 0 ? (size_t)M * N : pick(1, (size_t)M * N / 16) * (i % 3 == 1 ? 4 : 16);
        struct run r =
            make(pick(1, 3 * T), F, P, M, N, D, T, (size_t[]){0, 1, F}[i % 5 % 3], i % 5 == 3 ? 30 : 0);
        r.off_e = i % 7 == 3 ? 4 : i % 7 == 5 ? pick(1, 17) : 0;
        r.off_out = i % 8 == 7 ? pick(1, 20) : 0;
        check(r, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Dishes in rows without gaps, 8 x 8 of which bytes are read where they are, in blocks of every kind of
 * length and calls that begin and end anywhere; and rows that begin anywhere, the last of them not full. */
static void rows_of_dishes(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {4, 8, 12, 16, 40, 64, 13, 72};
    static const struct {
        unsigned M, N, columns, D;
    } shape[] = {{8, 8, 8, 64},   {8, 8, 8, 64}, {8, 8, 8, 32}, {8, 12, 11, 64},
                 {8, 12, 12, 96}, {8, 8, 7, 50}, {12, 8, 8, 80}};
    bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t i = 0; i < (quick ? 14 : 56); i++) {
        const unsigned T = length[i % 8], k = (unsigned)(i % 7);
        size_t F = pick(1, 4), P = 2 - i / 8 % 2;
        struct run r = make(pick(2, 6) * T + pick(0, T - 1), F, P, shape[k].M, shape[k].N, shape[k].D, T,
                            (size_t[]){0, 1, F}[i % 3], i % 9 == 8 ? 30 : 0);
        place_in_order(&r, shape[k].columns);
        r.row = F * P * shape[k].D;
        r.off_out = i % 10 == 9 ? pick(1, 20) : 0;
        check(r, T * F > 100 ? BR_CPU : BR_REFERENCE);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* 8 x 8 dishes in order and nothing missing, in calls that end between the steps of a block, so that bytes go
 * on from call to call and are read where they are: the bits are those of calls that end anywhere. */
static void calls_between_steps(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {12, 40, 8, 64, 16, 24, 32};
    for (size_t i = 0; i < 14; i++) {
        const unsigned T = length[i % 7];
        size_t F = pick(1, 40), P = 2 - i / 7;
        struct run r = make(pick(3, 6) * T + pick(0, 3) * 8, F, P, 8, 8, 64, T, (size_t[]){0, 1, F}[i % 3],
                            0),
                   s;
        place_in_order(&r, 8);
        r.row = F * P * 64;
        r.phase = 0;
        s = r;
        s.multiple = P == 2 ? 4 : 8;
        struct image a = compute(&r, BR_CUDA, T);
        for (size_t k = 0; k < 3; k++) {
            struct image b = compute(&s, BR_CUDA, k == 0 ? 1 : k == 1 ? T : 2 * T + 9);
            assert_same(&r, &a, &b);
            release(&b);
        }
        release(&a);
        check(s, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Fields of zeros are intensities of zero, whatever the weights are. */
static void nothing_is_nothing(void **state)
{
    NEEDS_GPU();
    for (unsigned i = 0; i < 6; i++) {
        struct run r = make(40, 2, 2, 8, i % 3 ? 8 : 12, i % 3 == 2 ? 40 : 64, 12, 2, i / 3 ? 30 : 0);
        if (i % 3 != 2) place_in_order(&r, i % 3 ? 8 : 12);
        for (size_t k = 0; k < 2 * 2 * r.params.ndishes * 2; k++)
            r.weights[k] *= (float)ldexp(1, -(int)pick(0, 24));
        r.params.log2_scale = -60; /* so that the least would be seen */
        memset(r.e, 0, r.T * r.row);
        struct image a = compute(&r, BR_CUDA, 0);
        for (size_t k = 0; k < 2 * a.blocks * r.cells; k++) assert_int_equal(a.out[k], 0);
        release(&a);
        finish(&r);
    }
}

/* Sums that are closed on the way. */
static void long_blocks(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {256, 257, 300, 600, 1025};
    for (int i = 0; i < (getenv("BEAMRING_GPU_SMALL") ? 3 : 10); i++)
        check(make(pick(1, 3) * length[i % 5], 1, 1 + (size_t)i % 2, 8, 8 + 4 * (unsigned)(i % 3), 20,
                   length[i % 5], i % 3 == 2, i % 2 ? 40 : 0),
              BR_CPU);
}

static void all_grids(void **state)
{
    NEEDS_GPU();
    for (unsigned M = 8; M <= 32; M += 4)
        for (unsigned N = 8; N <= 32; N += 4) {
            size_t F = pick(1, 3);
            check(make(pick(1, 50), F, pick(1, 2), M, N, pick(0, 2) ? 0 : (size_t)M * N,
                       (unsigned)pick(1, 20), (size_t[]){0, 1, F}[pick(0, 2)], pick(0, 1) ? 30 : 0),
                  BR_CPU);
        }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

static void random_shapes(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < 60; i++) {
        size_t F = pick(1, 9);
        struct run r =
            make(pick(1, 120), F, pick(1, 2), 4 * (unsigned)pick(2, 8), 4 * (unsigned)pick(2, 8), 0,
                 (unsigned)(i % 4 ? pick(1, 12) : pick(1, 150)), (size_t[]){0, 1, F}[i % 3], i % 2 ? 30 : 0);
        r.off_e = i % 5 == 0 ? pick(0, 17) : 0;
        r.off_out = i % 7 == 0 ? pick(1, 20) : 0;
        r.params.threshold = i % 3 == 0 ? 0 : uniform();
        check(r, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* More blocks in a call than one launch takes. */
static void many_blocks(void **state)
{
    NEEDS_GPU();
    check(make(300, 2, 2, 8, 12, 64, 1, 0, 30), BR_CPU);
    check(make(500, 3, 1, 8, 8, 30, 3, 1, 0), BR_CPU);
    /* and so many that one warp makes several, one after the other */
    check(make(140, 1024, 1, 8, 8, 4, 4, 0, 30), BR_CPU);
}

/* Blocks with more missing samples than a byte can count. */
static void many_gaps(void **state)
{
    NEEDS_GPU();
    check(make(1500, 3, 1, 8, 8, 30, 700, 1, 90), BR_CPU);
    struct run r = make(1200, 2, 1, 8, 12, 20, 600, 0, 10);
    memset(r.valid, 0, 520 * r.valid_row); /* nearly all of the first block */
    r.params.threshold = 0;
    check(r, BR_CPU);
}

/* One source, much stronger than all noise, in some direction: most of the image is small sums of large
 * terms. */
static void bright_source(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 12}, {16, 16}, {16, 20}, {24, 24}, {8, 8}};
    for (int i = 0; i < 15; i++) {
        unsigned M = grid[i % 5][0], N = grid[i % 5][1];
        struct run r = make(40, 2, 2, M, N, (size_t)M * N * 8 / 9, 20, i % 2 ? 2 : 0, 0);
        size_t D = r.params.ndishes;
        double a = i < 5 ? (double)(i % 3) / (2 * M) : uniform(), b = i < 5 ? 0 : uniform();
        for (size_t k = 0; r.weights && k < 2 * 2 * D; k++) { /* of modulus 1, arbitrary phases */
            double phase = 2 * M_PI * uniform();
            r.weights[2 * k] = (float)cos(phase);
            r.weights[2 * k + 1] = (float)sin(phase);
        }
        r.params.log2_scale = br_frb_grid_log2_scale(&r.params);
        for (size_t t = 0; t < r.T; t++) {
            double start = uniform();
            for (size_t k = 0; k < 2 * 2 * D; k++) {
                size_t d = k % D;
                double phase = 2 * M_PI * (start - a * r.cell[2 * d] - b * r.cell[2 * d + 1]),
                       re = 7 * cos(phase), im = 7 * sin(phase);
                double wr = r.weights ? (double)r.weights[2 * k] : 1,
                       wi = r.weights ? -(double)r.weights[2 * k + 1] : 0;
                long x = lrint(wr * re - wi * im), y = lrint(wr * im + wi * re);
                r.e[t * r.row + k] = (uint8_t)((x & 15) | (y & 15) << 4);
            }
        }
        check(r, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Channels whose weights differ by many orders of magnitude keep their precision each. */
static void weights_of_all_sizes(void **state)
{
    NEEDS_GPU();
    struct run r = make(40, 6, 2, 12, 16, 150, 20, 6, 0);
    for (size_t f = 0; f < 6; f++)
        for (size_t i = 0; i < 600; i++)
            r.weights[f * 600 + i] *= (float)pow(10, (double)f - 2) * (f == 5 ? 0 : 1);
    r.params.log2_scale = 0; /* large enough for small images, clamped in large ones */
    struct image a = compute(&r, BR_CUDA, 0), b = compute(&r, BR_CPU, 0);
    size_t image = a.blocks * r.cells;
    for (size_t f = 0; f < 6; f++)
        if (f < 2 || f == 5) assert_close(&r, a.out + f * image, b.out + f * image, image);
    for (size_t i = 0; i < 6 * image; i++) assert_true(a.out[i] <= 0x7bff);
    assert_memory_equal(a.out + 4 * image, b.out + 4 * image, image * sizeof *a.out);
    release(&a);
    release(&b);
    finish(&r);
}

static void full_scale(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 8}, {24, 24}, {32, 32}};
    for (int i = 0; i < 3; i++) {
        size_t D = (size_t)grid[i][0] * grid[i][1];
        struct run r = make(40, 2, 2, grid[i][0], grid[i][1], D, 20, 0, 0);
        r.phase = 0;
        memset(r.e, 0x88, r.T * r.row); /* -8 - 8i */
        struct image a = compute(&r, BR_CUDA, 0);
        double zenith = ldexp((double)br_half_to_float(a.out[0]), r.params.log2_scale),
               most = 2.0 * 20 * 128 * (double)(D * D);
        assert_true(fabs(zenith / most - 1) < 1e-3);
        release(&a);
        check(r, BR_CPU);
    }
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    seed = 31;
    const struct CMUnitTest small[] = {cmocka_unit_test(edges),
                                       cmocka_unit_test(small_grids),
                                       cmocka_unit_test(rows_of_dishes),
                                       cmocka_unit_test(calls_between_steps),
                                       cmocka_unit_test(nothing_is_nothing),
                                       cmocka_unit_test(long_blocks),
                                       cmocka_unit_test(lag_grids)};
    const struct CMUnitTest more[] = {
        cmocka_unit_test(all_grids),  cmocka_unit_test(random_shapes), cmocka_unit_test(many_blocks),
        cmocka_unit_test(many_gaps),  cmocka_unit_test(bright_source), cmocka_unit_test(weights_of_all_sizes),
        cmocka_unit_test(full_scale),
    };
    int failed = cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
    return failed;
#else
    return 77; /* skipped */
#endif
}
