/* Validity beside the data. */
#include "tests/buffers/plain.h"

static void a_fraction_in_a_byte(void **state)
{
    (void)state;
    for (uint64_t total = 1; total <= 600; total++)
        for (uint64_t valid = 0; valid <= total; valid++) {
            double w = br_validity(valid, total), exact = 255.0 * (double)valid / (double)total;
            assert_true((w == 0) == (valid == 0));
            assert_true((w == 255) == (valid == total));
            assert_true(w - exact <= 1 && exact - w <= 1);
        }
    assert_int_equal(br_validity(1, UINT64_MAX), 1);
    assert_int_equal(br_validity(UINT64_MAX - 1, UINT64_MAX), 254);
    assert_int_equal(br_validity(0, 0), 0);
}

static void sizes_of_short_frames(void **state)
{
    (void)state;
    struct br_stream s = plain_stream(6, 4, 3);
    struct br_frame f = {.first = 12, .samples = 6};
    assert_int_equal(br_frame_cells(&s, &f), 24);
    assert_int_equal(br_frame_bytes(&s, &f), 72);
    f.samples = 1;
    assert_int_equal(br_frame_cells(&s, &f), 4);
    assert_int_equal(br_frame_bytes(&s, &f), 12);
    /* nibbles: 3 steps of 1 channel of 3 elements are 9 nibbles */
    s = plain_stream(4, 1, 3);
    s.array.dtype = BR_INT4;
    f = (struct br_frame){.first = 0, .samples = 3};
    assert_int_equal(br_frame_bytes(&s, &f), 5);
}

/* Two zones: 2 coarse channels at factor 2 (steps of 2 samples, 4 channels), 1 at factor 1. */
static struct br_stream two_zones(void)
{
    struct br_stream s = plain_stream(4, 5, 1);
    s.nzones = 2;
    s.zone[0] = (struct br_zone){0, 4, 2, 2, 0};
    s.zone[1] = (struct br_zone){4, 1, 1, 1, 0};
    s.array.axis[1].length = 3;
    assert_int_equal(br_stream_check(&s, NULL), 0);
    return s;
}

static void opens_and_closes(void **state)
{
    (void)state;
    struct br_stream streams[2] = {plain_stream(6, 4, 3), two_zones()};
    for (int i = 0; i < 2; i++) {
        struct br_stream *s = &streams[i];
        uint8_t valid[64];
        struct br_frame f = {.first = 0, .samples = s->frame_samples, .complete = true, .valid = valid};
        size_t cells = br_frame_cells(s, &f);
        assert_int_equal(cells, i == 0 ? 24 : 2 * 4 + 4);
        memset(valid, 7, sizeof valid);
        br_frame_close_validity(s, &f); /* complete: the bytes are not looked at */
        assert_true(f.complete);
        assert_int_equal(f.missing, 0);
        br_frame_open_validity(s, &f);
        assert_false(f.complete);
        for (size_t c = 0; c < sizeof valid; c++) assert_int_equal(valid[c], c < cells ? 255 : 7);
        br_frame_close_validity(s, &f);
        assert_true(f.complete);
        br_frame_open_validity(s, &f);
        valid[cells - 1] = 0;
        valid[1] = 254;
        br_frame_open_validity(s, &f); /* open already: nothing is lost */
        assert_int_equal(valid[1], 254);
        br_frame_close_validity(s, &f);
        assert_false(f.complete);
        assert_int_equal(f.missing, 1);
        memset(valid, 0, cells);
        br_frame_close_validity(s, &f);
        assert_int_equal(f.missing, cells);
        memset(valid, 254, cells);
        br_frame_close_validity(s, &f);
        assert_false(f.complete);
        assert_int_equal(f.missing, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fraction_in_a_byte),
        cmocka_unit_test(sizes_of_short_frames),
        cmocka_unit_test(opens_and_closes),
    };
    return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
