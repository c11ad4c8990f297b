/* calibrate: inputs that do not fit are flagged, with a gain of 0, and never a number that is none. What
 * gains should be is checked in NumPy (tests/oracle/calibrate.py). */
#include "tests/kernels/calibrate/calibrate_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct calibrate_case pathfinder = {"pathfinder", 64, 0.1, 20000, 0, false};

static void run(struct calibrate_run *r)
{
    struct br_why why = {""};
    assert_int_equal(br_calibrate(&r->p, r->sum, r->samples, &r->result, &why), 0);
    for (size_t i = 0; i < r->p.ninputs; i++) {
        double size = hypot(r->result.gain[2 * i], r->result.gain[2 * i + 1]);
        assert_true(isfinite(size) && isfinite(r->result.gain_snr[i]) && isfinite(r->result.misfit[i]));
        assert_true((size > 0) == (r->result.flag[i] == BR_GAIN_GOOD));
        assert_true((r->result.gain_snr[i] > 0) == (r->result.flag[i] == BR_GAIN_GOOD));
    }
    assert_true(r->result.solved == (r->result.ngood > 0));
    assert_true(r->result.solved == (r->result.why.text[0] == '\0'));
}

static void set_pair(struct calibrate_run *r, size_t i, size_t j, double re, double im)
{
    size_t k = br_calibrate_pair(r->p.ninputs, i < j ? i : j, i < j ? j : i);
    r->sum[2 * k] = re;
    r->sum[2 * k + 1] = im;
}

/* An input that is dead, one that sees noise alone, one with another signal in it, one without samples. */
static void test_flags(void **state)
{
    struct calibrate_run r;
    uint64_t seed = 4;
    (void)state;
    calibrate_make(&r, &pathfinder);
    r.p.reference = 3;
    for (size_t j = 0; j < 64; j++) {
        set_pair(&r, 3, j, 0, 0);
        if (j != 7) {
            double norm = sqrt(20000.0 / 2) * hypot(r.truth[14], r.truth[15]);
            norm *= hypot(r.truth[2 * j], r.truth[2 * j + 1]);
            set_pair(&r, 7, j, norm * calibrate_normal(&seed), norm * calibrate_normal(&seed));
        }
        if (j != 20 && j % 2 == 0) {
            size_t k = br_calibrate_pair(64, j < 20 ? j : 20, j < 20 ? 20 : j);
            r.sum[2 * k] *= 1.5;
            r.sum[2 * k + 1] *= -1;
        }
        r.samples[br_calibrate_pair(64, j < 40 ? j : 40, j < 40 ? 40 : j)] = 0;
    }
    run(&r);
    assert_true(r.result.solved);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(r.result.flag[i], i == 3 || i == 40 ? BR_GAIN_DEAD
                                           : i == 7          ? BR_GAIN_WEAK
                                           : i == 20         ? BR_GAIN_MISFIT
                                                             : BR_GAIN_GOOD);
    assert_int_equal(r.result.ngood, 60);
    assert_int_equal(r.result.reference, 0); /* 3 is dead: the first that is not */
    assert_true(r.result.gain[0] > 0 && r.result.gain[1] == 0);
    assert_true(fabs(r.result.residual - 1) < 0.1);
    calibrate_free(&r);
}

/* Scales an input's field, and so its power. */
static void weaken(struct calibrate_run *r, size_t i, double factor)
{
    for (size_t j = 0; j < r->p.ninputs; j++) {
        size_t k = br_calibrate_pair(r->p.ninputs, i < j ? i : j, i < j ? j : i);
        for (int c = 0; c < 2; c++) r->sum[2 * k + (size_t)c] *= i == j ? factor * factor : factor;
    }
}

/* Next to no power and no source in it: dead, not weak. With the source in it, it is as good as others. */
static void test_no_power(void **state)
{
    struct calibrate_run r;
    (void)state;
    calibrate_make(&r, &pathfinder);
    for (size_t j = 0; j < 64; j++)
        for (size_t i = 10; i < 13; i++)
            if (i != j) set_pair(&r, i, j, 0, 0);
    weaken(&r, 10, 0.1);
    weaken(&r, 11, 0.5);
    weaken(&r, 20, 0.1);
    run(&r);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(r.result.flag[i], i == 10              ? BR_GAIN_DEAD
                                           : i == 11 || i == 12 ? BR_GAIN_WEAK
                                                                : BR_GAIN_GOOD);
    calibrate_free(&r);
}

static void expect_unsolved(struct calibrate_run *r, const char *words)
{
    run(r);
    assert_false(r->result.solved);
    if (strstr(r->result.why.text, words) == NULL) fail_msg("%s", r->result.why.text);
    for (size_t i = 0; i < r->p.ninputs; i++) assert_true(r->result.flag[i] != BR_GAIN_GOOD);
    calibrate_free(r);
}

static void test_unsolved(void **state)
{
    struct calibrate_run r;
    (void)state;
    for (uint64_t more = 0; more < 20; more++) { /* noise alone is not a source, whatever the seed */
        struct calibrate_case noise = {"noise", 30 + more, 0, 1000, 0, false};
        calibrate_make(&r, &noise);
        expect_unsolved(&r, "the "); /* too weak, or no convergence */
    }
    calibrate_make(&r, &pathfinder);
    memset(r.sum, 0, 2 * r.pairs * sizeof *r.sum);
    expect_unsolved(&r, "0 of 64 inputs");
    calibrate_make(&r, &pathfinder);
    memset(r.samples, 0, r.pairs * sizeof *r.samples);
    expect_unsolved(&r, "0 of 64 inputs");
    struct calibrate_case one = {"one", 1, 1, 1000, 0, false}, three = {"three", 3, 1, 1000, 0, false};
    calibrate_make(&r, &one);
    expect_unsolved(&r, "1 of 1 inputs");
    calibrate_make(&r, &three);
    expect_unsolved(&r, "a fit needs 4");
    calibrate_make(&r, &pathfinder); /* no crosscorrelations */
    for (size_t i = 0; i < 64; i++)
        for (size_t j = i + 1; j < 64; j++) r.samples[br_calibrate_pair(64, i, j)] = 0;
    expect_unsolved(&r, "does not converge");
}

/* Numbers that are none, and those at the end of the range. */
static void test_senseless(void **state)
{
    struct calibrate_run r;
    (void)state;
    const double values[] = {NAN, INFINITY, -INFINITY, -1, 1e300, -1e300};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        calibrate_make(&r, &pathfinder);
        for (size_t k = v; k < 2 * r.pairs; k += 97) r.sum[k] = values[v];
        run(&r);
        calibrate_free(&r);
        calibrate_make(&r, &pathfinder);
        for (size_t k = 0; k < 2 * r.pairs; k++) r.sum[k] = values[v];
        run(&r);
        calibrate_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_flags), cmocka_unit_test(test_no_power),
                                       cmocka_unit_test(test_unsolved), cmocka_unit_test(test_senseless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
