/* FRB stage 2 on a GPU against the reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/closeness.h"
#include "tests/kernels/common/refused.h"
#include "tests/kernels/frb_beams/beams_run.h"

static void without_a_device(void **state)
{
    (void)state;
    const double freq = 600, beam[2] = {0, 0};
    const struct br_frb_beams_params params = {.nchannels = 1,
                                               .freq_mhz = &freq,
                                               .grid_m = 2,
                                               .grid_n = 2,
                                               .spacing_m_m = 1,
                                               .spacing_n_m = 1,
                                               .nbeams = 1,
                                               .beam = beam,
                                               .max_steps = 1};
    struct br_frb_beams *plan;
    struct br_why why;
    int status = br_frb_beams_create(&plan, BR_CUDA, &params, &why);
    assert_refused_without_device(status, plan, &why);
}

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"

static struct br_frb_beams *plan_of(const struct run *r, enum br_backend backend)
{
    struct br_frb_beams_params params = r->params;
    struct br_frb_beams *plan;
    struct br_why why;
    params.cuda = gpu;
    if (br_frb_beams_create(&plan, backend, &params, &why) != 0) fail_msg("%s", why.text);
    return plan;
}

/* The same bits at once and by parts, in exactly the bytes of the output. */
static uint16_t *compute(const struct run *r)
{
    enum { GUARD = 64 };
    struct br_frb_beams *plan = plan_of(r, BR_CUDA);
    size_t count = r->F * r->T * beams_out(r), around = count + 2 * GUARD + r->off,
           inputs = r->F * r->T * r->cells;
    uint16_t *got = malloc(2 * around * sizeof *got), *out = malloc(count * sizeof *out);
    uint16_t *in = gpu_poisoned((inputs + r->off) * sizeof *in, 0xff);
    gpu_ok(cudaMemcpyAsync(in + r->off, r->in, inputs * sizeof *in, cudaMemcpyHostToDevice,
                           br_cuda_stream(gpu)));
    for (size_t again = 0; again < 2; again++) {
        uint8_t poison = again ? 0x11 : 0xee;
        uint16_t *memory = gpu_poisoned(around * sizeof *memory, poison), *to = got + again * around;
        if (again)
            execute_by_parts(plan, r, in + r->off, memory + GUARD + r->off);
        else
            br_frb_beams_execute(plan, in + r->off, r->valid, r->T, memory + GUARD + r->off);
        gpu_fetch(to, memory, around * sizeof *memory);
        br_cuda_free(gpu, memory);
        for (size_t i = 0; i < GUARD + r->off; i++) assert_int_equal(to[i], poison * 0x101);
        for (size_t i = GUARD + r->off + count; i < around; i++) assert_int_equal(to[i], poison * 0x101);
    }
    assert_memory_equal(got + GUARD + r->off, got + around + GUARD + r->off, count * sizeof *got);
    memcpy(out, got + GUARD + r->off, count * sizeof *out);
    br_cuda_free(gpu, in);
    br_frb_beams_destroy(plan);
    free(got);
    return out;
}

static double worst_seen; /* rms error */

/* To the normative tolerance; elements that are much larger than it may be off by one unit in the last
 * place. */
static void check(const struct run *r)
{
    size_t B = r->params.nbeams, count = r->F * r->T * B;
    uint16_t *a = compute(r), *b = malloc(count * sizeof *b);
    struct br_frb_beams *plan = plan_of(r, BR_REFERENCE);
    br_frb_beams_execute(plan, r->in, r->valid, r->T, b);
    br_frb_beams_destroy(plan);
    struct closeness c = {0};
    closeness_add(&c, a, b, count, 0x1p-10);
    for (size_t i = 0; i < count; i++)
        if (r->valid && !r->valid[i / B]) assert_true(a[i] == 0 && b[i] == 0);
    double relative = closeness_error(&c);
    if (relative > worst_seen) worst_seen = relative;
    if (!closeness_suffices(&c))
        fail_msg("%ux%u, %zu beams (%zu x %zu), T %zu F %zu: relative rms error %g, worst %g, rms %g",
                 r->params.grid_m, r->params.grid_n, B, r->params.beams_x, r->params.beams_y, r->T, r->F,
                 relative, c.worst, closeness_rms(&c));
    free(a);
    free(b);
}

/* With the kernel that is best here and, where that is another, with the one for any GPU; only the latter
 * takes memory that is not aligned. */
static void check_shape(size_t T, size_t F, size_t M, size_t N, size_t bx, size_t by, int missing, size_t off)
{
    struct run r = make(T, F, M, N, bx, by, missing);
    r.off = off;
    for (int portable = off % 8 != 0; portable < 2; portable++) {
        r.params.portable = portable;
        check(&r);
    }
    finish(&r);
}

/* Beside and off the beams of each kernel, the portable ones too, and from memory that is not aligned. */
static void incoherent_sums(void **state)
{
    NEEDS_GPU();
    static const size_t shape[][6] = {{40, 3, 8, 12, 0, 40},  {33, 2, 5, 7, 0, 9},     {70, 2, 24, 24, 0, 64},
                                      {20, 2, 8, 12, 12, 16}, {17, 3, 24, 24, 40, 32}, {9, 2, 3, 5, 4, 7}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int how = 0; how < 4; how++) {
            struct run r =
                make(shape[i][0], shape[i][1], shape[i][2], shape[i][3], shape[i][4], shape[i][5], how % 2);
            r.params.portable = how == 1 || how == 3;
            r.params.float32 = how == 2;
            r.off = how == 3 ? 2 : 0;
            const char *wrong = incoherent_is_wrong(&r, compute);
            if (wrong) fail_msg("%s: shape %zu, %d", wrong, i, how);
            finish(&r);
        }
}

/* Around the sizes of tiles, in small. */
static void edges(void **state)
{
    NEEDS_GPU();
    static const size_t steps[] = {1, 15, 16, 17, 33, 64, 65}, beams[] = {1, 7, 8, 31, 32, 33, 40, 257},
                        cells[] = {1, 2, 4, 8, 12};
    for (size_t i = 0; i < 20; i++) {
        size_t T = steps[i % 7], M = cells[i % 5], N = cells[(i / 2 + 1) % 5];
        check_shape(T, 1 + i % 2, M, N, 0, beams[i % 8], i % 3 == 0, i % 5 == 4 ? 2 : 0);
        check_shape(T, 1 + i % 2, M, N, beams[i % 6], beams[(i + i / 6) % 7], i % 3 == 0, i % 5 == 4 ? 2 : 0);
    }
}

static void random_shapes(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < 80; i++) {
        int grid = i % 2;
        check_shape(pick(1, 90), pick(1, 3), pick(1, 9), pick(1, 9), grid ? pick(1, 20) : 0,
                    grid ? pick(1, 20) : pick(1, 90), i % 3 == 0, i % 7 == 0 ? 2 * pick(0, 8) : 0);
    }
}

/* The telescopes' grids; several stages, blocks of beams and tiles along every axis. */
static void larger_shapes(void **state)
{
    NEEDS_GPU();
    static const size_t shape[][5] = {{70, 24, 24, 0, 300}, {70, 22, 24, 0, 96},  {130, 8, 12, 0, 64},
                                      {70, 16, 16, 0, 520}, {20, 32, 32, 0, 33},  {2, 1, 200, 0, 7},
                                      {3, 100, 26, 0, 9},   {65, 24, 24, 16, 16}, {40, 22, 24, 32, 32},
                                      {130, 8, 12, 10, 9},  {33, 16, 16, 64, 40}, {20, 16, 16, 1, 100},
                                      {20, 16, 16, 90, 2},  {9, 3, 5, 130, 70},   {3, 2, 3, 5, 600},
                                      {5, 32, 32, 17, 33},  {2, 3, 200, 5, 6},    {2, 100, 26, 7, 8}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        check_shape(shape[i][0], 1 + (i == 3), shape[i][1], shape[i][2], shape[i][3], shape[i][4], i % 3 == 1,
                    0);
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* The kernels that only some shapes have: around the sizes of their tiles, and more of these than there are
 * multiprocessors. */
static void special_shapes(void **state)
{
    NEEDS_GPU();
    static const size_t cells[][2] = {{24, 24}, {22, 24}, {5, 12}, {8, 12}, {3, 16}, {16, 16}, {1, 24}},
                        arbitrary[] = {8, 56, 64, 136, 256, 264, 384, 392, 768, 1000},
                        grid[][2] = {{96, 96},  {32, 48},  {64, 64}, {7, 40},
                                     {33, 130}, {100, 24}, {97, 9},  {200, 96}};
    for (size_t i = 0; i < 7; i++)
        for (size_t j = 0; j < 2; j++) {
            size_t which = i * 2 + j;
            check_shape(1 + 31 * (which % 5), 1 + which % 2, cells[i][0], cells[i][1], 0,
                        arbitrary[which % 10], which % 3 == 0, 0);
            check_shape(1 + 5 * (which % 4), 1 + which % 2, cells[i][0], cells[i][1], grid[which % 8][0],
                        grid[which % 8][1], which % 3 == 1, 0);
        }
    check_shape(3, 300, 2, 12, 0, 8, 1, 0);
    check_shape(70, 80, 1, 16, 0, 264, 1, 0);
    check_shape(2, 700, 2, 12, 3, 8, 1, 0);
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* More tasks than blocks. */
static void many_channels(void **state)
{
    NEEDS_GPU();
    check_shape(3, 900, 2, 4, 0, 5, 1, 0);
    check_shape(11, 700, 2, 4, 3, 8, 1, 0);
}

/* The sky of one bright point source in noise, seen by beams all over the sky or away from the source only:
 * the small sums of large terms in which float16 weights would show first. */
static void bright_source(void **state)
{
    NEEDS_GPU();
    enum { M = 12, N = 8, T = 20 };
    for (int i = 0; i < 12; i++) {
        size_t bx = i % 3 ? 0 : 10, by = i % 3 ? 128 : 12;
        double power = pow(10, i / 3), sine_m[2 * M], sine_n[2 * N];
        struct run r = make(T, 1, M, N, bx, by, 0);
        r.freq[0] = 600;
        for (size_t b = 0; i % 2 && b < r.params.nbeams; b++)
            for (size_t c = 0; c < 2; c++) r.beam[2 * b + c] = 0.1 + 0.1 * fabs(r.beam[2 * b + c]);
        /* |FFT2|^2 of a plane wave from (-0.05123, -0.0711): a product of Dirichlet kernels */
        for (int p = 0; p < 2 * M; p++) {
            double x = M_PI * (p / (2.0 * M) - 0.05123 * 8.5 * 600 / 299.792458);
            sine_m[p] = pow(sin(M * x) / sin(x) / M, 2);
        }
        for (int q = 0; q < 2 * N; q++) {
            double x = M_PI * (q / (2.0 * N) - 0.0711 * 6.3 * 600 / 299.792458);
            sine_n[q] = pow(sin(N * x) / sin(x) / N, 2);
        }
        for (size_t t = 0; t < T; t++)
            for (size_t k = 0; k < r.cells; k++) {
                double noise = 60000 / (1 + power) * (1 + 0.2 * (uniform() - 0.5));
                double source = 60000 / (1 + power) * power * sine_m[k / (2 * N)] * sine_n[k % (2 * N)];
                r.in[t * r.cells + k] = br_half_from_float((float)(noise + source));
            }
        check(&r);
        finish(&r);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Float32 throughout: what is left is the rounding of the output. */
static void float32(void **state)
{
    NEEDS_GPU();
    static const size_t shape[][5] = {{70, 24, 24, 0, 136}, {3, 8, 12, 0, 7},    {129, 3, 5, 0, 130},
                                      {20, 4, 4, 6, 10},    {17, 16, 16, 8, 32}, {5, 1, 3, 0, 1},
                                      {2, 40, 40, 0, 5}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct run r =
            make(shape[i][0], 1 + i % 2, shape[i][1], shape[i][2], shape[i][3], shape[i][4], i % 3 == 1);
        r.params.float32 = true;
        r.off = i % 3 == 2 ? 2 : 0;
        double before = worst_seen;
        worst_seen = 0;
        check(&r);
        if (!(worst_seen <= 4e-4)) fail_msg("relative rms error %g in float32", worst_seen);
        worst_seen = before;
        finish(&r);
    }
}

/* Beams steered within an execute, at its ends, and some executes ahead: the same bits as plans for each set
 * of beams. */
static void steered(void **state)
{
    NEEDS_GPU();
    static const size_t shape[][4] = {{24, 24, 0, 392}, {8, 12, 0, 30},   {24, 24, 16, 16},
                                      {3, 5, 6, 9},     {16, 16, 64, 40}, {2, 12, 0, 24}};
    static const size_t at[] = {0, 1, 13, 39, 40, 41, 80, 95};
    enum { T = 40, F = 2, EXECUTES = 3 };
    for (size_t i = 0; i < sizeof shape / sizeof *shape * 8; i++) {
        const size_t *s = shape[i / 8], when = at[i % 8];
        struct run r = make(EXECUTES * T, F, s[0], s[1], s[2], s[3], i % 3 == 0), one = r,
                   other = make(1, F, s[0], s[1], s[2], s[3], 0);
        size_t B = r.params.nbeams, in = F * T * r.cells, out = F * T * B;
        struct br_why why;
        uint16_t *got[EXECUTES], *expected[2];
        r.params.portable = i / 8 == 5;
        r.params.float32 = i / 8 == 1 && i % 2;
        r.params.steered = true;
        one.params = r.params;
        one.T = one.params.max_steps = r.params.max_steps = T;
        struct br_frb_beams *plan = plan_of(&r, BR_CUDA);
        uint16_t *device_in = gpu_poisoned(in * EXECUTES * 2, 0xff),
                 *device_out = gpu_poisoned(out * EXECUTES * 2, 0xee);
        gpu_ok(
            cudaMemcpyAsync(device_in, r.in, in * EXECUTES * 2, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
        if (i % 2) assert_int_equal(br_frb_beams_steer(plan, r.beam, 7, &why), 0); /* replaced at once */
        assert_int_equal(br_frb_beams_steer(plan, other.beam, when, &why), 0);
        for (size_t e = 0; e < EXECUTES; e++)
            br_frb_beams_execute(plan, device_in + e * in, r.valid ? r.valid + e * F * T : NULL, T,
                                 device_out + e * out);
        for (size_t e = 0; e < EXECUTES; e++) {
            got[e] = malloc(out * 2);
            gpu_fetch(got[e], device_out + e * out, out * 2);
            for (int k = 0; k < 2; k++) {
                one.in = r.in + e * in;
                one.valid = r.valid ? r.valid + e * F * T : NULL;
                one.params.beam = k ? other.beam : r.beam;
                expected[k] = compute(&one);
            }
            for (size_t f = 0; f < F; f++)
                for (size_t t = 0; t < T; t++)
                    assert_memory_equal(got[e] + (f * T + t) * B,
                                        expected[e * T + t >= when] + (f * T + t) * B, B * 2);
            free(expected[0]);
            free(expected[1]);
            free(got[e]);
        }
        br_cuda_free(gpu, device_in);
        br_cuda_free(gpu, device_out);
        br_frb_beams_destroy(plan);
        finish(&r);
        finish(&other);
    }
}

/* A step's result is the same bits whatever else is computed with it, also by a plan for longer calls. */
static void steps_are_independent(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < 16; i++) {
        int grid = i % 2;
        size_t T = pick(1, 150), lone[4] = {0, T / 2, T - 1, pick(0, T - 1)};
        struct run r = make(T, 1, pick(1, 12), pick(1, 12), grid ? pick(1, 40) : 0,
                            grid ? pick(1, 40) : pick(1, 300), i % 3 == 0);
        uint16_t *all = compute(&r);
        for (int j = 0; j < 4; j++) {
            struct run one = r;
            one.T = j == 3 ? (T - lone[j] + 1) / 2 : 1; /* alone, or some */
            one.in += lone[j] * r.cells;
            if (one.valid) one.valid += lone[j];
            if (j < 2) one.params.max_steps = one.T;
            uint16_t *got = compute(&one);
            assert_memory_equal(got, all + lone[j] * r.params.nbeams, one.T * r.params.nbeams * sizeof *got);
            free(got);
        }
        free(all);
        finish(&r);
    }
}

static void clamps(void **state)
{
    NEEDS_GPU();
    for (size_t bx = 0; bx <= 5; bx += 5) {
        struct run r = make(1, 1, 1, 2, bx, bx ? 6 : 30, 0);
        overflow(&r);
        uint16_t *out = compute(&r);
        check_overflow(&r, out);
        free(out);
        check(&r);
        finish(&r);
    }
}

/* The kernels that only some shapes have, in small. */
static void special_edges(void **state)
{
    NEEDS_GPU();
    check_shape(65, 1, 2, 12, 0, 264, 1, 0);
    check_shape(1, 2, 3, 16, 0, 8, 0, 0);
    check_shape(3, 2, 2, 24, 0, 392, 1, 0);
    check_shape(5, 2, 3, 12, 97, 33, 1, 0);
    check_shape(5, 1, 2, 24, 96, 32, 0, 0);
    check_shape(4, 2, 2, 16, 40, 130, 1, 0);
    struct run r = make(5, 1, 2, 4, 0, 30, 1);
    r.params.float32 = true;
    check(&r);
    finish(&r);
}

/* Validity larger than was announced: execute returns, and the failure can be read. */
static void failures(void **state)
{
    NEEDS_GPU();
    struct br_cuda *usual = gpu;
    struct br_why why;
    struct run r = make(1, 1, 2, 2, 0, 3, 0);
    r.params.max_steps = 10000;
    assert_int_equal(br_cuda_create(&gpu, 0, NULL, 1, &why), 0);
    struct br_frb_beams *plan = plan_of(&r, BR_CUDA);
    uint8_t *valid = calloc(1, 10000);
    uint16_t *memory = br_cuda_alloc(gpu, 10000 * 2 * (16 + 3), &why);
    br_frb_beams_execute(plan, memory, valid, 10000, memory + 160000);
    assert_int_equal(br_cuda_check(gpu, &why), -1);
    br_frb_beams_destroy(plan);
    br_cuda_free(gpu, memory);
    br_cuda_destroy(gpu);
    gpu = usual;
    free(valid);
    finish(&r);
}

#endif

int main(void)
{
    seed = 4712;
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest small[] = {cmocka_unit_test(incoherent_sums), cmocka_unit_test(edges),
                                       cmocka_unit_test(special_edges), cmocka_unit_test(clamps),
                                       cmocka_unit_test(failures)};
    const struct CMUnitTest more[] = {
        cmocka_unit_test(random_shapes),  cmocka_unit_test(larger_shapes),
        cmocka_unit_test(special_shapes), cmocka_unit_test(float32),
        cmocka_unit_test(steered),        cmocka_unit_test(many_channels),
        cmocka_unit_test(bright_source),  cmocka_unit_test(steps_are_independent),
    };
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
#endif
    return failed;
}
