/* Slow statistics: the fast implementations beside the reference over sequences of blocks, on a GPU too where
 * there is one. */
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

enum { BLOCKS = 26, BURST = 9, STEP = 14, RESTART = 22 };

struct sequence {
    struct br_quantize_params params;
    size_t stride, values, bytes, numbers; /* of a block: in, out, side */
    uint16_t *in;                          /* [BLOCKS][values] */
    uint8_t *valid;                        /* [BLOCKS][F][stride] or NULL */
};

struct result {
    uint8_t *out;
    float *side;
    uint64_t clamped;
};

/* Noise with a drift, a burst, another gain; a beam that is constant at first, a channel that begins late. */
static struct sequence make(size_t F, size_t B, size_t T, unsigned bits, double mean, unsigned missing)
{
    struct sequence s = {.params = {F, B, T, bits, bits == 4 ? 2.5 : 3, NULL, 7.3 * (double)T},
                         .stride = T + pick(0, 1) * 8,
                         .bytes = B * F * T * bits / 8,
                         .numbers = B * F * 2};
    s.values = F * s.stride * B;
    s.in = malloc(BLOCKS * s.values * sizeof *s.in);
    s.valid = missing ? malloc(BLOCKS * F * s.stride) : NULL;
    for (size_t k = 0; k < BLOCKS; k++)
        for (size_t f = 0; f < F; f++)
            for (size_t t = 0; t < s.stride; t++) {
                size_t at = (k * F + f) * s.stride + t;
                double gain = (1 + 0.003 * (double)k) * (k >= STEP ? 1.5 : 1);
                double burst = k == BURST && t > T / 3 && t < T / 2 ? 9 : 0;
                bool there = !missing ||
                             (pick(0, 99) >= missing && !(f == 1 && k < 4) && !(f == 0 && k > 9 && k < 19));
                if (s.valid) s.valid[at] = (uint8_t)(there ? pick(1, 255) : 0);
                for (size_t b = 0; b < B; b++) {
                    double sum = burst * (double)(b % 3);
                    for (int i = 0; i < 6; i++) sum += (double)(dump_random(&seed) >> 11) / 0x1p53 - 0.5;
                    double x = b == 1 && k < 3 ? mean : gain * (mean + sum);
                    s.in[at * B + b] = br_half_from_float((float)x);
                }
                if (!there) s.in[at * B] = 0x7e00;
            }
    return s;
}

static void finish(struct sequence *s)
{
    free(s->in);
    free(s->valid);
}

#if BR_WITH_CUDA
static void execute_cuda(const struct sequence *s, struct br_quantize *plan, size_t k, const uint8_t *valid,
                         struct result *r)
{
    uint16_t *in = gpu_poisoned(s->values * sizeof *in, 0);
    uint8_t *out = gpu_poisoned(s->bytes, 0xee);
    float *side = gpu_poisoned(s->numbers * sizeof *side, 0xee);
    uint64_t before = br_cuda_count(gpu);
    gpu_ok(cudaMemcpyAsync(in, s->in + k * s->values, s->values * sizeof *in, cudaMemcpyHostToDevice,
                           br_cuda_stream(gpu)));
    br_quantize_execute(plan, in, s->stride, valid, out, side);
    r->clamped += br_cuda_count(gpu) - before;
    gpu_fetch(r->out + k * s->bytes, out, s->bytes);
    gpu_fetch(r->side + k * s->numbers, side, s->numbers * sizeof *side);
    br_cuda_free(gpu, in);
    br_cuda_free(gpu, out);
    br_cuda_free(gpu, side);
}
#endif

static struct result compute(struct sequence *s, enum br_backend backend)
{
    struct result r = {.out = malloc(BLOCKS * s->bytes),
                       .side = malloc(BLOCKS * s->numbers * sizeof *r.side)};
    struct br_quantize *plan;
    struct br_why why;
#if BR_WITH_CUDA
    s->params.cuda = gpu;
#endif
    if (br_quantize_create(&plan, backend, &s->params, &why) != 0) fail_msg("%s", why.text);
    for (size_t k = 0; k < BLOCKS; k++) {
        const uint8_t *valid = s->valid ? s->valid + k * s->params.nchannels * s->stride : NULL;
        if (k == RESTART) br_quantize_restart(plan);
#if BR_WITH_CUDA
        if (backend == BR_CUDA) {
            execute_cuda(s, plan, k, valid, &r);
            continue;
        }
#endif
        r.clamped += br_quantize_execute(plan, s->in + k * s->values, s->stride, valid, r.out + k * s->bytes,
                                         r.side + k * s->numbers);
    }
    br_quantize_destroy(plan);
    return r;
}

static int level_at(const struct sequence *s, const uint8_t *out, size_t i)
{
    if (s->params.bits == 8) return (int)out[i] - 128;
    return (int)((out[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8;
}

/* Offsets and scales to 1e-5; levels equal but within 1e-3 of a tie, and float32's digits of the offset. */
static void check(const struct sequence *s, const struct result *r, const struct result *want, int backend)
{
    size_t F = s->params.nchannels, B = s->params.nbeams, T = s->params.block, differ = 0;
    for (size_t k = 0; k < BLOCKS; k++)
        for (size_t row = 0; row < B * F; row++) {
            size_t b = row / F, f = row % F;
            const float *got = r->side + k * s->numbers + 2 * row,
                        *side = want->side + k * s->numbers + 2 * row;
            double scale = (double)side[0], offset = (double)side[1];
            if (!(fabs((double)got[0] - scale) <= 1e-5 * scale) ||
                !(fabs((double)got[1] - offset) <= 3e-5 * scale + 1e-6 * fabs(offset)))
                fail_msg("backend %d, block %zu, beam %zu, channel %zu: %.9g %.9g, expected %.9g %.9g",
                         backend, k, b, f, (double)got[0], (double)got[1], scale, offset);
            double slack = 1e-3 + (scale > 0 ? 1e-6 * fabs(offset) / scale : 0);
            for (size_t t = 0; t < T; t++) {
                int level = level_at(s, r->out + k * s->bytes, row * T + t),
                    expected = level_at(s, want->out + k * s->bytes, row * T + t);
                if (level == expected) continue;
                size_t at = ((k * F + f) * s->stride + t) * B + b;
                double exact = ((double)br_half_to_float(s->in[at]) - offset) / scale,
                       tie = fabs(exact) + 0.5;
                if (abs(level - expected) != 1 || fabs(tie - rint(tie)) > slack + 1e-5 * fabs(exact))
                    fail_msg(
                        "backend %d, block %zu, beam %zu, channel %zu, step %zu: %d, expected %d of %.9g",
                        backend, k, b, f, t, level, expected, exact);
                differ++;
            }
        }
    assert_true(differ < 5 + BLOCKS * B * F * T / 200);
    assert_true(r->clamped <= want->clamped + differ && want->clamped <= r->clamped + differ);
}

static void like_the_reference(void **state)
{
    (void)state;
    static const struct {
        size_t F, B, T;
        unsigned bits, missing;
        double mean;
    } cases[] = {
        {2, 64, 64, 8, 0, 5},    {3, 72, 64, 4, 0, 5},     {2, 8, 128, 8, 20, 900}, {3, 136, 128, 4, 20, 5},
        {2, 64, 256, 4, 0, 5},   {3, 8, 256, 8, 0, -3},    {2, 200, 256, 4, 30, 5}, {2, 3, 50, 8, 0, 5},
        {3, 65, 130, 4, 20, 60}, {1, 300, 16, 8, 10, 0.5}, {2, 70, 514, 4, 0, 5},   {1, 2, 2, 4, 0, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sequence s =
            make(cases[i].F, cases[i].B, cases[i].T, cases[i].bits, cases[i].mean, cases[i].missing);
        struct result want = compute(&s, BR_REFERENCE);
        for (int backend = BR_CPU; backend <= last_backend; backend++) {
            struct result r = compute(&s, (enum br_backend)backend);
            check(&s, &r, &want, backend);
            free(r.out);
            free(r.side);
        }
        free(want.out);
        free(want.side);
        finish(&s);
    }
}

/* A value that is not finite, in the first block and later: the blocks behind it have scales and offsets as
 * if it had not been there. */
static void not_finite(void **state)
{
    (void)state;
    static const uint16_t bad[] = {0x7e00, 0x7c00, 0xfc00}; /* NaN, infinity, - infinity */
    static const size_t where[] = {0, 5, 17};
    for (size_t i = 0; i < 9; i++)
        for (unsigned bits = 4; bits <= 8; bits += 4) {
            struct sequence s = make(2, 8, 64, bits, 5, 0);
            size_t block = where[i % 3];
            s.in[block * s.values + (s.stride + 11) * 8 + 3] = bad[i / 3]; /* channel 1, step 11, beam 3 */
            for (int backend = BR_REFERENCE; backend <= last_backend; backend++) {
                struct result r = compute(&s, (enum br_backend)backend);
                for (size_t k = block + 1; k < BLOCKS; k++)
                    for (size_t row = 0; row < 16; row++) {
                        const float *side = r.side + k * s.numbers + 2 * row;
                        double mean = 5 * (k >= STEP ? 1.5 : 1);
                        if (k == BURST || (row / 2 == 1 && k < 4)) continue; /* constant */
                        if (!(fabs((double)side[1] - mean) < 3) || !(side[0] > 0.05f && side[0] < 2))
                            fail_msg("backend %d, block %zu behind %zu, row %zu: scale %g, offset %g",
                                     backend, k, block, row, (double)side[0], (double)side[1]);
                    }
                free(r.out);
                free(r.side);
            }
            finish(&s);
        }
}

static void bad_constants(void **state)
{
    (void)state;
    static const double bad[] = {0.5, -1, NAN, INFINITY};
    for (int backend = BR_REFERENCE; backend <= last_backend; backend++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            const struct br_quantize_params params = {1, 1, 2, 8, 1, NULL, bad[i]};
            struct br_quantize *plan = (struct br_quantize *)&seed;
            struct br_why why;
            int status = br_quantize_create(&plan, (enum br_backend)backend, &params, &why);
            assert_refused(status, plan, &why, "time constant");
        }
}

int main(void)
{
    seed = 31;
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_reference), cmocka_unit_test(not_finite),
                                       cmocka_unit_test(bad_constants)};
#if BR_WITH_CUDA
    if (gpu_open(NULL) != 0) return 1;
    if (gpu) last_backend = BR_CUDA;
#endif
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
#if BR_WITH_CUDA
    gpu_close(NULL);
#endif
    return failed;
}
