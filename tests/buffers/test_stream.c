/* The time base, zones, and what a stream description must satisfy. Oracles count step by step. */
#include "tests/buffers/plain.h"

/* int4x2, 3 + 2 + 1 coarse channels upchannelized by 4, 2 and 1: 12 + 4 + 1 fine ones. */
static struct br_stream zoned_stream(void)
{
    static double freq[17], width[17];
    for (int i = 0; i < 17; i++) {
        freq[i] = 400 + i;
        width[i] = 1;
    }
    struct br_stream s = {.frame_samples = 8,
                          .sample_ns = {5120, 3},
                          .nchannels = 17,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 3,
                          .zone = {{0, 12, 4, 4, 0}, {12, 4, 2, 2, 0}, {16, 1, 1, 1, 0}},
                          .scale = 1};
    assert_int_equal(br_array_init(&s.array, BR_INT4X2, "time,freq,pol,dish", (size_t[]){8, 6, 2, 5}, NULL),
                     0);
    return s;
}

static void counts_time_steps(void **state)
{
    (void)state;
    for (unsigned d = 1; d <= 7; d++)
        for (uint64_t first = 0; first < 20; first++)
            for (uint64_t n = 0; n < 20; n++) {
                size_t steps = 0; /* a step is touched when one of its samples lies in the span */
                for (uint64_t step = 0; step < 64; step++) {
                    bool touched = false;
                    for (uint64_t k = step * d; k < (step + 1) * d; k++)
                        touched |= k >= first && k < first + n;
                    steps += touched;
                }
                assert_int_equal(br_time_steps(first, n, d), steps);
            }
    assert_int_equal(br_time_steps(UINT64_MAX - 9, 10, 10), 2);
}

static void one_part_when_zones_agree(void **state)
{
    (void)state;
    struct br_stream s = plain_stream(6, 4, 3);
    s.nzones = 2;
    s.zone[0] = (struct br_zone){0, 3, 1, 2, 0};
    s.zone[1] = (struct br_zone){3, 1, 1, 2, 0};
    s.array.axis[0].length = 3;
    assert_int_equal(br_stream_check(&s, NULL), 0);
    assert_false(br_stream_is_zoned(&s));
    assert_int_equal(br_stream_nparts(&s), 1);
    struct br_part p = br_stream_part(&s, 0, 1, 6); /* samples 1...6: steps 0 to 3 */
    assert_int_equal(p.nsteps, 4);
    assert_int_equal(p.nchannels, 4);
    assert_int_equal(p.first_channel, 0);
    assert_int_equal(p.downsample, 2);
    assert_int_equal(p.offset, 0);
    assert_int_equal(p.bytes, 4 * 4 * 3);
    assert_int_equal(p.valid_offset, 0);
    assert_int_equal(br_stream_max_bytes(&s), 4 * 4 * 3);
    assert_int_equal(br_stream_max_validity(&s), 4 * 4);
}

static void parts_follow_each_other(void **state)
{
    (void)state;
    struct br_stream s = zoned_stream();
    struct br_error error = {0};
    if (br_stream_check(&s, &error) != 0) fail_msg("%s", error.text);
    assert_true(br_stream_is_zoned(&s));
    assert_int_equal(br_stream_nparts(&s), 3);
    size_t most_bytes = 0, most_cells = 0;
    for (uint64_t first = 0; first < 9; first++)
        for (uint64_t n = 0; n <= 8; n++) {
            size_t bytes = 0, cells = 0;
            for (unsigned i = 0; i < 3; i++) {
                const struct br_zone *z = &s.zone[i];
                struct br_part p = br_stream_part(&s, i, first, n);
                size_t steps = n == 0 ? 0 : (first + n - 1) / z->downsample - first / z->downsample + 1;
                assert_int_equal(p.nsteps, steps);
                assert_int_equal(p.nchannels, z->nchannels);
                assert_int_equal(p.first_channel, z->first_channel);
                assert_int_equal(p.downsample, z->downsample);
                assert_int_equal(p.offset, bytes);
                assert_int_equal(p.valid_offset, cells);
                assert_int_equal(p.bytes, steps * z->nchannels * 10);
                bytes += p.bytes;
                cells += steps * z->nchannels;
            }
            most_bytes = bytes > most_bytes ? bytes : most_bytes;
            most_cells = cells > most_cells ? cells : most_cells;
        }
    assert_true(br_stream_max_bytes(&s) >= most_bytes);
    assert_true(br_stream_max_validity(&s) >= most_cells);
    assert_true(br_stream_max_validity(&s) <= most_cells + 17); /* at most one step too many */
}

static void time_is_exact(void **state)
{
    (void)state;
    struct br_stream s = {.epoch_ns = 1700000000000000001, .sample_ns = {5120, 3}};
    for (uint64_t k = 0; k < 1000; k++) {
        uint64_t thirds = k * 5120; /* of a nanosecond */
        uint64_t near = thirds / 3 + (thirds % 3 == 2);
        assert_true(br_stream_time_ns(&s, k) == 1700000000000000001 + (int64_t)near);
    }
    /* ten years of samples, a multiple of 3: exact */
    uint64_t k = UINT64_C(184528125) * 1000000u;
    assert_true(br_stream_time_ns(&s, k) == 1700000000000000001 + (int64_t)(k / 3 * 5120));
    s = (struct br_stream){.epoch_ns = -10, .sample_ns = {1, 2}};
    assert_true(br_stream_time_ns(&s, 0) == -10);
    assert_true(br_stream_time_ns(&s, 4) == -8);
    s.sample_ns = (struct br_rational){2560, 1};
    assert_true(br_stream_time_ns(&s, UINT64_MAX) == INT64_MAX); /* nothing wraps */
    assert_float_equal(br_stream_sample_s(&s), 2.56e-6, 1e-18);
}

static void parses_fractions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t num, den;
    } good[] = {{"5120/1", 5120, 1},
                {"2560", 2560, 1},
                {"1706.6666", 8533333, 5000},
                {"5120/3", 5120, 3},
                {"10240/6", 5120, 3},
                {"0.5", 1, 2},
                {".25", 1, 4},
                {"7.", 7, 1},
                {"2560.000000000000000000000000", 2560, 1},
                {"9223372036854775807", INT64_MAX, 1},
                {"0002560", 2560, 1}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct br_rational r = {0, 0};
        if (br_rational_parse(good[i].text, &r, NULL) != 0) fail_msg("'%s' refused", good[i].text);
        assert_true(r.num == good[i].num && r.den == good[i].den);
    }
    static const char *const bad[] = {"",
                                      "0",
                                      "-1",
                                      "+1",
                                      "1/0",
                                      "0/1",
                                      "/3",
                                      "5/",
                                      "1/2/3",
                                      "1.5/2",
                                      ".",
                                      "a",
                                      "1 ",
                                      " 1",
                                      "9223372036854775808",
                                      "1/9223372036854775808",
                                      "99999999999999999999999",
                                      "0.0000000000000000000001",
                                      "1e3",
                                      "nan",
                                      "inf",
                                      "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct br_rational r = {-7, -7};
        struct br_error error = {0};
        if (br_rational_parse(bad[i], &r, &error) != BR_E_INVALID) fail_msg("'%s' taken", bad[i]);
        assert_says(&error, "fraction");
        assert_true(r.num == -7);
    }
}

static void check_names_what_disagrees(void **state)
{
    (void)state;
    static const struct br_telescope scope = {.name = "t", .ndishes = 4};
    static const double bad_width[16] = {1, 1, 0};
    struct br_error error = {0};
#define REFUSED(stream, change, says)                                                                        \
    do {                                                                                                     \
        struct br_stream s = stream;                                                                         \
        change;                                                                                              \
        error = (struct br_error){0};                                                                        \
        assert_int_equal(br_stream_check(&s, &error), BR_E_INVALID);                                         \
        assert_says(&error, says);                                                                           \
    } while (0)
    struct br_stream plain = plain_stream(6, 4, 3);
    REFUSED(plain, s.frame_samples = 0, "no samples");
    REFUSED(plain, s.sample_ns.num = 0, "positive");
    REFUSED(plain, s.sample_ns.den = -1, "positive");
    REFUSED(plain, s.sample_ns = ((struct br_rational){4, 2}), "lowest terms");
    REFUSED(plain, s.nzones = 0, "zones");
    REFUSED(plain, s.nzones = BR_MAX_ZONES + 1, "zones");
    REFUSED(plain, s.zone[0].first_channel = 1, "begins at channel 1");
    REFUSED(plain, s.zone[0].nchannels = 3, "hold 3 channels");
    REFUSED(plain, s.zone[0].factor = 3, "multiple of its factor 3");
    REFUSED(plain, s.zone[0].downsample = 0, "at least 1");
    REFUSED(plain, s.zone[0].downsample = 4, "whole number");
    REFUSED(plain, s.zone[0].downsample = 2, "3 time steps");
    REFUSED(plain, s.array.axis[1].length = 5, "4 channels");
    REFUSED(plain, s.array.axis[2].length = 0, "empty");
    REFUSED(plain, strcpy(s.array.axis[0].name, "pol"), "needs a time");
    REFUSED(plain, s.telescope = &scope, "4 dishes");
    REFUSED(plain, s.nbeams = 2, "2 beams");
    REFUSED(plain, s.freq_mhz = NULL, "frequencies");
    REFUSED(plain, s.width_mhz = bad_width, "channel 2");
    REFUSED(plain, s.scale = 0, "scale");
    REFUSED(plain, s.array.axis[2].length = SIZE_MAX / 2, "memory");
    struct br_stream zoned = zoned_stream();
    REFUSED(zoned, s.array.axis[0].length = 4, "8 time steps");
    REFUSED(zoned, s.array.axis[1].length = 17, "6 coarse channels");
    REFUSED(zoned, s.zone[0].downsample = 8, "bytes");
    struct br_stream beams = plain_stream(6, 4, 3);
    br_array_init(&beams.array, BR_F16, "time,freq,beam", (size_t[]){6, 4, 6}, NULL);
    beams.nbeams = 6;
    assert_int_equal(br_stream_check(&beams, NULL), 0);
    REFUSED(beams, s.nbeams = 5, "5 beams");
    REFUSED(beams, (s.beams_x = 4, s.beams_y = 2), "4 x 2");
    REFUSED(beams, (s.beams_x = 0, s.beams_y = 6), "0 x 6");
    beams.beams_x = 2;
    beams.beams_y = 3;
    assert_int_equal(br_stream_check(&beams, NULL), 0);
#undef REFUSED
}

static void compatible_streams(void **state)
{
    (void)state;
    static const double freq[16] = {400, 401, 402, 404};
    struct br_stream a = plain_stream(6, 4, 3);
    assert_true(br_stream_compatible(&a, &a, NULL));
#define DIFFERS(change, says)                                                                                \
    do {                                                                                                     \
        struct br_stream b = a;                                                                              \
        struct br_error why = {0};                                                                           \
        change;                                                                                              \
        assert_false(br_stream_compatible(&a, &b, &why));                                                    \
        assert_says(&why, says);                                                                             \
    } while (0)
    DIFFERS(b.array.dtype = BR_UINT8, "uint8");
    DIFFERS(b.array.axis[2].length = 4, "[dish 4]");
    DIFFERS(b.side = b.array, "side");
    DIFFERS(b.frame_samples = 7, "7");
    DIFFERS(b.epoch_ns = 1, "time base");
    DIFFERS(b.sample_ns.num = 3, "time base");
    DIFFERS(b.freq_mhz = freq, "frequency");
    DIFFERS(b.zone[0].delay = 1, "zones");
    DIFFERS(b.scale = 2, "scale");
    DIFFERS(b.nbeams = 2, "beams");
#undef DIFFERS
    static const double p1[3][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}},
                        p2[3][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 2}};
    struct br_telescope x = {.ndishes = 3, .position = p1}, y = x;
    struct br_stream b = a;
    a.telescope = &x;
    b.telescope = &y;
    assert_true(br_stream_compatible(&a, &b, NULL));
    y.position = p2; /* one dish stands higher */
    assert_false(br_stream_compatible(&a, &b, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_time_steps),       cmocka_unit_test(one_part_when_zones_agree),
        cmocka_unit_test(parts_follow_each_other), cmocka_unit_test(time_is_exact),
        cmocka_unit_test(parses_fractions),        cmocka_unit_test(check_names_what_disagrees),
        cmocka_unit_test(compatible_streams),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
