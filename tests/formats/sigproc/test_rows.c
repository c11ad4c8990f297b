/* rows: the levels of frames of 4 and 8 bits, by their places in the bytes. */
#include "formats/sigproc/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STEPS = 5, CHANNELS = 2 };

static const uint32_t falling[CHANNELS] = {1, 0};
static const struct sigproc_band band = {.nchannels = CHANNELS, .channel = falling};

/* Element i of [channel][step] is in byte i/2, the even one in the low half; -8 is missing and becomes the
 * mean. */
static void four_bits(void **state)
{
    (void)state;
    static const int8_t level[CHANNELS][STEPS] = {{-7, -1, 0, 3, 7}, {1, -8, 5, -4, 2}};
    uint8_t bytes[(CHANNELS * STEPS + 1) / 2] = {0}, out[STEPS][CHANNELS];
    for (size_t i = 0; i < CHANNELS * STEPS; i++) {
        unsigned nibble = (unsigned)level[i / STEPS][i % STEPS] & 15u;
        bytes[i / 2] = (uint8_t)(i % 2 == 0 ? nibble : bytes[i / 2] + (nibble << 4));
    }
    struct rows rows = {
        .form = ROWS_INT4, .nchannels = CHANNELS, .nbeams = 1, .scale = 1, .data = bytes, .nsteps = STEPS};
    rows_make(&rows, &band, (const size_t[]){0}, 1, 0, STEPS, out);
    for (size_t t = 0; t < STEPS; t++)
        for (size_t c = 0; c < CHANNELS; c++) {
            int8_t stored = level[falling[c]][t];
            assert_int_equal(out[t][c], 128 + (stored == -8 ? 0 : stored));
        }
    rows_make(&rows, &band, (const size_t[]){0}, 1, 3, 2, out); /* from an odd element on */
    assert_int_equal(out[0][0], 128 - 4);
    assert_int_equal(out[0][1], 128 + 3);
    assert_int_equal(out[1][0], 128 + 2);
    assert_int_equal(out[1][1], 128 + 7);
}

/* The stored byte is 128 + level; 0 is missing and becomes the mean. */
static void eight_bits(void **state)
{
    (void)state;
    static const uint8_t stored[CHANNELS][STEPS] = {{1, 127, 128, 129, 255}, {0, 7, 200, 128, 0}};
    uint8_t out[STEPS][CHANNELS];
    struct rows rows = {
        .form = ROWS_UINT8, .nchannels = CHANNELS, .nbeams = 1, .scale = 1, .data = stored, .nsteps = STEPS};
    rows_make(&rows, &band, (const size_t[]){0}, 1, 0, STEPS, out);
    for (size_t t = 0; t < STEPS; t++)
        for (size_t c = 0; c < CHANNELS; c++) {
            uint8_t byte = stored[falling[c]][t];
            assert_int_equal(out[t][c], byte == 0 ? 128 : byte);
        }
}

/* A value that is not finite becomes the running mean, and does not change it: of f16, f32, and in a block's
 * scale and offset. */
static void not_finite(void **state)
{
    (void)state;
    static const uint16_t half[CHANNELS][STEPS] = {{0x3c00, 0x7e00, 0x7c00, 0xfc00, 0x3c00},
                                                   {0x7c00, 0x4000, 0x4000, 0x4000, 0x4000}};
    const float single[CHANNELS][STEPS] = {{1, NAN, INFINITY, -INFINITY, 1}, {INFINITY, 2, 2, 2, 2}};
    for (int form = 0; form < 2; form++) {
        float out[STEPS][CHANNELS], mean[CHANNELS] = {0};
        uint16_t seen[CHANNELS] = {0};
        struct rows rows = {.form = form == 0 ? ROWS_F16 : ROWS_F32,
                            .nchannels = CHANNELS,
                            .nbeams = 1,
                            .scale = 1,
                            .floats = true,
                            .data = form == 0 ? (const void *)half : single,
                            .mean = mean,
                            .seen = seen,
                            .nsteps = STEPS};
        rows_make(&rows, &band, (const size_t[]){0}, 1, 0, STEPS, out);
        assert_true(mean[0] >= 1 && mean[0] <= 1 && mean[1] >= 2 && mean[1] <= 2);
        for (size_t t = 0; t < STEPS; t++) {
            const float want[CHANNELS] = {t == 0 ? 0 : 2, 1};
            assert_memory_equal(out[t], want, sizeof want);
        }
    }
    static const uint8_t level[CHANNELS][STEPS] = {{129, 129, 129, 129, 129}, {130, 130, 130, 130, 130}};
    float out[STEPS][CHANNELS], mean[CHANNELS] = {7, 8};
    const float side[CHANNELS][2] = {{NAN, 1}, {2, INFINITY}};
    struct rows rows = {.form = ROWS_UINT8,
                        .nchannels = CHANNELS,
                        .nbeams = 1,
                        .scale = 1,
                        .floats = true,
                        .data = level,
                        .side = side[0],
                        .mean = mean,
                        .nsteps = STEPS};
    rows_make(&rows, &band, (const size_t[]){0}, 1, 0, STEPS, out);
    for (size_t t = 0; t < STEPS; t++) assert_memory_equal(out[t], ((const float[]){8, 7}), sizeof out[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_bits), cmocka_unit_test(eight_bits),
                                       cmocka_unit_test(not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
