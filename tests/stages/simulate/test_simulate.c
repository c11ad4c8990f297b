/* simulate: its random numbers, and that nothing depends on frames. The field itself is checked in
 * NumPy (tests/oracle/simulate.py). */
#include "stages/common/stage/random.h"
#include "stages/common/sky/burst.h"
#include "tests/stages/stage_driver.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct br_stage_type simulate_stage;

enum { CHANNELS = 3, POLS = 2, DISHES = 6, ROW = CHANNELS * POLS * DISHES };
static const struct br_dish dishes[DISHES] = {{0, 0}, {0, 2}, {1, 1}, {2, 0}, {2, 3}, {3, 1}};
static const double position[DISHES][3] = {{0 * 6.3, 0 * 8.5, 0}, {2 * 6.3, 0 * 8.5, 0},
                                           {1 * 6.3, 1 * 8.5, 0}, {0 * 6.3, 2 * 8.5, 0},
                                           {3 * 6.3, 2 * 8.5, 0}, {1 * 6.3, 3 * 8.5, 0}};
static const struct br_telescope telescope = {.name = "test",
                                              .grid_m = 4,
                                              .grid_n = 4,
                                              .spacing_m_m = 8.5,
                                              .spacing_n_m = 6.3,
                                              .ndishes = DISHES,
                                              .dishes = dishes,
                                              .position = position};
static const double freq_mhz[CHANNELS] = {400, 400.1953125, 400.390625};

static struct br_stage *new_stage(void)
{
    struct br_stage *stage = driver_new(&simulate_stage);
    stage->telescope = &telescope;
    stage->in[0].scale = 1;
    stage->hints = (struct br_stream_hints){.sample_ns = {5120, 1}, .nfreq = CHANNELS, .freq_mhz = freq_mhz};
    driver_set_int(stage, "seed", 5);
    return stage;
}

static const struct br_param *find(const struct br_param *p, const char *name)
{
    while (p->name != NULL && strcmp(p->name, name) != 0) p++;
    assert_non_null(p->name);
    return p;
}

/* A list of maps with their defaults; lives until the test program ends. */
static void set_maps(struct br_stage *stage, const char *name, size_t count)
{
    const struct br_param *p = find(stage->type->params, name);
    struct br_maps maps = {count, calloc(count, p->size)};
    memcpy((char *)stage->self + p->offset, &maps, sizeof maps);
    assert_true(stage->nmemory < 4096);
    stage->memory[stage->nmemory++] = (void *)(uintptr_t)maps.value;
}

static void *field(struct br_stage *stage, const char *name, size_t i, const char *key)
{
    const struct br_param *p = find(stage->type->params, name);
    struct br_maps maps;
    memcpy(&maps, (char *)stage->self + p->offset, sizeof maps);
    return (char *)(uintptr_t)maps.value + i * p->size + find(p->fields, key)->offset;
}

static void put_int(struct br_stage *stage, const char *name, size_t i, const char *key, int64_t value)
{
    memcpy(field(stage, name, i, key), &value, sizeof value);
}

static void put_real(struct br_stage *stage, const char *name, size_t i, const char *key, double value)
{
    memcpy(field(stage, name, i, key), &value, sizeof value);
}

static void put_missing(struct br_stage *stage, size_t i, int64_t first, int64_t count)
{
    put_int(stage, "missing", i, "first", first);
    put_int(stage, "missing", i, "count", count);
}

struct run {
    uint64_t first, samples;
    unsigned nframes;
    uint8_t *e, *valid; /* [samples][ROW], [samples][CHANNELS] */
    uint64_t saturated;
};

/* Configures and runs to the end. Frames must be whole, but for the first and the last. */
static struct run run_stage(struct br_stage *stage)
{
    struct run run = {0};
    int status = driver_configure(stage);
    if (status != BR_OK) fail_msg("configure: %s", stage->error);
    assert_int_equal(driver_start(stage), BR_OK);
    struct br_frame *frame = driver_frame(&stage->out[0]);
    uint64_t size = stage->out[0].frame_samples;
    for (;;) {
        int result = driver_process(stage, NULL, frame);
        if (result & BR_PRODUCED) {
            if (run.samples == 0) run.first = frame->first;
            assert_int_equal(frame->first, run.first + run.samples);
            assert_true(run.samples == 0 || frame->first % size == 0);
            assert_true(frame->samples > 0 && frame->first % size + frame->samples <= size);
            run.e = realloc(run.e, (run.samples + frame->samples) * ROW);
            run.valid = realloc(run.valid, (run.samples + frame->samples) * CHANNELS);
            memcpy(run.e + run.samples * ROW, frame->data, frame->samples * ROW);
            uint64_t missing = 0;
            for (size_t i = 0; i < frame->samples * CHANNELS; i++) {
                uint8_t v = frame->complete ? BR_VALID : frame->valid[i];
                run.valid[run.samples * CHANNELS + i] = v;
                missing += v == BR_MISSING;
            }
            assert_int_equal(missing, frame->missing);
            run.samples += frame->samples;
            run.nframes++;
        }
        if (result & BR_FINISHED) break;
        assert_int_equal(result, BR_PRODUCED);
    }
    driver_frame_free(frame);
    run.saturated = stage->saturated;
    assert_int_equal(driver_stop(stage), BR_OK);
    driver_free(stage);
    return run;
}

static void run_free(struct run *run)
{
    free(run->e);
    free(run->valid);
}

static int re_of(uint8_t e)
{
    return ((e & 15) ^ 8) - 8;
}
static int im_of(uint8_t e)
{
    return ((e >> 4) ^ 8) - 8;
}

/* The known answers that come with the generator's publication. */
static void test_philox(void **state)
{
    (void)state;
    uint32_t out[4];
    random_block(0, 0, 0, 0, out);
    const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(out, zeros, sizeof zeros);
    random_block(UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, out);
    const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(out, ones, sizeof ones);
    random_block(UINT64_C(0x299f31d0a4093822), UINT64_C(0x85a308d3243f6a88), 0x13198a2e, 0x03707344, out);
    const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(out, pi, sizeof pi);
}

static void test_gaussian(void **state)
{
    (void)state;
    int16_t *table = malloc(GAUSSIAN_ENTRIES * sizeof *table);
    gaussian_table(table);
    double sum[5] = {0};
    for (int i = 0; i < GAUSSIAN_ENTRIES; i++) {
        double z = (double)table[i] / GAUSSIAN_UNIT;
        for (int k = 1; k < 5; k++) sum[k] += pow(z, k) / GAUSSIAN_ENTRIES;
        assert_true(i == 0 || table[i] >= table[i - 1]);
        if (i % 1000 == 500) { /* the entry is the quantile at (i + 1/2) / 65536 */
            double p = 0.5 * erfc(-z * M_SQRT1_2), density = exp(-z * z / 2) / sqrt(2 * M_PI);
            assert_true(fabs(p - (i + 0.5) / GAUSSIAN_ENTRIES) < 0.51 / GAUSSIAN_UNIT * density + 1e-7);
        }
    }
    assert_true(fabs(sum[1]) < 1e-12 && fabs(sum[3]) < 1e-12);
    assert_true(fabs(sum[2] - 1) < 1e-3 && fabs(sum[4] - 3) < 1e-2);
    free(table);
}

/* Noise of rms 2 rounded to levels: variance 4 + 1/12 less what the clamp takes; all components independent.
 */
static void test_noise(void **state)
{
    (void)state;
    enum { N = 40000, LAG = 1 };
    struct br_stage *stage = new_stage();
    driver_set_int(stage, "samples", N);
    struct run run = run_stage(stage);
    assert_int_equal(run.samples, N);
    double mean = 0, power = 0, beyond = 0;
    for (size_t i = 0; i < (size_t)N * ROW; i++) {
        int re = re_of(run.e[i]), im = im_of(run.e[i]);
        assert_true(abs(re) <= 7 && abs(im) <= 7);
        mean += re + im;
        power += re * re + im * im;
    }
    double count = 2.0 * N * ROW;
    for (int k = 8; k < 40; k++) /* P(level k) and what clamping it to 7 takes away */
        beyond +=
            2 * (k * k - 49) * 0.5 * (erfc((k - 0.5) / 2 * M_SQRT1_2) - erfc((k + 0.5) / 2 * M_SQRT1_2));
    double variance = 4 + 1.0 / 12 - beyond;
    assert_true(fabs(mean / count) < 5 * 2 / sqrt(count));
    assert_true(fabs(power / count / variance - 1) < 5 * sqrt(2 / count));
    double expected = erfc(7.5 / 2 * M_SQRT1_2) * count;
    assert_true(fabs((double)run.saturated - expected) < 6 * sqrt(expected));

    /* correlation of every dish, polarisation and channel with the first one, at lags 0 and 1; of re with im
     */
    for (size_t j = 0; j < ROW; j++)
        for (size_t lag = 0; lag <= LAG; lag++) {
            double rr = 0, ri = 0;
            for (size_t t = 0; t + lag < N; t++) {
                uint8_t a = run.e[t * ROW], b = run.e[(t + lag) * ROW + j];
                rr += re_of(a) * re_of(b);
                ri += re_of(a) * im_of(b);
            }
            if (j == 0 && lag == 0)
                assert_true(rr > 3.9 * N);
            else
                assert_true(fabs(rr) < 5 * 4.1 * sqrt(N));
            assert_true(fabs(ri) < 5 * 4.1 * sqrt(N));
        }
    run_free(&run);
}

static void test_seed(void **state)
{
    (void)state;
    struct br_stage *a = new_stage(), *b = new_stage();
    driver_set_int(a, "samples", 2000);
    driver_set_int(b, "samples", 2000);
    driver_set_int(b, "seed", 6);
    struct run x = run_stage(a), y = run_stage(b);
    size_t same = 0;
    for (size_t i = 0; i < 2000 * ROW; i++) same += x.e[i] == y.e[i];
    assert_true(same < 2000 * ROW / 20); /* two independent samples agree in about 2 % */
    run_free(&x);
    run_free(&y);
}

/* A field with everything in it. */
static struct br_stage *rich(int64_t frame, uint64_t sample0)
{
    struct br_stage *stage = new_stage();
    driver_set_int(stage, "samples", 5000);
    driver_set_int(stage, "frame_samples", frame);
    stage->hints.have_sample0 = true;
    stage->hints.sample0 = sample0;
    set_maps(stage, "missing", 3);
    put_missing(stage, 0, 100, 1);
    put_missing(stage, 1, 1000, 1500);
    put_missing(stage, 2, 4990, 1000);
    set_maps(stage, "sources", 1);
    put_real(stage, "sources", 0, "x_deg", 1);
    put_real(stage, "sources", 0, "y_deg", -2);
    put_real(stage, "sources", 0, "flux", 0.5);
    set_maps(stage, "bursts", 1);
    put_real(stage, "bursts", 0, "dm", 30);
    put_real(stage, "bursts", 0, "arrival_s", 0.015);
    put_real(stage, "bursts", 0, "width_s", 0.002);
    put_real(stage, "bursts", 0, "flux", 2);
    set_maps(stage, "carriers", 1);
    put_real(stage, "carriers", 0, "freq_mhz", 400.21);
    put_real(stage, "carriers", 0, "duty", 0.3);
    put_real(stage, "carriers", 0, "period_s", 0.0031);
    put_real(stage, "carriers", 0, "east_m", 1000);
    set_maps(stage, "impulses", 1);
    put_real(stage, "impulses", 0, "start_s", 0.004);
    put_real(stage, "impulses", 0, "duration_s", 0.009);
    put_real(stage, "impulses", 0, "north_m", -700);
    driver_set_real(stage, "drift_rms", 1e5);
    return stage;
}

static void test_frames(void **state)
{
    (void)state;
    struct run want = run_stage(rich(8192, 0));
    assert_int_equal(want.nframes, 1);
    const int64_t frames[] = {128, 1, 1000, 0};
    for (size_t i = 0; i < 4; i++) {
        struct run got = run_stage(rich(frames[i], 0));
        assert_int_equal(got.samples, 5000);
        assert_true(i == 3 || got.nframes == (5000 + frames[i] - 1) / frames[i]);
        assert_memory_equal(got.e, want.e, 5000 * ROW);
        assert_memory_equal(got.valid, want.valid, 5000 * CHANNELS);
        run_free(&got);
    }
    /* Frames lie on multiples of their length in the base counter. */
    struct run shifted = run_stage(rich(1000, 12345678901234));
    assert_int_equal(shifted.first, 12345678901234);
    assert_int_equal(shifted.nframes, 6);
    assert_memory_equal(shifted.valid, want.valid, 5000 * CHANNELS);
    run_free(&shifted);
    run_free(&want);
}

static void test_missing(void **state)
{
    (void)state;
    struct run run = run_stage(rich(512, 0));
    for (size_t t = 0; t < 5000; t++) {
        bool missing = t == 100 || (t >= 1000 && t < 2500) || t >= 4990;
        unsigned any = 0;
        for (size_t i = 0; i < ROW; i++) any |= run.e[t * ROW + i];
        assert_int_equal(any == 0, missing);
        for (size_t c = 0; c < CHANNELS; c++)
            assert_int_equal(run.valid[t * CHANNELS + c], missing ? BR_MISSING : BR_VALID);
    }
    run_free(&run);
}

static void test_duration(void **state)
{
    (void)state;
    struct br_stage *stage = new_stage();
    driver_set_real(stage, "duration_s", 0.01024); /* exactly 2000 samples */
    struct run run = run_stage(stage);
    assert_int_equal(run.samples, 2000);
    run_free(&run);
}

static void refused(struct br_stage *stage, const char *words)
{
    assert_int_equal(driver_configure(stage), BR_E_INVALID);
    if (strstr(stage->error, words) == NULL) fail_msg("'%s' is not in: %s", words, stage->error);
    driver_free(stage);
}

static void test_mistakes(void **state)
{
    (void)state;
    struct br_stage *stage = new_stage();
    refused(stage, "samples and duration_s");
    stage = new_stage();
    driver_set_int(stage, "samples", 10);
    driver_set_real(stage, "duration_s", 1);
    refused(stage, "both");
    stage = new_stage();
    driver_set_int(stage, "samples", 0);
    refused(stage, "0 samples");
    stage = rich(0, 0);
    stage->telescope = NULL;
    refused(stage, "telescope");
    stage = rich(0, 0);
    stage->hints.nfreq = 0;
    refused(stage, "freq_mhz");
    stage = rich(0, 0);
    stage->hints.sample_ns = (struct br_rational){0, 0};
    refused(stage, "sample_ns");
    stage = rich(0, 0);
    stage->hints.coding = "vdif";
    refused(stage, "int4x2");
    stage = rich(0, 0);
    put_real(stage, "sources", 0, "x_deg", 60);
    put_real(stage, "sources", 0, "y_deg", 60);
    refused(stage, "horizon");
    stage = rich(0, 0);
    put_real(stage, "bursts", 0, "width_s", 1e-6);
    refused(stage, "one sample");
    stage = rich(0, 0);
    put_real(stage, "bursts", 0, "dm", 1e5);
    put_real(stage, "bursts", 0, "width_s", 500);
    refused(stage, "GiB");
    stage = rich(0, 0);
    put_real(stage, "carriers", 0, "freq_mhz", 402);
    refused(stage, "no channel");
    stage = rich(0, 0);
    put_real(stage, "impulses", 0, "north_m", 9);
    refused(stage, "from dish 0");
    stage = rich(0, UINT64_MAX - 100);
    refused(stage, "sample0");
}

static void test_stopping(void **state)
{
    (void)state;
    struct br_stage *stage = rich(512, 0);
    assert_int_equal(driver_configure(stage), BR_OK);
    assert_int_equal(driver_start(stage), BR_OK);
    struct br_frame *frame = driver_frame(&stage->out[0]);
    assert_int_equal(driver_process(stage, NULL, frame), BR_PRODUCED);
    stage->stopping = true;
    assert_int_equal(driver_process(stage, NULL, frame), BR_FINISHED);
    driver_frame_free(frame);
    assert_int_equal(driver_stop(stage), BR_OK);
    driver_free(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),   cmocka_unit_test(test_gaussian), cmocka_unit_test(test_noise),
        cmocka_unit_test(test_seed),     cmocka_unit_test(test_frames),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_duration), cmocka_unit_test(test_mistakes), cmocka_unit_test(test_stopping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
