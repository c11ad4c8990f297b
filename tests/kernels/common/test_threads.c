/* Kernels that share their work among threads make the same bits with any number of them: shapes and holes by
 * chance, streams cut into calls of any length, over 2, 3, 8 and 16 threads, over none, and with jobs
 * backwards. Each kernel's own
 * tests compare that with its reference. */
#include "kernels/baseband/baseband.h"
#include "kernels/correlate/correlate.h"
#include "kernels/flag/flag.h"
#include "kernels/frb_beams/frb_beams.h"
#include "kernels/quantize/quantize.h"
#include "kernels/upchannelize/upchannelize.h"
#include "runtime/base/pool.h"
#include "tests/kernels/frb_grid/grid_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const unsigned thread_counts[] = {2, 3, 8, 16};
enum { COUNTS = sizeof thread_counts / sizeof *thread_counts, BACKWARDS = COUNTS + 1, RUNS };

static struct br_pool *pools[COUNTS];

static void run_jobs(void *pool, size_t jobs, br_parallel_work *work, void *arg)
{
    struct br_round round;
    br_round_begin(&round, pool, 0, jobs, work, arg);
    br_round_end(&round);
}

/* As threads might come to do them, but every time: the last job first, and neighbours by other workers. */
static void run_backwards(void *unused, size_t jobs, br_parallel_work *work, void *arg)
{
    (void)unused;
    while (jobs-- > 0) work(arg, jobs, (unsigned)(jobs % 5));
}

/* i = 0: none */
static struct br_parallel parallel(size_t i)
{
    if (i == 0) return (struct br_parallel){0};
    if (i == BACKWARDS) return (struct br_parallel){5, NULL, run_backwards};
    return (struct br_parallel){thread_counts[i - 1], pools[i - 1], run_jobs};
}

static void *bytes(size_t count)
{
    uint8_t *memory = malloc(count > 0 ? count : 1);
    for (size_t i = 0; i < count; i++) memory[i] = (uint8_t)dump_random(&seed);
    return memory;
}

/* Mostly valid, in per cent missing; NULL for 0. */
static uint8_t *validity(size_t count, size_t missing)
{
    if (missing == 0) return NULL;
    uint8_t *valid = malloc(count);
    for (size_t i = 0; i < count; i++)
        valid[i] = (uint8_t)(pick(0, 99) < missing ? 0 : pick(0, 3) ? 255 : pick(1, 254));
    return valid;
}

/* The results of one run, compared with those of the first. */
static void compare(size_t i, uint8_t *first, const uint8_t *now, size_t count)
{
    if (i == 0)
        memcpy(first, now, count);
    else
        assert_memory_equal(first, now, count);
}

static void test_upchannelize(void **state)
{
    (void)state;
    for (int c = 0; c < 12; c++) {
        size_t F = pick(1, 7), X = pick(1, 300), U = (size_t)1 << pick(1, 6), blocks = pick(20, 300),
               row = F * X;
        size_t T = blocks * U;
        uint8_t *e = bytes(T * row), *valid = validity(T * F, c % 3 == 0 ? 0 : 2);
        uint8_t *out = malloc(T * row + T * F), *first = malloc(T * row + T * F);
        uint64_t clamped_first = 0, cuts = seed;
        for (size_t i = 0; i < RUNS; i++) {
            struct br_upchannelize_params p = {
                .nchannels = F, .nspectators = X, .factor = (unsigned)U, .taps = 4, .parallel = parallel(i)};
            struct br_upchannelize *plan;
            uint64_t clamped = 0;
            seed = cuts;
            assert_int_equal(br_upchannelize_create(&plan, BR_CPU, &p, NULL), 0);
            for (size_t at = 0, n; at < blocks; at += n) {
                n = pick(1, blocks - at);
                clamped +=
                    br_upchannelize_execute(plan, e + at * U * row, row, valid ? valid + at * U * F : NULL, F,
                                            n * U, out + at * U * row, out + T * row + at * U * F);
            }
            if (i == 0) clamped_first = clamped;
            assert_true(clamped == clamped_first);
            compare(i, first, out, T * row + T * F);
            br_upchannelize_destroy(plan);
        }
        free(e), free(valid), free(out), free(first);
    }
}

static void test_baseband(void **state)
{
    (void)state;
    for (int c = 0; c < 12; c++) {
        size_t F = pick(1, 3), P = pick(1, 2), B = pick(1, 20), D = pick(1, 70), T = pick(1, 1000);
        size_t wf = c % 2 ? F : 1, row = F * P * D, made = B * F * P * T, all = made + F * T;
        uint8_t *e = bytes(T * row), *valid = validity(T * F, c % 3 == 0 ? 0 : 5);
        int8_t *weights = bytes(wf * P * B * D * 2);
        int32_t *shift = malloc(wf * P * B * sizeof *shift);
        for (size_t i = 0; i < wf * P * B * D * 2; i++) weights[i] = weights[i] == -128 ? 0 : weights[i];
        for (size_t i = 0; i < wf * P * B; i++) shift[i] = (int32_t)pick(6, 10);
        uint8_t *out = calloc(all, 1), *first = malloc(all);
        uint64_t saturated[20], saturated_first[20];
        for (size_t i = 0; i < RUNS; i++) {
            struct br_baseband_params p = {.nchannels = F,
                                           .npol = P,
                                           .nbeams = B,
                                           .ndishes = D,
                                           .weights = weights,
                                           .shift = shift,
                                           .weight_channels = wf,
                                           .parallel = parallel(i)};
            struct br_baseband *plan;
            memset(saturated, 0, sizeof saturated);
            assert_int_equal(br_baseband_create(&plan, BR_CPU, &p, NULL), 0);
            for (int twice = 0; twice < 2; twice++)
                br_baseband_execute(plan, e, valid, T, out, out + made, saturated);
            if (i == 0) memcpy(saturated_first, saturated, sizeof saturated);
            assert_memory_equal(saturated, saturated_first, sizeof saturated);
            compare(i, first, out, all);
            br_baseband_destroy(plan);
        }
        free(e), free(valid), free(weights), free(shift), free(out), free(first);
    }
}

/* The whole stream in calls, and what is left of the last block. */
static size_t grid_stream(struct run *r, uint16_t *out, uint8_t *out_valid, size_t room)
{
    struct br_frb_grid *plan;
    size_t F = r->params.nchannels, blocks = 0, at = 0;
    assert_int_equal(br_frb_grid_create(&plan, BR_CPU, &r->params, NULL), 0);
    br_frb_grid_begin(plan, r->phase);
    while (at < r->T) {
        size_t n = pick(1, r->T - at), taken, most = pick(1, 9);
        blocks += br_frb_grid_execute(plan, r->e + at * r->row, r->row,
                                      r->valid ? r->valid + at * r->valid_row : NULL, r->valid_row, n, most,
                                      out + blocks * r->cells, room, out_valid + blocks, room, &taken);
        at += taken;
    }
    blocks += br_frb_grid_flush(plan, out + blocks * r->cells, room, out_valid + blocks, room);
    br_frb_grid_destroy(plan);
    assert_true(blocks <= room && F > 0);
    return blocks;
}

static void test_frb_grid(void **state)
{
    (void)state;
    for (int c = 0; c < 12; c++) {
        unsigned downsample = (unsigned)(c == 5 ? 300 : pick(1, c % 2 ? 5 : 30)); /* both ways */
        struct run r = make(pick(1, 800), pick(1, 5), pick(1, 2), (unsigned)pick(1, 6), (unsigned)pick(1, 9),
                            0, downsample, 0, c % 3 == 0 ? 0 : 20);
        size_t F = r.params.nchannels, room = r.T / downsample + 3, count = F * room * (2 * r.cells + 1);
        uint8_t *out = calloc(count, 1), *first = calloc(count, 1);
        uint64_t cuts = seed;
        for (size_t i = 0; i < RUNS; i++) {
            seed = cuts;
            r.params.parallel = parallel(i);
            memset(out, 0, count);
            grid_stream(&r, (uint16_t *)out, out + 2 * F * room * r.cells, room);
            compare(i, first, out, count);
        }
        free(out), free(first);
        finish(&r);
    }
}

static void test_frb_beams(void **state)
{
    (void)state;
    for (int c = 0; c < 10; c++) {
        unsigned M = (unsigned)pick(1, 6), N = (unsigned)pick(1, 8);
        size_t F = pick(1, 4), bx = pick(1, 5), by = pick(1, 6), B = bx * by, T = pick(1, 300),
               cells = (size_t)4 * M * N;
        double *beam = malloc(2 * B * sizeof *beam), freq[4];
        for (size_t f = 0; f < F; f++) freq[f] = 400 + 10 * (double)f;
        for (size_t b = 0; b < B; b++)
            beam[2 * b] = 0.01 * (double)(b / by), beam[2 * b + 1] = -0.02 * (double)(b % by);
        uint16_t *in = malloc(F * T * cells * sizeof *in), *out = malloc(F * T * B * sizeof *out);
        uint8_t *valid = validity(F * T, c % 3 == 0 ? 0 : 10), *first = malloc(F * T * B * sizeof *out);
        for (size_t i = 0; i < F * T * cells; i++) in[i] = br_half_from_float((float)(100 * uniform()));
        for (size_t i = 0; i < RUNS; i++) {
            struct br_frb_beams_params p = {.nchannels = F,
                                            .freq_mhz = freq,
                                            .grid_m = M,
                                            .grid_n = N,
                                            .spacing_m_m = 6,
                                            .spacing_n_m = 7,
                                            .nbeams = B,
                                            .beam = beam,
                                            .beams_x = c % 2 ? bx : 0,
                                            .beams_y = c % 2 ? by : 0,
                                            .max_steps = T,
                                            .parallel = parallel(i)};
            struct br_frb_beams *plan;
            assert_int_equal(br_frb_beams_create(&plan, BR_CPU, &p, NULL), 0);
            br_frb_beams_execute(plan, in, valid, T, out);
            compare(i, first, (uint8_t *)out, F * T * B * sizeof *out);
            br_frb_beams_destroy(plan);
        }
        free(beam), free(in), free(out), free(valid), free(first);
    }
}

/* Several blocks in turn, of which later ones are scaled by what earlier ones say (slow), or by
 * themselves. */
static void test_quantize(void **state)
{
    enum { BLOCKS = 4 };
    (void)state;
    for (int c = 0; c < 12; c++) {
        size_t F = pick(1, 5), B = pick(1, 700), T = 2 * pick(1, 100), bits = c % 2 ? 8 : 4,
               out_bytes = (B * F * T * bits / 8 + 7) / 8 * 8, side_bytes = B * F * 2 * sizeof(float),
               all = BLOCKS * (out_bytes + side_bytes);
        uint16_t *in = malloc(BLOCKS * F * T * B * sizeof *in);
        uint8_t *valid = validity(BLOCKS * F * T, c % 3 == 0 ? 0 : 10), *out = calloc(all, 1),
                *first = malloc(all);
        uint64_t clamped_first = 0;
        for (size_t i = 0; i < BLOCKS * F * T * B; i++) in[i] = br_half_from_float((float)(100 * uniform()));
        for (size_t i = 0; i < RUNS; i++) {
            struct br_quantize_params p = {.nchannels = F,
                                           .nbeams = B,
                                           .block = T,
                                           .bits = (unsigned)bits,
                                           .levels_rms = bits == 8 ? 10 : 2,
                                           .follow = c % 4 < 2 ? 300 : 0,
                                           .parallel = parallel(i)};
            struct br_quantize *plan;
            uint64_t clamped = 0;
            assert_int_equal(br_quantize_create(&plan, BR_CPU, &p, NULL), 0);
            for (size_t block = 0; block < BLOCKS; block++) {
                uint8_t *to = out + block * (out_bytes + side_bytes);
                clamped +=
                    br_quantize_execute(plan, in + block * F * T * B, T, valid ? valid + block * F * T : NULL,
                                        to + side_bytes, (float *)to);
            }
            if (i == 0) clamped_first = clamped;
            assert_true(clamped == clamped_first);
            compare(i, first, out, all);
            br_quantize_destroy(plan);
        }
        free(in), free(valid), free(out), free(first);
    }
}

static void correlate(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct br_correlate_params p = {
            .nchannels = pick(1, 9), .ninputs = pick(1, 40), .autos = round % 3 == 2};
        size_t samples = pick(1, 3000), cells = samples * p.nchannels,
               sums = p.nchannels * br_correlate_baselines(&p) * 2;
        uint8_t *e = bytes(cells * p.ninputs), *valid = validity(cells, pick(0, 1) * 20);
        int32_t *first = malloc(sums * sizeof *first), *now = malloc(sums * sizeof *now);
        for (size_t i = 0; i < RUNS; i++) {
            struct br_correlate *plan;
            p.parallel = parallel(i);
            assert_int_equal(br_correlate_create(&plan, BR_CPU, &p, NULL), 0);
            assert_int_equal(br_correlate_add(plan, samples, e, valid, NULL), 0);
            br_correlate_read(plan, now);
            compare(i, (uint8_t *)first, (const uint8_t *)now, sums * sizeof *now);
            br_correlate_destroy(plan);
        }
        free(e);
        free(valid);
        free(first);
        free(now);
    }
}

static void flags(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct br_flag_params p = {.nchannels = pick(1, 9), .ninputs = pick(1, 70), .block = pick(16, 80)};
        p.nblocks = pick(1, 9);
        p.least_level = -8;
        struct br_flag_rules rules = {2, 2, 1, 70, NULL};
        size_t cells = p.block * p.nblocks * p.nchannels, all = cells * p.ninputs;
        uint8_t *e = bytes(all), *valid = validity(cells, pick(0, 1) * 20), *first = malloc(all + cells),
                *now = malloc(all + cells);
        for (size_t i = 0; i < RUNS; i++) {
            struct br_flag *plan;
            p.parallel = parallel(i);
            assert_int_equal(br_flag_create(&plan, BR_CPU, &p, NULL), 0);
            br_flag_begin(plan, &rules);
            br_flag_add(plan, 0, p.block * p.nblocks, e, valid, now);
            br_flag_end(plan, now, NULL);
            memset(now + all, 0, cells);
            memcpy(now + all, br_flag_wait(plan).reason, p.nblocks * p.nchannels);
            compare(i, first, now, all + cells);
            br_flag_destroy(plan);
        }
        free(e);
        free(valid);
        free(first);
        free(now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags),         cmocka_unit_test(correlate),     cmocka_unit_test(test_upchannelize),
        cmocka_unit_test(test_baseband), cmocka_unit_test(test_frb_grid), cmocka_unit_test(test_frb_beams),
        cmocka_unit_test(test_quantize)};
    seed = 20261123;
    for (size_t i = 0; i < COUNTS; i++) pools[i] = br_pool_create(thread_counts[i], NULL, 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < COUNTS; i++) br_pool_destroy(pools[i]);
    return failed;
}
