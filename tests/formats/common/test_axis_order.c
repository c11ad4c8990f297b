/* Orders of axes: what is understood, what is equal, where elements lie. */
#include "formats/common/axis_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text, *as; /* NULL: refused */
    } cases[] = {{"TFPA", "TFPA"},
                 {"tfpa", "TFPA"},
                 {"time,freq,pol,dish", "TFPA"},
                 {"pol, freq, time:256", "PFT:256"},
                 {"TPFT:256", "PFT:256"},
                 {"time,pol,freq,time:256", "PFT:256"},
                 {"T", "T"},
                 {"time", "T"},
                 {"AFPT", "AFPT"},
                 {"", NULL},
                 {"FPA", NULL},
                 {"TFFA", NULL},
                 {"TFTP", NULL},
                 {"FTPT:256", NULL},
                 {"TFPT:0", NULL},
                 {"TFPT:", NULL},
                 {"TF:2PA", NULL},
                 {"TFPB", NULL},
                 {"T:4FT:4", NULL},
                 {"T:99999999999999999999F", NULL},
                 {"time,beam", NULL},
                 {"timefreq", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct axis_order order;
        const char *why = NULL;
        char text[40];
        int status = axis_order_parse(cases[i].text, &order, &why);
        if ((status == 0) != (cases[i].as != NULL)) fail_msg("'%s': %d, %s", cases[i].text, status, why);
        if (status == 0) assert_string_equal(axis_order_format(&order, text, sizeof text), cases[i].as);
        if (status != 0) assert_non_null(why);
    }
}

static struct axis_order order_of(const char *text)
{
    struct axis_order order;
    assert_int_equal(axis_order_parse(text, &order, NULL), 0);
    return order;
}

/* Axes of length 1 say nothing; heaps of whole samples are samples. */
static void test_same(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        size_t length[AXIS_COUNT];
        bool same;
    } cases[] = {{"TFPA", "TFPA", {9, 4, 2, 3}, true},  {"TFPA", "TPFA", {9, 4, 2, 3}, false},
                 {"TFPA", "TPFA", {9, 4, 1, 3}, true},  {"TFPA", "TPFA", {9, 1, 2, 3}, true},
                 {"TF", "TFPA", {9, 4, 1, 1}, true},    {"FT", "TFPA", {9, 1, 1, 1}, true},
                 {"FTPA", "TFPA", {9, 4, 1, 1}, false}, {"T:8FPA", "TFPA", {9, 4, 2, 3}, true},
                 {"FT:8", "FT:4", {9, 4, 1, 1}, false}, {"FT:8", "FT", {9, 4, 1, 1}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct axis_order a = order_of(cases[i].a), b = order_of(cases[i].b);
        if (axis_order_same(&a, &b, cases[i].length) != cases[i].same) fail_msg("case %zu", i);
    }
    struct axis_order a = order_of("TF");
    assert_int_equal(axis_order_lacks(&a, (size_t[]){9, 4, 1, 1}), -1);
    assert_int_equal(axis_order_lacks(&a, (size_t[]){9, 4, 2, 1}), AXIS_P);
    assert_true(axis_order_time_slowest(&a, (size_t[]){9, 4, 1, 1}));
    a = order_of("FT");
    assert_true(axis_order_time_slowest(&a, (size_t[]){9, 1, 1, 1}));
    assert_false(axis_order_time_slowest(&a, (size_t[]){9, 4, 1, 1}));
}

static void test_strides(void **state)
{
    (void)state;
    uint64_t stride[AXIS_COUNT];
    struct axis_order order = order_of("PFT:256A");
    axis_order_strides(&order, (size_t[]){256, 4, 2, 3}, 2, stride);
    assert_int_equal(stride[AXIS_A], 2);
    assert_int_equal(stride[AXIS_T], 2 * 3);
    assert_int_equal(stride[AXIS_F], 2 * 3 * 256);
    assert_int_equal(stride[AXIS_P], 2 * 3 * 256 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_same),
                                       cmocka_unit_test(test_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
