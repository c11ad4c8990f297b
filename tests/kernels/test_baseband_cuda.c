/* The baseband beamformer on a GPU, the kernel made for the device and the portable one, against the
 * reference: same bytes, same counts. With BEAMRING_GPU_TIMES=1 (or a telescope's name) also its times. */
#include "kernels/baseband/baseband.h"
#include "kernels/common/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/dump.h"

static void without_a_device(void **state)
{
    (void)state;
    int8_t w[2] = {1, 0};
    int32_t shift[1] = {0};
    const struct br_baseband_params params = {.nchannels = 1,
                                              .npol = 1,
                                              .nbeams = 1,
                                              .ndishes = 1,
                                              .weights = w,
                                              .shift = shift,
                                              .weight_channels = 1};
    struct br_baseband *plan;
    struct br_why why;
    assert_int_equal(br_baseband_create(&plan, BR_CUDA, &params, &why), -1);
    assert_null(plan);
    assert_non_null(strstr(why.text, BR_WITH_CUDA ? "br_cuda" : "without CUDA"));
}

/* What the plan counts is what was handed out call by call. */
static void counts_on_the_host(void **state)
{
    (void)state;
    int8_t w[2 * 2] = {100, 0, 1, 0};
    int32_t shift[2] = {0, 0};
    const struct br_baseband_params params = {.nchannels = 1,
                                              .npol = 1,
                                              .nbeams = 2,
                                              .ndishes = 1,
                                              .weights = w,
                                              .shift = shift,
                                              .weight_channels = 1};
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
#include <cuda_runtime_api.h>

static struct br_cuda *cuda;

static int open_device(void **state)
{
    (void)state;
    struct br_why why;
    if (br_cuda_devices(&why) == 0) {
        printf("no GPU: skipped (%s)\n", why.text);
        return 0;
    }
    if (br_cuda_create(&cuda, 0, NULL, 1 << 20, &why) == 0) return 0;
    printf("%s\n", why.text);
    return -1;
}

static int close_device(void **state)
{
    (void)state;
    br_cuda_destroy(cuda);
    return 0;
}

struct shape {
    size_t T, F, P, D, B, WF;
};

static uint64_t seed = 4711;

static size_t pick(size_t low, size_t high)
{
    return low + dump_random(&seed) % (high - low + 1);
}

static void fill(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)dump_random(&seed);
}

static void cuda_ok(cudaError_t status)
{
    if (status != cudaSuccess) fail_msg("%s", cudaGetErrorString(status));
}

static void *on_device(const void *host, size_t bytes)
{
    struct br_why why;
    void *memory = br_cuda_table(cuda, host, bytes, &why);
    if (!memory) fail_msg("%s", why.text);
    return memory;
}

static struct br_baseband *plan_of(enum br_backend backend, enum br_baseband_gpu gpu, struct shape n,
                                   const int8_t *w, const int32_t *shift)
{
    const struct br_baseband_params params = {.nchannels = n.F,
                                              .npol = n.P,
                                              .nbeams = n.B,
                                              .ndishes = n.D,
                                              .weights = w,
                                              .shift = shift,
                                              .weight_channels = n.WF,
                                              .cuda = cuda,
                                              .gpu = gpu};
    struct br_baseband *plan;
    struct br_why why;
    if (br_baseband_create(&plan, backend, &params, &why) != 0) fail_msg("%s", why.text);
    return plan;
}

/* What `n` with the given field and weights becomes. */
struct expected {
    uint8_t *out, *valid;
    uint64_t *clamped, total;
};

/* Runs one of the device's kernels; the output stands between guards and is poisoned before every run. `off`:
 * bytes by which e and out are moved from their alignment. */
static void same_on(enum br_baseband_gpu gpu, struct shape n, const uint8_t *e, const uint8_t *e_valid,
                    const int8_t *w, const int32_t *shift, size_t off, const struct expected *expected)
{
    enum { GUARD = 64 };
    size_t inputs = n.T * n.F * n.P * n.D, outputs = n.B * n.F * n.P * n.T,
           around = outputs + 2 * GUARD + off;
    uint8_t *got = malloc(around), *moved = malloc(inputs + off), *valid = malloc(n.F * n.T);
    uint64_t *counted = calloc(n.B, sizeof *counted);
    struct br_baseband *plan = plan_of(BR_CUDA, gpu, n, w, shift);

    memcpy(moved + off, e, inputs);
    memset(got, 0xee, around);
    uint8_t *device_e = on_device(moved, inputs + off), *device_out = on_device(got, around);
    uint64_t before = br_cuda_count(cuda);
    for (uint64_t again = 1; again <= 2; again++) {
        memset(valid, 0xee, n.F * n.T);
        cuda_ok(cudaMemset(device_out, again == 1 ? 0xee : 0x11, around));
        cuda_ok(cudaDeviceSynchronize());
        assert_int_equal(
            br_baseband_execute(plan, device_e + off, e_valid, n.T, device_out + GUARD + off, valid, NULL),
            0);
        assert_memory_equal(valid, expected->valid, n.F * n.T);
        bool good = br_baseband_saturated(plan, counted) == again * expected->total;
        for (size_t b = 0; b < n.B; b++) good = good && counted[b] == again * expected->clamped[b];
        cuda_ok(cudaMemcpy(got, device_out, around, cudaMemcpyDeviceToHost));
        good = good && memcmp(got + GUARD + off, expected->out, outputs) == 0;
        if (!good)
            printf("%s: T %zu F %zu P %zu D %zu B %zu, %zu weight channels, missing %d, off %zu\n",
                   gpu == BR_BASEBAND_PORTABLE ? "portable" : "the device's own", n.T, n.F, n.P, n.D, n.B,
                   n.WF, e_valid != NULL, off);
        assert_memory_equal(got + GUARD + off, expected->out, outputs);
        for (size_t b = 0; b < n.B; b++) assert_int_equal(counted[b], again * expected->clamped[b]);
        assert_int_equal(br_cuda_count(cuda) - before, again * expected->total);
        for (size_t i = 0; i < GUARD + off; i++) assert_int_equal(got[i], again == 1 ? 0xee : 0x11);
        for (size_t i = GUARD + off + outputs; i < around; i++)
            assert_int_equal(got[i], again == 1 ? 0xee : 0x11);
    }
    struct br_why why;
    if (br_cuda_check(cuda, &why) != 0) fail_msg("%s", why.text);
    br_cuda_free(cuda, device_e);
    br_cuda_free(cuda, device_out);
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

#define NEEDS_DEVICE()                                                                                       \
    (void)state;                                                                                             \
    if (!cuda) skip()

static void edges(void **state)
{
    NEEDS_DEVICE();
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
    NEEDS_DEVICE();
    static const size_t counts[] = {1, 8, 16, 31, 32, 33, 64, 65, 96, 97, 127, 128, 129, 160, 200, 257};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        random_run((struct shape){.T = 130 + i, .F = 1, .P = 2, .D = 48 + i, .B = counts[i], .WF = 1}, 6, 12,
                   2, 0);
}

static void random_shapes(void **state)
{
    NEEDS_DEVICE();
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
    NEEDS_DEVICE();
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
    NEEDS_DEVICE();
    random_run((struct shape){.T = 1, .F = 700, .P = 2, .D = 16, .B = 3, .WF = 700}, 2, 9, 2, 0);
    random_run((struct shape){.T = 3, .F = 400, .P = 2, .D = 64, .B = 3, .WF = 400}, 2, 9, 2, 0);
    random_run((struct shape){.T = 16, .F = 500, .P = 1, .D = 16, .B = 3, .WF = 1}, 2, 9, 0, 0);
    random_run((struct shape){.T = 2, .F = 200, .P = 2, .D = 16, .B = 67, .WF = 200}, 2, 9, 2, 0);
}

/* More tiles than blocks: every block takes several, in long and short frames. */
static void many_tiles(void **state)
{
    NEEDS_DEVICE();
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
    NEEDS_DEVICE();
    static const uint8_t fields[] = {0x88, 0x77, 0x87, 0x78, 0x08, 0x80};
    static const int8_t weights[][2] = {{127, 127},  {-127, -127}, {127, -127},
                                        {-127, 127}, {0, 127},     {-127, 0}};
    static const size_t dishes[] = {1, 31, 512, 1024, 65536};
    for (size_t k = 0; k < 5; k++)
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
    NEEDS_DEVICE();
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
    cuda_ok(cudaMemcpy(whole, device_out, sizeof whole, cudaMemcpyDeviceToHost));
    for (size_t at = 0, step = 1; at < T; at += step, step = step * 3 % 101) {
        if (step > T - at) step = T - at;
        br_baseband_execute(plan, device_e + at * F * P * D, NULL, step, device_out, NULL, NULL);
        br_baseband_saturated(plan, NULL);
        cuda_ok(cudaMemcpy(part, device_out, (size_t)B * F * P * step, cudaMemcpyDeviceToHost));
        for (size_t row = 0; row < B * F * P; row++)
            assert_memory_equal(part + row * step, whole + row * T + at, step);
    }
    assert_int_equal(br_baseband_saturated(plan, NULL), 2 * total);
    br_baseband_execute(plan, device_e, NULL, 0, device_out, NULL, NULL); /* nothing to do */
    br_baseband_destroy(plan);
    br_cuda_free(cuda, device_e);
    br_cuda_free(cuda, device_out);
}

/* Each frame is made from the beams of the one before, so many times over: with a wait after each, and all
 * enqueued at once, when the next kernel may begin before the last one has ended but must not read what is
 * not there yet. Then the same with each frame copied to one and the same place, and its beams from one and
 * the same place, with nothing else between. */
static void frames_in_a_row(void **state)
{
    NEEDS_DEVICE();
    enum { FRAMES = 24 };
    static const struct shape shapes[] = {{.T = 4096, .F = 3, .P = 2, .D = 96, .B = 96, .WF = 3},
                                          {.T = 300, .F = 5, .P = 2, .D = 64, .B = 64, .WF = 1},
                                          {.T = 2048, .F = 7, .P = 1, .D = 16, .B = 16, .WF = 7},
                                          {.T = 640, .F = 33, .P = 2, .D = 32, .B = 32, .WF = 33}};
    cudaStream_t stream = br_cuda_stream(cuda);
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct shape n = shapes[k];
        size_t bytes = n.T * n.F * n.P * n.D, beams = n.WF * n.P * n.B;
        uint8_t *frame[FRAMES + 1], *first = malloc(bytes), *a = malloc(bytes), *b = malloc(bytes);
        int8_t *w = malloc(beams * n.D * 2);
        int32_t *shift = malloc(beams * sizeof *shift);
        fill(first, bytes);
        for (size_t i = 0; i < beams * n.D * 2; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
        for (size_t i = 0; i < beams; i++) shift[i] = n.D > 64 ? 9 : n.D > 16 ? 8 : 7;
        struct br_baseband *plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
        for (int i = 0; i <= FRAMES; i++) frame[i] = on_device(first, bytes);
        for (int i = 0; i < FRAMES; i++) {
            br_baseband_execute(plan, frame[i], NULL, n.T, frame[i + 1], NULL, NULL);
            cuda_ok(cudaStreamSynchronize(stream));
        }
        uint64_t total = br_baseband_saturated(plan, NULL);
        cuda_ok(cudaMemcpy(a, frame[FRAMES], bytes, cudaMemcpyDeviceToHost));
        assert_true(memcmp(a, first, bytes) != 0);
        for (int i = 1; i <= FRAMES; i++) cuda_ok(cudaMemset(frame[i], 0x5a, bytes));
        cuda_ok(cudaDeviceSynchronize());
        for (int i = 0; i < FRAMES; i++)
            br_baseband_execute(plan, frame[i], NULL, n.T, frame[i + 1], NULL, NULL);
        assert_int_equal(br_baseband_saturated(plan, NULL), 2 * total);
        cuda_ok(cudaMemcpy(b, frame[FRAMES], bytes, cudaMemcpyDeviceToHost));
        assert_memory_equal(a, b, bytes);
        cuda_ok(cudaMemcpy(frame[0], first, bytes, cudaMemcpyHostToDevice));
        for (int i = 0; i < FRAMES; i++) {
            br_baseband_execute(plan, frame[0], NULL, n.T, frame[1], NULL, NULL);
            cuda_ok(cudaMemcpyAsync(frame[0], frame[1], bytes, cudaMemcpyDeviceToDevice, stream));
        }
        assert_int_equal(br_baseband_saturated(plan, NULL), 3 * total);
        cuda_ok(cudaMemcpy(b, frame[0], bytes, cudaMemcpyDeviceToHost));
        assert_memory_equal(a, b, bytes);
        br_baseband_destroy(plan);
        for (int i = 0; i <= FRAMES; i++) br_cuda_free(cuda, frame[i]);
        free(first);
        free(a);
        free(b);
        free(w);
        free(shift);
    }
}

/* Frames that have nothing to do with each other, enqueued at once, so that they may run beside each other;
 * between them, now and then, what they have to wait for: a field that is copied first, in their stream or in
 * another, beams that are copied away before others are put in their place, a frame that is made from the beams
 * of the last one, validity, another plan's work. Every frame must become what it becomes alone. */
static void frames_beside_each_other(void **state)
{
    NEEDS_DEVICE();
    enum { FIELDS = 5, PLACES = 7, FRAMES = 400 };
    static const struct shape shapes[] = {{.T = 256, .F = 33, .P = 2, .D = 96, .B = 96, .WF = 33},
                                          {.T = 1088, .F = 3, .P = 2, .D = 480, .B = 90, .WF = 1},
                                          {.T = 336, .F = 5, .P = 1, .D = 208, .B = 96, .WF = 5},
                                          {.T = 133, .F = 2, .P = 2, .D = 272, .B = 130, .WF = 2},
                                          {.T = 640, .F = 9, .P = 2, .D = 32, .B = 32, .WF = 9}};
    cudaStream_t stream = br_cuda_stream(cuda), elsewhere;
    cudaEvent_t came, went;
    cuda_ok(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking));
    cuda_ok(cudaEventCreateWithFlags(&came, cudaEventDisableTiming));
    cuda_ok(cudaEventCreateWithFlags(&went, cudaEventDisableTiming));
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct shape n = shapes[k];
        size_t inputs = n.T * n.F * n.P * n.D, outputs = n.T * n.F * n.P * n.B, rows = n.WF * n.P * n.B,
               larger = inputs > outputs ? inputs : outputs;
        /* [FIELDS]: as they come; with samples missing; made from the beams of the field before */
        uint8_t *field[FIELDS], *want[3][FIELDS], *place[PLACES], *moved, *arrived,
            *taken[FRAMES / 8];
        uint64_t clamped[3][FIELDS], sum = 0, before = 0;
        uint8_t *host = calloc(1, larger), *other_host = malloc(larger), *valid = malloc(n.T * n.F);
        int8_t *w = malloc(rows * n.D * 2);
        int32_t *shift = malloc(rows * sizeof *shift);
        for (size_t i = 0; i < rows * n.D * 2; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
        for (size_t i = 0; i < rows; i++) shift[i] = n.D > 200 ? 10 : 9;
        for (size_t i = 0; i < n.T * n.F; i++) valid[i] = pick(0, 3) > 0;
        struct br_baseband *plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift),
                           *other = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
        for (int i = 0; i < PLACES; i++) place[i] = on_device(host, larger);
        for (int i = 0; i < FRAMES / 8; i++) taken[i] = on_device(host, outputs);
        moved = on_device(host, larger);
        arrived = on_device(host, larger);
        for (int i = 0; i < FIELDS; i++) {
            fill(host, larger);
            field[i] = on_device(host, larger);
        }
        for (int kind = 0; kind < 3; kind++)
            for (int i = 0; i < FIELDS; i++) {
                want[kind][i] = on_device(host, larger); /* beyond the beams: part of a field where D > B */
                br_baseband_execute(plan, kind < 2 ? field[i] : want[0][i], kind == 1 ? valid : NULL, n.T,
                                    want[kind][i], NULL, NULL);
                uint64_t now = br_baseband_saturated(plan, NULL);
                clamped[kind][i] = now - before;
                before = now;
            }
        const uint8_t *check[FRAMES / 8]; /* what has been taken must be */
        size_t checks = 0;
        const uint8_t *holds[PLACES] = {NULL};
        for (int frame = 0; frame < FRAMES; frame++) {
            int i = (int)pick(0, FIELDS - 1), to = (int)pick(0, PLACES - 1), kind = 0;
            const uint8_t *from = field[i];
            bool from_elsewhere = false;
            switch (pick(0, 12)) {
            case 0:
                cuda_ok(cudaMemcpyAsync(moved, from, inputs, cudaMemcpyDeviceToDevice, stream));
                from = moved;
                break;
            case 1:
                kind = 1;
                break;
            case 2: /* of the beams just made */
                br_baseband_execute(plan, from, NULL, n.T, want[0][i], NULL, NULL);
                sum += clamped[0][i];
                from = want[0][i];
                kind = 2;
                break;
            case 3:
                br_baseband_execute(other, from, NULL, n.T, moved, NULL, NULL);
                if (inputs <= outputs) { /* the same weights: a frame that is made from these beams */
                    from = moved;
                    kind = 2;
                }
                break;
            case 4:
                cuda_ok(cudaMemsetAsync(place[to], 0x5a, outputs, stream));
                break;
            case 5: /* a transfer's stream brings it, some time later */
                for (int turn = 0; turn < 20; turn++)
                    cuda_ok(cudaMemsetAsync(arrived, turn, larger, elsewhere));
                cuda_ok(cudaMemcpyAsync(arrived, from, inputs, cudaMemcpyDeviceToDevice, elsewhere));
                cuda_ok(cudaEventRecord(came, elsewhere));
                cuda_ok(cudaStreamWaitEvent(stream, came, 0));
                from = arrived;
                from_elsewhere = true;
                break;
            default:
                break;
            }
            br_baseband_execute(plan, from, kind == 1 ? valid : NULL, n.T, place[to], NULL, NULL);
            sum += clamped[kind][i];
            holds[to] = want[kind][i];
            if (from_elsewhere) {
                cuda_ok(cudaEventRecord(went, stream));
                cuda_ok(cudaStreamWaitEvent(elsewhere, went, 0));
            }
            if (frame % 16 == 15) { /* what the last one made, and one from before */
                for (int j = 0; j < 2 && holds[(to + j) % PLACES] != NULL; j++) {
                    cuda_ok(cudaMemcpyAsync(taken[checks], place[(to + j) % PLACES], outputs,
                                            cudaMemcpyDeviceToDevice, stream));
                    check[checks++] = holds[(to + j) % PLACES];
                }
            }
        }
        assert_int_equal(br_baseband_saturated(plan, NULL), before + sum);
        for (size_t i = 0; i < checks; i++) {
            cuda_ok(cudaMemcpy(host, taken[i], outputs, cudaMemcpyDeviceToHost));
            cuda_ok(cudaMemcpy(other_host, check[i], outputs, cudaMemcpyDeviceToHost));
            assert_memory_equal(host, other_host, outputs);
        }
        br_baseband_destroy(plan);
        br_baseband_destroy(other);
        for (int i = 0; i < FRAMES / 8; i++) br_cuda_free(cuda, taken[i]);
        for (int i = 0; i < PLACES; i++) br_cuda_free(cuda, place[i]);
        br_cuda_free(cuda, moved);
        br_cuda_free(cuda, arrived);
        for (int i = 0; i < FIELDS; i++) {
            br_cuda_free(cuda, field[i]);
            for (int kind = 0; kind < 3; kind++) br_cuda_free(cuda, want[kind][i]);
        }
        free(host);
        free(other_host);
        free(valid);
        free(w);
        free(shift);
    }
    cuda_ok(cudaEventDestroy(came));
    cuda_ok(cudaEventDestroy(went));
    cuda_ok(cudaStreamDestroy(elsewhere));
}

/* Frames that follow each other without anything between them, so long that the host hears of it from the device and
 * launches them otherwise; by turns to 2 to 6 places: so many launches can run beside each other. What goes to the last
 * place is made of the beams in the first one, which are now these, now those. Every frame is what it is alone. */
static void frames_that_follow(void **state)
{
    NEEDS_DEVICE();
    enum { MOST = 6, FRAMES = 48, ROUNDS = 3 };
    static const struct shape shapes[] = {{.T = 256, .F = 33, .P = 2, .D = 96, .B = 96, .WF = 33},
                                          {.T = 2000, .F = 5, .P = 2, .D = 112, .B = 96, .WF = 5},
                                          {.T = 1100, .F = 35, .P = 1, .D = 16, .B = 64, .WF = 1},
                                          {.T = 640, .F = 41, .P = 2, .D = 32, .B = 32, .WF = 41},
                                          {.T = 1300, .F = 21, .P = 2, .D = 64, .B = 16, .WF = 21},
                                          {.T = 528, .F = 9, .P = 2, .D = 48, .B = 200, .WF = 9}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (size_t places = 2; places <= MOST; places += places < 4 ? 1 : 2) {
            struct shape n = shapes[k];
            size_t inputs = n.T * n.F * n.P * n.D, outputs = n.T * n.F * n.P * n.B, rows = n.WF * n.P * n.B,
                   larger = inputs > outputs ? inputs : outputs, last = places - 1;
            uint8_t *field[MOST], *place[MOST], *want[2][MOST], *host = malloc(larger), *got = malloc(outputs);
            uint64_t clamped[2][MOST], sum = 0;
            int8_t *w = malloc(rows * n.D * 2);
            int32_t *shift = malloc(rows * sizeof *shift);
            for (size_t i = 0; i < rows * n.D * 2; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
            for (size_t i = 0; i < rows; i++) shift[i] = 9;
            struct br_baseband *plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
            for (size_t i = 0; i < places; i++) {
                fill(host, larger);
                field[i] = on_device(host, larger);
                place[i] = on_device(host, larger); /* beyond the beams: part of a field where D > B */
            }
            for (int v = 0; v < 2; v++)
                for (size_t i = 0; i < places; i++) {
                    const uint8_t *from = i == last ? place[0] : i == 0 && v == 1 ? field[last] : field[i];
                    br_baseband_execute(plan, from, NULL, n.T, place[i], NULL, NULL);
                    uint64_t now = br_baseband_saturated(plan, NULL);
                    clamped[v][i] = now - sum;
                    sum = now;
                    want[v][i] = malloc(outputs);
                    cuda_ok(cudaMemcpy(want[v][i], place[i], outputs, cudaMemcpyDeviceToHost));
                }
            for (int round = 0; round < ROUNDS; round++) {
                for (size_t frame = 0; frame < FRAMES; frame++) {
                    size_t i = frame % places, v = frame / places % 2;
                    const uint8_t *from = i == last ? place[0] : i == 0 && v == 1 ? field[last] : field[i];
                    br_baseband_execute(plan, from, NULL, n.T, place[i], NULL, NULL);
                    sum += clamped[v][i];
                }
                assert_int_equal(br_baseband_saturated(plan, NULL), sum);
                for (size_t i = 0; i < places; i++) {
                    cuda_ok(cudaMemcpy(got, place[i], outputs, cudaMemcpyDeviceToHost));
                    assert_memory_equal(got, want[(FRAMES / places - 1) % 2][i], outputs);
                    cuda_ok(cudaMemset(place[i], 0x5a, outputs));
                }
                cuda_ok(cudaDeviceSynchronize());
            }
            br_baseband_destroy(plan);
            for (size_t i = 0; i < places; i++) {
                br_cuda_free(cuda, field[i]);
                br_cuda_free(cuda, place[i]);
                free(want[0][i]);
                free(want[1][i]);
            }
            free(host);
            free(got);
            free(w);
            free(shift);
        }
}

static void failures(void **state)
{
    NEEDS_DEVICE();
    /* validity larger than was announced: execute returns, and the failure can be read */
    struct br_cuda *small, *usual = cuda;
    struct br_why why;
    int8_t w[2] = {1, 0};
    int32_t shift[1] = {0};
    assert_int_equal(br_cuda_create(&small, 0, NULL, 1, &why), 0);
    cuda = small;
    struct br_baseband *plan =
        plan_of(BR_CUDA, BR_BASEBAND_AUTO, (struct shape){.F = 1, .P = 1, .D = 1, .B = 1, .WF = 1}, w, shift);
    cuda = usual;
    uint8_t *valid = calloc(1, 10000), *memory = br_cuda_alloc(small, 20000, &why);
    assert_non_null(memory);
    br_baseband_execute(plan, memory, valid, 10000, memory + 10000, NULL, NULL);
    assert_int_equal(br_cuda_check(small, &why), -1);
    br_baseband_destroy(plan);
    br_cuda_free(small, memory);
    br_cuda_destroy(small);
    free(valid);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { SETS = 3, RUNS = 21 };

struct timed {
    struct br_baseband *plan;
    uint8_t *e[SETS], *out[SETS];
    size_t T, copied;
};

/* Median milliseconds; inputs are rotated, so that none is in the cache. The copy moves as many bytes in all
 * as the kernel. */
static float median_ms(const struct timed *t, int copy)
{
    cudaStream_t stream = br_cuda_stream(cuda);
    cudaEvent_t start, stop;
    float ms[RUNS];
    cuda_ok(cudaEventCreate(&start));
    cuda_ok(cudaEventCreate(&stop));
    for (int i = -3; i < RUNS; i++) {
        int set = (i + SETS) % SETS;
        cuda_ok(cudaEventRecord(start, stream));
        if (copy)
            cuda_ok(cudaMemcpyAsync(t->e[set], t->e[(set + 1) % SETS], t->copied, cudaMemcpyDeviceToDevice,
                                    stream));
        else
            br_baseband_execute(t->plan, t->e[set], NULL, t->T, t->out[set], NULL, NULL);
        cuda_ok(cudaEventRecord(stop, stream));
        cuda_ok(cudaEventSynchronize(stop));
        if (i >= 0) cuda_ok(cudaEventElapsedTime(&ms[i], start, stop));
    }
    cuda_ok(cudaEventDestroy(start));
    cuda_ok(cudaEventDestroy(stop));
    qsort(ms, RUNS, sizeof *ms, by_value);
    return ms[RUNS / 2];
}

static void times(void **state)
{
    NEEDS_DEVICE();
    const char *wanted = getenv("BEAMRING_GPU_TIMES");
    if (!wanted) skip();
    static const struct {
        const char *name;
        struct shape n;
        double sample_us;
    } telescopes[] = {
        {"CHORD", {.T = 8192, .F = 48, .P = 2, .D = 512, .B = 96, .WF = 48}, 5.12},
        {"pathfinder", {.T = 8192, .F = 384, .P = 2, .D = 64, .B = 16, .WF = 384}, 5.12},
        {"HIRAX", {.T = 8192, .F = 64, .P = 2, .D = 256, .B = 64, .WF = 64}, 2.56},
    };
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(wanted, "1") != 0 && strcmp(wanted, telescopes[i].name) != 0) continue;
        struct shape n = telescopes[i].n;
        size_t inputs = n.T * n.F * n.P * n.D, outputs = n.B * n.F * n.P * n.T, rows = n.WF * n.P * n.B;
        struct timed t = {.T = n.T, .copied = (inputs + outputs) / 2};
        uint8_t *e = malloc(inputs);
        int8_t *w = malloc(rows * n.D * 2);
        int32_t *shift = malloc(rows * sizeof *shift);
        fill(e, inputs < 1 << 24 ? inputs : 1 << 24);
        for (size_t k = 1 << 24; k < inputs; k++) e[k] = e[k - (1 << 24) + 5];
        for (size_t k = 0; k < rows * n.D * 2; k++) w[k] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
        for (size_t k = 0; k < rows; k++) shift[k] = 11;
        for (int set = 0; set < SETS; set++) {
            t.e[set] = on_device(e, inputs);
            struct br_why why;
            t.out[set] = br_cuda_alloc(cuda, outputs, &why);
            if (!t.out[set]) fail_msg("%s", why.text);
        }
        t.plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
        float ms = median_ms(&t, 0), copy = median_ms(&t, 1);
        double operations = 8.0 * (double)inputs * (double)n.B;
        printf("%-10s T %zu F %zu P %zu D %zu B %zu: %.3f ms, %.0f TOP/s, %.2f of a device copy of its %.0f "
               "MB (%.3f ms), "
               "%.0f times real time\n",
               telescopes[i].name, n.T, n.F, n.P, n.D, n.B, (double)ms, operations / (double)ms * 1e-9,
               (double)(copy / ms), (double)(inputs + outputs) * 1e-6, (double)copy,
               (double)n.T * telescopes[i].sample_us * 1e-3 / (double)ms);
        br_baseband_destroy(t.plan);
        for (int set = 0; set < SETS; set++) {
            br_cuda_free(cuda, t.e[set]);
            br_cuda_free(cuda, t.out[set]);
        }
        free(e);
        free(w);
        free(shift);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device),
                                      cmocka_unit_test(counts_on_the_host)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest small[] = {cmocka_unit_test(edges), cmocka_unit_test(beams),
                                       cmocka_unit_test(call_lengths), cmocka_unit_test(failures),
                                       cmocka_unit_test(many_channels)};
    const struct CMUnitTest more[] = {cmocka_unit_test(random_shapes), cmocka_unit_test(thousands),
                                      cmocka_unit_test(many_tiles),    cmocka_unit_test(frames_in_a_row),
                                      cmocka_unit_test(extremes),      cmocka_unit_test(frames_that_follow),
                                      cmocka_unit_test(frames_beside_each_other),
                                      cmocka_unit_test(times)};
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, open_device, close_device);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, open_device, close_device);
#endif
    return failed;
}
