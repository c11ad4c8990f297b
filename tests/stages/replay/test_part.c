/* A part of a recording's frequencies: which bands or channels it has, and which parts are refused. */
#include "tests/stages/files_common.h"

#include "stages/replay/replay.h"

static int parse(const char *text, struct part *part)
{
    struct br_stage *stage = driver_new(&replay_stage);
    struct replay_caller caller;
    replay_caller(&caller, stage);
    int status = part_parse(&caller.caller, text, part);
    assert_true(status == BR_OK || strstr(stage->error, "R/N") != NULL);
    driver_free(stage);
    return status;
}

static void test_text(void **state)
{
    (void)state;
    struct part part;
    assert_int_equal(parse(NULL, &part), BR_OK);
    assert_true(part.index == 0 && part.count == 1);
    assert_int_equal(parse("3/7", &part), BR_OK);
    assert_true(part.index == 3 && part.count == 7);
    assert_int_equal(parse("000000000/999999999", &part), BR_OK);
    assert_true(part.index == 0 && part.count == 999999999);
    static const char *const bad[] = {"",     "/",     "1",     "1/",          "/1",   "1/1",   "0/0",
                                      "8/7",  "-1/2",  "0/-1",  "0/2.5",       " 0/2", "0/2 ",  "0//2",
                                      "a/b",  "0/2/3", "0x0/2", "0 /2",        "0/2a", "1e0/2", "0,2",
                                      "+0/2", "0/+2",  "\n0/2", "0/0000000002"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i], &part) == BR_OK) fail_msg("'%s' is taken", bad[i]);
}

/* The parts of anything follow each other without holes, none is empty, and all are of about one size. */
static void test_shares(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40; n++)
        for (uint64_t parts = 1; parts <= n; parts++) {
            size_t reach = 0;
            for (uint64_t i = 0; i < parts; i++)
                for (int one = 0; one < 2; one++) {
                    struct share s;
                    struct part part = {i, parts};
                    if (n == 1 && !one) continue;
                    assert_int_equal(part_divide(NULL, &part, "x", one ? 1 : n, one ? n : 99, &s), BR_OK);
                    assert_int_equal(s.begin, reach);
                    assert_true(s.end > s.begin && s.end - s.begin <= n / parts + 1);
                    assert_true(s.end - s.begin <= part_most_channels(&part, n));
                    assert_int_equal(s.of_channels, one);
                    if (one) reach = s.end;
                }
            assert_int_equal(reach, n);
        }
}

static void test_too_many(void **state)
{
    (void)state;
    struct share s;
    struct part part = {1, 5};
    struct br_stage *stage = driver_new(&replay_stage);
    struct replay_caller caller;
    replay_caller(&caller, stage);
    assert_int_equal(part_divide(&caller.caller, &part, "x.dada", 4, 400, &s), BR_E_INVALID);
    assert_non_null(strstr(stage->error, "5 parts"));
    assert_non_null(strstr(stage->error, "4 bands"));
    assert_non_null(strstr(stage->error, "x.dada"));
    driver_free(stage);
    stage = driver_new(&replay_stage);
    replay_caller(&caller, stage);
    assert_int_equal(part_divide(&caller.caller, &part, "x.dada", 1, 4, &s), BR_E_INVALID);
    assert_non_null(strstr(stage->error, "4 channels"));
    driver_free(stage);
}

/* One file of three channels: `record` wrote it, each part gives back its channel's bytes and validity. */
static void test_channels(void **state)
{
    (void)state;
    struct br_stream s = field_stream(32);
    struct br_stage *w = driver_new(&record_stage);
    w->in[0] = s;
    driver_set_string(w, "directory", scratch);
    driver_set_string(w, "prefix", "p");
    if (driver_configure(w) != 0 || driver_start(w) != 0) fail_msg("%s", w->error);
    struct br_frame *f = driver_frame(&s);
    uint64_t seed = 1;
    random_frame(&s, f, 320, 32, 1, &seed);
    assert_int_equal(driver_process(w, f, NULL), BR_CONSUMED);
    end_stage(w);
    const char *path = in_scratch("p_000000.dada");
    static const char *const parts[] = {"0/3", "1/3", "2/3"};
    for (size_t c = 0; c < 3; c++) {
        struct br_stage *r = driver_new(&replay_stage);
        driver_set_strings(r, "files", &path, 1);
        driver_set_string(r, "part", parts[c]);
        driver_set_int(r, "frame_samples", 32);
        if (driver_configure(r) != 0 || driver_start(r) != 0) fail_msg("%s", r->error);
        const struct br_stream *out = &r->out[0];
        assert_int_equal(out->nchannels, 1);
        assert_memory_equal(out->freq_mhz, s.freq_mhz + c, sizeof(double));
        struct br_frame *g = driver_frame(out);
        assert_int_equal(driver_process(r, NULL, g), BR_PRODUCED);
        assert_true(g->first == 320 && g->samples == 32);
        br_frame_open_validity(out, g);
        br_frame_open_validity(&s, f);
        for (size_t t = 0; t < 32; t++) {
            assert_int_equal(g->valid[t], f->valid[3 * t + c]);
            assert_memory_equal((uint8_t *)g->data + 10 * t, (uint8_t *)f->data + 30 * t + 10 * c, 10);
        }
        assert_int_equal(driver_process(r, NULL, g), BR_FINISHED);
        driver_frame_free(g);
        end_stage(r);
    }
    driver_frame_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_channels),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
