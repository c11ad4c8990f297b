/* What `stream:` says against what a recording says: equal, finer, contradicting, insisted on. */
#include "formats/common/hints.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct br_error error;

static void says_both(const char *a, const char *b, const char *key)
{
    char insist[64];
    snprintf(insist, sizeof insist, "override: [%s]", key);
    if (strstr(error.text, a) == NULL || strstr(error.text, b) == NULL ||
        strstr(error.text, insist) == NULL || strstr(error.text, "f.dada") == NULL)
        fail_msg("'%s' lacks %s, %s, %s or the file", error.text, a, b, insist);
    error = (struct br_error){0};
}

static void test_precision(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double unit;
    } cases[] = {{"2.56", 0.01},      {"5", 1},      {"1.706667", 1e-6},
                 {"2.560e-06", 1e-9}, {".25", 0.01}, {"1E3", 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double unit = hints_precision(cases[i].text);
        if (!(unit > 0.999 * cases[i].unit && unit < 1.001 * cases[i].unit))
            fail_msg("%s: %g", cases[i].text, unit);
    }
}

static void test_sample(void **state)
{
    (void)state;
    struct br_stream_hints hints = {.sample_ns = {5120, 3}};
    struct br_rational own = {1706667, 1000};
    assert_int_equal(hints_sample(&hints, "f.dada", "TSAMP", &own, 1, &error), BR_OK); /* its digits agree */
    assert_true(own.num == 5120 && own.den == 3);
    own = (struct br_rational){1706667, 1000};
    assert_int_equal(hints_sample(&hints, "f.dada", "SAMPLE_NS", &own, 0, &error), BR_E_INVALID);
    says_both("1706.667 ns", "1706.66666667 ns", "sample_ns");
    hints.override = BR_HINT_SAMPLE;
    assert_int_equal(hints_sample(&hints, "f.dada", "SAMPLE_NS", &own, 0, &error), BR_OK);
    assert_true(own.num == 5120 && own.den == 3);
    own = (struct br_rational){7, 1};
    assert_int_equal(hints_sample(NULL, "f.dada", "SAMPLE_NS", &own, 0, &error), BR_OK);
    assert_int_equal(own.num, 7);
}

static void test_epoch(void **state)
{
    (void)state;
    struct br_stream_hints hints = {.have_epoch = true, .epoch_ns = INT64_C(1700000000400000000)};
    int64_t own = INT64_C(1700000000000000000);
    assert_int_equal(hints_epoch(&hints, "f.dada", "UTC_START", &own, 1000000000, &error), BR_OK);
    assert_true(own == INT64_C(1700000000400000000));
    own = INT64_C(1700000000000000000);
    assert_int_equal(hints_epoch(&hints, "f.dada", "EPOCH_NS", &own, 0, &error), BR_E_INVALID);
    says_both("1700000000000000000", "1700000000400000000", "epoch_ns");
    hints.override = BR_HINT_EPOCH;
    assert_int_equal(hints_epoch(&hints, "f.dada", "EPOCH_NS", &own, 0, &error), BR_OK);
    assert_true(own == INT64_C(1700000000400000000));
}

static void test_channels(void **state)
{
    (void)state;
    static const double said[] = {600, 600.1};
    struct br_stream_hints hints = {.nfreq = 2, .freq_mhz = said, .width_mhz = 0.1};
    double freq[] = {600, 600.10001}, width[] = {0.1, 0.2};
    assert_int_equal(hints_frequencies(&hints, "f.dada", "FREQ", 2, freq, 1e-4, &error), BR_OK);
    assert_true(freq[1] > 600.09999 && freq[1] < 600.100001);
    freq[1] = 601;
    assert_int_equal(hints_frequencies(&hints, "f.dada", "FREQ", 2, freq, 1e-4, &error), BR_E_INVALID);
    says_both("601 MHz for channel 1", "600.1 MHz", "freq_mhz");
    assert_int_equal(hints_widths(&hints, "f.dada", "BW", 2, width, 0, &error), BR_E_INVALID);
    says_both("0.2 MHz for channel 1", "0.1 MHz", "width_mhz");
    hints.override = BR_HINT_FREQ | BR_HINT_WIDTH;
    assert_int_equal(hints_frequencies(&hints, "f.dada", "FREQ", 2, freq, 1e-4, &error), BR_OK);
    assert_int_equal(hints_widths(&hints, "f.dada", "BW", 2, width, 0, &error), BR_OK);
    assert_true(freq[1] < 600.2 && width[1] < 0.11);
    assert_int_equal(hints_frequencies(&hints, "f.dada", "FREQ", 3, freq, 1e-4, &error), BR_E_INVALID);
    assert_non_null(strstr(error.text, "3 channels"));
    error = (struct br_error){0};
    assert_int_equal(hints_first(&hints, "f.dada", 5, &error), BR_OK);
    hints.have_sample0 = true;
    hints.sample0 = 7;
    assert_int_equal(hints_first(&hints, "f.dada", 5, &error), BR_E_INVALID);
    assert_int_equal(hints_first(&hints, "f.dada", 7, &error), BR_OK);
}

/* Which channels are told to be odd. */
static void test_doubt(void **state)
{
    (void)state;
    static const struct {
        double freq[2], width;
        struct br_rational sample_ns;
        bool odd;
    } cases[] = {{{600, 600.390625}, 0.390625, {2560, 1}, false},
                 {{600, 600.390625}, 390.625, {64, 25}, true},   /* 2.56 for 2560 */
                 {{600, 600.390625}, 0.390625, {5120, 1}, true}, /* width x time is 2 */
                 {{600, 601}, 0.390625, {2560, 1}, false},       /* a comb */
                 {{600, 600.3}, 0.390625, {2560, 1}, false}};    /* oversampled */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double width[2] = {cases[i].width, cases[i].width};
        struct br_stream s = {.sample_ns = cases[i].sample_ns,
                              .nchannels = 2,
                              .freq_mhz = cases[i].freq,
                              .width_mhz = width,
                              .nzones = 1,
                              .zone = {{0, 2, 1, 1, 0}}};
        char text[256];
        assert_int_equal(
            br_array_init(&s.array, BR_INT4X2, "time,freq,pol,dish", (size_t[]){4, 2, 2, 3}, &error), BR_OK);
        if ((hints_doubt(&s, text, sizeof text) != NULL) != cases[i].odd) fail_msg("case %zu", i);
    }
}

static void test_sideband(void **state)
{
    (void)state;
    struct br_stream_hints none = {0}, lower = {.sideband = BR_SIDEBAND_LOWER};
    enum br_sideband own = BR_SIDEBAND_UPPER;
    error = (struct br_error){0};
    assert_int_equal(hints_sideband(NULL, "f.dada", "SIDEBAND", &own, &error), BR_OK);
    assert_int_equal(hints_sideband(&none, "f.dada", "SIDEBAND", &own, &error), BR_OK);
    assert_int_equal(own, BR_SIDEBAND_UPPER);
    assert_int_equal(hints_sideband(&lower, "f.dada", "SIDEBAND", &own, &error), BR_E_INVALID);
    says_both("SIDEBAND says upper", "says lower", "sideband");
    lower.override = BR_HINT_SIDEBAND;
    assert_int_equal(hints_sideband(&lower, "f.dada", "SIDEBAND", &own, &error), BR_OK);
    assert_int_equal(own, BR_SIDEBAND_LOWER);
    lower.override = 0;
    own = BR_SIDEBAND_UNKNOWN;
    assert_int_equal(hints_sideband(&lower, "f.dada", NULL, &own, &error), BR_OK); /* no format says it */
    assert_int_equal(own, BR_SIDEBAND_LOWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_precision), cmocka_unit_test(test_sample),
                                       cmocka_unit_test(test_epoch),     cmocka_unit_test(test_channels),
                                       cmocka_unit_test(test_doubt),     cmocka_unit_test(test_sideband)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
