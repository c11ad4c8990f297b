/* record and replay are inverse to each other, whatever the stream; what a stopped writer leaves can be
 * replayed. */
#include "tests/stages/files_common.h"

#include <signal.h>
#include <sys/resource.h>

enum { MAX_FRAMES = 64 };

struct span {
    uint64_t first, samples;
};

static struct br_stage *start_record(const struct br_stream *s, int64_t file_bytes)
{
    struct br_stage *r = driver_new(&record_stage);
    r->in[0] = *s;
    driver_set_string(r, "directory", scratch);
    driver_set_string(r, "prefix", "x");
    driver_set_int(r, "file_bytes", file_bytes);
    driver_set_bool(r, "overwrite", true);
    if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
    if (driver_start(r) != 0) fail_msg("start: %s", r->error);
    return r;
}

/* Records frames with random contents; returns copies of them. */
static size_t record_spans(const struct br_stream *s, const struct span *spans, int validity,
                           int64_t file_bytes, struct br_frame **copies)
{
    struct br_stage *r = start_record(s, file_bytes);
    struct br_frame *f = driver_frame(s);
    uint64_t seed = 42;
    size_t n = 0;
    for (; spans[n].samples > 0; n++) {
        random_frame(s, f, spans[n].first, spans[n].samples, validity, &seed);
        if (driver_process(r, f, NULL) != BR_CONSUMED) fail_msg("process: %s", r->error);
        copies[n] = copy_frame(s, f);
    }
    assert_int_equal(driver_process(r, NULL, NULL), BR_FINISHED);
    end_stage(r);
    driver_frame_free(f);
    return n;
}

static void assert_same_stream(const struct br_stream *a, const struct br_stream *b)
{
    struct br_error why = {0};
    if (!br_stream_compatible(a, b, &why)) fail_msg("%s", why.text);
    assert_true(br_array_equal(&a->array, &b->array));
    assert_true(br_array_equal(&a->side, &b->side));
    assert_int_equal(a->frame_samples, b->frame_samples);
    assert_int_equal(a->epoch_ns, b->epoch_ns);
    assert_int_equal(a->sample_ns.num, b->sample_ns.num);
    assert_int_equal(a->sample_ns.den, b->sample_ns.den);
    assert_int_equal(a->nchannels, b->nchannels);
    assert_memory_equal(a->freq_mhz, b->freq_mhz, a->nchannels * sizeof(double));
    assert_memory_equal(a->width_mhz, b->width_mhz, a->nchannels * sizeof(double));
    assert_int_equal(a->nzones, b->nzones);
    assert_memory_equal(a->zone, b->zone, a->nzones * sizeof a->zone[0]);
    assert_true(a->scale == b->scale);
    assert_int_equal(a->nbeams, b->nbeams);
    assert_int_equal(a->beams_x, b->beams_x);
    assert_int_equal(a->beams_y, b->beams_y);
    if (a->beams != NULL) assert_memory_equal(a->beams, b->beams, a->nbeams * sizeof *a->beams);
}

/* The streams of these tests have narrow channels, and that alone is told. */
static void assert_only_odd_channels(const char *warning)
{
    if (warning[0] != '\0') assert_non_null(strstr(warning, "width x sample time"));
}

/* A recording comes back frame for frame; holes between spans come back as missing samples. */
static void round_trip(const struct br_stream *s, const struct span *spans, int validity, int64_t file_bytes)
{
    struct br_frame *copies[MAX_FRAMES];
    const char *pattern = in_scratch("x_*.dada");
    size_t n = record_spans(s, spans, validity, file_bytes, copies);
    struct br_stage *r = start_replay(&pattern, 0, 1);
    assert_same_stream(s, &r->out[0]);
    assert_only_odd_channels(r->warning);
    struct br_frame *f = driver_frame(s);
    uint64_t at = copies[0]->first;
    for (size_t i = 0; i < n;) {
        int result = driver_process(r, NULL, f);
        if (result != BR_PRODUCED) fail_msg("process: %d %s", result, r->error);
        assert_int_equal(f->first, at);
        at = f->first + f->samples;
        if (f->first < copies[i]->first) {
            assert_true(at <= copies[i]->first);
            assert_int_equal(f->missing, br_frame_cells(s, f));
            continue;
        }
        assert_same_frame(s, copies[i], f);
        driver_frame_free(copies[i++]);
    }
    assert_int_equal(driver_process(r, NULL, f), BR_FINISHED);
    assert_int_equal(driver_all_lost_samples(r), 0);
    driver_frame_free(f);
    end_stage(r);
}

static void test_field(void **state)
{
    (void)state;
    struct br_stream s = field_stream(16);
    const struct span spans[] = {{5, 11}, {16, 16}, {32, 16}, {48, 3}, {0, 0}};
    for (int validity = 0; validity < 3; validity++) {
        round_trip(&s, spans, validity, 0);
        round_trip(&s, spans, validity, 700); /* several files */
    }
}

/* Time slowest, but several base samples a step; the ends cover steps in part. */
static void test_downsampled(void **state)
{
    (void)state;
    struct br_stream s = basic_stream(BR_INT4X2, "time,freq,pol,dish", (size_t[]){4, 8, 2, 5}, 8, 16, 4);
    s.zone[0].factor = 4;
    const struct span spans[] = {{6, 10}, {16, 16}, {32, 9}, {0, 0}};
    round_trip(&s, spans, 0, 0);
    round_trip(&s, spans, 2, 0);
}

static void test_zoned(void **state)
{
    (void)state;
    struct br_stream s =
        basic_stream(BR_INT4X2, "time,freq,pol,dish", (size_t[]){64, 3, 2, 5}, 2 * 4 + 8, 64, 1);
    s.nzones = 2;
    s.zone[0] = (struct br_zone){0, 8, 4, 4, 6};
    s.zone[1] = (struct br_zone){8, 8, 8, 8, 12};
    const struct span spans[] = {{17, 47}, {64, 64}, {128, 33}, {0, 0}};
    for (int validity = 0; validity < 3; validity++) {
        round_trip(&s, spans, validity, 0);
        round_trip(&s, spans, validity, 3000);
    }
}

static void test_grid(void **state)
{
    (void)state;
    struct br_stream s = basic_stream(BR_F16, "freq,time,gridp,gridq", (size_t[]){5, 8, 4, 6}, 5, 96, 12);
    const struct span spans[] = {{13, 83}, {96, 96}, {192, 40}, {0, 0}};
    round_trip(&s, spans, 0, 0);
    round_trip(&s, spans, 2, 0);
}

static void test_levels(void **state)
{
    (void)state;
    static const struct br_beam beams[6] = {{0, 0}, {0, .1}, {.2, 0}, {.2, .1}, {.3, 0}, {.3, .1}};
    struct br_stream s = basic_stream(BR_INT4, "beam,freq,time", (size_t[]){6, 5, 8}, 5, 96, 12);
    s.side =
        (struct br_array){.dtype = BR_F32, .naxes = 3, .axis = {{"beam", 6}, {"freq", 5}, {"number", 2}}};
    s.nbeams = 6;
    s.beams = beams;
    s.beams_x = 3;
    s.beams_y = 2;
    const struct span spans[] = {{12, 84}, {96, 96}, {192, 36}, {0, 0}}; /* 3 steps: rows begin in mid-byte */
    for (int validity = 0; validity < 3; validity++) {
        round_trip(&s, spans, validity, 0);
        round_trip(&s, spans, validity, 1);
    }
}

/* Losses: a flat recording keeps them in one file, others begin a new one. */
static void test_holes(void **state)
{
    (void)state;
    struct br_stream flat = field_stream(16);
    const struct span spans[] = {{0, 16}, {16, 5}, {27, 5}, {96, 16}, {0, 0}};
    struct br_frame *copies[MAX_FRAMES];
    size_t n = record_spans(&flat, spans, 1, 0, copies);
    const char *pattern = in_scratch("x_*.dada");
    struct br_stage *r = start_replay(&pattern, 0, 1);
    struct br_frame *f = driver_frame(&flat);
    size_t row = 30;
    for (uint64_t at = 0; at < 112; at += 16) {
        assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
        assert_int_equal(f->first, at);
        assert_int_equal(f->samples, 16);
        br_frame_open_validity(&flat, f);
        for (uint64_t k = at; k < at + 16; k++) {
            struct br_frame *c = NULL;
            for (size_t i = 0; i < n; i++)
                if (copies[i]->first <= k && k < copies[i]->first + copies[i]->samples) c = copies[i];
            static const uint8_t missing[3];
            const uint8_t *valid = f->valid + (k - at) * 3;
            if (c == NULL) {
                assert_memory_equal(valid, missing, 3);
                continue;
            }
            br_frame_open_validity(&flat, c);
            assert_memory_equal(valid, c->valid + (k - c->first) * 3, 3);
            assert_memory_equal((uint8_t *)f->data + (k - at) * row,
                                (uint8_t *)c->data + (k - c->first) * row, row);
        }
    }
    assert_int_equal(driver_process(r, NULL, f), BR_FINISHED);
    assert_int_not_equal(access(in_scratch("x_000001.dada"), F_OK), 0);
    end_stage(r);
    driver_frame_free(f);
    for (size_t i = 0; i < n; i++) driver_frame_free(copies[i]);

    struct br_stream grid = basic_stream(BR_F16, "freq,time,gridp,gridq", (size_t[]){5, 8, 4, 6}, 5, 96, 12);
    const struct span framed[] = {{0, 96}, {96, 40}, {150, 42}, {480, 96}, {0, 0}};
    round_trip(&grid, framed, 2, 0);
    assert_int_equal(access(in_scratch("x_000002.dada"), F_OK), 0);
}

/* Replayed in other frames: the same rows. */
static void test_frame_sizes(void **state)
{
    (void)state;
    struct br_stream s = field_stream(16);
    const struct span spans[] = {{5, 11}, {16, 16}, {32, 16}, {48, 3}, {0, 0}};
    struct br_frame *copies[MAX_FRAMES];
    size_t n = record_spans(&s, spans, 2, 900, copies);
    const char *pattern = in_scratch("x_*.dada");
    for (uint64_t size = 1; size < 70; size += 9) {
        struct br_stage *r = start_replay(&pattern, size, 1);
        struct br_frame *f = driver_frame(&r->out[0]);
        uint64_t at = 5;
        for (size_t i = 0; i < n; i++) br_frame_open_validity(&s, copies[i]);
        while (driver_process(r, NULL, f) == BR_PRODUCED) {
            assert_int_equal(f->first, at);
            br_frame_open_validity(&r->out[0], f);
            for (; at < f->first + f->samples; at++) {
                struct br_frame *c = copies[at / 16];
                assert_memory_equal((uint8_t *)f->data + (at - f->first) * 30,
                                    (uint8_t *)c->data + (at - c->first) * 30, 30);
                assert_memory_equal(f->valid + (at - f->first) * 3, c->valid + (at - c->first) * 3, 3);
            }
            assert_true(at == 51 || at % size == 0);
        }
        assert_int_equal(at, 51);
        end_stage(r);
        driver_frame_free(f);
    }
    for (size_t i = 0; i < n; i++) driver_frame_free(copies[i]);
}

/* A recording played three times is its samples three times, one after the other. */
static void test_loop(void **state)
{
    (void)state;
    struct br_stream s = field_stream(16);
    const struct span spans[] = {{5, 11}, {16, 16}, {32, 5}, {0, 0}};
    struct br_frame *copies[MAX_FRAMES];
    size_t n = record_spans(&s, spans, 1, 0, copies);
    for (size_t i = 0; i < n; i++) br_frame_open_validity(&s, copies[i]);
    const char *pattern = in_scratch("x_*.dada");
    struct br_stage *r = start_replay(&pattern, 64, 3);
    struct br_frame *f = driver_frame(&r->out[0]);
    uint64_t at = 5;
    while (driver_process(r, NULL, f) == BR_PRODUCED) {
        assert_int_equal(f->first, at);
        br_frame_open_validity(&r->out[0], f);
        for (; at < f->first + f->samples; at++) {
            uint64_t k = 5 + (at - 5) % 32;
            struct br_frame *c = copies[k / 16];
            assert_memory_equal((uint8_t *)f->data + (at - f->first) * 30,
                                (uint8_t *)c->data + (k - c->first) * 30, 30);
            assert_memory_equal(f->valid + (at - f->first) * 3, c->valid + (k - c->first) * 3, 3);
        }
    }
    assert_int_equal(at, 5 + 3 * 32);
    end_stage(r);
    driver_frame_free(f);
    for (size_t i = 0; i < n; i++) driver_frame_free(copies[i]);

    struct br_stream grid = basic_stream(BR_F16, "freq,time,gridp,gridq", (size_t[]){5, 8, 4, 6}, 5, 96, 12);
    const struct span framed[] = {{24, 72}, {96, 30}, {0, 0}};
    n = record_spans(&grid, framed, 2, 0, copies);
    r = start_replay(&pattern, 0, 2);
    f = driver_frame(&grid);
    for (uint64_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
            if (pass == 1 && i == 0) { /* what is between the end and the next frame boundary */
                assert_int_equal(f->missing, br_frame_cells(&grid, f));
                assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
                if (f->first % 96 == 0) assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
            }
            f->first -= pass * 192;
            assert_same_frame(&grid, copies[i], f);
        }
    }
    assert_int_equal(driver_process(r, NULL, f), BR_FINISHED);
    end_stage(r);
    driver_frame_free(f);
    for (size_t i = 0; i < n; i++) driver_frame_free(copies[i]);
}

/* The sidecar does not depend on where frames were cut. */
static void test_sidecar(void **state)
{
    (void)state;
    char *want = NULL;
    size_t bytes = 0;
    for (uint64_t size = 96; size >= 6; size /= 2) {
        struct br_stream s = field_stream(size);
        struct br_stage *r = start_record(&s, 0);
        struct br_frame *f = driver_frame(&s);
        for (uint64_t first = 0; first < 192; first += size) {
            f->first = first;
            f->samples = size;
            f->complete = true;
            br_frame_open_validity(&s, f);
            for (uint64_t k = first; k < first + size; k++) {
                for (size_t c = 0; c < 3; c++) {
                    bool missing = (k >= 10 && k < 150 && c == 1) || (k >= 40 && k < 41) ||
                                   (k >= 90 && k < 130 && c == 0);
                    f->valid[(k - first) * 3 + c] = missing ? 0 : k == 180 && c == 2 ? 77 : 255;
                }
            }
            br_frame_close_validity(&s, f);
            assert_int_equal(driver_process(r, f, NULL), BR_CONSUMED);
        }
        end_stage(r);
        driver_frame_free(f);
        size_t got_bytes;
        char *got = read_all(in_scratch("x_000000.dada.gaps"), &got_bytes);
        if (want == NULL) {
            assert_string_equal(got,
                                "10 30 1 1 0\n40 1\n41 49 1 1 0\n90 40 0 2 0\n130 20 1 1 0\n180 1 2 1 77\n");
            want = got;
            bytes = got_bytes;
        } else {
            assert_int_equal(got_bytes, bytes);
            assert_string_equal(got, want);
            free(got);
        }
    }
    free(want);
}

/* A run that is killed never comes to stop: all whole frames are there. */
static void test_killed(void **state)
{
    (void)state;
    struct br_stream s = field_stream(16);
    struct br_stage *w = start_record(&s, 0);
    struct br_frame *f = driver_frame(&s), *copies[4];
    uint64_t seed = 7;
    for (uint64_t i = 0; i < 4; i++) {
        random_frame(&s, f, 16 * i, 16, 1, &seed);
        assert_int_equal(driver_process(w, f, NULL), BR_CONSUMED);
        copies[i] = copy_frame(&s, f);
    }
    const char *pattern = in_scratch("x_*.dada");
    struct br_stage *r = start_replay(&pattern, 0, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
        assert_same_frame(&s, copies[i], f);
        driver_frame_free(copies[i]);
    }
    assert_int_equal(driver_process(r, NULL, f), BR_FINISHED);
    end_stage(r);
    end_stage(w);
    driver_frame_free(f);
}

/* The file size limit stands in for a full disk. */
static void test_disk_full(void **state)
{
    (void)state;
    struct br_stream s = field_stream(64);
    struct br_stage *w = start_record(&s, 0);
    struct br_frame *f = driver_frame(&s);
    struct rlimit was, limit;
    getrlimit(RLIMIT_FSIZE, &was);
    limit = was;
    limit.rlim_cur = 4096 + 3 * 64 * 30 + 1000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    uint64_t seed = 7;
    for (uint64_t i = 0; i < 4; i++) {
        random_frame(&s, f, 64 * i, 64, 1, &seed);
        assert_int_equal(driver_process(w, f, NULL), i < 3 ? BR_CONSUMED : BR_E_IO);
    }
    assert_non_null(strstr(w->error, "x_000000.dada"));
    driver_stop(w);
    setrlimit(RLIMIT_FSIZE, &was);
    driver_free(w);
    const char *pattern = in_scratch("x_*.dada");
    struct br_stage *r = start_replay(&pattern, 0, 1);
    assert_only_odd_channels(r->warning);
    for (int i = 0; i < 3; i++) assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
    assert_int_equal(driver_process(r, NULL, f), BR_FINISHED);
    end_stage(r);
    driver_frame_free(f);
}

static void test_refuses(void **state)
{
    (void)state;
    struct br_stream s = field_stream(16);
    write_file(in_scratch("y_000007.dada"), "precious", 8);
    struct br_stage *w = driver_new(&record_stage);
    w->in[0] = s;
    driver_set_string(w, "directory", scratch);
    driver_set_string(w, "prefix", "y");
    assert_int_equal(driver_configure(w), BR_E_INVALID);
    assert_non_null(strstr(w->error, "y_000007.dada"));
    driver_free(w);
    unlink(in_scratch("y_000007.dada"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_field),       cmocka_unit_test(test_downsampled),
        cmocka_unit_test(test_zoned),       cmocka_unit_test(test_grid),
        cmocka_unit_test(test_levels),      cmocka_unit_test(test_holes),
        cmocka_unit_test(test_frame_sizes), cmocka_unit_test(test_loop),
        cmocka_unit_test(test_sidecar),     cmocka_unit_test(test_killed),
        cmocka_unit_test(test_disk_full),   cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
