/* The filterbank against its equation, on the CPU. */
#include "kernels/upchannelize/upchannelize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/refused.h"
#include "tests/kernels/upchannelize/filterbank.h"

/* In calls of `lengths[i]` blocks, i = 0, 1, ...; the last goes on to the end. */
static struct result run(const struct stream *s, enum br_backend backend, const size_t *lengths)
{
    struct result r = {malloc(outputs(s) * s->X + 1), malloc(outputs(s) + 1), 0};
    struct br_upchannelize *plan = plan_for(s, backend, NULL);
    memset(r.out, 0x11, outputs(s) * s->X + 1);
    memset(r.out_valid, 0x11, outputs(s) + 1);
    for (size_t b = 0, i = 0; b < s->blocks; i++) {
        size_t count = lengths && lengths[i] && lengths[i] < s->blocks - b ? lengths[i] : s->blocks - b;
        r.clamped += br_upchannelize_execute(
            plan, s->e + b * s->U * s->row, s->row, s->valid ? s->valid + b * s->U * s->valid_row : NULL,
            s->valid_row, count * s->U, r.out + b * s->F * s->U * s->X, r.out_valid + b * s->F * s->U);
        b += count;
    }
    assert_int_equal(r.out[outputs(s) * s->X], 0x11);
    assert_int_equal(r.out_valid[outputs(s)], 0x11);
    check_marks(s, &r);
    br_upchannelize_destroy(plan);
    return r;
}

static void check_both(const struct stream *s)
{
    struct result reference = run(s, BR_REFERENCE, NULL), cpu = run(s, BR_CPU, NULL);
    check_equation(s, &reference, 1e-9);
    check_equation(s, &cpu, 1e-4);
    forget(&reference);
    forget(&cpu);
}

static void every_factor(void **state)
{
    (void)state;
    static const size_t taps[] = {4, 1, 3, 2, 7};
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 5; i++) {
            size_t M = taps[i], most = 200000 / (M * U * U) + 1;
            struct stream s = make(pick(1, 3), pick(1, most > 150 ? 150 : most), U, M, M - 1 + pick(1, 3));
            check_both(&s);
            drop(&s);
        }
    struct stream longest = make(1, 2, 128, 32, 33), twos = make(3, 30, 2, 32, 300);
    check_both(&longest);
    check_both(&twos);
    drop(&longest);
    drop(&twos);
}

static void missing_samples(void **state)
{
    (void)state;
    for (size_t U = 2; U <= 64; U *= 2) {
        size_t M = pick(1, 5);
        struct stream s = make(pick(2, 40), pick(1, 5), U, M, 12);
        add_missing(&s, 4 * M * U);
        check_both(&s);
        drop(&s);
    }
}

/* Validity alone decides what is behind an output, however calls are cut and whether or not a call that is
 * whole says so; and what it says does not change a level. */
static void shares_are_means_over_the_window(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        size_t U = (size_t)1 << pick(1, 6), M = pick(1, 5);
        struct stream s = make(pick(1, 3), pick(1, 4), U, M, 60 + M);
        struct result plain = run(&s, BR_CPU, NULL);
        add_stretches(&s);
        struct br_upchannelize *plan = plan_for(&s, BR_CPU, NULL);
        uint8_t *out = malloc(outputs(&s) * s.X), *valid = malloc(outputs(&s));
        for (size_t b = 0, n; b < s.blocks; b += n) {
            n = pick(1, 9) < s.blocks - b ? pick(1, s.blocks - b < 9 ? s.blocks - b : 9) : s.blocks - b;
            const uint8_t *from = s.valid + b * U * s.valid_row;
            bool whole = true;
            for (size_t i = 0; i < n * U * s.valid_row; i++) whole &= from[i] == 255;
            bool unsaid = whole && br_upchannelize_whole(plan);
            if (unsaid) memset(valid + b * s.F * U, 255, n * s.F * U);
            br_upchannelize_execute(plan, s.e + b * U * s.row, s.row, whole ? NULL : from, s.valid_row, n * U,
                                    out + b * s.F * U * s.X, unsaid ? NULL : valid + b * s.F * U);
        }
        for (size_t at = 0; at < outputs(&s); at++) {
            int byte = valid[at];
            if (at % U == 0) check_share(byte, share(&s, at / U / s.F, at / U % s.F));
            assert_int_equal(byte, valid[at - at % U]);
            for (size_t x = 0; x < s.X; x++)
                assert_int_equal(out[at * s.X + x], byte ? plain.out[at * s.X + x] : 0x88);
        }
        br_upchannelize_destroy(plan);
        free(out);
        free(valid);
        forget(&plain);
        drop(&s);
    }
}

static void own_window_and_gain(void **state)
{
    (void)state;
    for (size_t U = 2; U <= 32; U *= 2) {
        struct stream s = make(2, 9, U, 3, 5);
        s.window = malloc(3 * U * sizeof *s.window);
        s.gain = malloc(U * sizeof *s.gain);
        /* scaled far away from 1 and back by the gain */
        for (size_t i = 0; i < 3 * U; i++) s.window[i] = ((double)pick(0, 2000) - 1000) * 1e-3 * 1e-40;
        for (size_t u = 0; u < U; u++)
            s.gain[u] = ((double)pick(0, 2000) - 1000) * 1e-3 / sqrt((double)U) * 1e40;
        check_both(&s);
        drop(&s);
    }
}

static void ties_round_to_even(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct stream s = make(1, 8, 2, 1, 1);
        static const int in[8] = {1, 3, 5, 7, -1, -3, -5, -8}, halves[8] = {0, 2, 2, 4, 0, -2, -2, -4};
        s.window = calloc(2, sizeof *s.window);
        s.gain = calloc(2, sizeof *s.gain);
        s.window[0] = 1;
        s.gain[0] = 0.5;
        s.gain[1] = -2.5; /* 2.5, 7.5, 12.5 ... */
        static const int others[8] = {-2, -7, -7, -7, 2, 7, 7, 7};
        for (size_t x = 0; x < 8; x++) s.e[x] = (uint8_t)(in[x] & 15);
        struct result r = run(&s, (enum br_backend)backend, NULL);
        for (size_t x = 0; x < 8; x++) {
            assert_int_equal(part(r.out[x], 0), halves[x]);
            assert_int_equal(part(r.out[8 + x], 0), others[x]);
            assert_int_equal(r.out[x] >> 4 | r.out[8 + x] >> 4, 0);
        }
        assert_int_equal(r.clamped, 6); /* 7.5 rounds to 8 */
        forget(&r);
        drop(&s);
    }
}

static void call_lengths_change_nothing(void **state)
{
    (void)state;
    for (int round = 0; round < 24; round++) {
        size_t U = (size_t)1 << pick(0, 5), lengths[64];
        struct stream s = make(pick(1, 4), pick(1, 80), U, pick(1, 6), 1200 / U / (round % 3 + 1) + 7);
        if (round % 2) add_missing(&s, 300);
        for (size_t i = 0; i < 64; i++) lengths[i] = pick(1, 1 + 400 / U / (i % 7 + 1));
        struct result whole = run(&s, BR_CPU, NULL), pieces = run(&s, BR_CPU, lengths);
        assert_same(&s, &whole, &pieces);
        forget(&whole);
        forget(&pieces);
        if (s.F * s.X < 40 && s.M * U < 60) {
            whole = run(&s, BR_REFERENCE, NULL);
            pieces = run(&s, BR_REFERENCE, lengths);
            assert_same(&s, &whole, &pieces);
            forget(&whole);
            forget(&pieces);
        }
        drop(&s);
    }
}

/* A plan for channels 2 and 3 of five, as a zone of a wider row has it. */
static void part_of_a_row(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++)
        for (size_t U = 1; U <= 16; U *= 4) {
            size_t X = 21;
            struct stream zone = make(2, X, U, 4, 9);
            add_missing(&zone, 60);
            struct stream wide = make_wide(&zone, 5 * X + 3, 0);
            static const size_t lengths[] = {1, 2, 3, 0};
            struct result alone = run(&zone, (enum br_backend)backend, NULL);
            struct result within = run(&wide, (enum br_backend)backend, lengths);
            assert_same(&zone, &alone, &within);
            forget(&alone);
            forget(&within);
            drop_wide(&wide);
            drop(&zone);
        }
}

static void one_missing_sample(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        size_t U = 8, M = 4, F = 3, X = 10, hole = 5 * U + 3, channel = 1;
        struct stream s = make(F, X, U, M, 14);
        struct result before = run(&s, (enum br_backend)backend, NULL);
        s.valid = malloc(s.blocks * U * F);
        memset(s.valid, 255, s.blocks * U * F);
        s.valid[hole * F + channel] = 0;
        memset(s.e + hole * s.row + channel * X, 0x77, X); /* what is in a hole must not matter */
        struct result after = run(&s, (enum br_backend)backend, NULL);
        for (size_t b = 0; b < s.blocks; b++)
            for (size_t fu = 0; fu < F * U; fu++) {
                size_t at = b * F * U + fu;
                int missing = b < M - 1 || (fu / U == channel && b >= 5 && b < 5 + M);
                assert_int_equal(after.out_valid[at], missing ? 0 : 255);
                for (size_t x = 0; x < X; x++)
                    assert_int_equal(after.out[at * X + x], missing ? 0x88 : before.out[at * X + x]);
            }
        forget(&before);
        forget(&after);
        drop(&s);
    }
}

static void reset_starts_a_stream(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct stream s = make(2, 12, 4, 3, 10);
        struct result fresh = run(&s, (enum br_backend)backend, NULL);
        struct br_upchannelize *plan = plan_for(&s, (enum br_backend)backend, NULL);
        struct result again = {malloc(outputs(&s) * s.X), malloc(outputs(&s)), 0};
        for (int i = 0; i < 2; i++) {
            again.clamped =
                br_upchannelize_execute(plan, s.e, s.row, NULL, 0, 40, again.out, again.out_valid);
            if (i == 0) br_upchannelize_reset_at(plan, 0);
        }
        assert_same(&s, &fresh, &again);
        /* without a reset the third stream has the second's end for a history */
        br_upchannelize_execute(plan, s.e, s.row, NULL, 0, 40, again.out, again.out_valid);
        for (size_t i = 0; i < outputs(&s); i++) assert_int_equal(again.out_valid[i], 255);
        assert_int_equal(br_upchannelize_execute(plan, s.e, s.row, NULL, 0, 0, again.out, again.out_valid),
                         0);
        br_upchannelize_destroy(plan);
        forget(&fresh);
        forget(&again);
        drop(&s);
    }
}

static void factor_one_copies(void **state)
{
    (void)state;
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct stream s = make_to_copy();
        struct result r = run(&s, (enum br_backend)backend, NULL);
        check_copied(&s, &r);
        forget(&r);
        drop(&s);
    }
}

/* A tone at (u - (U-1)/2)/U coarse widths comes out in fine channel u, and next to nothing elsewhere. */
static void tones_land_in_their_channel(void **state)
{
    (void)state;
    for (size_t U = 2; U <= 64; U *= 4)
        for (size_t u = 0; u < U; u += (U + 7) / 8) {
            struct stream s = make(1, 1, U, 4, 6);
            for (size_t t = 0; t < 6 * U; t++) {
                double phase =
                    2 * 3.14159265358979323846 * ((double)u - ((double)U - 1) / 2) / (double)U * (double)t;
                int re = (int)lrint(5 * cos(phase)), im = (int)lrint(5 * sin(phase));
                s.e[t] = (uint8_t)((re & 15) | (im & 15) << 4);
            }
            s.gain = malloc(U * sizeof *s.gain);
            for (size_t i = 0; i < U; i++) s.gain[i] = 1.2;
            struct result r = run(&s, BR_CPU, NULL);
            for (size_t i = 0; i < U; i++) {
                unsigned out = r.out[5 * U + i];
                int power = part(out, 0) * part(out, 0) + part(out, 1) * part(out, 1);
                if (i == u) assert_true(power >= 20);
                if (i + 1 < u || i > u + 1) assert_true(power <= 2);
            }
            forget(&r);
            drop(&s);
        }
}

/* In fine channels and between them. */
static void tones_match_the_analytic_response(void **state)
{
    (void)state;
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 8; i++) {
            double at = i % 2 ? (double)pick(0, U - 2) + 0.5 : (double)pick(0, U - 1);
            struct stream s = make(1, 64, U, 4, 5);
            make_tone(&s, at);
            s.gain = malloc(U * sizeof *s.gain);
            for (size_t u = 0; u < U; u++) s.gain[u] = 1;
            struct result r = run(&s, BR_CPU, NULL);
            check_tone(&s, &r, at);
            forget(&r);
            drop(&s);
        }
}

/* Without bytes of validity, which are all 255 once `whole` says so. */
static void validity_is_not_wanted(void **state)
{
    (void)state;
    struct stream s = make(2, 12, 4, 3, 10);
    struct br_upchannelize *plan = plan_for(&s, BR_CPU, NULL);
    uint8_t *out = malloc(outputs(&s) * s.X), *again = malloc(outputs(&s) * s.X),
            *valid = malloc(outputs(&s));
    assert_false(br_upchannelize_whole(plan));
    br_upchannelize_execute(plan, s.e, s.row, NULL, 0, 40, out, NULL);
    assert_true(br_upchannelize_whole(plan));
    br_upchannelize_execute(plan, s.e, s.row, NULL, 0, 40, out, NULL);
    const struct br_upchannelize_call call = {plan, s.e, s.row, NULL, 0, 40, again, valid};
    br_upchannelize_execute_all(&call, 1);
    assert_memory_equal(out, again, outputs(&s) * s.X);
    for (size_t i = 0; i < outputs(&s); i++) assert_int_equal(valid[i], 255);
    br_upchannelize_reset_at(plan, 0);
    assert_false(br_upchannelize_whole(plan));
    br_upchannelize_destroy(plan);
    free(out);
    free(again);
    free(valid);
    drop(&s);
}

static void default_window(void **state)
{
    (void)state;
    for (size_t U = 1; U <= 128; U *= 4)
        for (size_t M = 1; M <= 5; M++) {
            double w[5 * 128], power = 0;
            br_upchannelize_window(w, (unsigned)U, (unsigned)M);
            for (size_t s = 0; s < M * U; s++) {
                assert_true(fabs(w[s] - w[M * U - 1 - s]) < 1e-15);
                assert_true(w[s] * (double)U <= 1);
                power += w[s] * w[s] * (double)U;
            }
            /* white noise loses about a fifth of its power: 0.8 of rms^2, given back by no gain */
            if (M == 4 && U >= 4) assert_true(power > 0.75 && power < 0.9);
        }
}

static void refuse(struct br_upchannelize_params params, const char *text)
{
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct br_upchannelize *plan;
        struct br_why why = {""};
        int status = br_upchannelize_create(&plan, (enum br_backend)backend, &params, &why);
        assert_refused(status, plan, &why, text);
        assert_int_equal(br_upchannelize_create(&plan, (enum br_backend)backend, &params, NULL), -1);
    }
}

static void bad_parameters(void **state)
{
    (void)state;
    double window[16], gain[4] = {1, 1, 1, 1};
    for (int i = 0; i < 16; i++) window[i] = 0.25;
    const struct br_upchannelize_params good = {
        .nchannels = 2, .nspectators = 3, .factor = 4, .taps = 4, .window = window, .gain = gain};
    struct br_upchannelize_params bad = good;
    bad.factor = 12;
    refuse(bad, "factor 12");
    bad.factor = 256;
    refuse(bad, "factor 256");
    bad.factor = 0;
    refuse(bad, "factor 0");
    bad = good;
    bad.taps = 0;
    refuse(bad, "0 taps");
    bad.taps = 33;
    refuse(bad, "33 taps");
    bad = good;
    bad.nchannels = 0;
    refuse(bad, "at least 1");
    bad = good;
    bad.nspectators = SIZE_MAX / 2;
    refuse(bad, "memory");
    bad = good;
    window[7] = NAN;
    refuse(bad, "window[7]");
    window[7] = 0.25;
    gain[2] = INFINITY;
    refuse(bad, "gain[2]");
    gain[2] = 1e12;
    refuse(bad, "gain[2]");
    br_upchannelize_destroy(NULL);
}

int main(void)
{
    seed = 314;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_factor),
        cmocka_unit_test(missing_samples),
        cmocka_unit_test(shares_are_means_over_the_window),
        cmocka_unit_test(own_window_and_gain),
        cmocka_unit_test(ties_round_to_even),
        cmocka_unit_test(call_lengths_change_nothing),
        cmocka_unit_test(part_of_a_row),
        cmocka_unit_test(one_missing_sample),
        cmocka_unit_test(reset_starts_a_stream),
        cmocka_unit_test(factor_one_copies),
        cmocka_unit_test(tones_land_in_their_channel),
        cmocka_unit_test(tones_match_the_analytic_response),
        cmocka_unit_test(validity_is_not_wanted),
        cmocka_unit_test(default_window),
        cmocka_unit_test(bad_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
