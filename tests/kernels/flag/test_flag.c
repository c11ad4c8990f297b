/* The flagger's fast loops against its definition, how often noise is flagged, and what it finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/common/refused.h"
#include "tests/kernels/flag/flag_run.h"

static void run(const struct flag_case *c, enum br_backend backend, struct flag_run *r)
{
    struct br_why why = {""};
    flag_make(r, c);
    if (flag_run(r, c, backend, &why) != 0) fail_msg("%s: %s", c->name, why.text);
}

/* Decisions in float32 and in float64: none of these cases has one that is closer to its threshold than
 * rounding. */
static void the_same_as_the_reference(void **state)
{
    (void)state;
    unsigned kinds = 0, inputs[2] = {0, 0};
    for (size_t i = 0; i < FLAG_CASES; i++) {
        const struct flag_case *c = &flag_cases[i];
        struct flag_run a, b;
        run(c, BR_REFERENCE, &a);
        run(c, BR_CPU, &b);
        size_t all = c->nblocks * c->channels, N = c->inputs;
        if (memcmp(a.s0, b.s0, all * sizeof *a.s0) != 0) fail_msg("%s: S0", c->name);
        if (memcmp(a.sums, b.sums, all * 2 * N * sizeof *a.sums) != 0) fail_msg("%s: sums", c->name);
        if (memcmp(a.lost, b.lost, all * N * sizeof *a.lost) != 0) fail_msg("%s: lost", c->name);
        if (memcmp(a.reason, b.reason, all) != 0) fail_msg("%s: flagged samples", c->name);
        if (memcmp(a.used, b.used, c->channels * sizeof *a.used) != 0) fail_msg("%s: used", c->name);
        if (memcmp(a.input, b.input, 2 * N * sizeof *a.input) != 0) fail_msg("%s: inputs", c->name);
        if (memcmp(a.out, b.out, flag_cells(&a) * N) != 0) fail_msg("%s: E", c->name);
        assert_int_equal(a.expected, b.expected);
        for (size_t k = 0; a.sk && k < a.rows * c->channels * N; k++)
            if (isnan(a.sk[k]) != isnan(b.sk[k]) || fabsf(a.sk[k] - b.sk[k]) > 1e-5f * (1 + fabsf(a.sk[k])))
                fail_msg("%s: SK %g, %g", c->name, (double)a.sk[k], (double)b.sk[k]);
        for (size_t k = 0; k < all; k++) kinds |= 1u << a.reason[k];
        for (size_t n = 0; n < 2 * N; n++) inputs[n / N] += a.input[n];
        flag_free(&a);
        flag_free(&b);
    }
    assert_int_equal(kinds, 15); /* every reason occurs */
    if (inputs[0] < 3 || inputs[1] < 20) fail_msg("%u and %u inputs are flagged", inputs[0], inputs[1]);
}

/* The same samples in one piece and in many, whole blocks and not. */
static void pieces_change_nothing(void **state)
{
    (void)state;
    struct flag_case whole = flag_cases[1];
    struct flag_run a;
    whole.calls = 1;
    run(&whole, BR_CPU, &a);
    for (size_t calls = 2; calls < 40; calls += 9) {
        struct flag_case cut = whole;
        struct flag_run b;
        cut.calls = calls;
        run(&cut, BR_CPU, &b);
        size_t all = cut.nblocks * cut.channels;
        assert_memory_equal(a.sums, b.sums, all * 2 * cut.inputs * sizeof *a.sums);
        assert_memory_equal(a.reason, b.reason, all);
        assert_memory_equal(a.out, b.out, flag_cells(&a) * cut.inputs);
        assert_memory_equal(a.sk, b.sk, a.rows * cut.channels * cut.inputs * sizeof *a.sk);
        flag_free(&b);
    }
    flag_free(&a);
}

/* --- false alarms --- */

enum { BLOCK = 256, NBLOCKS = 32, CHANNELS = 100, INPUTS = 32 };

/* The share `flagged` of `of` decisions about noise is that of the normal distribution beyond s sigma. */
static void expect_tail(const char *what, double power, unsigned present, double s, double flagged, double of)
{
    double tail = erfc(s / M_SQRT2), error = sqrt(tail * (1 - tail) / of);
    if (fabs(flagged / of - tail) > 3 * error)
        fail_msg("%s, power %g, %u %% present: %g of %g beyond %g sigma, expected %g +- %g", what, power,
                 present, flagged, of, s, tail * of, error * of);
}

/* Counts what is flagged of a long block of noise: blocks, inputs, and blocks that are judged. */
static void count_alarms(struct br_flag *plan, const uint8_t *e, const uint8_t *valid, uint8_t *out,
                         struct br_flag_rules rules, double flagged[3])
{
    br_flag_begin(plan, &rules);
    br_flag_add(plan, 0, (size_t)BLOCK * NBLOCKS, e, valid, out);
    br_flag_end(plan, out, NULL);
    struct br_flag_result result = br_flag_wait(plan);
    for (size_t k = 0; k < (size_t)NBLOCKS * CHANNELS; k++) {
        assert_int_not_equal(result.reason[k], BR_FLAG_POWER);
        flagged[0] += result.reason[k] == BR_FLAG_KURTOSIS;
        flagged[2] += result.reason[k] != BR_FLAG_FEW;
    }
    for (size_t n = 0; n < INPUTS; n++) {
        assert_int_equal(result.input[INPUTS + n], 0);
        flagged[1] += result.input[n];
    }
}

static void noise_is_flagged_as_often_as_a_normal_deviate(void **state)
{
    (void)state;
    static const double sigmas[] = {0.95, 1.55, 2.2, 3.15, 4.2, 7.5}; /* mean powers of 2 to 50 */
    static const unsigned shares[] = {100, 40, 14}; /* of 10 %, half of the blocks have too few to tell */
    struct br_flag_params p = {CHANNELS, INPUTS, BLOCK, NBLOCKS, -8, NULL, {0}};
    struct br_flag *plan;
    uint64_t seed = 5;
    size_t cells = (size_t)BLOCK * NBLOCKS * CHANNELS;
    uint8_t *e = malloc(cells * INPUTS), *out = malloc(cells * INPUTS), *valid = malloc(cells);
    assert_int_equal(br_flag_create(&plan, BR_CPU, &p, NULL), 0);
    for (size_t i = 0; i < sizeof sigmas / sizeof *sigmas; i++) {
        flag_noise(e, cells * INPUTS, sigmas[i], false, &seed);
        double power = 0;
        for (size_t k = 0; k < 10000; k++) {
            int re = ((e[k] & 15) ^ 8) - 8, im = (e[k] >> 4 ^ 8) - 8;
            power += (re * re + im * im) / 1e4;
        }
        for (size_t j = 0; j < sizeof shares / sizeof *shares; j++) {
            for (size_t k = 0; k < cells; k++) valid[k] = dump_random(&seed) % 100 < shares[j] ? 255 : 0;
            for (int s = 2; s < 4; s++) {
                double blocks[3] = {0, 0, 0}, inputs[3] = {0, 0, 0};
                count_alarms(plan, e, valid, out, (struct br_flag_rules){(float)s, 50, 1, 76, NULL}, blocks);
                count_alarms(plan, e, valid, out, (struct br_flag_rules){50, (float)s, 1, 76, NULL}, inputs);
                expect_tail("blocks", power, shares[j], s, blocks[0], blocks[2]);
                expect_tail("inputs", power, shares[j], s, inputs[1], (double)INPUTS * CHANNELS);
            }
        }
    }
    br_flag_destroy(plan);
    free(e);
    free(out);
    free(valid);
}

/* --- what is found --- */

/* A carrier that is on for a tenth of the time, with twice the power of the noise (3 dB) while it is: pulses
 * of 25 in 250 samples. */
static void pulse(uint8_t *e, size_t t, double sigma)
{
    if (t % 250 >= 25) return;
    int re = (int)lround(((e[0] & 15) ^ 8) - 8 + 2 * sigma * cos(0.7 * (double)t + 3)),
        im = (int)lround((e[0] >> 4 ^ 8) - 8 + 2 * sigma * sin(0.7 * (double)t + 3));
    e[0] = flag_byte(re, im);
}

/* In all inputs, block by block; and in one input, by long blocks. `lost`: per cent of the packets. */
static void find_carrier(unsigned lost)
{
    enum { F = 40 };
    const struct flag_case c = {.channels = F, .inputs = INPUTS, .packet = {16, 8, lost}};
    struct br_flag_params p = {F, INPUTS, BLOCK, NBLOCKS, -8, NULL, {0}};
    struct br_flag_rules rules = {5, 5, 2, 50, NULL};
    struct br_flag *plan;
    uint64_t seed = 7;
    const double sigma = 2;
    size_t samples = (size_t)BLOCK * NBLOCKS, cells = samples * F, found = 0;
    uint8_t *e = malloc(cells * INPUTS), *out = malloc(cells * INPUTS), *valid = malloc(cells);
    assert_int_equal(br_flag_create(&plan, BR_CPU, &p, NULL), 0);
    flag_noise(e, cells * INPUTS, sigma, false, &seed);
    for (size_t t = 0; t < samples; t++)
        for (size_t k = 0; k < (size_t)F * INPUTS; k++) pulse(e + t * F * INPUTS + k, t, sigma);
    memset(valid, 255, cells);
    flag_lose(&c, samples, e, valid, &seed);
    br_flag_begin(plan, &rules);
    br_flag_add(plan, 0, samples, e, valid, out);
    br_flag_end(plan, out, NULL);
    struct br_flag_result result = br_flag_wait(plan);
    for (size_t k = 0; k < (size_t)NBLOCKS * F; k++) found += result.reason[k] == BR_FLAG_KURTOSIS;
    assert_true((double)found >= 0.99 * NBLOCKS * F);

    flag_noise(e, cells * INPUTS, sigma, false, &seed);
    for (size_t t = 0; t < samples; t++)
        for (size_t f = 0; f < F; f++) /* input 3, which has weight 0 then: 30 more have not */
            pulse(e + (t * F + f) * INPUTS + 3, t, sigma);
    memset(valid, 255, cells);
    flag_lose(&c, samples, e, valid, &seed);
    br_flag_begin(plan, &rules);
    br_flag_add(plan, 0, samples, e, valid, out);
    br_flag_end(plan, out, NULL);
    result = br_flag_wait(plan);
    assert_true(result.input[3] >= (uint32_t)ceil(0.99 * F));
    for (size_t n = 0; n < INPUTS; n++)
        if (n != 3) assert_true(result.input[n] <= 1);
    for (size_t t = 0; t < samples; t++)
        for (size_t f = 0; f < F; f++)
            if (result.used[f] == INPUTS - 1) assert_int_equal(out[(t * F + f) * INPUTS + 3], 0);
    br_flag_destroy(plan);
    free(e);
    free(out);
    free(valid);
}

static void a_pulsed_carrier_is_found(void **state)
{
    (void)state;
    find_carrier(0);
    find_carrier(5);
}

/* Bad inputs are zero and not expected, but are measured; with none of them left nothing is. */
static void bad_inputs_are_measured_and_not_used(void **state)
{
    (void)state;
    enum { N = 8, SAMPLES = 1024 };
    struct br_flag_params p = {1, N, 256, 4, -8, NULL, {0}};
    uint8_t bad[N] = {0, 1, 0, 0, 0, 0, 1, 0}, *e = malloc(SAMPLES * N), *out = malloc(SAMPLES * N);
    struct br_flag_rules rules = {5, 5, 2, 50, bad};
    struct br_flag *plan;
    uint64_t seed = 9;
    flag_noise(e, SAMPLES * N, 2, false, &seed);
    for (size_t t = 0; t < SAMPLES; t++) e[t * N + 6] = t % 20 ? 0x11 : 0x77; /* it is bad indeed */
    for (enum br_backend backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        assert_int_equal(br_flag_create(&plan, backend, &p, NULL), 0);
        br_flag_begin(plan, &rules);
        br_flag_add(plan, 0, SAMPLES, e, NULL, out);
        br_flag_end(plan, out, NULL);
        struct br_flag_result result = br_flag_wait(plan);
        assert_int_equal(result.expected, N - 2);
        assert_int_equal(result.used[0], N - 2);
        assert_int_equal(result.input[1] + result.input[N + 1], 0); /* it has healed */
        assert_int_equal(result.input[6], 1);
        for (size_t t = 0; t < SAMPLES; t++)
            for (size_t n = 0; n < N; n++) assert_int_equal(out[t * N + n], bad[n] ? 0 : e[t * N + n]);
        uint8_t none[N];
        memset(none, 1, N);
        br_flag_begin(plan, &(struct br_flag_rules){5, 5, 2, 50, none});
        br_flag_add(plan, 0, SAMPLES, e, NULL, out);
        br_flag_end(plan, out, NULL);
        result = br_flag_wait(plan);
        assert_int_equal(result.expected, 0);
        assert_int_equal(result.used[0], 0);
        br_flag_destroy(plan);
    }
    free(e);
    free(out);
}

static void wrong_shapes_are_refused(void **state)
{
    (void)state;
    struct br_flag *plan;
    struct br_why why = {""};
    static const struct {
        struct br_flag_params p;
        const char *why;
    } wrong[] = {
        {{0, 4, 256, 32, -8, NULL, {0}}, "expected 1 to 65535"},
        {{1, 0, 256, 32, -8, NULL, {0}}, "1 to 8192"},
        {{1, 4, 15, 32, -8, NULL, {0}}, "expected 16 to 32768"},
        {{1, 4, 32769, 1, -8, NULL, {0}}, "16 to 32768"},
        {{1, 4, 256, 0, -8, NULL, {0}}, "expected 1 to"},
        {{1, 4, 32768, 513, -8, NULL, {0}}, "16777216"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int status = br_flag_create(&plan, BR_CPU, &wrong[i].p, &why);
        assert_refused(status, plan, &why, wrong[i].why);
    }
    br_flag_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_the_reference),
        cmocka_unit_test(pieces_change_nothing),
        cmocka_unit_test(noise_is_flagged_as_often_as_a_normal_deviate),
        cmocka_unit_test(a_pulsed_carrier_is_found),
        cmocka_unit_test(bad_inputs_are_measured_and_not_used),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
