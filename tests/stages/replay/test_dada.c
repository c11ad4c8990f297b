/* DADA headers and files: ours and others', good and bad. */
#include "tests/stages/files_common.h"

#include "formats/common/coding.h"
#include "formats/common/text.h"
#include "formats/dada/dada.h"

enum { HEADER = 4096, CHANNELS = 2, DISHES = 3, ROW = CHANNELS * 2 * DISHES };

/* A file with the given keys and `samples` rows; byte i of sample k is (k * ROW + i) % 251 + 1. */
static void write_dada(const char *name, const char *keys, uint64_t first, uint64_t samples)
{
    static char file[HEADER + (1 << 16)];
    memset(file, 0, sizeof file);
    snprintf(file, HEADER, "HEADER DADA\nHDR_VERSION 1.0\nHDR_SIZE %d\n%s", HEADER, keys);
    for (uint64_t i = 0; i < samples * ROW; i++) file[HEADER + i] = (char)((first * ROW + i) % 251 + 1);
    write_file(in_scratch(name), file, HEADER + samples * ROW);
}

#define EXTERNAL                                                                                             \
    "NBIT 4\nNDIM 2\nNPOL 2\nNCHAN 2\nNANT 3\nORDER TFPA\nFREQ 600 # MHz\nBW -10\nTSAMP 2.56\n"              \
    "UTC_START 2024-02-29-12:00:00\nUNKNOWN whatever\n"

static struct br_stage *make(const char *const *patterns, size_t n)
{
    struct br_stage *r = driver_new(&replay_stage);
    driver_set_strings(r, "files", patterns, n);
    driver_set_int(r, "frame_samples", 16);
    return r;
}

/* Replays and checks data against write_dada's rule; validity per sample. Returns the number of samples. */
static uint64_t replay(struct br_stage *r, uint64_t first, uint8_t *valid, enum coding coding)
{
    if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
    if (driver_start(r) != 0) fail_msg("start: %s", r->error);
    struct br_frame *f = driver_frame(&r->out[0]);
    uint64_t at = first;
    int result;
    while ((result = driver_process(r, NULL, f)) == BR_PRODUCED) {
        driver_settle_feed(r);
        assert_int_equal(f->first, at);
        br_frame_open_validity(&r->out[0], f);
        for (; at < f->first + f->samples; at++) {
            const uint8_t *v = f->valid + (at - f->first) * CHANNELS,
                          *data = (uint8_t *)f->data + (at - f->first) * ROW;
            valid[at - first] = v[0];
            for (unsigned i = 0; i < ROW && v[0] != 0; i++) {
                uint8_t raw = (uint8_t)((at * ROW + i) % 251 + 1), low = raw & 15, high = raw >> 4;
                int re = coding == CODING_INT4X2  ? (low ^ 8) - 8
                         : coding == CODING_CHIME ? high - 8
                                                  : low - 8;
                int im = coding == CODING_INT4X2  ? (high ^ 8) - 8
                         : coding == CODING_CHIME ? low - 8
                                                  : high - 8;
                assert_int_equal((int8_t)(data[i] << 4) >> 4, re);
                assert_int_equal((int8_t)data[i] >> 4, im);
            }
        }
    }
    if (result != BR_FINISHED) fail_msg("process: %s", r->error);
    driver_frame_free(f);
    assert_int_equal(driver_stop(r), 0);
    return at - first;
}

static void clean(void)
{
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "f_%d.dada", i);
        unlink(in_scratch(name));
        strcat(name, ".gaps");
        unlink(in_scratch(name));
    }
}

static uint8_t valid[4096];

static void assert_missing(uint64_t n, uint64_t from, uint64_t to)
{
    for (uint64_t i = 0; i < n; i++)
        if ((valid[i] == 0) != (i >= from && i < to)) fail_msg("sample %d has validity %d", (int)i, valid[i]);
}

/* Without a change of parameters, with `words` in the message. */
static void refused_with(const char *pattern, const char *words)
{
    struct br_stage *r = make(&pattern, 1);
    assert_int_equal(driver_configure(r), BR_E_INVALID);
    assert_non_null(strstr(r->error, words));
    driver_free(r);
}

/* A file of others: times and frequencies from the usual keys, the rest from the pipeline. */
static void test_external(void **state)
{
    (void)state;
    const char *pattern = in_scratch("f_*.dada");
    static const char *const codings[] = {"int4x2", "chime", "vdif"};
    for (int c = 0; c < 3; c++) {
        write_dada("f_0.dada", EXTERNAL, 0, 100);
        struct br_stage *r = make(&pattern, 1);
        driver_set_string(r, "coding", codings[c]);
        assert_int_equal(replay(r, 0, valid, (enum coding)c), 100);
        assert_missing(100, 0, 0);
        const struct br_stream *s = &r->out[0];
        assert_true(s->epoch_ns == INT64_C(1709208000000000000));
        assert_int_equal(s->sample_ns.num, 2560);
        assert_int_equal(s->sample_ns.den, 1);
        assert_true(s->freq_mhz[0] == 602.5 && s->freq_mhz[1] == 597.5 && s->width_mhz[0] == 5);
        driver_free(r);
    }
    /* the pipeline's word against the header's */
    static const double freq[2] = {700, 701};
    struct br_stage *r = make(&pattern, 1);
    r->hints = (struct br_stream_hints){.have_epoch = true,
                                        .epoch_ns = 5,
                                        .sample_ns = {5120, 3},
                                        .nfreq = 2,
                                        .freq_mhz = freq,
                                        .width_mhz = 0.5,
                                        .have_sample0 = true,
                                        .sample0 = 37,
                                        .coding = "chime"};
    static const struct {
        unsigned also; /* insisted on: then the next contradiction is found */
        const char *both[2];
    } order[] = {{0, {"2560 ns", "1706.6"}},
                 {BR_HINT_SAMPLE, {"UTC_START", "5 ns"}},
                 {BR_HINT_EPOCH, {"602.5 MHz", "700 MHz"}},
                 {BR_HINT_FREQ, {"5 MHz", "0.5 MHz"}}};
    for (int i = 0; i < 4; i++) {
        r->hints.override |= order[i].also;
        r->error[0] = '\0';
        assert_int_equal(driver_configure(r), BR_E_INVALID);
        for (int k = 0; k < 2; k++)
            if (strstr(r->error, order[i].both[k]) == NULL || strstr(r->error, "override") == NULL)
                fail_msg("'%s' not in '%s'", order[i].both[k], r->error);
    }
    r->hints.override |= BR_HINT_WIDTH;
    if (driver_configure(r) != 0) fail_msg("%s", r->error);
    assert_int_equal(driver_start(r), 0);
    struct br_frame *f = driver_frame(&r->out[0]);
    assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
    assert_int_equal(f->first, 37);
    assert_int_equal(f->samples, 11);
    assert_int_equal(((uint8_t *)f->data)[0], 0x98); /* 0x01: real 0 - 8, imaginary 1 - 8 = 9 */
    assert_true(r->out[0].epoch_ns == 5 && r->out[0].sample_ns.den == 3 && r->out[0].freq_mhz[1] == 701);
    driver_frame_free(f);
    end_stage(r);
    clean();
}

/* In the chime coding zero bytes are missing: a cell of only such bytes is. */
static void test_unwritten(void **state)
{
    (void)state;
    const char *pattern = in_scratch("f_*.dada");
    write_dada("f_0.dada", EXTERNAL, 0, 10);
    size_t bytes;
    char *file = read_all(in_scratch("f_0.dada"), &bytes);
    memset(file + HEADER + 3 * ROW, 0, ROW);
    file[HEADER + 5 * ROW] = 0; /* one byte alone: a zero sample in a valid cell */
    write_file(in_scratch("f_0.dada"), file, bytes);
    free(file);
    struct br_stage *r = make(&pattern, 1);
    driver_set_string(r, "coding", "chime");
    assert_int_equal(driver_configure(r), 0);
    assert_int_equal(driver_start(r), 0);
    struct br_frame *f = driver_frame(&r->out[0]);
    assert_int_equal(driver_process(r, NULL, f), BR_PRODUCED);
    for (unsigned k = 0; k < 10; k++) assert_int_equal(f->valid[k * CHANNELS], k == 3 ? 0 : 255);
    assert_int_equal(f->missing, CHANNELS);
    assert_int_equal(((uint8_t *)f->data)[5 * ROW], 0);
    driver_frame_free(f);
    end_stage(r);
    clean();
}

/* Numbered files by OBS_OFFSET, in any order, with a gap, an overlap and a repetition. */
static void test_numbered(void **state)
{
    (void)state;
    char keys[1024];
    static const struct {
        uint64_t first, samples;
    } files[] = {{0, 50}, {70, 30}, {90, 40}, {75, 20}, {130, 10}};
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "f_%d.dada", 9 - i);
        snprintf(keys, sizeof keys, EXTERNAL "FILE_NUMBER %d\nOBS_OFFSET %d\n", i, (int)files[i].first * ROW);
        write_dada(name, keys, files[i].first, files[i].samples);
    }
    const char *pattern = in_scratch("f_*.dada");
    struct br_stage *r = make(&pattern, 1);
    assert_int_equal(replay(r, 0, valid, CODING_INT4X2), 140);
    assert_missing(140, 50, 70);
    assert_int_equal(driver_lost_samples(r, BR_LOST_DUPLICATE), 20 + 10);
    assert_non_null(strstr(r->warning, "overlap"));
    driver_free(r);

    /* the gap is too long to be believed */
    r = make(&pattern, 1);
    driver_set_real(r, "max_gap_s", 19 * 2.56e-6);
    assert_int_equal(driver_configure(r), BR_E_INVALID);
    assert_non_null(strstr(r->error, "max_gap_s"));
    driver_free(r);

    /* a file of another shape */
    write_dada("f_8.dada",
               "NBIT 4\nNDIM 2\nNPOL 1\nNCHAN 2\nNANT 6\nORDER TFPA\nFREQ 600\nBW -10\nTSAMP 2.56\nUTC_START "
               "2024-02-29-12:00:00\nOBS_OFFSET 840\n",
               70, 30);
    refused_with(pattern, "f_8.dada");
    clean();
}

static void test_truncated(void **state)
{
    (void)state;
    const char *pattern = in_scratch("f_*.dada");
    write_dada("f_0.dada", EXTERNAL "FILE_SIZE 1200\n", 0, 100);
    assert_int_equal(truncate(in_scratch("f_0.dada"), HEADER + 60 * ROW + 5), 0);
    struct br_stage *r = make(&pattern, 1);
    assert_int_equal(replay(r, 0, valid, CODING_INT4X2), 60);
    assert_non_null(strstr(r->warning, "f_0.dada is truncated"));
    driver_free(r);
    clean();
}

/* `keys` make a file that is refused; the message has the file's name and `expected`. */
static void refused(const char *keys, const char *expected)
{
    write_dada("f_0.dada", keys, 0, 4);
    const char *pattern = in_scratch("f_*.dada");
    struct br_stage *r = make(&pattern, 1);
    assert_int_equal(driver_configure(r), BR_E_INVALID);
    if (strstr(r->error, expected) == NULL || strstr(r->error, "f_0.dada") == NULL)
        fail_msg("'%s' not in '%s'", expected, r->error);
    driver_free(r);
}

static void test_errors(void **state)
{
    (void)state;
#define COMPLEX   "NBIT 4\nNDIM 2\nORDER TFPA\n"
#define OWN_SHAPE "DTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,2,2,3\nFRAME_SAMPLES 16\n"
#define OWN_TIME  "SAMPLE_NS 2560\nEPOCH_NS 0\nFREQ_MHZ 600,601\n"
    refused(COMPLEX "NPOL 2\nNCHAN 2\nFREQ 600\nBW 10\nTSAMP 1\nUTC_START 2024-01-01-00:00:00\n", "NANT");
    refused(COMPLEX "NPOL 2\nNANT 2\nFREQ 600\nBW 10\nTSAMP 1\nUTC_START 2024-01-01-00:00:00\n", "NCHAN");
    refused(COMPLEX "NPOL 2\nNANT 2\nNCHAN 2\nTSAMP 1\nUTC_START 2024-01-01-00:00:00\n", "freq_mhz");
    refused(COMPLEX "NPOL 2\nNANT 2\nNCHAN 2\nFREQ 600\nBW 10\nUTC_START 2024-01-01-00:00:00\n", "sample_ns");
    refused(COMPLEX "NPOL 2\nNANT 2\nNCHAN 2\nFREQ 600\nBW 10\nTSAMP 1\n", "epoch_ns");
    refused(COMPLEX "NPOL 2\nNANT 2\nNCHAN 2\nFREQ 600\nBW 10\nTSAMP 1\nUTC_START yesterday\n", "UTC_START");
    refused(COMPLEX "NPOL 2\nNANT 2\nNCHAN 2\nFREQ 600\nBW 10\nTSAMP 0\nUTC_START 2024-01-01-00:00:00\n",
            "TSAMP");
    refused(COMPLEX "NPOL 2\nNANT 2\nNCHAN 2\nFREQ nan\nBW 10\nTSAMP 1\nUTC_START 2024-01-01-00:00:00\n",
            "FREQ");
    refused("NBIT 16\nNPOL 2\nNANT 2\nNCHAN 2\nFREQ 600\nBW 10\nTSAMP 1\nUTC_START 2024-01-01-00:00:00\n",
            "NBIT");
    refused("NBIT 4\nNDIM 2\nORDER FTBA\nNPOL 2\nNANT 2\nNCHAN 2\n", "ORDER");
    refused("NBIT 4\nNDIM 2\nNPOL 2\nNANT 2\nNCHAN 2\n", "ORDER is missing");
    refused(EXTERNAL "OBS_OFFSET 7\n", "OBS_OFFSET");
    refused(EXTERNAL "OBS_OFFSET 18446744073709551604\n", "OBS_OFFSET");
    refused(EXTERNAL "CODING base64\n", "base64");
    refused(OWN_SHAPE "SAMPLE_NS 1/0\nEPOCH_NS 0\nFREQ_MHZ 600,601\n", "SAMPLE_NS");
    refused(OWN_SHAPE "SAMPLE_NS 2560\nEPOCH_NS 1e9\nFREQ_MHZ 600,601\n", "EPOCH_NS");
    refused(OWN_SHAPE "SAMPLE_NS 2560\nEPOCH_NS 0\nFREQ_MHZ 600\n", "FREQ_MHZ");
    refused(OWN_SHAPE "SAMPLE_NS 2560\nEPOCH_NS 0\nFREQ_MHZ 0,600\n", "frequency of channel 0");
    refused(OWN_SHAPE OWN_TIME "SAMPLE0 9223372036854775807\n", "SAMPLE0");
    refused(OWN_SHAPE OWN_TIME "SCALE 0\n", "SCALE");
    refused(OWN_SHAPE OWN_TIME "SIDEBAND both\n", "SIDEBAND");
    refused(OWN_SHAPE OWN_TIME "NZONES 1\nZONE_0 0,2,3,1,0\n", "ZONE_0");
    refused(OWN_SHAPE OWN_TIME "NZONES 17\n", "NZONES");
    refused(OWN_SHAPE OWN_TIME "AUX_DTYPE f32\nAUX_AXES beam,freq\nAUX_SHAPE 2\n", "AUX_SHAPE");
    refused("DTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,2,2\nFRAME_SAMPLES 16\n" OWN_TIME, "SHAPE");
    refused("DTYPE int4x2\nAXES freq,pol,dish\nSHAPE 2,2,3\nFRAME_SAMPLES 16\n" OWN_TIME, "time");
    refused("DTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,2,0,3\nFRAME_SAMPLES 16\n" OWN_TIME, "SHAPE");
    refused(
        "DTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,2,2,4611686018427387904\nFRAME_SAMPLES 16\n" OWN_TIME,
        "SHAPE");
    refused("DTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,2,2,3\n" OWN_TIME, "FRAME_SAMPLES");
    refused("\001\002\n", "corrupt");
    clean();

    /* no payload, no header, no file, none of them */
    write_dada("f_0.dada", EXTERNAL, 0, 0);
    const char *pattern = in_scratch("f_*.dada");
    refused_with(pattern, "not one whole sample");
    write_file(in_scratch("f_0.dada"), "", 0);
    refused_with(pattern, "f_0.dada is empty");
    clean();
    refused_with(pattern, "f_*.dada");
    pattern = scratch;
    refused_with(pattern, "");

    /* the sidecar */
    write_dada("f_0.dada", EXTERNAL, 0, 10);
    write_file(in_scratch("f_0.dada.gaps"), "1 2\n3 x\n", 8);
    pattern = in_scratch("f_*.dada");
    refused_with(pattern, "f_0.dada.gaps:2");
    clean();
}

/* Paced by the clock: 40 frames of 5 ms take 200 ms. */
static void test_realtime(void **state)
{
    (void)state;
    const char *pattern = in_scratch("f_*.dada");
    write_dada("f_0.dada", EXTERNAL, 0, 640);
    struct br_stage *r = make(&pattern, 1);
    r->hints.sample_ns = (struct br_rational){312500, 1};
    r->hints.override = BR_HINT_SAMPLE;
    driver_set_bool(r, "realtime", true);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(replay(r, 0, valid, CODING_INT4X2), 640);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) >= 0.2);
    driver_free(r);
    clean();
}

/* Numbers in headers come back to the last bit. */
static void test_numbers(void **state)
{
    (void)state;
    static char text[1 << 16];
    double values[200], back[200];
    uint64_t seed = 3;
    for (int i = 0; i < 200; i++) values[i] = (double)random64(&seed) / 3e9;
    struct dada_writer w = {text, sizeof text, 0};
    dada_put_reals(&w, "A", values, 200);
    dada_put(&w, "B", "%s", "two words # no comment");
    for (int i = 0; i < 100; i++) back[i] = text_progression(400, 0.1953125, (size_t)i);
    dada_put_reals(&w, "C", back, 100);
    assert_true(dada_finish(&w, 16384));
    struct dada_header h;
    struct br_error error = {0};
    assert_int_equal(dada_parse(&h, "text", text, 16384, &error), 0);
    assert_int_equal(dada_get_reals(&h, "A", 200, back, &error), 1);
    assert_memory_equal(back, values, sizeof values);
    assert_string_equal(dada_get(&h, "B"), "two words   no comment");
    assert_string_equal(dada_get(&h, "C"), "400:0.1953125:100");
    assert_int_equal(dada_get_reals(&h, "C", 99, back, &error), BR_E_FORMAT);
    dada_free(&h);

    static const struct {
        const char *text;
        int64_t ns;
    } times[] = {{"1970-01-01-00:00:00", 0},
                 {"2024-02-29T12:00:00.5", 1709208000500000000},
                 {"2016-12-31-23:59:60", 1483228800000000000}, /* a leap second */
                 {"1969-12-31-23:59:59.999999999", -1}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t ns = 7;
        char out[TEXT_TIME];
        assert_int_equal(text_utc(times[i].text, &ns), 0);
        assert_true(ns == times[i].ns);
        assert_int_equal(text_utc(text_utc_format(out, ns), &ns), 0);
        assert_true(ns == times[i].ns);
        assert_int_equal(text_mjd(text_mjd_format(out, ns), &ns), 0);
        assert_true(ns >= times[i].ns - 1 && ns <= times[i].ns);
    }
    int64_t ns;
    assert_int_equal(text_mjd("60369.5", &ns), 0);
    assert_true(ns == INT64_C(1709208000000000000));
    static const char *const bad[] = {"",
                                      "2024",
                                      "2024-13-01-00:00:00",
                                      "2024-01-01-25:00:00",
                                      "2024-01-01-00:00:00.x",
                                      "2023-02-29-12:00:00",
                                      "2024-06-31T00:00:00",
                                      "2024-01-01-00:00:60",
                                      "2024-01-01-23:58:60"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(text_utc(bad[i], &ns), -1);
}

/* Frames have the length that the user names, down to one sample. */
static void test_frame_lengths(void **state)
{
    (void)state;
    const char *pattern = in_scratch("f_*.dada");
    write_dada("f_0.dada", EXTERNAL, 0, 100);
    static const int64_t lengths[] = {1, 2, 7, 100, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct br_stage *r = make(&pattern, 1);
        driver_set_int(r, "frame_samples", lengths[i]);
        assert_int_equal(replay(r, 0, valid, CODING_INT4X2), 100);
        assert_int_equal(r->out[0].frame_samples, lengths[i]);
        assert_int_equal(br_array_length(&r->out[0].array, "time"), lengths[i]);
        driver_free(r);
    }
    clean();
}

/* With direct reads, to a GPU and with both come the same frames, holes between files and at the end too. */
static void test_ways(void **state)
{
    (void)state;
    static const int64_t lengths[] = {7, 100, 1000};
    for (size_t i = 0; i < 3; i++)
        for (int way = 0; way < 8; way++) {
            write_dada("f_0.dada", EXTERNAL "OBS_OFFSET 0\n", 0, 1001);
            write_dada("f_1.dada", EXTERNAL "OBS_OFFSET 24000\n", 2000, 1500);
            const char *pattern = in_scratch("f_*.dada");
            struct br_stage *r = make(&pattern, 1);
            driver_set_int(r, "frame_samples", lengths[i]);
            driver_set_bool(r, "direct", way & 1);
            r->device = way >> 1 & 1;
            r->threads = way & 4 ? 3 : 1;
            memset(valid, 9, sizeof valid);
            assert_int_equal(replay(r, 0, valid, CODING_INT4X2), 3500);
            assert_true(r->feeds);
            for (size_t k = 0; k < 3500; k++) assert_int_equal(valid[k] != 0, k < 1001 || k >= 2000);
            driver_free(r);
            clean();
        }
}

/* Longer than what is read, and what is sent to a GPU, at once. */
static void test_long(void **state)
{
    (void)state;
    enum { LONG = 3000001 };
    const char *pattern = in_scratch("f_0.dada");
    uint8_t *file = calloc(1, HEADER + (size_t)LONG * ROW);
    snprintf((char *)file, HEADER, "HEADER DADA\nHDR_SIZE %d\n" EXTERNAL, HEADER);
    for (uint64_t i = 0; i < (uint64_t)LONG * ROW; i++) file[HEADER + i] = (uint8_t)(i % 251 + 1);
    write_file(pattern, (char *)file, HEADER + (size_t)LONG * ROW);
    free(file);
    uint8_t *there = malloc(LONG);
    for (int way = 0; way < 4; way++) {
        struct br_stage *r = make(&pattern, 1);
        driver_set_int(r, "frame_samples", 2000003);
        driver_set_bool(r, "direct", way & 1);
        r->device = way >> 1;
        r->threads = 2;
        assert_int_equal(replay(r, 0, there, CODING_INT4X2), LONG);
        driver_free(r);
    }
    free(there);
    clean();
}

/* A key may stand twice, with one value. */
static void test_twice(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *refused; /* what the message names */
    } cases[] = {{"NPOL 2\nNCHAN 4\nNPOL 2 # again\n", NULL},
                 {"NPOL 2\nNCHAN 4\nNPOL 1\n", "NPOL is '2' in line 2 of the header and '1' in line 4"},
                 {"A 1\nA 1\nB 1\nA\n", "A is '1' in line 3 of the header and '' in line 5"},
                 {"B 1\nA 2\nC 3\n", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096] = "HDR_SIZE 4096\n";
        strcat(text, cases[i].lines);
        struct dada_header h;
        struct br_error error = {0};
        assert_int_equal(dada_parse(&h, "x.dada", text, sizeof text, &error),
                         cases[i].refused == NULL ? BR_OK : BR_E_FORMAT);
        if (cases[i].refused != NULL) assert_non_null(strstr(error.text, cases[i].refused));
        dada_free(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_external),      cmocka_unit_test(test_unwritten),
        cmocka_unit_test(test_numbered),      cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_realtime),
        cmocka_unit_test(test_numbers),       cmocka_unit_test(test_twice),
        cmocka_unit_test(test_frame_lengths), cmocka_unit_test(test_ways),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
