/* Element types and array descriptions. */
#include "tests/buffers/plain.h"

static void names_and_bits_of_types(void **state)
{
    (void)state;
    static const struct {
        enum br_dtype dtype;
        const char *name;
        unsigned bits;
    } want[] = {{BR_INT4X2, "int4x2", 8}, {BR_INT8X2, "int8x2", 16}, {BR_INT8, "int8", 8},
                {BR_UINT8, "uint8", 8},   {BR_INT4, "int4", 4},      {BR_F16, "f16", 16},
                {BR_F32, "f32", 32},      {BR_UINT32, "uint32", 32}, {BR_INT32X2, "int32x2", 64}};
    assert_int_equal(sizeof want / sizeof *want, BR_DTYPES);
    for (size_t i = 0; i < BR_DTYPES; i++) {
        assert_string_equal(br_dtype_name(want[i].dtype), want[i].name);
        assert_int_equal(br_dtype_bits(want[i].dtype), want[i].bits);
        assert_int_equal(br_dtype_from_name(want[i].name), want[i].dtype);
    }
    assert_int_equal(br_dtype_from_name("int5"), BR_DTYPES);
    assert_int_equal(br_dtype_from_name(""), BR_DTYPES);
    assert_string_equal(br_dtype_name(BR_DTYPES), "?");
    assert_int_equal(br_dtype_bits((enum br_dtype) - 1), 0);
}

static void describes_named_axes(void **state)
{
    (void)state;
    struct br_array a;
    struct br_error error = {0};
    char text[100];
    assert_int_equal(br_array_init(&a, BR_INT4X2, "time,freq,pol,dish", (size_t[]){8192, 16, 2, 64}, &error),
                     0);
    assert_int_equal(a.naxes, 4);
    assert_int_equal(br_array_axis(&a, "pol"), 2);
    assert_int_equal(br_array_axis(&a, "beam"), -1);
    assert_int_equal(br_array_length(&a, "dish"), 64);
    assert_int_equal(br_array_length(&a, "beam"), 1);
    assert_int_equal(br_array_elements(&a), 8192 * 16 * 2 * 64);
    assert_int_equal(br_array_bytes(&a), 8192 * 16 * 2 * 64);
    assert_string_equal(br_array_format(&a, text, sizeof text),
                        "int4x2 [time 8192][freq 16][pol 2][dish 64]");
    assert_string_equal(br_array_format(&a, text, 12), "int4x2 [tim");
    struct br_array none = {.naxes = 0};
    assert_int_equal(br_array_elements(&none), 0);
    assert_int_equal(br_array_bytes(&none), 0);
}

static void rounds_bytes_of_nibbles_up(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        struct br_array a;
        assert_int_equal(br_array_init(&a, BR_INT4, "time,freq", (size_t[]){n, 1}, NULL), 0);
        assert_int_equal(br_array_bytes(&a), (n + 1) / 2);
        assert_int_equal(br_array_init(&a, BR_F32, "time,freq", (size_t[]){n, 3}, NULL), 0);
        assert_int_equal(br_array_bytes(&a), n * 12);
    }
}

static void compares(void **state)
{
    (void)state;
    struct br_array a, b;
    br_array_init(&a, BR_F16, "freq,time", (size_t[]){3, 4}, NULL);
    b = a;
    assert_true(br_array_equal(&a, &b));
    b.dtype = BR_F32;
    assert_false(br_array_equal(&a, &b));
    br_array_init(&b, BR_F16, "freq,time", (size_t[]){3, 5}, NULL);
    assert_false(br_array_equal(&a, &b));
    br_array_init(&b, BR_F16, "freq,time", (size_t[]){2, 4}, NULL);
    assert_false(br_array_equal(&a, &b));
    br_array_init(&b, BR_F16, "beam,time", (size_t[]){3, 4}, NULL);
    assert_false(br_array_equal(&a, &b));
    br_array_init(&b, BR_F16, "time,freq", (size_t[]){3, 4}, NULL);
    assert_false(br_array_equal(&a, &b));
    br_array_init(&b, BR_F16, "freq,time,beam", (size_t[]){3, 4, 1}, NULL);
    assert_false(br_array_equal(&a, &b));
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *axes, *says;
    } bad[] = {{"", "no name"},           {"time,", "no name"},
               {",time", "no name"},      {"time,freq,time", "twice"},
               {"time,colour", "colour"}, {"time,frequency_of_sky", "not an axis"},
               {"Time", "not an axis"},   {"time,freq,pol,dish,beam,gridp,gridq", "more than 6"}};
    size_t lengths[7] = {1, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct br_array a;
        struct br_error error = {0};
        assert_int_equal(br_array_init(&a, BR_INT8, bad[i].axes, lengths, &error), BR_E_INVALID);
        assert_says(&error, bad[i].says);
        assert_int_equal(a.naxes, 0);
    }
    struct br_array a;
    struct br_error error = {0};
    assert_int_equal(br_array_init(&a, BR_F32, "time,freq", (size_t[]){SIZE_MAX / 4, 2}, &error),
                     BR_E_INVALID);
    assert_says(&error, "memory");
    assert_int_equal(br_array_init(&a, BR_F32, "time,freq,pol", (size_t[]){SIZE_MAX, 0, SIZE_MAX}, NULL),
                     BR_E_INVALID);
    assert_int_equal(br_array_init(&a, BR_DTYPES, "time", (size_t[]){1}, NULL), BR_E_INVALID);
}

static void errors_keep_the_first_and_take_context(void **state)
{
    (void)state;
    struct br_error error = {0};
    br_error_context(&error, "nothing");
    assert_string_equal(error.text, "");
    assert_int_equal(br_fail(&error, BR_E_IO, "disk %d", 7), BR_E_IO);
    assert_int_equal(br_fail(&error, BR_E_FORMAT, "later"), BR_E_FORMAT);
    assert_int_equal(error.status, BR_E_IO);
    br_error_context(&error, "file %s", "a");
    assert_string_equal(error.text, "file a: disk 7");
    char text[2 * BR_ERROR_LENGTH];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    br_error_context(&error, "%s", text); /* too long: cut, never overrun */
    assert_int_equal(strnlen(error.text, sizeof error.text), sizeof error.text - 1);
    assert_int_equal(br_fail(NULL, BR_E_IO, "nobody listens"), BR_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_bits_of_types),
        cmocka_unit_test(describes_named_axes),
        cmocka_unit_test(rounds_bytes_of_nibbles_up),
        cmocka_unit_test(compares),
        cmocka_unit_test(refuses),
        cmocka_unit_test(errors_keep_the_first_and_take_context),
    };
    return cmocka_run_group_tests_name("arrays", tests, NULL, NULL);
}
