/* The quantizer beside its definition, written here again from the header; on a GPU too where there is
 * one. */
#include "buffers/half.h"
#include "kernels/quantize/quantize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/refused.h"
#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"
#endif

static int last_backend = BR_CPU; /* BR_CUDA with a GPU */

static double gauss(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += (double)(dump_random(&seed) >> 11) / 0x1p53;
    return sum - 6;
}

struct run {
    size_t stride;
    size_t off; /* values, bytes by which in, out are moved from their alignment on a GPU */
    struct br_quantize_params params;
    uint16_t *in;
    uint8_t *valid, *out;
    float *side;
    uint64_t clamped;
};

/* Gaussian noise about `mean`; missing samples are anything, also not a number. */
static struct run make(size_t F, size_t B, size_t T, unsigned bits, double levels_rms, double mean,
                       double deviation, unsigned missing)
{
    struct run r = {.stride = T + pick(0, 3), .params = {F, B, T, bits, levels_rms, NULL}};
    r.in = malloc(F * r.stride * B * sizeof *r.in);
    r.valid = missing ? malloc(F * r.stride) : NULL;
    r.out = malloc(B * F * T + 1);
    r.side = malloc(B * F * 2 * sizeof *r.side);
    for (size_t i = 0; i < F * r.stride * B; i++)
        r.in[i] = br_half_from_float((float)(mean + deviation * gauss()));
    for (size_t i = 0; missing && i < F * r.stride; i++) {
        r.valid[i] = (uint8_t)(pick(0, 99) < missing ? 0 : pick(1, 255));
        for (size_t b = 0; !r.valid[i] && b < B; b++) r.in[i * B + b] = (uint16_t)dump_random(&seed);
        if (!r.valid[i]) r.in[i * B] = 0x7e00, r.in[i * B + B - 1] = 0x7c00;
    }
    return r;
}

#if BR_WITH_CUDA
/* Everything that is not a block's output stays as it was. */
static void compute_cuda(struct run *r, struct br_quantize *plan)
{
    enum { GUARD = 64 };
    size_t rows = r->params.nbeams * r->params.nchannels, bytes = rows * r->params.block * r->params.bits / 8,
           inputs = r->params.nchannels * r->stride * r->params.nbeams, around = bytes + 2 * GUARD + r->off;
    uint16_t *in = gpu_poisoned((inputs + r->off) * sizeof *in, 0xff);
    uint8_t *got = malloc(around), *first = malloc(bytes);
    gpu_ok(cudaMemcpyAsync(in + r->off, r->in, inputs * sizeof *in, cudaMemcpyHostToDevice,
                           br_cuda_stream(gpu)));
    for (int again = 0; again < 2; again++) {
        uint8_t poison = again ? 0x11 : 0xee, *out = gpu_poisoned(around, poison);
        float *side = gpu_poisoned((2 * rows + 2) * sizeof *side, poison), tail[2];
        uint64_t before = br_cuda_count(gpu);
        assert_int_equal(
            br_quantize_execute(plan, in + r->off, r->stride, r->valid, out + GUARD + r->off, side), 0);
        r->clamped = br_cuda_count(gpu) - before;
        gpu_fetch(got, out, around);
        gpu_fetch(r->side, side, 2 * rows * sizeof *side);
        gpu_fetch(tail, side + 2 * rows, sizeof tail);
        br_cuda_free(gpu, out);
        br_cuda_free(gpu, side);
        for (size_t i = 0; i < GUARD + r->off; i++) assert_int_equal(got[i], poison);
        for (size_t i = GUARD + r->off + bytes; i < around; i++) assert_int_equal(got[i], poison);
        for (size_t i = 0; i < sizeof tail; i++) assert_int_equal(((uint8_t *)tail)[i], poison);
        memcpy(r->out, got + GUARD + r->off, bytes);
        if (again) assert_memory_equal(r->out, first, bytes);
        memcpy(first, r->out, bytes);
    }
    br_cuda_free(gpu, in);
    free(got);
    free(first);
}
#endif

static void compute(struct run *r, enum br_backend backend)
{
#if BR_WITH_CUDA
    r->params.cuda = gpu;
#endif
    struct br_quantize *plan;
    struct br_why why;
    size_t bytes = r->params.nbeams * r->params.nchannels * r->params.block * r->params.bits / 8;
    if (br_quantize_create(&plan, backend, &r->params, &why) != 0) fail_msg("%s", why.text);
#if BR_WITH_CUDA
    if (backend == BR_CUDA) {
        compute_cuda(r, plan);
        br_quantize_destroy(plan);
        return;
    }
#endif
    for (int again = 0; again < 2; again++) {
        memset(r->out, 0xee, bytes);
        r->out[bytes] = 0x5a;
        r->clamped = br_quantize_execute(plan, r->in, r->stride, r->valid, r->out, r->side);
        assert_int_equal(r->out[bytes], 0x5a);
    }
    br_quantize_destroy(plan);
}

static void finish(struct run *r)
{
    free(r->in);
    free(r->valid);
    free(r->out);
    free(r->side);
}

/* Levels must be those of the definition, but where the value before rounding is within 1e-3 of a tie. */
static void check(const struct run *r)
{
    size_t F = r->params.nchannels, B = r->params.nbeams, T = r->params.block;
    int most = r->params.bits == 8 ? 127 : 7;
    uint64_t surely = 0, maybe = 0;
    for (size_t b = 0; b < B; b++)
        for (size_t f = 0; f < F; f++) {
            double sum = 0, square = 0, n = 0;
            for (int pass = 0; pass < 2; pass++)
                for (size_t t = 0; t < T; t++) {
                    double x = (double)br_half_to_float(r->in[(f * r->stride + t) * B + b]);
                    if (r->valid && !r->valid[f * r->stride + t]) continue;
                    if (pass == 0) sum += x, n++;
                    if (pass == 1) square += (x - sum / n) * (x - sum / n);
                }
            double offset = n > 0 ? sum / n : 0, scale = n > 0 ? sqrt(square / n) / r->params.levels_rms : 0;
            double got_scale = (double)r->side[(b * F + f) * 2],
                   got_offset = (double)r->side[(b * F + f) * 2 + 1];
            assert_true(fabs(got_scale - scale) <= 1e-5 * scale);
            assert_true(fabs(got_offset - offset) <=
                        1e-5 * scale * r->params.levels_rms + 1e-7 * fabs(offset));
            for (size_t t = 0; t < T; t++) {
                size_t i = (b * F + f) * T + t;
                int code = r->params.bits == 8 ? r->out[i] : r->out[i / 2] >> (i % 2 * 4) & 15, level;
                level = r->params.bits == 8 ? code - 128 : code > 7 ? code - 16 : code;
                if (r->valid && !r->valid[f * r->stride + t]) {
                    assert_int_equal(code, r->params.bits == 8 ? 0 : 8);
                    continue;
                }
                double x = (double)br_half_to_float(r->in[(f * r->stride + t) * B + b]);
                double exact = scale > 0 ? (x - offset) / scale : 0;
                double low = rint(exact - 1e-3), high = rint(exact + 1e-3);
                surely += fabs(low) > most && fabs(high) > most;
                maybe += fabs(low) > most || fabs(high) > most;
                low = fmax(fmin(low, most), -most);
                high = fmax(fmin(high, most), -most);
                if (level < low || level > high)
                    fail_msg("beam %zu channel %zu step %zu: %d, expected %g", b, f, t, level, low);
            }
        }
    assert_true(r->clamped >= surely && r->clamped <= maybe);
}

static void random_shapes(void **state)
{
    (void)state;
    static const double means[4] = {0, 1, 30000, -0.01}, deviations[4] = {1, 0.01, 600, 1e-4};
    for (int i = 0; i < 80; i++) {
        int kind = i % 4;
        struct run r = make(pick(1, 4), pick(1, i % 9 ? 40 : 600), 2 * pick(1, 100), i % 2 ? 4 : 8,
                            i % 3 ? 2.5 : 60, means[kind], deviations[kind], i % 5 < 2 ? 40 : 0);
        for (int backend = BR_REFERENCE; backend <= last_backend; backend++) {
            compute(&r, (enum br_backend)backend);
            check(&r);
        }
        finish(&r);
    }
}

/* A long block keeps its precision. */
static void long_blocks(void **state)
{
    (void)state;
    struct run r = make(1, 3, 65536, 8, 16, 20000, 200, 10);
    r.in[1] = 0x7bff; /* an outlier right at the start */
    if (!r.valid[0]) r.in[0] = r.in[2] = br_half_from_float(20000);
    r.valid[0] = 1;
    for (int backend = BR_CPU; backend <= last_backend; backend++) {
        compute(&r, (enum br_backend)backend);
        check(&r);
    }
    finish(&r);
}

static void odd_block_of_bytes(void **state)
{
    (void)state;
    for (size_t T = 1; T < 140; T += 3) {
        struct run r = make(2, 3, T, 8, 16, 5, 1, 20);
        for (int backend = BR_REFERENCE; backend <= last_backend; backend++) {
            compute(&r, (enum br_backend)backend);
            check(&r);
        }
        finish(&r);
    }
}

static void constant_and_empty(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= last_backend; backend++)
        for (unsigned bits = 4; bits <= 8; bits += 4) {
            struct run r = make(2, 5, 66, bits, 3, 1, 1, 30);
            for (size_t t = 0; t < 66; t++) {
                for (size_t b = 0; r.valid[t] && b < 5; b++)
                    r.in[t * 5 + b] = br_half_from_float(0.1f + 777 * (float)b);
                r.valid[r.stride + t] = 0;
            }
            compute(&r, (enum br_backend)backend);
            check(&r);
            for (size_t b = 0; b < 5; b++) {
                assert_true(r.side[b * 4] == 0 && r.side[b * 4 + 2] == 0 && r.side[b * 4 + 3] == 0);
                assert_true(r.side[b * 4 + 1] == br_half_to_float(br_half_from_float(0.1f + 777 * (float)b)));
            }
            assert_int_equal(r.clamped, 0);
            finish(&r);
        }
}

/* Values of +-levels_rms make a scale of exactly 1, so ties and clamping can be placed at will. */
static void ties_and_clamping(void **state)
{
    (void)state;
    static const struct {
        double levels_rms;
        int low4, high4, low8, high8;
    } cases[5] = {{2.5, -2, 2, -2, 2},
                  {3.5, -4, 4, -4, 4},
                  {7.5, -7, 7, -8, 8},
                  {126.5, -7, 7, -126, 126},
                  {500, -7, 7, -127, 127}};
    for (int backend = BR_REFERENCE; backend <= last_backend; backend++)
        for (int i = 0; i < 5; i++)
            for (unsigned bits = 4; bits <= 8; bits += 4) {
                struct run r = make(1, 1, 8, bits, cases[i].levels_rms, 0, 0, 0);
                for (size_t t = 0; t < 8; t++)
                    r.in[t] = br_half_from_float((float)(t % 2 ? 1 : -1) * (float)cases[i].levels_rms);
                compute(&r, (enum br_backend)backend);
                int low = bits == 8 ? cases[i].low8 : cases[i].low4,
                    high = bits == 8 ? cases[i].high8 : cases[i].high4;
                for (size_t t = 0; t < 8; t++) {
                    int level = t % 2 ? high : low;
                    int code = bits == 8 ? r.out[t] : r.out[t / 2] >> (t % 2 * 4) & 15;
                    assert_int_equal(code, bits == 8 ? 128 + level : level & 15);
                }
                int most = bits == 8 ? 127 : 7;
                assert_int_equal(r.clamped, rint(cases[i].levels_rms) > most ? 8 : 0);
                finish(&r);
            }
}

static void bad_parameters(void **state)
{
    (void)state;
    static const struct br_quantize_params bad[] = {
        {0, 1, 2, 8, 1, NULL},  {1, 0, 2, 8, 1, NULL},   {1, 1, 0, 8, 1, NULL},
        {1, 1, 2, 6, 1, NULL},  {1, 1, 3, 4, 1, NULL},   {1, 1, 2, 8, 0, NULL},
        {1, 1, 2, 8, -1, NULL}, {1, 1, 2, 8, NAN, NULL}, {1, 1, 2, 8, INFINITY, NULL}};
    static const char *const text[] = {"0 channels", "0 beams",    "blocks of 0", "6 bits",    "blocks of 3",
                                       "levels_rms", "levels_rms", "levels_rms",  "levels_rms"};
    for (int backend = BR_REFERENCE; backend <= last_backend; backend++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct br_quantize *plan = (struct br_quantize *)&seed;
            struct br_why why;
            int status = br_quantize_create(&plan, (enum br_backend)backend, &bad[i], &why);
            assert_refused(status, plan, &why, text[i]);
        }
    br_quantize_destroy(NULL);
}

static void without_a_device(void **state)
{
    (void)state;
    const struct br_quantize_params params = {1, 1, 2, 8, 1, NULL};
    struct br_quantize *plan;
    struct br_why why;
    int status = br_quantize_create(&plan, BR_CUDA, &params, &why);
    assert_refused_without_device(status, plan, &why);
}

#if BR_WITH_CUDA
/* Around the GPU's tiles: 64 beams, lines of 128 bytes, blocks that do not fit into shared memory, any
 * alignment. */
static void gpu_shapes(void **state)
{
    NEEDS_GPU();
    static const size_t beams[] = {1, 2, 8, 62, 63, 64, 65, 66, 72, 128, 200},
                        steps[] = {32, 64, 128, 130, 256, 512, 514};
    for (size_t i = 0; i < 44; i++) {
        struct run r = make(1 + i % 3, beams[i % 11], steps[i % 7], i / 2 % 2 ? 4 : 8, i % 3 ? 3 : 40, 1000,
                            100, i % 4 ? 0 : 30);
        r.off = i % 5 == 4 ? 1 + i % 3 : 0;
        if (!r.valid && i % 3 == 0) r.in[0] = 0x7bff; /* far from all others */
        compute(&r, BR_CUDA);
        check(&r);
        finish(&r);
    }
}

/* Blocks of 64, 128 and 256 steps with whole vectors of beams: means on both sides of what is subtracted
 * before squaring, deviations of less than a unit of float16, missing samples, nothing but missing samples.
 */
static void gpu_rows(void **state)
{
    NEEDS_GPU();
    static const size_t beams[] = {8, 64, 72, 136}, steps[] = {64, 128, 256};
    static const double means[] = {0, 3, 1000, -5, 30000, 0.7, 4, 5.5, 7.8, 9},
                        deviations[] = {1, 1, 100, 0.002, 600, 0.1, 1, 1, 1, 1};
    static const unsigned missing[] = {0, 30, 0, 2, 100};
    for (size_t i = 0; i < 120; i++) {
        struct run r = make(1 + i % 3, beams[i % 4], steps[i % 3], i / 3 % 2 ? 4 : 8, i / 6 % 2 ? 2.5 : 60,
                            means[i / 2 % 10], deviations[i / 2 % 10], missing[i % 5]);
        compute(&r, BR_CUDA);
        check(&r);
        finish(&r);
    }
}

static void gpu_long_blocks(void **state)
{
    NEEDS_GPU();
    static const size_t beams[] = {3, 64, 70};
    for (size_t i = 0; i < 9; i++) {
        struct run r =
            make(2, beams[i % 3], i % 2 ? 4002 : 3072, i / 3 % 2 ? 4 : 8, 3, 20000, 200, i % 4 == 1 ? 50 : 0);
        compute(&r, BR_CUDA);
        check(&r);
        finish(&r);
    }
}
#endif

int main(void)
{
    seed = 12;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),      cmocka_unit_test(long_blocks),
        cmocka_unit_test(odd_block_of_bytes), cmocka_unit_test(constant_and_empty),
        cmocka_unit_test(ties_and_clamping),  cmocka_unit_test(bad_parameters),
    };
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    if (gpu_open(NULL) != 0) return 1;
    if (gpu && !getenv("BEAMRING_GPU_SMALL")) last_backend = BR_CUDA; /* it is set for compute-sanitizer */
    const struct CMUnitTest on_gpu[] = {cmocka_unit_test(gpu_shapes), cmocka_unit_test(gpu_rows),
                                        cmocka_unit_test(gpu_long_blocks)};
    failed += cmocka_run_group_tests_name("gpu", on_gpu, NULL, NULL);
#endif
    failed += cmocka_run_group_tests(tests, NULL, NULL);
#if BR_WITH_CUDA
    gpu_close(NULL);
#endif
    return failed;
}
