/* The filterbank on a GPU against its equation, and against the CPU's on larger streams. */
#include "kernels/common/cuda.h"
#include "kernels/upchannelize/upchannelize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/refused.h"

static void without_a_device(void **state)
{
    (void)state;
    const struct br_upchannelize_params params = {.nchannels = 1, .nspectators = 1, .factor = 4, .taps = 4};
    struct br_upchannelize *plan;
    struct br_why why;
    int status = br_upchannelize_create(&plan, BR_CUDA, &params, &why);
    assert_refused_without_device(status, plan, &why);
}

#if BR_WITH_CUDA
#include "tests/kernels/upchannelize/filterbank_gpu.h"

/* Every kernel, with rows that fill whole words and rows that do not. */
static void every_factor(void **state)
{
    NEEDS_GPU();
    static const size_t taps[] = {4, 1, 3, 2, 5, 7};
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 6; i++) {
            size_t M = taps[i], most = 60000 / (M * U * U) + 1, X = pick(1, most > 150 ? 150 : most);
            if (i % 2 == 0) X = (X + 3) / 4 * 4;
            struct stream s = make(pick(1, 3), X, U, M, M - 1 + pick(1, 4));
            check(&s, i % 3 == 2, i % 4 == 3);
            drop(&s);
        }
}

/* The tensor cores' kernels, those for this device and those for any: every number of taps, with data that
 * stand well and badly. */
static void every_factor_on_tensor_cores(void **state)
{
    NEEDS_GPU();
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t M = 1; M <= (U <= 16 ? 8 : 4); M++) {
            size_t most = 30 / U + 1;
            struct stream s =
                make_noise(M % 3 + 1, M == 4 ? 192 : 64, U, M, M - 1 + pick(most, 2 * most + 1));
            for (int portable = 0; portable < 2; portable++) {
                s.portable = portable;
                check(&s, M % 2 ? 0 : pick(1, 8), M % 4 == 3 ? pick(1, 15) : 0);
            }
            drop(&s);
        }
}

/* Gains of either sign, some of them 0, so that pairs of fine channels do not share one. */
static void own_gain_on_tensor_cores(void **state)
{
    NEEDS_GPU();
    for (size_t U = 2; U <= 128; U *= 2) {
        struct stream s = make_noise(2, 64, U, 4, 3 + 60 / U + 1);
        s.gain = malloc(U * sizeof *s.gain);
        for (size_t u = 0; u < U; u++)
            s.gain[u] =
                u % 5 == 4 ? 0 : (pick(0, 1) ? 1 : -1) * (double)pick(200, 1200) * 1e-3 * sqrt((double)U);
        check(&s, 0, 0);
        drop(&s);
    }
}

/* One whose second half is not the first one's in reverse: no taps are had from those of other times. */
static void own_window_on_tensor_cores(void **state)
{
    NEEDS_GPU();
    for (size_t U = 8; U <= 128; U *= 2) {
        struct stream s = make_noise(1, 64, U, 4, 8);
        s.window = malloc(4 * U * sizeof *s.window);
        br_upchannelize_window(s.window, (unsigned)U, 4);
        for (size_t i = 0; i < 4 * U; i++) s.window[i] *= 0.75 + 0.5 * (double)i / (4.0 * (double)U);
        check(&s, 0, 0);
        drop(&s);
    }
}

static void tones_match_the_analytic_response(void **state)
{
    NEEDS_GPU();
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 16; i++) {
            double at = i % 2 ? (double)pick(0, U - 2) + 0.5 : (double)pick(0, U - 1);
            struct stream s = make(1, 64, U, 4, 5);
            make_tone(&s, at);
            s.portable = i & 2;
            s.gain = malloc(U * sizeof *s.gain);
            for (size_t u = 0; u < U; u++) s.gain[u] = 1;
            struct result r = run_at(&s, NULL, 0, 0);
            check_tone(&s, &r, at);
            forget(&r);
            drop(&s);
        }
}

static void many_taps(void **state)
{
    NEEDS_GPU();
    for (size_t U = 2; U <= 128; U *= 2) {
        struct stream s = make(1, U < 32 ? 9 : 2, U, U < 32 ? pick(8, 32) : 32, 33);
        check(&s, 0, 0);
        drop(&s);
    }
}

static void missing_samples(void **state)
{
    NEEDS_GPU();
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 2; i++) {
            size_t M = pick(1, 5), most = U > 32 ? 2 : 8;
            struct stream s = make(pick(2, most), i ? 4 * pick(1, 2) : pick(1, 7), U, M, 12);
            add_missing(&s, 4 * M * U);
            check(&s, 0, 0);
            drop(&s);
            s = make_noise(2, 64, U, M > 4 ? 4 : M, 7);
            s.portable = i;
            add_missing(&s, 4 * M * U);
            check(&s, 0, 0);
            drop(&s);
        }
}

/* Scaled far away from 1 and back by the gain; and so strong that nearly all is clamped. */
static void own_window_and_gain(void **state)
{
    NEEDS_GPU();
    for (size_t U = 2; U <= 64; U *= 2)
        for (int strong = 0; strong < 2; strong++) {
            struct stream s = make(2, 9, U, 3, 5);
            s.window = malloc(3 * U * sizeof *s.window);
            s.gain = malloc(U * sizeof *s.gain);
            for (size_t i = 0; i < 3 * U; i++) s.window[i] = ((double)pick(0, 2000) - 1000) * 1e-3 * 1e-40;
            for (size_t u = 0; u < U; u++)
                s.gain[u] = strong ? (u % 2 ? 1e45 : -3e43)
                                   : ((double)pick(0, 2000) - 1000) * 1e-3 / sqrt((double)U) * 1e40;
            /* float32's error grows with the gain: nothing is asked of what is not clamped then but to be
             * near */
            struct result r = run_at(&s, NULL, 0, 0);
            check_equation(&s, &r, strong ? 1e6 : 1e-4);
            if (strong) assert_true(r.clamped > outputs(&s) * s.X / 2);
            forget(&r);
            drop(&s);
        }
}

static void ties_round_to_even(void **state)
{
    NEEDS_GPU();
    for (int strong = 0; strong < 2; strong++) {
        struct stream s = make(1, 8, 2, 1, 1);
        static const int in[8] = {1, 3, 5, 7, -1, -3, -5, -8}, halves[8] = {0, 2, 2, 4, 0, -2, -2, -4};
        static const int others[8] = {-2, -7, -7, -7, 2, 7, 7, 7};
        memset(s.e, 0, 16);
        s.window = calloc(2, sizeof *s.window);
        s.gain = calloc(2, sizeof *s.gain);
        s.window[0] = 1;
        s.gain[0] = 0.5;
        s.gain[1] = strong ? -2.5 * 1024 : -2.5; /* 2.5, 7.5, 12.5 ... */
        for (size_t x = 0; x < 8; x++) s.e[x] = (uint8_t)(in[x] & 15);
        struct result r = run_at(&s, NULL, 0, 0);
        for (size_t x = 0; x < 8; x++) {
            assert_int_equal(part(r.out[x], 0), halves[x]);
            assert_int_equal(part(r.out[8 + x], 0), strong ? (in[x] > 0 ? -7 : 7) : others[x]);
            assert_int_equal(r.out[x] >> 4 | r.out[8 + x] >> 4, 0);
        }
        assert_int_equal(r.clamped, strong ? 8 : 6); /* 7.5 rounds to 8 */
        forget(&r);
        drop(&s);
    }
}

/* Larger streams, many thread blocks along both axes: nearly always the CPU's level, never off by more than
 * one. */
static void like_the_cpu(void **state)
{
    NEEDS_GPU();
    for (int round = 0; round < 21; round++) {
        size_t U = (size_t)2 << round % 7, M = round < 14 ? 4 : pick(1, 12), F = pick(1, 9),
               X = 32 * pick(1, 8);
        if (round % 4 == 3) X = pick(1, 200);
        struct stream s = make(F, X, U, M, 1500000 / (U * F * X) + M + 3);
        if (round % 2) add_missing(&s, 3000);
        s.portable = round >= 14;
        struct result r = run_at(&s, NULL, 0, 0), c = {malloc(outputs(&s) * X), malloc(outputs(&s)), 0};
        struct br_upchannelize *plan = plan_for(&s, BR_CPU, NULL);
        c.clamped =
            br_upchannelize_execute(plan, s.e, s.row, s.valid, s.valid_row, s.blocks * U, c.out, c.out_valid);
        assert_memory_equal(r.out_valid, c.out_valid, outputs(&s));
        size_t other = 0, components = 2 * outputs(&s) * X;
        for (size_t i = 0; i < outputs(&s) * X; i++)
            for (int k = 0; k < 2; k++) {
                int difference = part(r.out[i], k) - part(c.out[i], k);
                if (abs(difference) > 1)
                    fail_msg("U=%zu M=%zu X=%zu: sample %zu is %d levels off", U, M, X, i, difference);
                other += difference != 0;
            }
        if (other > (float16(&s) ? components / 200 : components / 10000))
            fail_msg("U=%zu M=%zu X=%zu: %zu of %zu differ", U, M, X, other, components);
        double more = (double)r.clamped - (double)c.clamped;
        assert_true(fabs(more) <= (double)components * (float16(&s) ? 1e-3 : 1e-4));
        br_upchannelize_destroy(plan);
        forget(&r);
        forget(&c);
        drop(&s);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    seed = 314;
    const struct CMUnitTest small[] = {
        cmocka_unit_test(every_factor),
        cmocka_unit_test(every_factor_on_tensor_cores),
        cmocka_unit_test(own_gain_on_tensor_cores),
        cmocka_unit_test(own_window_on_tensor_cores),
        cmocka_unit_test(tones_match_the_analytic_response),
        cmocka_unit_test(many_taps),
        cmocka_unit_test(missing_samples),
        cmocka_unit_test(own_window_and_gain),
        cmocka_unit_test(ties_round_to_even),
    };
    const struct CMUnitTest more[] = {cmocka_unit_test(like_the_cpu)};
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
#endif
    return failed;
}
