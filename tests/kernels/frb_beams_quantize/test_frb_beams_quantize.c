/* FRB stage 2 and the quantizer in one kernel: the same bits as the two apart. */
#include "buffers/half.h"
#include "kernels/frb_beams/frb_beams.h"
#include "kernels/frb_beams_quantize/frb_beams_quantize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/gpu.h"

struct shape {
    unsigned m, n;
    size_t bx, by, F, stride;
    unsigned bits, missing; /* per cent */
    double mean, deviation; /* of the field's cells */
    bool slow;
};

struct plans {
    struct br_frb_beams *beams;
    struct br_quantize *quantize, *levels; /* levels: the fused plan's */
    struct br_frb_beams_quantize *fused;
    double *freq, (*direction)[2];
};

static struct plans make_plans(const struct shape *s, size_t max_steps)
{
    struct plans p = {.freq = malloc(s->F * sizeof *p.freq),
                      .direction = malloc(s->bx * s->by * sizeof *p.direction)};
    struct br_why why = {""};
    for (size_t f = 0; f < s->F; f++) p.freq[f] = 400 + 300.0 * (double)f / (double)s->F;
    for (size_t b = 0; b < s->bx * s->by; b++) {
        p.direction[b][0] = 0.02 * ((double)(b / s->by) - 0.37 * (double)s->bx) / (double)s->bx;
        p.direction[b][1] = 0.03 * ((double)(b % s->by) - 0.61 * (double)s->by) / (double)s->by;
    }
    const struct br_frb_beams_params beams = {.nchannels = s->F,
                                              .freq_mhz = p.freq,
                                              .grid_m = s->m,
                                              .grid_n = s->n,
                                              .spacing_m_m = 8.5,
                                              .spacing_n_m = 6.3,
                                              .nbeams = s->bx * s->by,
                                              .beam = (const double *)p.direction,
                                              .beams_x = s->bx,
                                              .beams_y = s->by,
                                              .max_steps = max_steps,
                                              .cuda = gpu};
    const struct br_quantize_params levels = {
        s->F, s->bx * s->by,     BR_FRB_BEAMS_QUANTIZE_BLOCK, s->bits, s->bits == 4 ? 2.5 : 16,
        gpu,  s->slow ? 2000 : 0};
    if (br_frb_beams_create(&p.beams, BR_CUDA, &beams, &why) != 0 ||
        br_quantize_create(&p.quantize, BR_CUDA, &levels, &why) != 0 ||
        br_quantize_create(&p.levels, BR_CUDA, &levels, &why) != 0 ||
        br_frb_beams_quantize_create(&p.fused, p.beams, p.levels, &why) != 0)
        fail_msg("%s", why.text);
    return p;
}

static void finish(struct plans *p)
{
    br_frb_beams_quantize_destroy(p->fused);
    br_quantize_destroy(p->quantize);
    br_quantize_destroy(p->levels);
    br_frb_beams_destroy(p->beams);
    free(p->freq);
    free(p->direction);
}

/* Quantizes J, which is in memory, again and again by both quantizers, so that slow statistics have begun,
 * and one is further in its memory than what the other ones see. */
static void begin(const struct plans *p, const struct shape *s, const uint16_t *beams, const uint8_t *valid)
{
    uint8_t *out = gpu_poisoned(s->bx * s->by * s->F * BR_FRB_BEAMS_QUANTIZE_BLOCK * s->bits / 8, 0);
    float *side = gpu_poisoned(s->bx * s->by * s->F * 2 * sizeof *side, 0);
    for (int k = 0; k < 10; k++) {
        assert_true(br_quantize_begins(p->levels, s->stride, valid) == (k == 0) || s->missing == 100);
        br_quantize_execute(p->quantize, beams, s->stride, valid, out, side);
        br_quantize_execute(p->levels, beams, s->stride, valid, out, side);
    }
    br_cuda_free(gpu, out);
    br_cuda_free(gpu, side);
}

static void same(const struct shape *s, uint8_t *const *got, float *const *side, size_t bytes,
                 const uint64_t *clamped)
{
    const size_t B = s->bx * s->by;
    size_t differ = 0, numbers_differ = 0;
    for (size_t i = 0; i < bytes; i++) differ += got[0][i] != got[1][i];
    for (size_t i = 0; i < B * s->F * 2; i++)
        numbers_differ += memcmp((const char *)side[0] + 4 * i, (const char *)side[1] + 4 * i, 4) != 0;
    if (differ || numbers_differ || clamped[0] != clamped[1])
        fail_msg(
            "%u x %u, %zu x %zu beams: %zu of %zu bytes and %zu of %zu numbers differ; %llu and %llu clamped",
            2 * s->m, 2 * s->n, s->bx, s->by, differ, bytes, numbers_differ, B * s->F * 2,
            (unsigned long long)clamped[0], (unsigned long long)clamped[1]);
}

/* Every byte of what both make, the steps behind the block being anything. */
static void compare(const struct shape *s)
{
    size_t cells = 4 * (size_t)s->m * s->n, count = s->F * s->stride * cells, B = s->bx * s->by,
           J = s->F * s->stride * B;
    size_t bytes = B * s->F * BR_FRB_BEAMS_QUANTIZE_BLOCK * s->bits / 8,
           side_bytes = B * s->F * 2 * sizeof(float);
    uint16_t *in = malloc(count * sizeof *in);
    uint8_t *valid = s->missing ? malloc(s->F * s->stride) : NULL, *got[2] = {malloc(bytes), malloc(bytes)};
    float *side[2] = {malloc(side_bytes), malloc(side_bytes)};
    uint64_t clamped[2];
    struct plans p = make_plans(s, s->stride);
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) sum += (double)(dump_random(&seed) >> 11) / 0x1p53 - 0.5;
        in[i] = br_half_from_float((float)fabs(s->mean + s->deviation * sum));
    }
    for (size_t i = 0; valid && i < s->F * s->stride; i++) {
        valid[i] = (uint8_t)(pick(0, 99) < s->missing ? 0 : pick(1, 255));
        if (!valid[i]) in[i * cells + cells / 2] = 0x7e00; /* not a number */
    }
    uint16_t *field = gpu_poisoned(count * sizeof *field, 0), *beams = gpu_poisoned(J * sizeof *beams, 0xee);
    gpu_ok(cudaMemcpyAsync(field, in, count * sizeof *in, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
    /* Slow statistics begin on the means of the data, so that what follows differs from them. */
    br_frb_beams_execute(p.beams, field, valid, s->stride, beams);
    if (s->slow) begin(&p, s, beams, valid);
    for (int run = 0; run < (s->slow ? 6 : 2); run++) {
        int fused = run % 2;
        uint8_t *out = gpu_poisoned(bytes, fused ? 0x55 : 0xaa);
        float *numbers = gpu_poisoned(side_bytes, fused ? 0x55 : 0xaa);
        uint64_t before = br_cuda_count(gpu);
        if (fused) {
            br_frb_beams_quantize_execute(p.fused, field, s->stride, valid, out, numbers);
        } else {
            br_frb_beams_execute(p.beams, field, valid, s->stride, beams);
            br_quantize_execute(p.quantize, beams, s->stride, valid, out, numbers);
        }
        clamped[fused] = br_cuda_count(gpu) - before;
        gpu_fetch(got[fused], out, bytes);
        gpu_fetch(side[fused], numbers, side_bytes);
        br_cuda_free(gpu, out);
        br_cuda_free(gpu, numbers);
        if (run % 2 == 1) same(s, got, side, bytes, clamped);
    }
    br_cuda_free(gpu, field);
    br_cuda_free(gpu, beams);
    finish(&p);
    free(in);
    free(valid);
    for (int i = 0; i < 2; i++) free(got[i]), free(side[i]);
}

static void same_bits(void **state)
{
    NEEDS_GPU();
    static const struct shape shapes[] = {
        {24, 24, 96, 96, 2, 256, 4, 0, 50, 40},       {24, 24, 96, 96, 1, 256, 8, 0, 50, 40},
        {24, 24, 33, 40, 2, 300, 4, 20, 3, 4},        {16, 16, 64, 40, 2, 512, 4, 0, 900, 20},
        {16, 16, 16, 64, 3, 256, 8, 1, 900, 20},      {12, 8, 32, 32, 2, 256, 4, 0, 0, 100},
        {4, 4, 5, 8, 3, 260, 8, 50, 10, 3},           {24, 24, 96, 96, 1, 256, 4, 100, 50, 40},
        {8, 12, 1, 8, 2, 256, 4, 0, 4e4, 1e4},        {8, 8, 200, 24, 3, 256, 4, 0, 30, 20},
        {4, 8, 97, 8, 40, 256, 4, 3, 20, 20},         {24, 24, 20, 34, 2, 256, 8, 0, 6.2e4, 1500},
        {24, 24, 96, 96, 2, 256, 4, 0, 50, 40, true}, {24, 24, 96, 96, 1, 256, 8, 0, 50, 40, true},
        {24, 24, 33, 40, 2, 300, 4, 20, 3, 4, true},  {16, 16, 16, 64, 3, 256, 8, 1, 900, 20, true},
        {4, 8, 97, 8, 40, 256, 4, 3, 20, 20, true},   {24, 24, 96, 96, 1, 256, 4, 100, 50, 40, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!getenv("BEAMRING_GPU_SMALL") || shapes[i].bx * shapes[i].by < 2000) compare(&shapes[i]);
}

static void refused(void **state)
{
    NEEDS_GPU();
    struct br_why why;
    assert_true(br_frb_beams_quantize_can(0, 24, 24, 96, 96, 256, &why));
    assert_false(br_frb_beams_quantize_can(0, 24, 24, 96, 96, 128, &why));
    assert_non_null(strstr(why.text, "128 steps"));
    assert_false(br_frb_beams_quantize_can(0, 24, 24, 0, 0, 256, &why));
    assert_non_null(strstr(why.text, "not on a grid"));
    assert_false(br_frb_beams_quantize_can(0, 28, 24, 96, 96, 256, &why));
    assert_non_null(strstr(why.text, "56 x 48 cells"));
    assert_false(br_frb_beams_quantize_can(0, 24, 24, 5, 3, 256, &why));
    assert_non_null(strstr(why.text, "5 x 3 beams"));
    assert_false(br_frb_beams_quantize_can(0, 6, 24, 96, 96, 256, &why));
    assert_false(br_frb_beams_quantize_can(0, 24, 22, 96, 96, 256, &why));
    assert_non_null(strstr(why.text, "48 x 44 cells"));
}
#endif

/* Without CUDA nothing can be fused, and says so. */
static void without_cuda(void **state)
{
    (void)state;
    struct br_why why = {""};
    struct br_frb_beams_quantize *plan;
    if (BR_WITH_CUDA) skip();
    assert_false(br_frb_beams_quantize_can(0, 24, 24, 96, 96, 256, &why));
    assert_non_null(strstr(why.text, "without CUDA"));
    assert_int_equal(br_frb_beams_quantize_create(&plan, NULL, NULL, &why), -1);
    assert_null(plan);
    br_frb_beams_quantize_destroy(NULL);
}

static void where_it_pays(void **state)
{
    (void)state;
    assert_true(br_frb_beams_quantize_pays(24, 24, 96, 96));
    assert_true(br_frb_beams_quantize_pays(24, 24, 180, 60));
    assert_true(br_frb_beams_quantize_pays(24, 24, 48, 96));
    assert_true(br_frb_beams_quantize_pays(16, 16, 64, 64));
    assert_true(br_frb_beams_quantize_pays(8, 12, 96, 64));
    assert_false(br_frb_beams_quantize_pays(16, 16, 64, 40)); /* too much of the tiles is empty */
    assert_false(br_frb_beams_quantize_pays(16, 16, 48, 64));
    assert_false(br_frb_beams_quantize_pays(24, 24, 40, 96));
    assert_false(br_frb_beams_quantize_pays(8, 12, 32, 48));
}

int main(void)
{
    const struct CMUnitTest host[] = {cmocka_unit_test(without_cuda), cmocka_unit_test(where_it_pays)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    seed = 20;
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(refused)};
    failed += cmocka_run_group_tests_name("gpu", tests, gpu_open, gpu_close);
#endif
    return failed;
}
