/* The baseband beamformer on a GPU, the kernel made for the device and the portable one, against the
 * reference: same bytes, same counts. */
#include "kernels/common/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/baseband/shape.h"
#include "tests/kernels/common/dump.h"
#include "tests/kernels/common/refused.h"

static void without_a_device(void **state)
{
    (void)state;
    int8_t w[2] = {1, 0};
    int32_t shift[1] = {0};
    const struct br_baseband_params params =
        params_of((struct shape){.F = 1, .P = 1, .D = 1, .B = 1, .WF = 1}, w, shift);
    struct br_baseband *plan;
    struct br_why why;
    int status = br_baseband_create(&plan, BR_CUDA, &params, &why);
    assert_refused_without_device(status, plan, &why);
}

/* The plan's count is the sum of the calls' counts. */
static void counts_on_the_host(void **state)
{
    (void)state;
    int8_t w[2 * 2] = {100, 0, 1, 0};
    int32_t shift[2] = {0, 0};
    const struct br_baseband_params params =
        params_of((struct shape){.F = 1, .P = 1, .D = 1, .B = 2, .WF = 1}, w, shift);
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct br_baseband *plan;
        uint8_t e[3] = {0x01, 0x71, 0x00}, out[6];
        uint64_t per_beam[2] = {9, 9};
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &params, NULL), 0);
        assert_int_equal(br_baseband_saturated(plan, per_beam), 0);
        assert_int_equal(br_baseband_execute(plan, e, NULL, 3, out, NULL, NULL), 3);
        assert_int_equal(br_baseband_execute(plan, e, NULL, 1, out, NULL, NULL), 1);
        assert_int_equal(br_baseband_saturated(plan, NULL), 4);
        assert_int_equal(br_baseband_saturated(plan, per_beam), 4);
        assert_int_equal(per_beam[0], 4);
        assert_int_equal(per_beam[1], 0);
        br_baseband_destroy(plan);
    }
}

#if BR_WITH_CUDA
#include "tests/kernels/baseband/baseband_gpu.h"

/* What `n` with the given field and weights becomes. */
struct expected {
    uint8_t *out, *valid;
    uint64_t *clamped, total;
};

/* Runs one of the device's kernels; the output stands between guards and is poisoned before every run. `off`:
 * bytes by which e and out are moved from their alignment. */
static void same_on(enum br_baseband_gpu which, struct shape n, const uint8_t *e, const uint8_t *e_valid,
                    const int8_t *w, const int32_t *shift, size_t off, const struct expected *expected)
{
    enum { GUARD = 64 };
    size_t inputs = n.T * n.F * n.P * n.D, outputs = n.B * n.F * n.P * n.T,
           around = outputs + 2 * GUARD + off;
    uint8_t *got = malloc(around), *moved = malloc(inputs + off), *valid = malloc(n.F * n.T);
    uint64_t *counted = calloc(n.B, sizeof *counted);
    struct br_baseband *plan = plan_of(BR_CUDA, which, n, w, shift);

    memcpy(moved + off, e, inputs);
    memset(got, 0xee, around);
    uint8_t *device_e = on_device(moved, inputs + off), *device_out = on_device(got, around);
    uint64_t before = br_cuda_count(gpu);
    for (uint64_t again = 1; again <= 2; again++) {
        memset(valid, 0xee, n.F * n.T);
        gpu_ok(cudaMemset(device_out, again == 1 ? 0xee : 0x11, around));
        gpu_ok(cudaDeviceSynchronize());
        assert_int_equal(
            br_baseband_execute(plan, device_e + off, e_valid, n.T, device_out + GUARD + off, valid, NULL),
            0);
        assert_memory_equal(valid, expected->valid, n.F * n.T);
        bool good = br_baseband_saturated(plan, counted) == again * expected->total;
        for (size_t b = 0; b < n.B; b++) good = good && counted[b] == again * expected->clamped[b];
        gpu_ok(cudaMemcpy(got, device_out, around, cudaMemcpyDeviceToHost));
        good = good && memcmp(got + GUARD + off, expected->out, outputs) == 0;
        if (!good)
            printf("%s: T %zu F %zu P %zu D %zu B %zu, %zu weight channels, missing %d, off %zu\n",
                   which == BR_BASEBAND_PORTABLE ? "portable" : "the device's own", n.T, n.F, n.P, n.D, n.B,
                   n.WF, e_valid != NULL, off);
        assert_memory_equal(got + GUARD + off, expected->out, outputs);
        for (size_t b = 0; b < n.B; b++) assert_int_equal(counted[b], again * expected->clamped[b]);
        assert_int_equal(br_cuda_count(gpu) - before, again * expected->total);
        for (size_t i = 0; i < GUARD + off; i++) assert_int_equal(got[i], again == 1 ? 0xee : 0x11);
        for (size_t i = GUARD + off + outputs; i < around; i++)
            assert_int_equal(got[i], again == 1 ? 0xee : 0x11);
    }
    struct br_why why;
    if (br_cuda_check(gpu, &why) != 0) fail_msg("%s", why.text);
    br_cuda_free(gpu, device_e);
    br_cuda_free(gpu, device_out);
    br_baseband_destroy(plan);
    free(got);
    free(moved);
    free(valid);
    free(counted);
}

static void same(struct shape n, const uint8_t *e, const uint8_t *e_valid, const int8_t *w,
                 const int32_t *shift, size_t off)
{
    struct expected x = {.out = malloc(n.B * n.F * n.P * n.T),
                         .valid = malloc(n.F * n.T),
                         .clamped = calloc(n.B, sizeof *x.clamped)};
    struct br_baseband *reference = plan_of(BR_REFERENCE, BR_BASEBAND_AUTO, n, w, shift);
    x.total = br_baseband_execute(reference, e, e_valid, n.T, x.out, x.valid, x.clamped);
    br_baseband_destroy(reference);
    same_on(BR_BASEBAND_AUTO, n, e, e_valid, w, shift, off, &x);
    same_on(BR_BASEBAND_PORTABLE, n, e, e_valid, w, shift, off, &x);
    if (n.B > 64 && n.D <= 512) same_on(BR_BASEBAND_MANY, n, e, e_valid, w, shift, off, &x);
    free(x.out);
    free(x.valid);
    free(x.clamped);
}

static void random_run(struct shape n, size_t shift_low, size_t shift_high, int missing, size_t off)
{
    size_t inputs = n.T * n.F * n.P * n.D, beams = n.WF * n.P * n.B;
    uint8_t *e = malloc(inputs), *e_valid = missing ? malloc(n.T * n.F) : NULL;
    int8_t *w = malloc(beams * n.D * 2);
    int32_t *shift = malloc(beams * sizeof *shift);
    fill(e, inputs);
    for (size_t i = 0; i < beams * n.D * 2; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
    for (size_t i = 0; i < beams; i++) shift[i] = (int32_t)pick(shift_low, shift_high);
    for (size_t i = 0; missing && i < n.T * n.F; i++)
        e_valid[i] = (uint8_t)(missing > 1 && pick(0, 3) == 0 ? 0 : pick(1, 255));
    same(n, e, e_valid, w, shift, off);
    free(e);
    free(e_valid);
    free(w);
    free(shift);
}

static void edges(void **state)
{
    NEEDS_GPU();
    static const size_t dishes[] = {1, 3, 15, 16, 17, 31, 32, 33, 48, 64, 127, 128, 129, 144, 256, 272};
    static const size_t times[] = {1, 2, 15, 16, 31, 127, 128, 129, 144, 300};
    for (size_t i = 0; i < sizeof dishes / sizeof *dishes; i++)
        for (size_t j = 0; j < sizeof times / sizeof *times; j += 3) {
            size_t D = dishes[i], T = times[(i + j) % 10];
            random_run((struct shape){.T = T, .F = 2, .P = 1, .D = D, .B = 1 + (D + T) % 37, .WF = 1 + i % 2},
                       3, 12, i % 3, j % 2);
        }
}

/* Every size of tile, and more beams than one holds. */
static void beams(void **state)
{
    NEEDS_GPU();
    static const size_t counts[] = {1, 8, 16, 31, 32, 33, 64, 65, 96, 97, 127, 128, 129, 160, 200, 257};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        random_run((struct shape){.T = 130 + i, .F = 1, .P = 2, .D = 48 + i, .B = counts[i], .WF = 1}, 6, 12,
                   2, 0);
}

static void random_shapes(void **state)
{
    NEEDS_GPU();
    for (int round = 0; round < 60; round++) {
        struct shape n = {.F = pick(1, 4), .P = pick(1, 2), .D = pick(1, 1024), .B = pick(1, 200)};
        if (round % 3 != 0) n.D = (n.D + 15) / 16 * 16;
        size_t most = 6000000 / (n.F * n.P * n.D * n.B) + 1;
        n.T = pick(1, most > 500 ? 500 : most);
        if (round % 4 == 0) n.T = (n.T + 15) / 16 * 16;
        n.WF = pick(0, 1) ? n.F : 1;
        random_run(n, 0, 20, round % 4, round % 5 == 0 ? pick(0, 3) : 0);
    }
}

/* Thousands of small ones, of the shapes for which devices have kernels of their own; some with two channels
 * and polarisations at a time. */
static void thousands(void **state)
{
    NEEDS_GPU();
    for (int round = 0; round < 1500; round++) {
        struct shape n = {.F = pick(1, 3), .P = pick(1, 2), .D = 16 * pick(1, 16), .B = pick(1, 128)};
        if (round % 4 == 0) n.D = 64, n.B = pick(1, 16);
        if (round % 16 == 1) n.D = 16 * pick(17, 64);
        size_t most = 400000 / (n.F * n.P * n.D * n.B) + 1;
        n.T = pick(1, most > 700 ? 700 : most);
        if (round % 3 != 0) n.T = (n.T + 15) / 16 * 16;
        n.WF = pick(0, 1) ? n.F : 1;
        size_t low = pick(0, 20);
        random_run(n, low, pick(low, 20), round % 4, round % 50 == 49 ? pick(0, 3) : 0);
    }
}

/* Blocks that take many tiles and come to other weights, with little work. */
static void many_channels(void **state)
{
    NEEDS_GPU();
    random_run((struct shape){.T = 1, .F = 700, .P = 2, .D = 16, .B = 3, .WF = 700}, 2, 9, 2, 0);
    random_run((struct shape){.T = 3, .F = 400, .P = 2, .D = 64, .B = 3, .WF = 400}, 2, 9, 2, 0);
    random_run((struct shape){.T = 16, .F = 500, .P = 1, .D = 16, .B = 3, .WF = 1}, 2, 9, 0, 0);
    random_run((struct shape){.T = 2, .F = 200, .P = 2, .D = 16, .B = 67, .WF = 200}, 2, 9, 2, 0);
}

/* More tiles than blocks: every block takes several, in long and short frames. */
static void many_tiles(void **state)
{
    NEEDS_GPU();
    random_run((struct shape){.T = 3000, .F = 12, .P = 2, .D = 16, .B = 5, .WF = 12}, 2, 9, 2, 0);
    random_run((struct shape){.T = 1, .F = 700, .P = 2, .D = 33, .B = 3, .WF = 700}, 2, 9, 2, 0);
    /* of Hopper's variants: 16 beams two channels at a time, 16, 32, 64 and 96, the last two also as one of
     * several */
    random_run((struct shape){.T = 1300, .F = 40, .P = 2, .D = 64, .B = 4, .WF = 40}, 2, 11, 2, 0);
    random_run((struct shape){.T = 1300, .F = 20, .P = 2, .D = 32, .B = 9, .WF = 1}, 2, 9, 2, 0);
    random_run((struct shape){.T = 640, .F = 33, .P = 2, .D = 48, .B = 23, .WF = 33}, 2, 9, 0, 0);
    random_run((struct shape){.T = 400, .F = 50, .P = 2, .D = 144, .B = 50, .WF = 1}, 2, 9, 2, 0);
    random_run((struct shape){.T = 390, .F = 67, .P = 2, .D = 16, .B = 90, .WF = 67}, 2, 9, 2, 0);
    random_run((struct shape){.T = 390, .F = 34, .P = 1, .D = 16, .B = 128, .WF = 34}, 2, 9, 2, 0);
    random_run((struct shape){.T = 129, .F = 70, .P = 2, .D = 160, .B = 33, .WF = 70}, 2, 9, 0, 0);
}

/* The largest sums there are: every sign of weight and field, full scale, up to the largest number of dishes.
 */
static void extremes(void **state)
{
    NEEDS_GPU();
    static const uint8_t fields[] = {0x88, 0x77, 0x87, 0x78, 0x08, 0x80};
    static const int8_t weights[][2] = {{127, 127},  {-127, -127}, {127, -127},
                                        {-127, 127}, {0, 127},     {-127, 0}};
    static const size_t dishes[] = {1, 31, 64, 512, 1024, 65536};
    for (size_t k = 0; k < sizeof dishes / sizeof *dishes; k++)
        for (size_t i = 0; i<36; i += dishes[k]> 1024 ? 5 : 1) {
            struct shape n = {.T = 2, .F = 1, .P = 1, .D = dishes[k], .B = 9, .WF = 1};
            uint8_t *e = malloc(n.T * n.D);
            int8_t *w = malloc(n.B * n.D * 2);
            int32_t shift[9];
            memset(e, fields[i / 6], n.T * n.D);
            for (size_t d = 0; d < n.B * n.D; d++) memcpy(w + 2 * d, weights[i % 6], 2);
            for (int b = 0; b < 9; b++) shift[b] = b == 0 ? 0 : b == 1 ? 30 : 12 + 2 * b;
            same(n, e, NULL, w, shift, 0);
            free(e);
            free(w);
        }
}

/* A frame in one call or in pieces: the same bytes. */
static void call_lengths(void **state)
{
    NEEDS_GPU();
    enum { T = 300, F = 2, P = 2, D = 64, B = 20 };
    struct shape n = {T, F, P, D, B, 1};
    static uint8_t e[T * F * P * D], whole[B * F * P * T], part[B * F * P * T];
    static int8_t w[P * B * D * 2];
    int32_t shift[P * B];
    fill(e, sizeof e);
    for (size_t i = 0; i < sizeof w; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
    for (size_t i = 0; i < P * B; i++) shift[i] = 9;
    struct br_baseband *plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
    uint8_t *device_e = on_device(e, sizeof e), *device_out = on_device(whole, sizeof whole);
    br_baseband_execute(plan, device_e, NULL, T, device_out, NULL, NULL);
    uint64_t total = br_baseband_saturated(plan, NULL);
    gpu_ok(cudaMemcpy(whole, device_out, sizeof whole, cudaMemcpyDeviceToHost));
    for (size_t at = 0, step = 1; at < T; at += step, step = step * 3 % 101) {
        if (step > T - at) step = T - at;
        br_baseband_execute(plan, device_e + at * F * P * D, NULL, step, device_out, NULL, NULL);
        br_baseband_saturated(plan, NULL);
        gpu_ok(cudaMemcpy(part, device_out, (size_t)B * F * P * step, cudaMemcpyDeviceToHost));
        for (size_t row = 0; row < B * F * P; row++)
            assert_memory_equal(part + row * step, whole + row * T + at, step);
    }
    assert_int_equal(br_baseband_saturated(plan, NULL), 2 * total);
    br_baseband_execute(plan, device_e, NULL, 0, device_out, NULL, NULL); /* nothing to do */
    br_baseband_destroy(plan);
    br_cuda_free(gpu, device_e);
    br_cuda_free(gpu, device_out);
}

static void failures(void **state)
{
    NEEDS_GPU();
    /* validity larger than was announced: execute returns, and the failure can be read */
    struct br_cuda *small, *usual = gpu;
    struct br_why why;
    int8_t w[2] = {1, 0};
    int32_t shift[1] = {0};
    assert_int_equal(br_cuda_create(&small, 0, NULL, 1, &why), 0);
    gpu = small;
    struct br_baseband *plan =
        plan_of(BR_CUDA, BR_BASEBAND_AUTO, (struct shape){.F = 1, .P = 1, .D = 1, .B = 1, .WF = 1}, w, shift);
    gpu = usual;
    uint8_t *valid = calloc(1, 10000), *memory = br_cuda_alloc(small, 20000, &why);
    assert_non_null(memory);
    br_baseband_execute(plan, memory, valid, 10000, memory + 10000, NULL, NULL);
    assert_int_equal(br_cuda_check(small, &why), -1);
    br_baseband_destroy(plan);
    br_cuda_free(small, memory);
    br_cuda_destroy(small);
    free(valid);
}
#endif

int main(void)
{
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device),
                                      cmocka_unit_test(counts_on_the_host)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    seed = 4711;
    const struct CMUnitTest small[] = {cmocka_unit_test(edges), cmocka_unit_test(beams),
                                       cmocka_unit_test(call_lengths), cmocka_unit_test(failures),
                                       cmocka_unit_test(many_channels)};
    const struct CMUnitTest more[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(thousands),
        cmocka_unit_test(many_tiles),
        cmocka_unit_test(extremes),
    };
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
#endif
    return failed;
}
