/* Numbers and times as text: to the last bit and nanosecond. */
#include "formats/common/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static double drawn(uint64_t *seed, double low, double high)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(*seed >> 11) / 9007199254740992.0;
}

/* Whatever was made as first + i * step is found to be that, also where the last value's rounding says
 * another step. */
static void test_progressions(void **state)
{
    (void)state;
    enum { MOST = 40 };
    uint64_t seed = 5;
    for (int k = 0; k < 5000; k++) {
        double values[MOST], first = drawn(&seed, 300, 1500), step = drawn(&seed, 0.01, 1), found = 0;
        size_t n = 3 + (size_t)drawn(&seed, 0, MOST - 3);
        step = (first + step) - first; /* as the difference of the first two will be */
        for (size_t i = 0; i < n; i++) values[i] = text_progression(first, step, i);
        assert_int_equal(text_is_progression(values, n, &found), 1);
        for (size_t i = 0; i < n; i++) assert_true(text_progression(first, found, i) == values[i]);
        values[n / 2] += 1e-9;
        assert_int_equal(text_is_progression(values, n, &found), 0);
    }
}

/* Nine digits are nanoseconds; more are rounded down. */
static void test_fractions(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (int k = 0; k < 5000; k++) {
        int64_t part = (int64_t)drawn(&seed, 0, 1e9), ns = 0;
        char text[64];
        snprintf(text, sizeof text, "1970-01-01-00:00:01.%09lld", (long long)part);
        assert_int_equal(text_utc(text, &ns), 0);
        assert_true(ns == 1000000000 + part);
        snprintf(text, sizeof text, "1970-01-01-00:00:01.%09lld99", (long long)part);
        assert_int_equal(text_utc(text, &ns), 0);
        assert_true(ns == 1000000000 + part);
        int digits = 1 + k % 8;
        char shorter[64];
        snprintf(shorter, sizeof shorter, "%.*s", 20 + digits, text);
        int64_t unit = 1;
        for (int d = digits; d < 9; d++) unit *= 10;
        assert_int_equal(text_utc(shorter, &ns), 0);
        assert_true(ns == 1000000000 + part / unit * unit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_progressions), cmocka_unit_test(test_fractions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
