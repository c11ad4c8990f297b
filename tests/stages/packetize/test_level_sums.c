/* Sums over rows of 4-bit levels, beside one level after the other. */
#include "stages/packetize/level_sums.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* All lengths around the 32 bytes that are taken at once, from any address. */
static void test_lengths(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (size_t bytes = 0; bytes < 200; bytes++) {
        uint8_t *row = malloc(bytes + 1), *from = row + bytes % 2;
        struct level_sums want = {0};
        for (size_t i = 0; i < bytes; i++) {
            int level[2];
            for (int k = 0; k < 2; k++) {
                random = random * 1664525 + 1013904223;
                level[k] = (int)(random >> 28) - 8;
                if (level[k] == -8) continue;
                want.count++;
                want.sum += level[k];
                want.squares += level[k] * level[k];
            }
            from[i] = (uint8_t)((level[0] & 15) | (level[1] & 15) << 4);
        }
        struct level_sums got = level_sums(from, bytes);
        assert_int_equal(got.count, want.count);
        assert_int_equal(got.sum, want.sum);
        assert_int_equal(got.squares, want.squares);
        free(row);
    }
}

/* The largest sums do not overflow. */
static void test_extremes(void **state)
{
    (void)state;
    static const struct {
        uint8_t byte;
        int count, sum, squares;
    } cases[] = {{0x88, 0, 0, 0}, {0x77, 2, 14, 98}, {0x99, 2, -14, 98}, {0x00, 2, 0, 0}, {0x87, 1, 7, 49}};
    enum { BYTES = 1 << 16 };
    uint8_t *row = malloc(BYTES);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(row, cases[i].byte, BYTES);
        struct level_sums got = level_sums(row, BYTES);
        assert_int_equal(got.count, cases[i].count * BYTES);
        assert_int_equal(got.sum, cases[i].sum * BYTES);
        assert_int_equal(got.squares, cases[i].squares * BYTES);
    }
    free(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
