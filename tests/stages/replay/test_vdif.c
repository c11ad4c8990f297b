/* VDIF recordings: every value is in its place, in whatever order frames arrive, and absent data are
 * missing. */
#include "tests/stages/files_common.h"

#include "formats/vdif/vdif.h"

enum { CHANNELS = 4, SPREAD = 8, THREADS = 2, PAYLOAD = CHANNELS * SPREAD, FRAME = 32 + PAYLOAD, RATE = 800 };

/* The test packs frames itself, from the text of the standard. */
struct fields {
    uint32_t seconds, number;
    unsigned thread, bits, log2_channels, epoch;
    bool complex_data, invalid;
};

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void put_header(uint8_t *at, struct fields f)
{
    memset(at, 0, 32);
    put32(at, f.seconds | (uint32_t)f.invalid << 31);
    put32(at + 4, f.number | f.epoch << 24);
    put32(at + 8, FRAME / 8 | f.log2_channels << 24);
    put32(at + 12, 0x4241 | f.thread << 16 | (f.bits - 1) << 26 | (uint32_t)f.complex_data << 31);
}

/* The byte of sample k (from the first second on), channel and thread: an offset-binary pair that names its
 * place. */
static uint8_t value(uint64_t k, unsigned channel, unsigned thread)
{
    uint64_t seed = k * 64 + channel * 8 + thread;
    return (uint8_t)random64(&seed);
}

static struct fields good(uint64_t k, unsigned thread)
{
    return (struct fields){.seconds = 1000 + (uint32_t)(k / RATE),
                           .number = (uint32_t)(k % RATE / SPREAD),
                           .thread = thread,
                           .bits = 4,
                           .log2_channels = 2,
                           .epoch = 44,
                           .complex_data = true};
}

static size_t put_frame(uint8_t *at, uint64_t k, unsigned thread)
{
    put_header(at, good(k, thread));
    for (unsigned t = 0; t < SPREAD; t++)
        for (unsigned c = 0; c < CHANNELS; c++) at[32 + t * CHANNELS + c] = value(k + t, c, thread);
    return FRAME;
}

static struct br_stage *configure_vdif(const char *const *patterns, size_t n)
{
    static const double freq[CHANNELS] = {800, 799, 798, 797};
    struct br_stage *r = driver_new(&replay_stage);
    driver_set_strings(r, "files", patterns, n);
    driver_set_int(r, "frame_samples", 20);
    r->hints = (struct br_stream_hints){.sample_ns = {1250000, 1}, .nfreq = CHANNELS, .freq_mhz = freq};
    return r;
}

/* Replays and checks all valid data. Returns the validity of each sample of [first, ...), and their
 * number. */
static uint64_t replay(struct br_stage *r, uint64_t first, uint8_t *valid)
{
    if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
    if (driver_start(r) != 0) fail_msg("start: %s", r->error);
    struct br_frame *f = driver_frame(&r->out[0]);
    uint64_t at = first, frame = r->out[0].frame_samples;
    int result;
    while ((result = driver_process(r, NULL, f)) == BR_PRODUCED) {
        assert_int_equal(f->first, at);
        br_frame_open_validity(&r->out[0], f);
        for (; at < f->first + f->samples; at++) {
            const uint8_t *v = f->valid + (at - f->first) * CHANNELS;
            valid[at - first] = v[0];
            for (unsigned c = 0; c < CHANNELS; c++) {
                assert_int_equal(v[c], v[0]);
                for (unsigned t = 0; t < THREADS && v[0] != 0; t++) {
                    uint8_t got = ((uint8_t *)f->data)[((at - f->first) * CHANNELS + c) * THREADS + t],
                            v8 = value(at, c, t);
                    int re = (int8_t)(got << 4) >> 4, im = (int8_t)got >> 4;
                    assert_int_equal(re, (v8 & 15) - 8);
                    assert_int_equal(im, (v8 >> 4) - 8);
                }
            }
        }
    }
    if (result != BR_FINISHED) fail_msg("process: %s", r->error);
    (void)frame;
    driver_frame_free(f);
    assert_int_equal(driver_stop(r), 0);
    return at - first;
}

static void assert_missing(const uint8_t *valid, uint64_t n, uint64_t from, uint64_t to)
{
    for (uint64_t i = 0; i < n; i++)
        if ((valid[i] == 0) != (i >= from && i < to)) fail_msg("sample %d has validity %d", (int)i, valid[i]);
}

/* Writes frames for samples [from, to), both threads. */
static size_t put_span(uint8_t *at, uint64_t from, uint64_t to)
{
    size_t used = 0;
    for (uint64_t k = from; k < to; k += SPREAD)
        for (unsigned t = 0; t < THREADS; t++) used += put_frame(at + used, k, t);
    return used;
}

static uint8_t buffer[1 << 20], valid[1 << 16];

static void test_values(void **state)
{
    (void)state;
    const char *path = in_scratch("a.vdif");
    write_file(path, buffer, put_span(buffer, 760, 1000)); /* across the end of a second */
    struct br_stage *r = configure_vdif(&path, 1);
    assert_int_equal(replay(r, 760, valid), 240);
    assert_missing(valid, 240, 0, 0);
    assert_int_equal(driver_all_lost_samples(r), 0);
    assert_int_equal(br_array_length(&r->out[0].array, "pol"), 2);
    assert_int_equal(br_array_length(&r->out[0].array, "dish"), 1);
    /* epoch 44 is the first half of 2022 */
    assert_true(r->out[0].epoch_ns == (INT64_C(1640995200) + 1000) * 1000000000);
    driver_free(r);

    r = configure_vdif(&path, 1); /* the pipeline's own counter: 10 s earlier */
    r->hints.have_epoch = true;
    r->hints.epoch_ns = (INT64_C(1640995200) + 990) * 1000000000;
    if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
    assert_int_equal(driver_start(r), 0);
    struct br_frame *f = driver_frame(&r->out[0]);
    assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
    assert_int_equal(f->first, 8760);
    driver_frame_free(f);
    end_stage(r);
}

/* Seconds since an epoch in 2000, with four leap seconds between; and within one half year. */
static void test_leap_seconds(void **state)
{
    (void)state;
    struct vdif_header h = {.epoch = 0, .seconds = 514629935};
    assert_int_equal(vdif_unix_seconds(&h), 1461314731); /* 2016-04-22 08:45:31 UTC */
    h = (struct vdif_header){.epoch = 33, .seconds = 10};
    assert_int_equal(vdif_unix_seconds(&h), 1467331210); /* 2016-07-01 00:00:10 UTC */
}

/* A frame holds whole samples: any number of them, even one. */
static void test_whole_samples(void **state)
{
    (void)state;
    static const struct {
        unsigned log2_channels;
        size_t data;
        int status;
    } cases[] = {{3, 8, BR_OK},  {3, 24, BR_OK}, {3, 16, BR_OK},       {4, 16, BR_OK},
                 {4, 48, BR_OK}, {0, 8, BR_OK},  {4, 24, BR_E_FORMAT}, {5, 48, BR_E_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vdif_header h = {.complex_data = true,
                                .bits = 4,
                                .log2_channels = cases[i].log2_channels,
                                .header_bytes = VDIF_HEADER,
                                .frame_bytes = VDIF_HEADER + cases[i].data};
        struct br_error error = {0};
        assert_int_equal(vdif_check(&h, "x.vdif", 0, 1000, &error), cases[i].status);
    }
}

/* Gaps, missing threads, and frames that are swapped, repeated, late or corrupt. */
static void test_disorder(void **state)
{
    (void)state;
    const char *path = in_scratch("a.vdif");
    size_t n = put_span(buffer, 0, 80);
    n += put_span(buffer + n, 160, 400);
    write_file(path, buffer, n);
    struct br_stage *r = configure_vdif(&path, 1);
    assert_int_equal(replay(r, 0, valid), 400);
    assert_missing(valid, 400, 80, 160);
    driver_free(r);

    n = put_span(buffer, 0, 400); /* thread 1 of samples 80 to 87 is lost */
    size_t hole = (80 / SPREAD * THREADS + 1) * FRAME;
    memmove(buffer + hole, buffer + hole + FRAME, n - hole - FRAME);
    write_file(path, buffer, n - FRAME);
    r = configure_vdif(&path, 1);
    assert_int_equal(replay(r, 0, valid), 400);
    assert_missing(valid, 400, 80, 88);
    driver_free(r);

    n = put_span(buffer, 0, 400); /* frames reversed in blocks of 20 */
    for (size_t i = 0; i + 20 <= n / FRAME; i += 20)
        for (size_t k = 0; k < 10; k++) {
            uint8_t hold[FRAME], *x = buffer + (i + k) * FRAME, *y = buffer + (i + 19 - k) * FRAME;
            memcpy(hold, x, FRAME);
            memcpy(x, y, FRAME);
            memcpy(y, hold, FRAME);
        }
    write_file(path, buffer, n);
    r = configure_vdif(&path, 1);
    assert_int_equal(replay(r, 0, valid), 400);
    assert_missing(valid, 400, 0, 0);
    assert_int_equal(driver_all_lost_samples(r), 0);
    driver_free(r);

    n = put_span(buffer, 0, 120); /* repeated at once; repeated much later; marked as invalid */
    n += put_span(buffer + n, 104, 120);
    n += put_span(buffer + n, 120, 2400);
    n += put_span(buffer + n, 200, 240);
    put_header(buffer + n, (struct fields){.seconds = 1003,
                                           .number = 0,
                                           .thread = 0,
                                           .bits = 4,
                                           .log2_channels = 2,
                                           .epoch = 44,
                                           .complex_data = true,
                                           .invalid = true});
    n += FRAME;
    n += put_frame(buffer + n, 2400, 1);
    write_file(path, buffer, n);
    r = configure_vdif(&path, 1);
    assert_int_equal(replay(r, 0, valid), 2408);
    assert_missing(valid, 2408, 2400, 2408);
    assert_int_equal(driver_lost_samples(r, BR_LOST_DUPLICATE), 16);
    assert_int_equal(driver_lost_samples(r, BR_LOST_LATE), 40);
    driver_free(r);

    n = put_span(buffer, 0, 400); /* a destroyed header; a frame number past the second; a time far ahead */
    memset(buffer + 20 * FRAME, 0xff, 32);
    struct fields wrong = good(88, 0);
    wrong.number = 100;
    put_header(buffer + 22 * FRAME, wrong);
    wrong = good(96, 0);
    wrong.seconds += 1000;
    put_header(buffer + 24 * FRAME, wrong);
    write_file(path, buffer, n);
    r = configure_vdif(&path, 1);
    assert_int_equal(replay(r, 0, valid), 400);
    assert_missing(valid, 400, 80, 104);
    assert_int_equal(driver_lost_samples(r, BR_LOST_CORRUPT), 12); /* 24 samples of one of two threads */
    driver_free(r);
}

static void test_files(void **state)
{
    (void)state;
    const char *paths[2] = {in_scratch("b.vdif"), in_scratch("a.vdif")};
    write_file(paths[1], buffer, put_span(buffer, 0, 400));
    write_file(paths[0], buffer,
               put_span(buffer, 480, 800) - FRAME - 9); /* truncated after 5 whole samples of one thread */
    struct br_stage *r = configure_vdif(paths, 2);
    assert_int_equal(replay(r, 0, valid), 797);
    assert_missing(valid, 792, 400, 480);
    assert_missing(valid + 792, 5, 0, 5);
    assert_non_null(strstr(r->warning, "truncated"));
    driver_free(r);

    r = configure_vdif(paths + 1, 1); /* repeatedly */
    driver_set_int(r, "loop", 3);
    if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
    assert_int_equal(driver_start(r), 0);
    struct br_frame *f = driver_frame(&r->out[0]);
    uint64_t at = 0;
    while (driver_process(r, NULL, f) == BR_PRODUCED) {
        assert_int_equal(f->first, at);
        assert_true(f->complete);
        for (; at < f->first + f->samples; at++)
            assert_int_equal(((uint8_t *)f->data)[(at - f->first) * CHANNELS * THREADS] ^ 0x88,
                             value(at % 400, 0, 0));
    }
    assert_int_equal(at, 1200);
    driver_frame_free(f);
    end_stage(r);
    unlink(paths[0]);
}

/* Threads have the order of the list; threads that are not listed are left out. */
static void test_threads(void **state)
{
    (void)state;
    const char *path = in_scratch("a.vdif");
    static const int64_t swapped[2] = {1, 0}, one[1] = {1};
    write_file(path, buffer, put_span(buffer, 0, 80));
    for (int i = 0; i < 2; i++) {
        struct br_stage *r = configure_vdif(&path, 1);
        driver_set_ints(r, "threads", i == 0 ? swapped : one, i == 0 ? 2 : 1);
        if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
        assert_int_equal(driver_start(r), 0);
        struct br_frame *f = driver_frame(&r->out[0]);
        assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
        assert_true(f->complete);
        for (uint64_t k = 0; k < 20; k++)
            assert_int_equal(((uint8_t *)f->data)[k * CHANNELS * (2u >> i)] ^ 0x88, value(k, 0, 1));
        driver_frame_free(f);
        end_stage(r);
    }
}

/* A long file, of which several threads read frames ahead. One VDIF thread lags behind, and long stretches
 * hold only unwanted threads or no headers at all, so that the frames read ahead do not suffice. */
static void test_stretches(void **state)
{
    enum { SAMPLES = 12000, LAG = 40 * SPREAD, STRETCH = 300 };
    (void)state;
    const char *path = in_scratch("a.vdif");
    static const int64_t wanted[THREADS] = {0, 1}, frames[] = {20, 64, 1000}, readers[] = {1, 2, 4};
    size_t n = 0;
    for (uint64_t k = 0; k < SAMPLES + LAG; k += SPREAD) {
        if (k < SAMPLES) n += put_frame(buffer + n, k, 0);
        if (k >= LAG) n += put_frame(buffer + n, k - LAG, 1);
        for (unsigned i = 0; k % 2400 == 800 && i < STRETCH; i++, n += FRAME) {
            put_frame(buffer + n, k, 7);
            if (k > SAMPLES / 2) memset(buffer + n, 0xff, 16);
        }
    }
    write_file(path, buffer, n);
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++) {
            struct br_stage *r = configure_vdif(&path, 1);
            driver_set_ints(r, "threads", wanted, THREADS);
            driver_set_int(r, "frame_samples", frames[i]);
            driver_set_int(r, "readers", readers[j]);
            assert_int_equal(replay(r, 0, valid), SAMPLES);
            assert_missing(valid, SAMPLES, 0, 0);
            assert_int_equal(driver_lost_samples(r, BR_LOST_CORRUPT), 2 * STRETCH * SPREAD / THREADS);
            driver_free(r);
        }
}

/* Applies `change` to a good file; the message must contain the file's name and `expected`. */
static void refused(void (*change)(struct br_stage *r, size_t *bytes), const char *expected)
{
    const char *path = in_scratch("a.vdif");
    size_t bytes = put_span(buffer, 0, 80);
    struct br_stage *r = configure_vdif(&path, 1);
    change(r, &bytes);
    write_file(path, buffer, bytes);
    assert_int_equal(driver_configure(r), BR_E_INVALID);
    if (strstr(r->error, expected) == NULL || strstr(r->error, "a.vdif") == NULL)
        fail_msg("'%s' not in '%s'", expected, r->error);
    driver_free(r);
}

static void make_empty(struct br_stage *r, size_t *bytes)
{
    (void)r;
    *bytes = 0;
}
static void make_short(struct br_stage *r, size_t *bytes)
{
    (void)r;
    *bytes = 20;
}
static void make_real(struct br_stage *r, size_t *bytes)
{
    (void)bytes;
    driver_set_string(r, "format", "vdif");
    struct fields f = good(0, 0);
    f.complex_data = false;
    put_header(buffer, f);
}
static void make_two_bit(struct br_stage *r, size_t *bytes)
{
    make_real(r, bytes);
    struct fields f = good(0, 0);
    f.bits = 2;
    put_header(buffer, f);
}
static void make_garbage(struct br_stage *r, size_t *bytes)
{
    (void)r;
    memset(buffer, 0xff, *bytes);
}
static void make_first_corrupt(struct br_stage *r, size_t *bytes)
{
    (void)r;
    (void)bytes;
    put32(buffer + 8, 13 | 2u << 24); /* a length that leads nowhere */
}
static void make_rateless(struct br_stage *r, size_t *bytes)
{
    (void)bytes;
    r->hints.sample_ns = (struct br_rational){0, 0};
}
static void make_uneven(struct br_stage *r, size_t *bytes)
{
    (void)bytes;
    r->hints.sample_ns = (struct br_rational){1250001, 1};
}
static void make_frequencies(struct br_stage *r, size_t *bytes)
{
    (void)bytes;
    r->hints.nfreq = 3;
}
static void make_no_frequencies(struct br_stage *r, size_t *bytes)
{
    (void)bytes;
    r->hints.nfreq = 0;
}
static void make_dishes(struct br_stage *r, size_t *bytes)
{
    static const struct br_telescope telescope = {.ndishes = 3};
    (void)bytes;
    r->telescope = &telescope;
}

static void test_errors(void **state)
{
    (void)state;
    refused(make_empty, "empty");
    refused(make_short, "VDIF");
    refused(make_real, "real 4-bit");
    refused(make_two_bit, "complex 2-bit");
    refused(make_garbage, "VDIF");
    refused(make_first_corrupt, "VDIF");
    refused(make_rateless, "sample_ns");
    refused(make_uneven, "sample_ns");
    refused(make_frequencies, "channels, but `stream: freq_mhz` lists 3");
    refused(make_no_frequencies, "freq_mhz");
    refused(make_dishes, "dishes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_whole_samples),
        cmocka_unit_test(test_leap_seconds), cmocka_unit_test(test_disorder),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stretches),    cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
