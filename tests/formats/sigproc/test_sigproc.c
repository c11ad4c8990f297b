/* Headers of filterbank files, byte for byte by a separate parser, and how channels become files. */
#include "formats/sigproc/sigproc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A stream of `n` channels; the caller fills the rest in. */
static struct br_stream stream_of(size_t n, const double *freq, const double *width)
{
    struct br_stream s = {.nchannels = n,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 1,
                          .sample_ns = {5120, 1},
                          .epoch_ns = INT64_C(1700000000000000000),
                          .zone = {{0, n, 1, 192, 0}}};
    return s;
}

static void check_bands(const struct br_stream *s, const struct sigproc_band *bands, size_t nbands)
{
    bool seen[64] = {false};
    size_t total = 0;
    for (size_t b = 0; b < nbands; b++) {
        assert_true(bands[b].foff_mhz < 0);
        for (size_t i = 0; i < bands[b].nchannels; i++) {
            uint32_t channel = bands[b].channel[i];
            assert_true(channel < s->nchannels && !seen[channel]);
            seen[channel] = true;
            total++;
            assert_true(fabs(bands[b].fch1_mhz + (double)i * bands[b].foff_mhz - s->freq_mhz[channel]) <
                        1e-9);
        }
    }
    assert_int_equal(total, s->nchannels);
}

static void test_ascending_is_reversed(void **state)
{
    (void)state;
    double freq[8], width[8];
    struct sigproc_band bands[8];
    uint32_t order[8];
    for (size_t i = 0; i < 8; i++) freq[i] = 400 + 0.1953125 * (double)i, width[i] = 0.1953125;
    struct br_stream s = stream_of(8, freq, width);
    assert_int_equal(sigproc_bands(&s, bands, order), 1);
    check_bands(&s, bands, 1);
    assert_int_equal(bands[0].channel[0], 7);
    assert_true(bands[0].foff_mhz == -0.1953125);
}

/* Coarse channels fall, the fine ones inside each rise, as upchannelize makes them of a CHIME band: still one
 * file. */
static void test_fine_channels_of_falling_coarse_ones(void **state)
{
    (void)state;
    double freq[32], width[32];
    struct sigproc_band bands[32];
    uint32_t order[32];
    for (size_t i = 0; i < 32; i++) {
        width[i] = 0.390625 / 8;
        freq[i] = 800 - 0.390625 * (double)(i / 8) + ((double)(i % 8) - 3.5) * width[i];
    }
    struct br_stream s = stream_of(32, freq, width);
    assert_int_equal(sigproc_bands(&s, bands, order), 1);
    check_bands(&s, bands, 1);
}

static void test_zones_become_bands(void **state)
{
    (void)state;
    double freq[12], width[12];
    struct sigproc_band bands[12];
    uint32_t order[12];
    for (size_t i = 0; i < 8; i++)
        width[i] = 0.25, freq[i] = 400.125 + 0.25 * (double)i; /* two of 1 MHz, U = 4 */
    for (size_t i = 8; i < 12; i++)
        width[i] = 0.5, freq[i] = 402.25 + 0.5 * (double)(i - 8); /* two of 1 MHz, U = 2 */
    struct br_stream s = stream_of(12, freq, width);
    s.nzones = 2;
    s.zone[0] = (struct br_zone){0, 8, 4, 192, 6};
    s.zone[1] = (struct br_zone){8, 4, 2, 192, 3};
    assert_int_equal(sigproc_bands(&s, bands, order), 2);
    check_bands(&s, bands, 2);
    assert_int_equal(bands[0].nchannels, 4);
    assert_int_equal(bands[0].delay, 3);
    assert_true(bands[0].fch1_mhz == 403.75 && bands[0].foff_mhz == -0.5);
    assert_int_equal(bands[1].nchannels, 8);
    assert_int_equal(bands[1].delay, 6);
}

static void test_holes_in_the_band(void **state)
{
    (void)state;
    const double freq[7] = {400, 401, 402, 405, 406, 410, 407}, width[7] = {1, 1, 1, 1, 1, 1, 1};
    struct sigproc_band bands[7];
    uint32_t order[7];
    struct br_stream s = stream_of(7, freq, width);
    assert_int_equal(sigproc_bands(&s, bands, order), 3); /* 410; 407 406 405; 402 401 400 */
    check_bands(&s, bands, 3);
    assert_int_equal(bands[0].nchannels, 1);
    assert_true(bands[0].foff_mhz == -1);
    assert_int_equal(bands[1].nchannels, 3);
    assert_int_equal(bands[2].nchannels, 3);

    /* Every sixteenth channel, a comb: each is a band; behind upchannelize the fine channels of each are
     * one. */
    double sparse[5], narrow[5], fine[20], finer[20];
    struct sigproc_band many[20];
    uint32_t places[20];
    for (size_t i = 0; i < 5; i++) sparse[i] = 500 - 6.25 * (double)i, narrow[i] = 0.390625;
    s = stream_of(5, sparse, narrow);
    assert_int_equal(sigproc_bands(&s, bands, order), 5);
    check_bands(&s, bands, 5);
    assert_true(bands[0].foff_mhz == -0.390625);
    for (size_t i = 0; i < 20; i++) {
        finer[i] = narrow[0] / 4;
        fine[i] = sparse[i / 4] + ((double)(i % 4) - 1.5) * finer[i];
    }
    s = stream_of(20, fine, finer);
    assert_int_equal(sigproc_bands(&s, many, places), 5);
    check_bands(&s, many, 5);
    for (size_t i = 0; i < 5; i++) assert_int_equal(many[i].nchannels, 4);

    /* Oversampled channels are closer than they are wide: one band with their spacing. */
    for (size_t i = 0; i < 5; i++) sparse[i] = 500 - 0.3 * (double)i;
    s = stream_of(5, sparse, narrow);
    assert_int_equal(sigproc_bands(&s, bands, order), 1);
    check_bands(&s, bands, 1);
}

static void test_one_channel(void **state)
{
    (void)state;
    const double freq = 600, width = 0.390625;
    struct sigproc_band band;
    uint32_t order;
    struct br_stream s = stream_of(1, &freq, &width);
    assert_int_equal(sigproc_bands(&s, &band, &order), 1);
    assert_true(band.fch1_mhz == 600 && band.foff_mhz == -0.390625);
}

/* --- a reader of headers
 * ------------------------------------------------------------------------------------------------------ */

struct reader {
    const uint8_t *at, *end;
};

static uint32_t word(struct reader *r)
{
    assert_true(r->end - r->at >= 4);
    uint32_t w =
        (uint32_t)r->at[0] | (uint32_t)r->at[1] << 8 | (uint32_t)r->at[2] << 16 | (uint32_t)r->at[3] << 24;
    r->at += 4;
    return w;
}

static void text(struct reader *r, char *out)
{
    uint32_t n = word(r);
    assert_true(n > 0 && n < 80 && (size_t)(r->end - r->at) >= n);
    memcpy(out, r->at, n);
    out[n] = '\0';
    r->at += n;
}

static double real(struct reader *r)
{
    uint64_t low = word(r), bits = low | (uint64_t)word(r) << 32;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void test_header(void **state)
{
    (void)state;
    static const char *const reals[] = {"src_raj", "src_dej", "az_start", "za_start", "fch1",
                                        "foff",    "tstart",  "tsamp",    NULL};
    static const char *const ints[] = {"machine_id",    "telescope_id", "data_type", "barycentric",
                                       "pulsarcentric", "nchans",       "nbeams",    "ibeam",
                                       "nbits",         "nifs",         NULL};
    const double want_real[] = {123456.7,    -301530.5, 123.25,   4.5,
                                799.8046875, -0.390625, 60262.25, 0.00098304};
    const int want_int[] = {7, 20, 1, 0, 0, 1024, 60, 13, 8, 1};
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    struct sigproc_header h = {.rawdatafile = long_name,
                               .source_name = "beam 12",
                               .telescope_id = 20,
                               .machine_id = 7,
                               .src_raj = 123456.7,
                               .src_dej = -301530.5,
                               .az_start_deg = 123.25,
                               .za_start_deg = 4.5,
                               .fch1_mhz = 799.8046875,
                               .foff_mhz = -0.390625,
                               .nchans = 1024,
                               .nbits = 8,
                               .nbeams = 60,
                               .ibeam = 13,
                               .tstart_mjd = 60262.25,
                               .tsamp_s = 0.00098304};
    uint8_t bytes[SIGPROC_HEADER_MAX];
    size_t length = sigproc_format(bytes, &h);
    assert_true(length <= sizeof bytes);
    struct reader r = {bytes, bytes + length};
    char key[80], value[80];
    unsigned found = 0;
    text(&r, key);
    assert_string_equal(key, "HEADER_START");
    for (;;) {
        text(&r, key);
        if (strcmp(key, "HEADER_END") == 0) break;
        if (strcmp(key, "rawdatafile") == 0 || strcmp(key, "source_name") == 0) {
            text(&r, value);
            if (key[0] == 's') assert_string_equal(value, "beam 12");
            found++;
            continue;
        }
        bool known = false;
        for (unsigned i = 0; reals[i] != NULL; i++)
            if (strcmp(key, reals[i]) == 0) {
                assert_true(real(&r) == want_real[i]);
                known = true;
            }
        for (unsigned i = 0; ints[i] != NULL; i++)
            if (strcmp(key, ints[i]) == 0) {
                assert_int_equal((int)word(&r), want_int[i]);
                known = true;
            }
        assert_true(known);
        found++;
    }
    assert_int_equal(found, 20);
    assert_ptr_equal(r.at, r.end);
}

static void test_times(void **state)
{
    (void)state;
    assert_true(sigproc_mjd(0) == 40587);
    assert_true(fabs(sigproc_mjd(INT64_C(1700000000000000000)) - 60262.92592592593) < 1e-11);
    assert_true(sigproc_mjd(INT64_C(-43200000000000)) == 40586.5);
    struct br_stream s = stream_of(0, NULL, NULL);
    s.sample_ns = (struct br_rational){5120, 3};
    /* Step 10 of 192 samples starts at base sample 1920; 24 samples of 1706.67 ns earlier is 1896 samples
     * after the epoch. */
    assert_int_equal(sigproc_arrival_ns(&s, 10, 192, 24) - s.epoch_ns, 3235840);
    assert_int_equal(sigproc_arrival_ns(&s, 0, 192, 24) - s.epoch_ns, -40960);
    s.epoch_ns = INT64_MIN;
    assert_int_equal(sigproc_arrival_ns(&s, 0, 192, 24), INT64_MIN);
    s.epoch_ns = INT64_MAX;
    assert_int_equal(sigproc_arrival_ns(&s, 10, 192, 24), INT64_MAX - 40960);
}

/* Seconds are rounded to 1e-4 before they are told apart from minutes: there are never 60 of them. */
static void test_angles(void **state)
{
    (void)state;
    const double cases[][2] = {{0, 0},
                               {5.5755472222222222, 53431.97},
                               {22.014472222222222, 220052.1},
                               {-0.5, -3000},
                               {-12.25, -121500},
                               {1 - 1e-10, 10000},
                               {59.0 / 60 - 1e-10, 5900},
                               {-(89 + 59.0 / 60 + 59.9999 / 3600), -895959.9999}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(fabs(sigproc_angle(cases[i][0]) - cases[i][1]) < 1e-6);
}

/* Values of the first `length` bytes, added up; returns how the header ends. */
static enum sigproc_kind read_all(uint8_t *bytes, size_t length, struct sigproc_value *v, double *sum)
{
    FILE *file = fmemopen(bytes, length, "rb");
    *v = (struct sigproc_value){.key = "", .text = ""};
    *sum = 0;
    enum sigproc_kind kind = sigproc_read(file, v);
    while (kind != SIGPROC_CORRUPT && (kind = sigproc_read(file, v)) > SIGPROC_END) *sum += v->number;
    fclose(file);
    return kind;
}

/* A header is read back; one that is cut off anywhere is corrupt, and names the last key. */
static void test_reading(void **state)
{
    (void)state;
    struct sigproc_header h = {
        .rawdatafile = "a", .source_name = "b", .fch1_mhz = 800, .foff_mhz = -0.5, .nchans = 32, .nbits = 8};
    struct sigproc_value v;
    uint8_t bytes[SIGPROC_HEADER_MAX];
    size_t length = sigproc_format(bytes, &h);
    double sum;
    assert_int_equal(read_all(bytes, length, &v, &sum), SIGPROC_END);
    assert_true(sum == 1 + 32 + 8 + 800 - 0.5 + 1); /* data_type 1, nifs 1 */
    assert_string_equal(v.text, "b");
    for (size_t n = 1; n < length; n++) assert_int_equal(read_all(bytes, n, &v, &sum), SIGPROC_CORRUPT);
    assert_string_equal(v.key, "nifs");
    bytes[0] = 0; /* the length of HEADER_START */
    assert_int_equal(read_all(bytes, length, &v, &sum), SIGPROC_CORRUPT);
    assert_string_equal(v.key, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ascending_is_reversed),
        cmocka_unit_test(test_fine_channels_of_falling_coarse_ones),
        cmocka_unit_test(test_zones_become_bands),
        cmocka_unit_test(test_holes_in_the_band),
        cmocka_unit_test(test_one_channel),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_angles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
