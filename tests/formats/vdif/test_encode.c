/* VDIF frames of beams and of the field: every value, header and missing sample, however the stream is cut into
 * frames, in memory that the sanitizers watch. Files and packets are tested elsewhere, with independent
 * readers. */
#include "formats/vdif/encode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BEAMS = 3, CHANNELS = 8, POLS = 2, SAMPLES = 60, SPREAD = 4, FIRST = 999990 };
static const double mhz[CHANNELS] = {400, 401, 402, 403, 404, 405, 406, 407},
                    width[CHANNELS] = {1, 1, 1, 1, 1, 1, 1, 1};

static struct br_stream stream_of(enum br_dtype dtype, const char *axes, const size_t *lengths)
{
    struct br_stream s = {.frame_samples = SAMPLES,
                          .epoch_ns = INT64_C(1600000000000000000),
                          .sample_ns = {1000, 1},
                          .nchannels = CHANNELS,
                          .freq_mhz = mhz,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, CHANNELS, 1, 1, 0}},
                          .scale = 1};
    struct br_error error = {0};
    assert_int_equal(br_array_init(&s.array, dtype, axes, lengths, &error), BR_OK);
    return s;
}

/* A component of a sample, never the code of a missing one. */
static int value(size_t thread, size_t channel, uint64_t sample, unsigned part, int most)
{
    return (int)((thread * 31 + channel * 7 + sample * 3 + part * 5) % (2 * (unsigned)most + 1)) - most;
}

/* Samples [20, 24) of all threads, which are a whole frame, and sample 30 of thread 1; channel 2 of sample 40. */
static bool is_missing(size_t thread, size_t channel, uint64_t t)
{
    return (t >= 22 && t < 26) || (t == 30 && thread == 1) || (t == 40 && channel == 2);
}

struct received {
    unsigned bits, threads;
    size_t first, frames, invalid, lacking;
};

static int take(void *owner, struct vdif_encoder *e)
{
    struct received *r = owner;
    int most = r->bits == 4 ? 7 : 127;
    r->lacking += e->lacking;
    for (size_t i = 0; i < e->threads; i++) {
        const uint8_t *frame = e->bytes + i * e->frame_bytes;
        struct vdif_header h;
        vdif_decode(&h, frame);
        assert_int_equal(h.thread, i);
        assert_int_equal(h.bits, r->bits);
        assert_int_equal(h.station, 'C' | 'd' << 8);
        assert_int_equal(h.rate_hz, 1000000);
        assert_int_equal(vdif_samples(&h), SPREAD);
        int64_t at = (vdif_unix_seconds(&h) - 1600000000) * 1000000 + h.number * SPREAD;
        r->frames++;
        r->invalid += h.invalid;
        for (size_t k = 0; k < SPREAD; k++)
            for (size_t c = 0; c < CHANNELS; c++) {
                uint64_t t = (uint64_t)at + k - FIRST;
                bool there = at + (int64_t)k >= FIRST && t < SAMPLES && !is_missing(r->first + i, c, t);
                const uint8_t *b = frame + VDIF_HEADER + (k * CHANNELS + c) * (r->bits / 4);
                for (unsigned part = 0; part < 2; part++) {
                    int got = r->bits == 8 ? b[part] - 128 : (b[0] >> 4 * part & 15) - 8;
                    assert_int_equal(got, there ? value(r->first + i, c, t, part, most) : 0);
                }
            }
    }
    return BR_OK;
}

/* Beams [first, first + count) in frames of `each` samples. */
static void check_beams(unsigned bits, size_t first, size_t count, size_t each)
{
    size_t unit = bits / 4;
    struct br_stream s = stream_of(bits == 4 ? BR_INT4X2 : BR_INT8X2, "beam,freq,pol,time",
                                   (const size_t[]){BEAMS, CHANNELS, POLS, SAMPLES});
    struct received r = {.bits = bits, .threads = (unsigned)(count * POLS), .first = first * POLS};
    struct vdif_encoder e;
    struct br_error error = {0};
    bool of_samples;
    assert_int_equal(vdif_encoder_init(&e, &s, SPREAD, 0, &of_samples, &error), BR_OK);
    assert_true(vdif_station("Cd", &e.station));
    e.first = first * POLS;
    e.threads = count * POLS;
    e.sink = take;
    e.owner = &r;
    assert_int_equal(vdif_encoder_start(&e), BR_OK);
    for (size_t t = 0; t < SAMPLES; t += each) {
        size_t n = SAMPLES - t < each ? SAMPLES - t : each;
        uint8_t *data = malloc(BEAMS * CHANNELS * POLS * n * unit), *to = data;
        for (size_t b = 0; b < BEAMS; b++)
            for (size_t c = 0; c < CHANNELS; c++)
                for (size_t p = 0; p < POLS; p++)
                    for (size_t k = 0; k < n; k++, to += unit) {
                        size_t i = b * POLS + p;
                        int most = bits == 4 ? 7 : 127, v[2];
                        for (unsigned part = 0; part < 2; part++)
                            v[part] = is_missing(i, c, t + k) ? -most - 1 : value(i, c, t + k, part, most);
                        to[0] = (uint8_t)(bits == 8 ? v[0] : (v[0] & 15) | (v[1] & 15) << 4);
                        if (bits == 8) to[1] = (uint8_t)v[1];
                    }
        struct br_frame frame = {.first = FIRST + t, .samples = n, .data = data, .complete = true};
        assert_int_equal(vdif_encoder_put(&e, &frame), BR_OK);
        free(data);
    }
    assert_int_equal(vdif_encoder_flush(&e), BR_OK);
    vdif_encoder_free(&e);
    assert_int_equal(r.frames, (SAMPLES + 2 + 2) / SPREAD * count * POLS);
    assert_int_equal(r.invalid, count * POLS); /* samples 22 to 25 are base samples 1000012 to 1000015 */
}

static void test_beams(void **state)
{
    (void)state;
    for (unsigned bits = 4; bits <= 8; bits += 4)
        for (size_t each = 1; each <= SAMPLES; each += 7)
            for (size_t first = 0; first < BEAMS; first++)
                for (size_t count = 1; first + count <= BEAMS; count++) check_beams(bits, first, count, each);
}

static void test_stations(void **state)
{
    (void)state;
    uint16_t station;
    assert_true(vdif_station("65535", &station) && station == 65535);
    assert_true(vdif_station("0", &station) && station == 0);
    assert_true(vdif_station("12", &station) && station == 12);
    const char *const bad[] = {"", "C", "Cde", "65536", "-1", " 1", "\x01z", "1 2", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(vdif_station(bad[i], &station));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_beams), cmocka_unit_test(test_stations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
