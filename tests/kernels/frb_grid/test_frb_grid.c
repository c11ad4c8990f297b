/* FRB stage 1: the fast implementation beside the equation, and what must not change a bit of a result. */
#include "buffers/half.h"
#include "kernels/frb_grid/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/kernels/common/closeness.h"
#include "tests/kernels/common/refused.h"
#include "tests/kernels/frb_grid/grid_run.h"

static struct run in_order(struct run r)
{
    place_in_order(&r, r.params.grid_n);
    return r;
}

struct image {
    size_t blocks, stride;
    uint16_t *out;
    uint8_t *valid;
    bool by_lags; /* of the two ways on the CPU */
};

/* Everything in one plan's life: from `phase` on, in calls of at most `most` samples (0: all at once), then a
 * flush. */
static struct image compute(const struct run *r, enum br_backend backend, unsigned phase, size_t most)
{
    struct image im = {.stride = (r->T + phase) / r->params.downsample + 2};
    struct br_frb_grid *plan;
    struct br_why why = {""};
    size_t at = 0;
    im.out = malloc(r->params.nchannels * im.stride * r->cells * sizeof *im.out);
    im.valid = malloc(r->params.nchannels * im.stride);
    memset(im.out, 0xee, r->params.nchannels * im.stride * r->cells * sizeof *im.out);
    memset(im.valid, 0xee, r->params.nchannels * im.stride);
    if (br_frb_grid_create(&plan, backend, &r->params, &why) != 0) fail_msg("%s", why.text);
    im.by_lags = plan->by_lags != NULL;
    if (phase) br_frb_grid_begin(plan, phase);
    while (at < r->T) {
        size_t n = most && most < r->T - at ? pick(1, most) : r->T - at, max = most ? pick(1, 3) : 1000000,
               taken = 99;
        size_t got = br_frb_grid_execute(
            plan, r->e + at * r->row, r->row, r->valid ? r->valid + at * r->valid_row : NULL, r->valid_row, n,
            max, im.out + im.blocks * r->cells, im.stride, im.valid + im.blocks, im.stride, &taken);
        assert_true(got <= max && taken <= n && (got == max || taken == n));
        at += taken;
        im.blocks += got;
        assert_int_equal(plan->pending, (at + phase) % r->params.downsample);
        assert_int_equal(im.blocks, (at + phase) / r->params.downsample);
    }
    size_t more =
        br_frb_grid_flush(plan, im.out + im.blocks * r->cells, im.stride, im.valid + im.blocks, im.stride);
    assert_int_equal(more, (r->T + phase) % r->params.downsample != 0);
    im.blocks += more;
    assert_int_equal(plan->pending, 0);
    assert_int_equal(br_frb_grid_flush(plan, im.out, im.stride, im.valid, im.stride), 0);
    br_frb_grid_destroy(plan);
    return im;
}

static void release(struct image *im)
{
    free(im->out);
    free(im->valid);
}

/* To the normative tolerance. */
static void assert_close(const struct run *r, const struct image *a, const struct image *b)
{
    struct closeness c = {0};
    assert_int_equal(a->blocks, b->blocks);
    for (size_t f = 0; f < r->params.nchannels; f++) {
        assert_memory_equal(a->valid + f * a->stride, b->valid + f * b->stride, a->blocks);
        closeness_add(&c, a->out + f * a->stride * r->cells, b->out + f * b->stride * r->cells,
                      a->blocks * r->cells, 0);
    }
    if (!closeness_suffices(&c))
        fail_msg("%ux%u D %zu: relative rms error %g, worst %g, rms %g", r->params.grid_m, r->params.grid_n,
                 r->params.ndishes, closeness_error(&c), c.worst, closeness_rms(&c));
}

static void assert_same(const struct run *r, const struct image *a, const struct image *b)
{
    assert_int_equal(a->blocks, b->blocks);
    for (size_t f = 0; f < r->params.nchannels; f++) {
        assert_memory_equal(a->valid + f * a->stride, b->valid + f * b->stride, a->blocks);
        assert_memory_equal(a->out + f * a->stride * r->cells, b->out + f * b->stride * r->cells,
                            a->blocks * r->cells * sizeof *a->out);
    }
}

static void against_equation(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        unsigned M = (unsigned)pick(1, i % 4 ? 7 : 12), N = (unsigned)pick(1, i % 3 ? 7 : 13);
        size_t F = pick(1, 3), P = pick(1, 2), D = pick(1, (size_t)M * N);
        static const size_t channels[3] = {0, 1, 2};
        size_t WF = channels[pick(0, 2)] == 2 ? F : pick(0, 1);
        unsigned downsample = (unsigned)pick(1, 9);
        struct run r = make(pick(1, 25), F, P, M, N, D, downsample, WF, i % 2 ? 30 : 0);
        if (i % 5 < 2) r = in_order(r);
        struct image a = compute(&r, BR_CPU, 0, 0), b = compute(&r, BR_REFERENCE, 0, 0);
        assert_close(&r, &a, &b);
        release(&a);
        release(&b);
        finish(&r);
    }
}

/* Grids and blocks for which the autocorrelation pays, and others; some dishes are in order, so that several
 * are copied at once. */
static void both_ways_against_equation(void **state)
{
    (void)state;
    unsigned ways[2] = {0, 0};
    for (int i = 0; i < 80; i++) {
        bool small = i % 2 != 0;
        unsigned M = (unsigned)pick(small ? 1 : 9, small ? 6 : 15),
                 N = (unsigned)pick(small ? 1 : 9, small ? 6 : 15),
                 downsample = (unsigned)pick(1, small ? 150 : 14);
        static const size_t channels[3] = {0, 1, 2};
        struct run r = make(pick(1, 2 * downsample), 2, pick(1, 2), M, N, pick(1, (size_t)M * N), downsample,
                            channels[pick(0, 2)], i % 3 ? 30 : 0);
        if (i % 5 < 2) r = in_order(r);
        struct image a = compute(&r, BR_CPU, 0, 0), b = compute(&r, BR_REFERENCE, 0, 0);
        ways[a.by_lags]++;
        assert_close(&r, &a, &b);
        release(&a);
        release(&b);
        finish(&r);
    }
    assert_true(ways[0] >= 15 && ways[1] >= 15);
}

/* The largest products that int4 has, of every sign, in one piece of up to 48 samples, the longest there is,
 * and in two and three. */
static void largest_products(void **state)
{
    (void)state;
    static const uint8_t corners[] = {0x88, 0x78, 0x87, 0x77};
    for (unsigned downsample = 20; downsample < 120; downsample += 7) {
        struct run r = in_order(make(downsample, 1, 2, 4, 4, 16, downsample, 0, 0));
        for (size_t t = 0; t < r.T; t++)
            for (size_t i = 0; i < 32; i++) r.e[t * r.row + i] = corners[i / 4 % 4];
        struct image a = compute(&r, BR_CPU, 0, 0), b = compute(&r, BR_REFERENCE, 0, 0);
        assert_true(a.by_lags);
        assert_close(&r, &a, &b);
        release(&a);
        release(&b);
        finish(&r);
    }
}

/* frb_grid.h: which shapes go which way, at the telescopes' dishes. */
static void the_way_by_shape(void **state)
{
    (void)state;
    static const struct {
        unsigned m, n, columns, downsample;
        size_t dishes;
        bool by_lags;
    } cases[] = {{8, 12, 11, 12, 64, true},    {8, 12, 11, 40, 64, true},    {8, 12, 11, 1, 64, false},
                 {16, 16, 16, 40, 256, false}, {24, 24, 22, 40, 512, false}, {8, 8, 8, 40, 64, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int weights = 0; weights < 2; weights++) { /* which do not matter: they may come while it runs */
            struct run r = make(1, 1, 2, cases[i].m, cases[i].n, cases[i].dishes, cases[i].downsample,
                                (size_t)weights, 0);
            place_in_order(&r, cases[i].columns);
            struct image a = compute(&r, BR_CPU, 0, 0);
            assert_int_equal(a.by_lags, cases[i].by_lags);
            release(&a);
            finish(&r);
        }
    }
}

static void telescopes(void **state)
{
    (void)state;
    static const unsigned shape[4][3] = {{24, 24, 512}, {8, 12, 64}, {16, 16, 256}, {64, 64, 40}};
    for (int i = 0; i < 4; i++)
        for (int ordered = 0; ordered < 2; ordered++) {
            struct run r = make(2, 1, 1, shape[i][0], shape[i][1], shape[i][2], 2, 1, 0);
            if (ordered) r = in_order(r);
            struct image a = compute(&r, BR_CPU, 0, 0), b = compute(&r, BR_REFERENCE, 0, 0);
            assert_close(&r, &a, &b);
            release(&a);
            release(&b);
            finish(&r);
        }
}

static void calls_change_nothing(void **state)
{
    (void)state;
    unsigned ways[2] = {0, 0};
    for (int i = 0; i < 40; i++) {
        unsigned downsample = i % 5 == 0 ? 600 : (unsigned)pick(1, 40),
                 phase = (unsigned)pick(0, downsample - 1);
        unsigned M = i % 4 < 2 ? 3 : 13, N = i % 4 < 2 ? 5 : 14;
        size_t D = i % 4 < 2 ? 11 : 170;
        struct run r = make(pick(1, 1500), pick(1, 2), 2, M, N, D, downsample, 1, i % 2 ? 45 : 0);
        if (i % 3 == 0) r = in_order(r);
        r.params.threshold = i % 4 ? 0.5 : 0;
        struct image all = compute(&r, BR_CPU, phase, 0), cut = compute(&r, BR_CPU, phase, 70);
        assert_same(&r, &all, &cut);
        ways[all.by_lags]++;
        release(&all);
        release(&cut);
        finish(&r);
    }
    assert_true(ways[0] >= 5 && ways[1] >= 5);
}

/* Samples that are said to be missing, the phase, and the end of the stream are all the same thing: no
 * contribution. */
static void missing_is_missing(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        unsigned downsample = 10, phase = 3;
        struct run r = make(24, 1, 2, 2, 3, 5, downsample, 1, 0);
        struct image a = compute(&r, (enum br_backend)backend, phase, 0);
        struct run s = r;
        s.T = 30;
        s.e = malloc(s.T * s.row);
        s.valid = calloc(s.T, s.valid_row);
        for (size_t i = 0; i < s.T * s.row; i++) s.e[i] = (uint8_t)dump_random(&seed);
        memcpy(s.e + phase * s.row, r.e, r.T * r.row);
        memset(s.valid + phase * s.valid_row, 255, r.T * s.valid_row);
        struct image b = compute(&s, (enum br_backend)backend, 0, 0);
        assert_same(&r, &a, &b);
        assert_int_equal(a.blocks, 3);
        assert_int_equal(a.valid[0], (7 * 255 + 5) / 10);
        assert_int_equal(a.valid[1], 255);
        assert_int_equal(a.valid[2], (7 * 255 + 5) / 10);
        release(&b);
        /* below the threshold: zero bytes; at it: not */
        memset(s.valid, 0, s.T * s.valid_row);
        memset(s.valid, 255, 5 * s.valid_row);
        memset(s.valid + 10 * s.valid_row, 255, 4 * s.valid_row);
        b = compute(&s, (enum br_backend)backend, 0, 0);
        assert_int_equal(b.valid[0], 128);
        assert_int_equal(b.valid[1], 0);
        assert_int_equal(b.valid[2], 0);
        for (size_t i = s.cells; i < 3 * s.cells; i++) assert_int_equal(b.out[i], 0);
        release(&b);
        s.params.threshold = 0; /* a block without any valid sample is masked all the same */
        b = compute(&s, (enum br_backend)backend, 0, 0);
        assert_int_equal(b.valid[1], 102);
        assert_int_equal(b.valid[2], 0);
        release(&b);
        release(&a);
        free(s.e);
        free(s.valid);
        finish(&r);
    }
}

/* A constant field: every direction's intensity is that of one sample times T_ds, whatever the fraction that
 * is valid. */
static void level_is_restored(void **state)
{
    (void)state;
    struct run r = make(3000, 1, 1, 4, 4, 16, 1000, 0, 40);
    for (size_t t = 0; t < r.T; t++) memset(r.e + t * r.row, 0x21, 16); /* 1 + 2i */
    for (size_t i = 0; i < r.T * r.valid_row; i++) r.valid[i] = r.valid[i] ? 255 : 0;
    struct image a = compute(&r, BR_CPU, 0, 0);
    assert_int_equal(a.blocks, 3);
    for (size_t b = 0; b < 3; b++) {
        double zenith = (double)br_half_to_float(a.out[b * r.cells]) * ldexp(1, r.params.log2_scale);
        assert_true(fabs(zenith / (1000.0 * 5 * 16 * 16) - 1) < 1e-3);
        assert_true(a.valid[b] > 128 && a.valid[b] < 179);
    }
    release(&a);
    finish(&r);
}

/* Inputs of power 5 and any phase, of which samples lack a part: the power of all directions together, which
 * is that of the inputs, is what it would be with all of them. */
static void power_is_restored(void **state)
{
    (void)state;
    static const uint8_t phases[] = {0x21, 0x2f, 0xe1, 0xef, 0x12, 0x1e, 0xf2, 0xfe}; /* +-1 +-2i, +-2 +-i */
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct run r = make(120, 2, 2, 4, 4, 16, 30, 0, 1);
        for (size_t t = 0; t < r.T; t++)
            for (size_t f = 0; f < 2; f++) {
                size_t gone = pick(0, 3) ? 0 : 4 * pick(0, 4);
                for (size_t i = 0; i < 32; i++)
                    r.e[t * r.row + f * 32 + i] = i % 16 < gone ? 0 : phases[pick(0, 7)];
                r.valid[t * r.valid_row + f] = (uint8_t)((16 - gone) * 255 / 16);
            }
        struct image a = compute(&r, (enum br_backend)backend, 0, 0);
        assert_int_equal(a.blocks, 4);
        for (size_t k = 0; k < 8; k++) {
            size_t at = k / 4 * a.stride + k % 4;
            double sum = 0, all = (double)r.cells * 5 * 32 * 30, shares = 0;
            for (size_t i = 0; i < r.cells; i++)
                sum += ldexp((double)br_half_to_float(a.out[at * r.cells + i]), r.params.log2_scale);
            for (size_t t = 30 * (k % 4); t < 30 * (k % 4 + 1); t++)
                shares += r.valid[t * r.valid_row + k / 4] / 255.0;
            assert_true(fabs(sum / all - 1) < 6e-3); /* shares are 255ths */
            assert_true(fabs(a.valid[at] - 255 * shares / 30) <= 0.51);
        }
        release(&a);
        finish(&r);
    }
}

static void full_scale_fits(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct run r = make(40, 1, 2, 4, 4, pick(1, 16), (unsigned)pick(1, 40), 0, 0);
        memset(r.e, 0x88, r.T * r.row); /* -8 - 8i: 128 times as strong as one */
        double most = 2.0 * r.params.downsample * 128 * (double)(r.params.ndishes * r.params.ndishes);
        int k = r.params.log2_scale;
        assert_true(ldexp(65504, k) >= most && ldexp(65504, k - 1) < most);
        struct image a = compute(&r, BR_CPU, 0, 0);
        for (size_t j = 0; j < r.cells * (r.T / r.params.downsample); j++)
            assert_true(br_half_to_float(a.out[j]) <= BR_HALF_MAX);
        double zenith = ldexp((double)br_half_to_float(a.out[0]), k);
        assert_true(fabs(zenith / most - 1) < 1e-3);
        release(&a);
        finish(&r);
    }
    /* the smallest k, with weights: npol T_ds 128 (max sum |W|)^2 = 2^k 65504 */
    struct run r = in_order(make(1, 2, 1, 1, 2, 2, 1, 2, 0));
    float w[8] = {1, 0, 0, 1, 3, 4, 0, -5};
    memcpy(r.weights, w, sizeof w);
    r.params.log2_scale = br_frb_grid_log2_scale(&r.params);
    assert_int_equal(r.params.log2_scale, (int)ceil(log2(128.0 * 100 / 65504)));
    finish(&r);
}

/* The divisor of the weights in the GPU kernels, and the order of plans that they serve at once. */
static void scales_and_order(void **state)
{
    (void)state;
    static const float weights[][4] = {
        {0, 0, 0, 0}, {0.5f, -0.25f, 0, 0}, {0, 0, -1, 0.75f}, {3, -5, 0, 4}, {0, 1e-3f, 0, 0}};
    static const int exponent[] = {0, 0, 1, 3, -9};
    for (size_t i = 0; i < sizeof exponent / sizeof *exponent; i++) {
        assert_int_equal(br_frb_grid_exponent(weights[i], 4), exponent[i]);
        for (int k = 0; k < 4; k++) assert_true(fabs(ldexp((double)weights[i][k], -exponent[i])) < 1);
    }
    assert_int_equal(br_frb_grid_exponent(NULL, 4), 0);
    assert_int_equal(br_half_pair(1, -2), 0xc0003c00);
    struct br_frb_grid grid[] = {{.downsample = 12},
                                 {.downsample = 40},
                                 {.downsample = 12},
                                 {.downsample = 7},
                                 {.downsample = 768}},
                       *plan[5];
    size_t order[MOST_JOBS], expected[] = {4, 1, 0, 2, 3};
    for (int i = 0; i < 5; i++) plan[i] = &grid[i];
    br_frb_grid_longest_first(plan, 5, order);
    assert_memory_equal(order, expected, sizeof expected);
}

static void bad_parameters(void **state)
{
    (void)state;
    struct run r = in_order(make(1, 2, 2, 3, 4, 5, 7, 2, 0));
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct br_frb_grid *plan = (struct br_frb_grid *)&r;
        struct br_why why;
        struct br_frb_grid_params bad = r.params;
#define REFUSED(TEXT)                                                                                        \
    do {                                                                                                     \
        int status = br_frb_grid_create(&plan, (enum br_backend)backend, &bad, &why);                        \
        assert_refused(status, plan, &why, TEXT);                                                            \
        bad = r.params;                                                                                      \
    } while (0)
        r.cell[2 * 3] = 3;
        REFUSED("dish 3 is on cell (3, 3)");
        r.cell[2 * 3] = 0;
        r.cell[2 * 3 + 1] = 1;
        REFUSED("dishes 1 and 3 are both on cell (0, 1)");
        r.cell[2 * 3 + 1] = 3;
        bad.ndishes = 13;
        REFUSED("13 dishes");
        bad.grid_m = 65;
        REFUSED("65 x 4");
        bad.grid_n = 0;
        REFUSED("3 x 0");
        bad.downsample = 0;
        REFUSED("downsample");
        bad.threshold = NAN;
        REFUSED("threshold");
        bad.nchannels = 0;
        REFUSED("0 channels");
        bad.weight_channels = 3;
        REFUSED("3 channels");
        bad.log2_scale = 200;
        REFUSED("log2_scale is 200");
        float other = r.weights[((1 * 2 + 0) * 5 + 3) * 2];
        r.weights[((1 * 2 + 0) * 5 + 3) * 2] = NAN;
        REFUSED("channel 1, polarisation 0, dish 3");
        r.weights[((1 * 2 + 0) * 5 + 3) * 2] = other;
        float keep = r.weights[((1 * 2 + 1) * 5 + 2) * 2];
        r.weights[((1 * 2 + 1) * 5 + 2) * 2] = INFINITY;
        REFUSED("channel 1, polarisation 1, dish 2");
        r.weights[((1 * 2 + 1) * 5 + 2) * 2] = 1e30f;
        REFUSED("so large");
        r.weights[((1 * 2 + 1) * 5 + 2) * 2] = keep;
        assert_int_equal(br_frb_grid_create(&plan, (enum br_backend)backend, &bad, &why), 0);
        br_frb_grid_destroy(plan);
    }
    br_frb_grid_destroy(NULL);
    finish(&r);
}

/* The bytes of all images of a run, computed by a child with the portable loops: the choice is made once per
 * process. */
static char *portable(const struct run *r, size_t bytes)
{
    int ends[2], status;
    char *theirs = malloc(bytes);
    size_t at = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("BEAMRING_CPU", "generic", 1);
        struct image a = compute(r, BR_CPU, 0, 0);
        while (at < bytes) {
            ssize_t n = write(ends[1], (char *)a.out + at, bytes - at);
            if (n <= 0) _exit(1);
            at += (size_t)n;
        }
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n; at < bytes && (n = read(ends[0], theirs + at, bytes - at)) > 0;) at += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(at, bytes);
    return theirs;
}

/* The portable loops and the vector ones make the same bits. Runs before all others, so that the child has
 * its choice. */
static void portable_is_the_same(void **state)
{
    (void)state;
    struct run runs[] = {make(23, 2, 2, 8, 12, 64, 5, 2, 20), make(163, 2, 2, 8, 12, 64, 33, 2, 20),
                         make(163, 2, 2, 8, 12, 64, 49, 0, 20), make(90, 2, 1, 5, 7, 20, 19, 1, 20)};
    char *theirs[4];
    size_t bytes[4];
    for (size_t i = 0; i < 4; i++) {
        const struct run *r = &runs[i];
        bytes[i] = r->params.nchannels * (r->T / r->params.downsample + 2) * r->cells * sizeof(uint16_t);
        theirs[i] = portable(r, bytes[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        struct image b = compute(&runs[i], BR_CPU, 0, 0);
        assert_int_equal(b.by_lags, i > 0);
        assert_memory_equal(theirs[i], b.out, bytes[i]);
        release(&b);
        free(theirs[i]);
        finish(&runs[i]);
    }
}

int main(void)
{
    seed = 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(portable_is_the_same),
        cmocka_unit_test(against_equation),
        cmocka_unit_test(both_ways_against_equation),
        cmocka_unit_test(largest_products),
        cmocka_unit_test(the_way_by_shape),
        cmocka_unit_test(telescopes),
        cmocka_unit_test(calls_change_nothing),
        cmocka_unit_test(missing_is_missing),
        cmocka_unit_test(level_is_restored),
        cmocka_unit_test(power_is_restored),
        cmocka_unit_test(full_scale_fits),
        cmocka_unit_test(bad_parameters),
        cmocka_unit_test(scales_and_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
