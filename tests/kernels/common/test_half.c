/* float16 conversion against the definition of the format, in double precision. */
#include "buffers/half.h"
#include "kernels/common/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static double definition(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -value : value;
}

static uint32_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static void every_half_is_exact(void **state)
{
    (void)state;
    static uint16_t half[65536], back[65536];
    static float value[65536];
    for (unsigned i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    br_half_to_float_array(value, half, 65536);
    br_half_from_float_array(back, value, 65536);
    for (unsigned i = 0; i < 65536; i++) {
        double expected = definition((uint16_t)i);
        float one = br_half_to_float((uint16_t)i);
        assert_memory_equal(&one, &value[i], sizeof one);
        if (isnan(expected)) {
            assert_true(isnan(value[i]));
            assert_int_equal(back[i], i | 0x200);
        } else {
            assert_true(value[i] == expected && !signbit(value[i]) == !signbit(expected));
            assert_int_equal(back[i], i);
        }
        assert_int_equal(br_half_from_float(value[i]), back[i]);
    }
}

/* The rounded value must be the nearer neighbour, the even one at a tie: checked between every two
 * neighbours. */
static void rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 0x7bff; i++) {
        double low = definition((uint16_t)i), high = definition((uint16_t)(i + 1));
        float tie = (float)((low + high) / 2);
        float value[8] = {tie,        nextafterf(tie, 0), nextafterf(tie, INFINITY),
                          (float)low, (float)high,        -nextafterf(tie, 0),
                          -tie,       -(float)low};
        uint16_t expected[8] = {(uint16_t)(i + (i & 1)),
                                (uint16_t)i,
                                (uint16_t)(i + 1),
                                (uint16_t)i,
                                (uint16_t)(i + 1),
                                (uint16_t)(0x8000 | i),
                                (uint16_t)(0x8000 | (i + (i & 1))),
                                (uint16_t)(0x8000 | i)};
        uint16_t got[8];
        br_half_from_float_array(got, value, 8);
        assert_memory_equal(got, expected, sizeof got);
        for (int j = 0; j < 8; j++) assert_int_equal(br_half_from_float(value[j]), expected[j]);
    }
    assert_int_equal(br_half_from_float(65519.996f), 0x7bff);
    assert_int_equal(br_half_from_float(65520.0f), 0x7c00);
    assert_int_equal(br_half_from_float(-INFINITY), 0xfc00);
    assert_int_equal(br_half_from_float(1e-30f), 0);
    assert_int_equal(br_half_from_float(-0.0f), 0x8000);
}

static void arrays_equal_single_conversions(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        float value[67];
        uint16_t got[68];
        size_t count = random_bits() % 68;
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = random_bits();
            memcpy(&value[i], &bits, sizeof bits);
        }
        got[count] = 0xabcd;
        br_half_from_float_array(got, value, count);
        for (size_t i = 0; i < count; i++) assert_int_equal(got[i], br_half_from_float(value[i]));
        assert_int_equal(got[count], 0xabcd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_exact),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(arrays_equal_single_conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
