/* The inner loops of reading files: plain code, vector code and the definition agree byte for byte. */
#include "stages/common/bitplanes.h"
#include "stages/common/coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 40000, GUARD = 0xa5 };
static uint8_t input[ROOM], expected[ROOM], got[ROOM];

static void fill(void)
{
    uint64_t seed = 7;
    for (size_t i = 0; i < ROOM; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        input[i] = (uint8_t)(seed >> 56);
    }
    for (size_t i = 100; i < 200; i++) input[i] = 0;
}

static void assert_got(size_t from, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (got[from + i] != expected[i])
            fail_msg("%s of %zu bytes at %zu: byte %zu is %02x, not %02x", what, n, from, i, got[from + i],
                     expected[i]);
    for (size_t i = 0; i < 64; i++)
        if (got[from + n + i] != GUARD || (i < from && got[from - 1 - i] != GUARD))
            fail_msg("%s of %zu bytes at %zu writes beyond its end", what, n, from);
}

static void test_bitplanes(void **state)
{
    (void)state;
    fill();
    for (size_t n = 8; n <= 9000; n += n < 1100 ? 8 : 776) {
        const uint8_t *in = input + n / 8 % 5;
        for (size_t i = 0; i < n; i++) {
            expected[i] = 0;
            for (size_t k = 0; k < 8; k++)
                expected[i] |= (uint8_t)((in[k * (n / 8) + i / 8] >> i % 8 & 1) << k);
        }
        size_t from = 64 + n / 8 % 3;
        memset(got, GUARD, sizeof got);
        bitplanes_join(got + from, in, n);
        assert_got(from, n, "joining");
        memset(got, GUARD, sizeof got);
        bitplanes_join_plain(got + from, in, n);
        assert_got(from, n, "plain joining");
        memset(got, GUARD, sizeof got);
        if (bitplanes_join_avx2(got + from, in, n)) assert_got(from, n, "AVX2 joining");
    }
}

/* The value of a byte in a coding, as two's complement pair with the real part in the low nibble. */
static uint8_t int4x2_of(enum coding coding, uint8_t byte)
{
    int low = byte & 15, high = byte >> 4;
    if (coding == CODING_INT4X2) return byte;
    if (coding == CODING_CHIME && byte == 0) return 0;
    int re = (coding == CODING_CHIME ? high : low) - 8, im = (coding == CODING_CHIME ? low : high) - 8;
    return (uint8_t)((re & 15) | (im & 15) << 4);
}

static void test_coding(void **state)
{
    (void)state;
    fill();
    for (int coding = 0; coding < CODING_UNKNOWN; coding++)
        for (size_t n = 0; n < 400; n += n < 130 ? 1 : 37)
            for (size_t from = 64; from < 97; from += 11) {
                for (size_t i = 0; i < n; i++) expected[i] = int4x2_of((enum coding)coding, input[i + 3]);
                memset(got, GUARD, sizeof got);
                coding_convert((enum coding)coding, input + 3, got + from, n);
                assert_got(from, n, coding_name((enum coding)coding));
                memset(got, GUARD, sizeof got);
                coding_convert_past_caches((enum coding)coding, input + 3, got + from, n);
                coding_settle();
                assert_got(from, n, coding_name((enum coding)coding));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bitplanes),
        cmocka_unit_test(test_coding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
