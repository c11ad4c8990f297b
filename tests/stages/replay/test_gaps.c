/* The sidecar's text and what it does to validity, for frames of every layout. */
#include "tests/stages/files_common.h"

#include "formats/common/gaps.h"

static void test_parse(void **state)
{
    (void)state;
    static const char text[] = "# comment\n100 5\n\n20 4 1 2 77 # partly\n  7\t1\r\n";
    struct gaps gaps;
    struct br_error error = {0};
    assert_int_equal(gaps_parse(&gaps, "x.gaps", text, sizeof text - 1, 3, &error), 0);
    assert_int_equal(gaps.count, 3);
    assert_int_equal(gaps.gap[0].first, 7);
    assert_int_equal(gaps.gap[1].weight, 77);
    assert_int_equal(gaps.gap[2].nchannels, 3);
    assert_true(gaps_touch(&gaps, 7, 1) && gaps_touch(&gaps, 0, 8) && gaps_touch(&gaps, 23, 1) &&
                gaps_touch(&gaps, 104, 9));
    assert_false(gaps_touch(&gaps, 0, 7) || gaps_touch(&gaps, 8, 12) || gaps_touch(&gaps, 105, 1000));
    gaps_free(&gaps);

    static const char *const bad[] = {"1",
                                      "1 2 3",
                                      "-1 2",
                                      "1 0",
                                      "1 2 3 1 0",
                                      "1 2 0 4 0",
                                      "1 2 0 0 0",
                                      "1 2 0 1 256",
                                      "4611686018427387904 1",
                                      "99999999999999999999 1",
                                      "1 2 x 1 0",
                                      "1 2 0 1 0 9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct br_error why = {0};
        if (gaps_parse(&gaps, "x.gaps", bad[i], strlen(bad[i]), 3, &why) != BR_E_FORMAT)
            fail_msg("'%s' is taken", bad[i]);
        assert_non_null(strstr(why.text, "x.gaps:1"));
    }
}

struct text {
    char bytes[1 << 16];
    size_t used;
};

static int collect(void *arg, const struct gap *gap)
{
    struct text *text = arg;
    text->used += gaps_format(text->bytes + text->used, gap);
    return 0;
}

/* Validity -> lines -> validity is the identity. */
static void identity(const struct br_stream *s, uint64_t first, uint64_t samples, uint64_t shift)
{
    struct br_frame *f = driver_frame(s), *g = driver_frame(s);
    uint64_t seed = 11;
    uint8_t scratch_rows[64];
    static struct text text;
    for (int validity = 1; validity < 3; validity++) {
        random_frame(s, f, first, samples, validity, &seed);
        text.used = 0;
        assert_int_equal(gaps_describe(s, f, scratch_rows, collect, &text), 0);
        struct gaps gaps;
        struct br_error error = {0};
        assert_int_equal(gaps_parse(&gaps, "x.gaps", text.bytes, text.used, s->nchannels, &error), 0);
        g->first = first + shift;
        g->samples = samples;
        g->complete = true;
        br_frame_open_validity(s, g);
        gaps_apply(&gaps, s, g, shift, first + shift, first + shift + samples);
        br_frame_open_validity(s, f);
        assert_memory_equal(f->valid, g->valid, br_frame_cells(s, f));
        gaps_free(&gaps);
    }
    driver_frame_free(f);
    driver_frame_free(g);
}

static void test_identity(void **state)
{
    (void)state;
    struct br_stream field = field_stream(50);
    identity(&field, 7, 43, 0);
    identity(&field, 0, 50, 350);
    struct br_stream grid = basic_stream(BR_F16, "freq,time,gridp,gridq", (size_t[]){5, 8, 4, 6}, 5, 96, 12);
    identity(&grid, 13, 83, 0);
    identity(&grid, 96, 96, 96);
    struct br_stream zoned =
        basic_stream(BR_INT4X2, "time,freq,pol,dish", (size_t[]){64, 3, 2, 5}, 16, 64, 1);
    zoned.nzones = 2;
    zoned.zone[0] = (struct br_zone){0, 8, 4, 4, 6};
    zoned.zone[1] = (struct br_zone){8, 8, 8, 8, 12};
    identity(&zoned, 17, 47, 64);
}

/* Only what lies in the span is touched, and a line covers every step that it touches. */
static void test_span(void **state)
{
    (void)state;
    struct br_stream s = basic_stream(BR_F16, "freq,time,beam", (size_t[]){2, 8, 1}, 2, 32, 4);
    struct br_frame *f = driver_frame(&s);
    struct gaps gaps;
    struct br_error error = {0};
    assert_int_equal(gaps_parse(&gaps, "x", "0 100 1 1 9\n5 4\n", 16, 2, &error), 0);
    f->first = 0;
    f->samples = 32;
    br_frame_open_validity(&s, f);
    gaps_apply(&gaps, &s, f, 0, 4, 20);
    static const uint8_t want[2][8] = {{255, 0, 0, 255, 255, 255, 255, 255},
                                       {255, 0, 0, 9, 9, 255, 255, 255}};
    assert_memory_equal(f->valid, want, 16);
    gaps_free(&gaps);
    driver_frame_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_span),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
