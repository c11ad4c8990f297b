/* chordMetadata as bytes: places of the fields, what is refused, times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "formats/kotekan/chord_metadata.h"

static uint8_t bytes[CHORD_METADATA_BYTES];

static void put32(size_t at, int32_t value)
{
    memcpy(bytes + at, &value, 4); /* the tests run where the bytes are little-endian */
}

static void put64(size_t at, int64_t value)
{
    memcpy(bytes + at, &value, 8);
}

/* E[T 64][F 3][P 2][D 5] at sample 640000000000, written field by field from the format's description. */
static void example(void)
{
    memset(bytes, 0, sizeof bytes);
    put32(0, 10);
    put32(4, 20);
    put32(8, 1024);
    put32(12, 7);
    memcpy(bytes + 16, "E", 1);
    put32(36, 6);
    put32(40, 4);
    static const int32_t length[] = {64, 3, 2, 5}, stride[] = {30, 10, 5, 1};
    for (int i = 0; i < 4; i++) {
        put32(44 + 4 * (size_t)i, length[i]);
        bytes[84 + 20 * i] = (uint8_t) "TFPD"[i];
        put64(288 + 8 * (size_t)i, stride[i]);
    }
    put64(624, 640000000000);
    put32(632, 3);
    for (size_t i = 0; i < 3; i++) {
        put32(636 + 4 * i, 2000 + 128 * (int32_t)i);
        put32(4732 + 4 * i, 1);
        put64(8832 + 8 * i, 0);
        put32(17024 + 4 * i, 1);
    }
}

static void decodes(struct chord_metadata *m)
{
    struct br_error error = {0};
    if (chord_metadata_decode(m, bytes, sizeof bytes, 64 * 30, "x.kotekan", &error) != BR_OK)
        fail_msg("%s", error.text);
}

/* A type's name says how many bits an element has; of 4+4 bits it has 8. */
static void test_bits(void **state)
{
    (void)state;
    for (int type = CHORD_UNKNOWN + 1; type < CHORD_TYPES; type++) {
        const char *name = chord_type_name((enum chord_type)type),
                   *digits = name + strcspn(name, "0123456789");
        unsigned bits = (unsigned)strtoul(digits, NULL, 10);
        assert_int_equal(chord_type_bits((enum chord_type)type),
                         strstr(name, "x2") != NULL ? 2 * bits : bits);
    }
    assert_int_equal(chord_type_bits(CHORD_UNKNOWN), 0);
    assert_int_equal(chord_type_bits(CHORD_TYPES), 0);
}

static void test_fields(void **state)
{
    (void)state;
    static struct chord_metadata m;
    example();
    decodes(&m);
    assert_string_equal(m.name, "E");
    assert_int_equal(m.frame_counter, 7);
    assert_int_equal(m.type, CHORD_INT4X2);
    assert_int_equal(m.dims, 4);
    assert_int_equal(m.dim[chord_metadata_dim(&m, "D")], 5);
    assert_int_equal(chord_metadata_dim(&m, "B"), -1);
    assert_int_equal(chord_metadata_frame_bytes(&m), 1920);
    assert_int_equal(m.nfreq, 3);
    assert_int_equal(m.coarse_freq[2], 2256);
    uint64_t first = 0;
    uint32_t downsample = 0;
    struct br_error error = {0};
    assert_int_equal(chord_metadata_first(&m, "x", &first, &downsample, &error), BR_OK);
    assert_int_equal(first, 640000000000);
    assert_int_equal(downsample, 1);
}

/* Our metadata equals the description, byte for byte. */
static void test_encode(void **state)
{
    (void)state;
    static struct chord_metadata m;
    static uint8_t written[CHORD_METADATA_BYTES];
    static const int32_t coarse[] = {2000, 2128, 2256};
    example();
    chord_metadata_init(&m, "E", CHORD_INT4X2);
    chord_metadata_add(&m, "T", 64);
    chord_metadata_add(&m, "F", 3);
    chord_metadata_add(&m, "P", 2);
    chord_metadata_add(&m, "D", 5);
    chord_metadata_finish(&m);
    m.frame_counter = 7;
    chord_metadata_set_times(&m, 3, coarse, 1, 640000000000, 1);
    memset(written, 0x55, sizeof written);
    chord_metadata_encode(&m, written);
    assert_memory_equal(written, bytes, sizeof bytes);
}

/* The newer layout: other places, other codes, the same meaning. */
static void test_new_layout(void **state)
{
    (void)state;
    static struct chord_metadata m, back;
    static uint8_t written[CHORD_METADATA_NEW_BYTES];
    example();
    decodes(&m);
    m.bytes = CHORD_METADATA_NEW_BYTES;
    chord_metadata_encode(&m, written);
    int32_t value;
    memcpy(&value, written + 36, 4);
    assert_int_equal(value, 7);
    memcpy(&value, written + 384, 4);
    assert_int_equal(value, 1);
    memcpy(&value, written + 388, 4);
    assert_int_equal(value, 3);
    memcpy(&value, written + 392 + 8, 4);
    assert_int_equal(value, 2256);
    struct br_error error = {0};
    assert_int_equal(chord_metadata_decode(&back, written, sizeof written, 1920, "x", &error), BR_OK);
    assert_memory_equal(&m, &back, sizeof m);
}

/* Any array at any time comes back from its bytes. */
static void test_round_trip(void **state)
{
    (void)state;
    static struct chord_metadata m, back;
    static const int32_t coarse[] = {5, 900};
    static const uint32_t factors[] = {1, 2, 3, 16, 192};
    for (size_t i = 0; i < 5; i++) {
        for (uint64_t first = 0; first < 400; first += 57) {
            chord_metadata_init(&m, "I", CHORD_FLOAT16);
            chord_metadata_add(&m, "Tbar", 17);
            chord_metadata_add(&m, "a name of twenty ch.", 4);
            chord_metadata_finish(&m);
            chord_metadata_set_times(&m, 2, coarse, 4, first, factors[i]);
            chord_metadata_encode(&m, bytes);
            struct br_error error = {0};
            assert_int_equal(chord_metadata_decode(&back, bytes, sizeof bytes, 17 * 4 * 2, "x", &error),
                             BR_OK);
            assert_memory_equal(&m, &back, sizeof m);
            uint64_t got = 0;
            uint32_t d = 0;
            assert_int_equal(chord_metadata_first(&back, "x", &got, &d, &error), BR_OK);
            assert_int_equal(got, first);
            assert_int_equal(d, factors[i]);
        }
    }
}

/* Each field wrong in turn: refused, with the file's name and the field's. */
static void test_wrong(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        int wide;
        int64_t value;
        const char *word;
    } wrong[] = {
        {0, 0, 9, "max_dim"},
        {4, 0, 0, "max_dimname"},
        {8, 0, 16384, "max_freq"},
        {36, 0, 0, "type"},
        {36, 0, 15, "type"},
        {36, 0, -1, "type"},
        {36, 0, 10, "describes"}, /* int32: four times the frame */
        {40, 0, 0, "dims"},
        {40, 0, -1, "dims"},
        {40, 0, 11, "dims"},
        {40, 0, INT32_MAX, "dims"},
        {44, 0, 0, "length"},
        {44, 0, -64, "length"},
        {44, 0, INT32_MAX, "describes"},
        {44, 0, 63, "describes"},
        {84, 0, 0, "name"},
        {84, 0, 0x07, "name"},
        {16, 0, 0x1b, "name"},
        {288, 1, 31, "stride"},
        {296, 1, -1, "stride"},
        {296, 1, INT64_MAX, "stride"},
        {368, 1, 1, "offset"},
        {368, 1, INT64_MIN, "offset"},
        {376, 0, 11, "n_one_hot"},
        {376, 0, -2, "n_one_hot"},
        {632, 0, 1025, "nfreq"},
        {632, 0, -2, "nfreq"},
        {632, 0, INT32_MAX, "nfreq"},
        {640, 0, -5, "coarse_freq[1]"},
        {640, 0, INT32_MAX, "coarse_freq[1]"},
        {4736, 0, 0, "freq_upchan_factor[1]"},
        {4736, 0, INT32_MIN, "freq_upchan_factor[1]"},
        {8840, 1, -3, "half_fpga_sample0[1]"},
        {17032, 0, 0, "time_downsampling_fpga[2]"},
        {17032, 0, INT32_MAX, "time_downsampling_fpga[2]"},
    };
    static struct chord_metadata m;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct br_error error = {0};
        example();
        if (wrong[i].wide)
            put64(wrong[i].at, wrong[i].value);
        else
            put32(wrong[i].at, (int32_t)wrong[i].value);
        if (chord_metadata_decode(&m, bytes, sizeof bytes, 1920, "x.kotekan", &error) != BR_E_FORMAT)
            fail_msg("%lld at byte %zu is taken", (long long)wrong[i].value, wrong[i].at);
        if (strstr(error.text, wrong[i].word) == NULL || strstr(error.text, "x.kotekan") == NULL)
            fail_msg("%lld at byte %zu: %s", (long long)wrong[i].value, wrong[i].at, error.text);
    }
    static const uint64_t sizes[] = {0, 1, 20871, 21119, 21121, (uint64_t)1 << 31, INT64_MAX, UINT64_MAX};
    example();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct br_error error = {0};
        assert_int_equal(chord_metadata_decode(&m, bytes, sizes[i], 1920, "x", &error), BR_E_FORMAT);
        assert_non_null(strstr(error.text, "21120"));
    }
    struct br_error error = {0};
    assert_int_equal(chord_metadata_decode(&m, bytes, sizeof bytes, 1919, "x", &error), BR_E_FORMAT);
    example();
    put32(44, INT32_MAX);
    put32(48, INT32_MAX);
    error = (struct br_error){0};
    assert_int_equal(chord_metadata_decode(&m, bytes, sizeof bytes, 0, "x", &error), BR_E_FORMAT);
    assert_non_null(strstr(error.text, "product"));
}

/* Times that no sample counter can have. */
static void test_wrong_times(void **state)
{
    (void)state;
    static struct chord_metadata m;
    static const struct {
        size_t at;
        int wide;
        int64_t value;
    } wrong[] = {{624, 1, -1}, {624, 1, INT64_MAX}, {624, 1, INT64_MIN},
                 {8840, 1, 2}, {8840, 1, 1},        {17032, 0, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        example();
        if (wrong[i].wide)
            put64(wrong[i].at, wrong[i].value);
        else
            put32(wrong[i].at, (int32_t)wrong[i].value);
        decodes(&m);
        struct br_error error = {0};
        uint64_t first;
        uint32_t d;
        if (chord_metadata_first(&m, "x.kotekan", &first, &d, &error) != BR_E_FORMAT ||
            strstr(error.text, "x.kotekan") == NULL)
            fail_msg("%lld at byte %zu: %s", (long long)wrong[i].value, wrong[i].at, error.text);
    }
    example();
    for (size_t i = 0; i < 3; i++) put64(8832 + 8 * i, 3); /* half a sample past the first */
    decodes(&m);
    struct br_error error = {0};
    uint64_t first;
    uint32_t d;
    assert_int_equal(chord_metadata_first(&m, "x", &first, &d, &error), BR_E_FORMAT);
}

/* Whatever the bytes are: an answer, and within its bounds. */
static void test_random_bytes(void **state)
{
    (void)state;
    static struct chord_metadata m;
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        example();
        for (int k = 0; k < 3; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[(seed >> 33) % (k < 2 ? 640 : sizeof bytes)] ^= (uint8_t)(seed >> 25);
        }
        struct br_error error = {0};
        if (chord_metadata_decode(&m, bytes, sizeof bytes, 1920, "x", &error) == BR_OK) {
            assert_in_range(m.dims, 1, CHORD_MAX_DIMS);
            assert_int_equal(chord_metadata_frame_bytes(&m), 1920);
        } else {
            assert_true(error.text[0] != 0);
        }
    }
}

/* 1045507 x 1051651 x 16777264 is 432 modulo 2^64. */
static void test_product_beyond_64_bits(void **state)
{
    (void)state;
    static struct chord_metadata m;
    struct br_error error = {0};
    example();
    put32(40, 3);
    put32(44, 1045507);
    put32(48, 1051651);
    put32(52, 16777264);
    put64(288, (int64_t)1051651 * 16777264);
    put64(296, 16777264);
    put64(304, 1);
    assert_int_equal(chord_metadata_decode(&m, bytes, sizeof bytes, 432, "x", &error), BR_E_FORMAT);
    assert_int_equal(chord_metadata_frame_bytes(&m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_new_layout),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_wrong_times),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_product_beyond_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
