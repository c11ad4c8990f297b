/* Keys of recordings: ORDER, and the byte that marks missing samples. */
#include "formats/dada/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const double mhz[] = {700, 699, 698}, width[] = {1, 1, 1};

/* A stream of an array with 3 channels in frames of 8 samples. */
static struct br_stream stream_of(enum br_dtype dtype, const char *axes, const size_t *lengths)
{
    struct br_stream s = {.frame_samples = 8,
                          .sample_ns = {5120, 1},
                          .nchannels = 3,
                          .freq_mhz = mhz,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, 3, 1, 1, 0}},
                          .scale = 1};
    struct br_error error = {0};
    assert_int_equal(br_array_init(&s.array, dtype, axes, lengths, &error), BR_OK);
    return s;
}

static void order_of(const char *axes, const size_t *lengths, enum br_dtype dtype, const char *expected)
{
    struct br_stream s = stream_of(dtype, axes, lengths);
    char text[4096], line[64];
    struct dada_writer writer = {.text = text, .capacity = sizeof text};
    recording_format(
        &writer, &s,
        &(struct recording_file){.name = "x", .obs_id = "x", .samples = 8, .header_bytes = 4096});
    assert_true(dada_finish(&writer, sizeof text));
    snprintf(line, sizeof line, "\n%-15s %s\n", "ORDER", expected);
    if (strstr(text, line) == NULL) fail_msg("no ORDER %s in\n%s", expected, text);
}

static void test_order(void **state)
{
    (void)state;
    order_of("time,freq,pol,dish", (const size_t[]){8, 3, 2, 5}, BR_INT4X2, "TFPA");
    order_of("beam,freq,pol,time", (const size_t[]){4, 3, 2, 8}, BR_INT4X2, "BFPT");
    order_of("freq,time,gridp,gridq", (const size_t[]){3, 8, 4, 6}, BR_F16, "FTXY");
    order_of("freq,time,beam", (const size_t[]){3, 8, 4}, BR_F16, "FTB");
    order_of("beam,freq,time", (const size_t[]){4, 3, 8}, BR_UINT8, "BFT");
}

/* -8 in both halves of products of 4 bits, -128 in voltages of 8 bits; zero elsewhere, in the field too. */
static void test_missing_byte(void **state)
{
    (void)state;
    struct br_stream field = stream_of(BR_INT4X2, "time,freq,pol,dish", (const size_t[]){8, 3, 2, 5}),
                     voltage = stream_of(BR_INT4X2, "beam,freq,pol,time", (const size_t[]){4, 3, 2, 8}),
                     voltage8 = stream_of(BR_INT8X2, "beam,freq,pol,time", (const size_t[]){4, 3, 2, 8}),
                     levels4 = stream_of(BR_INT4, "beam,freq,time", (const size_t[]){4, 3, 8}),
                     levels8 = stream_of(BR_UINT8, "beam,freq,time", (const size_t[]){4, 3, 8}),
                     beams = stream_of(BR_F16, "freq,time,beam", (const size_t[]){3, 8, 4});
    assert_int_equal(recording_missing_byte(&field), 0);
    assert_int_equal(recording_missing_byte(&voltage), 0x88);
    assert_int_equal(recording_missing_byte(&voltage8), 0x80);
    assert_int_equal(recording_missing_byte(&levels4), 0x88);
    assert_int_equal(recording_missing_byte(&levels8), 0);
    assert_int_equal(recording_missing_byte(&beams), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_missing_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
