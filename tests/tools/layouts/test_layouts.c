/* The layout checker itself: it must find faults, and must find none where there is none. */
#include "kernels/common/layout.h"
#include "tools/layouts/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- what an access costs ---- */

static struct layouts_access every_lane(unsigned bytes, int stride)
{
    struct layouts_access access = {.bytes = bytes};
    for (unsigned lane = 0; lane < 32; lane++) layouts_lane(&access, lane, (int64_t)lane * stride);
    return access;
}

static void count_wavefronts(void **state)
{
    (void)state;
    static const struct {
        unsigned bytes;
        int stride;
        unsigned wavefronts, fewest;
    } cases[] =
        {
            {4, 4, 1, 1},    {4, 8, 2, 1},     {4, 128, 32, 1}, {4, 132, 1, 1},
            {4, 0, 1, 1}, /* one word for all: a broadcast */
            {1, 1, 1, 1},    {2, 2, 1, 1},     {1, 4, 1, 1},    {1, 128, 32, 1},
            {8, 8, 2, 2},    {8, 16, 4, 2},    {8, 0, 2, 2},    {8, 136, 2, 2},
            {8, 128, 32, 2}, {16, 16, 4, 4},   {16, 32, 8, 4},  {16, 0, 4, 4},
            {16, 144, 4, 4}, {16, 128, 32, 4},
        };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layouts_access access = every_lane(cases[i].bytes, cases[i].stride);
        assert_int_equal(layouts_wavefronts(&access), cases[i].wavefronts);
        assert_int_equal(layouts_fewest_wavefronts(&access), cases[i].fewest);
    }
    /* Half-warps are served one after the other: the same banks in both of them do not collide. */
    struct layouts_access halves = {.bytes = 8};
    for (unsigned lane = 0; lane < 32; lane++) layouts_lane(&halves, lane, lane % 16 * 8 + lane / 16 * 4096);
    assert_int_equal(layouts_wavefronts(&halves), 2);
    /* Only active lanes count. */
    struct layouts_access few = {.bytes = 16};
    for (unsigned lane = 0; lane < 8; lane++) layouts_lane(&few, lane, lane * 128);
    assert_int_equal(layouts_wavefronts(&few), 8);
    assert_int_equal(layouts_fewest_wavefronts(&few), 1);
    /* Two words of a bank, each wanted by half the lanes. */
    struct layouts_access two = {.bytes = 4};
    for (unsigned lane = 0; lane < 32; lane++) layouts_lane(&two, lane, lane % 2 * 128);
    assert_int_equal(layouts_wavefronts(&two), 2);
}

/* ---- faults that must be found ---- */

static unsigned fails(struct layouts *report)
{
    unsigned failures = report->failures;
    layouts_finish(report);
    return failures;
}

static void find_places_out_of_bounds(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "beyond");
    struct layouts_pass *pass =
        layouts_begin(layouts_region(&report, LAYOUTS_SHARED, "r", 127, 1), LAYOUTS_WRITE, "w");
    struct layouts_access access = every_lane(4, 4);
    layouts_access(pass, &access);
    layouts_end(pass, 0, 1);
    assert_non_null(strstr(report.last, "out of bounds"));
    assert_int_equal(fails(&report), 1);
}

static void find_accesses_out_of_line(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "odd");
    struct layouts_pass *pass =
        layouts_begin(layouts_region(&report, LAYOUTS_SHARED, "r", 1024, 1), LAYOUTS_WRITE, "w");
    struct layouts_access access = {.bytes = 8};
    layouts_lane(&access, 5, 12);
    layouts_access(pass, &access);
    assert_non_null(strstr(report.last, "not a multiple"));
    layouts_end(pass, 0, 1);
    assert_int_equal(fails(&report), 1);
}

static void find_elements_left_out_or_written_twice(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "holes");
    struct layouts_region *region = layouts_region(&report, LAYOUTS_SHARED, "r", 33, 4);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "w");
    struct layouts_access access = every_lane(4, 4);
    layouts_access(pass, &access);
    layouts_end(pass, 1, 1);
    assert_non_null(strstr(report.last, "element 32 is touched 0 times"));
    layouts_padding(region, 32, 1);
    pass = layouts_begin(region, LAYOUTS_WRITE, "w");
    layouts_access(pass, &access);
    layouts_end(pass, 1, 1);
    assert_int_equal(report.failures, 1);
    pass = layouts_begin(region, LAYOUTS_WRITE, "w");
    layouts_access(pass, &access);
    access.active = 2;
    layouts_access(pass, &access);
    layouts_end(pass, 1, 1);
    assert_non_null(strstr(report.last, "element 1 is touched 2 times"));
    assert_int_equal(fails(&report), 2);
}

static void find_what_is_read_from_another_place(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "moved");
    struct layouts_region *region = layouts_region(&report, LAYOUTS_SHARED, "r", 64, 4);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "w");
    struct layouts_access access = {.bytes = 4};
    for (unsigned lane = 0; lane < 32; lane++) layouts_lane_items(&access, lane, lane * 4, lane ^ 1);
    layouts_access(pass, &access);
    layouts_end(pass, 0, 1);
    pass = layouts_begin(region, LAYOUTS_READ, "r");
    layouts_access(pass, &access);
    assert_int_equal(report.failures, 0);
    access.item[7][0] = 7; /* there stands 6 */
    layouts_access(pass, &access);
    assert_int_equal(report.failures, 1);
    struct layouts_access beyond = {.bytes = 4};
    layouts_lane_items(&beyond, 0, 33 * 4, 33);
    layouts_access(pass, &beyond);
    assert_non_null(strstr(report.last, "nothing"));
    layouts_end(pass, 0, 9);
    assert_int_equal(fails(&report), 2);
}

static void find_torn_cache_lines(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "global");
    struct layouts_region *region = layouts_region(&report, LAYOUTS_GLOBAL, "g", 65536, 1);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "r");
    struct layouts_access whole = every_lane(16, 16), rows = {.bytes = 16}, shifted = {.bytes = 4};
    layouts_access(pass, &whole);
    for (unsigned lane = 0; lane < 32; lane++) layouts_lane(&rows, lane, lane / 8 * 1024 + lane % 8 * 16);
    layouts_access(pass, &rows);
    assert_int_equal(report.failures, 0);
    for (unsigned lane = 0; lane < 32; lane++) layouts_lane(&shifted, lane, lane * 4 + 64);
    layouts_access(pass, &shifted);
    assert_int_equal(report.failures, 1);
    layouts_end(pass, 0, 9);
    pass = layouts_begin(region, LAYOUTS_READ, "r");
    layouts_allow_pieces(pass, LAYOUTS_SECTOR, "half a line on either side");
    layouts_access(pass, &shifted);
    assert_int_equal(report.failures, 1);
    struct layouts_access scattered = every_lane(4, 64);
    layouts_access(pass, &scattered);
    assert_int_equal(report.failures, 2);
    layouts_end(pass, 0, 9);
    assert_int_equal(fails(&report), 2);
}

static void allow_what_is_declared(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "declared");
    struct layouts_region *region = layouts_region(&report, LAYOUTS_SHARED, "r", 8192, 1);
    struct layouts_access access = every_lane(4, 8);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_READ, "r");
    layouts_allow_wavefronts(pass, 2, "once per block");
    layouts_access(pass, &access);
    assert_int_equal(report.failures, 0);
    access = every_lane(4, 16);
    layouts_access(pass, &access);
    layouts_end(pass, 0, 2);
    assert_int_equal(report.exceptions, 1);
    assert_int_equal(fails(&report), 1);
}

/* ---- register assignments ---- */

static void a_of_mma(const void *context, const unsigned *in, unsigned *out)
{
    unsigned b = in[0], r = in[1], t = in[2];
    out[0] = (b & 1) | (t & 3) << 1 | (r >> 1 & 1) << 3; /* k */
    out[1] = t >> 2 | (r & 1) << 3;                      /* row */
    if (context) out[0] ^= *(const unsigned *)context & t;
}

static void compare_register_assignments(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "words");
    static const char *const good[] = {
        "simd: b0 <-> k0  register: r1 r0 <-> k3 row3  thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 k2 k1",
        "b0 <-> k0 r0 r1 <-> row3 k3 t0 t1 t2 t3 t4 <-> k1 k2 row0 row1 row2",
        "simd: b <-> k0, register: r1..r0 <-> k3 row3\n *  thread: t4..t0 <-> row2..row0 k2 k1   c[4] too",
        "b0 <-> k0, r 0 <-> row 3, r1 <-> k3, t4 t3 t2 <-> row2 row1 row0, t1 t0 <-> k2 k1.",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(layouts_assignment(&report, "a", good[i], "b r t", "k row", a_of_mma, NULL));
    static const char *const bad[] = {
        "simd: b0 <-> k0  register: r1 r0 <-> row3 k3  thread: t4 t3 t2 t1 t0 <-> row2 row1 "
        "row0 k2 k1", /* r0, r1 exchanged */
        "simd: b0 <-> k0  register: r1 r0 <-> k3 row3  thread: t4 t3 t2 t1 t0 <-> row2 row1 "
        "k2 row0 k1",
        "simd: b0 <-> k0  register: r1 r0 <-> k3 row3  thread: t4 t3 t2 t1 <-> row2 row1 "
        "row0 k2", /* a bit is missing */
        "simd: b0 <-> k0  register: r1 r0 <-> k3 row3  thread: t4 t3 t2 t1 t0 <-> row2 row1 "
        "row0 k2 k2",
        "simd: b0 <-> k0  register: r1 r0 <-> k3 row3  thread: t4 t3 t2 t1 t0 <-> row2 row1 "
        "row0 k2 d1",
        "simd: b0 <-> k0  register: r1 r0 <-> k3  thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 "
        "k2 k1",
        "",
        "nothing of the kind",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(layouts_assignment(&report, "a", bad[i], "b r t", "k row", a_of_mma, NULL));
    unsigned mask = 4; /* a function that is wrong for some threads only */
    assert_false(layouts_assignment(&report, "a", good[0], "b r t", "k row", a_of_mma, &mask));
    layouts_finish(&report);
}

static void read_comments_of_sources(void **state)
{
    (void)state;
    struct layouts report = {0};
    layouts_variant(&report, "comments");
    if (access(LAYOUTS_TOP "/kernels/common/device.cuh", R_OK) != 0) {
        printf("no sources here: skipped\n");
        skip();
    }
    /* The f16 MMA's a, as kernels/common/device.cuh says. */
    assert_true(layouts_comment(&report, "kernels/common/device.cuh", "float16 with float32 sums.\n *   a[4]",
                                "b r t", "k row", a_of_mma, NULL));
    assert_false(layouts_comment(&report, "kernels/common/none.cuh", "a", "b r t", "k row", a_of_mma, NULL));
    assert_false(layouts_comment(&report, "kernels/common/device.cuh", "no such tag", "b r t", "k row",
                                 a_of_mma, NULL));
    layouts_finish(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_wavefronts),
        cmocka_unit_test(find_places_out_of_bounds),
        cmocka_unit_test(find_accesses_out_of_line),
        cmocka_unit_test(find_elements_left_out_or_written_twice),
        cmocka_unit_test(find_what_is_read_from_another_place),
        cmocka_unit_test(find_torn_cache_lines),
        cmocka_unit_test(allow_what_is_declared),
        cmocka_unit_test(compare_register_assignments),
        cmocka_unit_test(read_comments_of_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
