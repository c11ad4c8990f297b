/* The packet descriptions that are shipped, against the facts of each F-engine; what a description
 * must satisfy; and where the samples of a packet-order frame stand. */
#include "formats/common/sample_clock.h"
#include "formats/packets/header.h"
#include "formats/packets/layout.h"
#include "tests/formats/packets/places.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *pieces[64];
static unsigned npieces;

static void *alloc(void *owner, size_t bytes)
{
    (void)owner;
    assert_true(npieces < 64);
    void *piece = calloc(1, bytes > 0 ? bytes : 1);
    assert_non_null(piece);
    return pieces[npieces++] = piece;
}
static const struct packet_memory memory = {alloc, NULL};

static int teardown(void **state)
{
    (void)state;
    while (npieces > 0) free(pieces[--npieces]);
    return 0;
}

static struct packet_description *load(const char *name)
{
    struct packet_description *p;
    struct br_error error = {0};
    int status = packet_description_load(&p, name, &error);
    if (status != BR_OK) fail_msg("%s: %s", name, error.text);
    return p;
}

/* --- presets: from the tables of each F-engine's documents --------------------------------------- */

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bytes, payload_offset, payload_bytes, nsamples, nchannels, ninputs;
        const char *values, *real;
    } facts[] = {
        {"chord-crs", 6166, 22, 6144, 16, 48, 8, "offset_binary", "high"},
        {"chime-ice", 4886, 16, 4096, 2, 4, 512, "offset_binary", "high"},
        {"casm-snap", 6160, 16, 6144, 1, 512, 12, "twos_complement", "high"},
        {"lwa-snap2", 6176, 32, 6144, 1, 96, 64, "twos_complement", "high"},
        {"ata-snap", 8208, 16, 8192, 16, 256, 2, NULL, NULL},
        {"dsa110-snap", 4616, 8, 4608, 2, 384, 6, NULL, NULL},
        {"spead", 0, 0, 8192, 256, 16, 2, "twos_complement", "high"},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        struct packet_description *p = load(facts[i].name);
        assert_string_equal(p->name, facts[i].name);
        assert_int_equal(p->bytes, facts[i].bytes);
        assert_int_equal(p->payload_offset, facts[i].payload_offset);
        assert_int_equal(p->payload_bytes, facts[i].payload_bytes);
        assert_int_equal(p->nsamples, facts[i].nsamples);
        assert_int_equal(p->nchannels, facts[i].nchannels);
        assert_int_equal(p->ninputs, facts[i].ninputs);
        assert_true((p->values == NULL) == (facts[i].values == NULL));
        if (p->values != NULL) assert_string_equal(p->values, facts[i].values);
        if (p->real != NULL) assert_string_equal(p->real, facts[i].real);
        packet_description_free(p);
    }
}

/* CRS: frame of 64 samples; payload u8[48][16][8], input fastest; channel 1536 + stream + 128 x bin,
 * so that the local index is 8 x bin + stream / 16; after the permutation inputs are [pol][dish]. */
static void test_crs_layout(void **state)
{
    (void)state;
    static const int absent[] = {15, 11};
    int64_t absent_ids[2] = {absent[0], absent[1]};
    struct packet_description *p = load("chord-crs");
    struct packet_layout l;
    struct packet_node node = {.frame_samples = 64, .absent = {2, absent_ids}};
    struct br_error error = {0};
    assert_int_equal(packet_layout_make(&l, p, &node, memory, &error), BR_OK);
    assert_int_equal(l.nchannels, 384);
    assert_int_equal(l.ninputs, 128);
    assert_int_equal(l.nblocks, 4);
    assert_int_equal(l.block_bytes, 16 * 8 * 6144);
    assert_int_equal(l.receipt_bytes, 16);
    assert_int_equal(l.npol, 0);
    static const int slots[] = {0, 2, 4, 6, 8, 10, 12, 15, 1, 3, 5, 7, 9, 11, 13, 14};
    for (size_t s = 0; s < 16; s++) {
        assert_int_equal(l.source_id[s], slots[s]);
        assert_int_equal(l.absent[s], slots[s] == 15 || slots[s] == 11);
    }
    for (size_t f = 0; f < 384; f++) assert_int_equal(l.channel_id[f], 1536 + 16 * f);
    for (size_t i = 0; i < 128; i++) assert_int_equal(l.position[i], i);
    for (size_t t = 0; t < 64; t += 7)
        for (size_t f = 0; f < 384; f += 5)
            for (size_t i = 0; i < 128; i += 3) {
                size_t bin = f / 8, stream = f % 8, slot = i / 8 * 8 + stream;
                size_t want = (t / 16 * 128 + slot) * 6144 + (bin * 16 + t % 16) * 8 + i % 8;
                assert_int_equal(packet_layout_byte(&l, t, f, i), want);
                assert_int_equal(packet_layout_receipt(&l, t, f, i), t / 16 * 128 + slot);
            }
    struct br_stream stream = {0};
    assert_int_equal(packet_layout_describe(&l, p, &stream, memory, &error), BR_OK);
    assert_int_equal(br_stream_check(&stream, &error), BR_OK);
    assert_int_equal(br_stream_max_bytes(&stream), l.nblocks * l.block_bytes);
    assert_int_equal(br_array_bytes(&stream.side), l.nblocks * l.receipt_bytes);
    assert_true(fabs(stream.freq_mhz[0] - 300) < 1e-9 && fabs(stream.freq_mhz[1] - 303.125) < 1e-9);
    assert_int_equal(stream.sample_ns.num, 5120);
    packet_description_free(p);
}

/* DSA: antenna, channel, time, pol: the pol axis goes in front of all antennas. */
static void test_dsa_layout(void **state)
{
    (void)state;
    struct packet_description *p = load("dsa110-snap");
    struct packet_layout l;
    int64_t sources[] = {3, 0}, streams[] = {384, 0};
    struct packet_node node = {.frame_samples = 2, .sources = {2, sources}, .streams = {2, streams}};
    struct br_error error = {0};
    assert_int_equal(packet_layout_make(&l, p, &node, memory, &error), BR_E_INVALID);
    assert_non_null(strstr(error.text, "values: offset_binary | twos_complement"));
    error = (struct br_error){0};
    node.values = "twos_complement";
    node.real = "low";
    assert_int_equal(packet_layout_make(&l, p, &node, memory, &error), BR_OK);
    assert_false(l.real_high);
    assert_int_equal(l.fill, 0);
    assert_int_equal(l.ninputs, 12);
    for (size_t i = 0; i < 12; i++) {
        size_t slot = i / 6, antenna = i % 6 / 2, pol = i % 2;
        assert_int_equal(l.position[i], pol * 6 + slot * 3 + antenna);
        for (size_t f = 0; f < 768; f += 100)
            for (size_t t = 0; t < 2; t++) /* stream 384 is listed first */
                assert_int_equal(packet_layout_byte(&l, t, f, i),
                                 (slot * 2 + (f < 384)) * 4608 + ((antenna * 384 + f % 384) * 2 + t) * 2 +
                                     pol);
    }
    packet_description_free(p);
}

/* --- counters that start again ------------------------------------------------------------------- */

/* When the counter starts again: as `bits` says, else when its fields do. */
static void test_periods(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *sequence;
        uint64_t period;
    } cases[] = {
        {"s: {offset: 0, bytes: 8}", "{fields: s}", 0},
        {"s: {offset: 0, bytes: 3}", "{fields: s}", 1 << 24},
        {"s: {offset: 0, bytes: 8, shift: 3, bits: 38}", "{fields: s}", UINT64_C(1) << 38},
        {"s: {offset: 0, bytes: 8}", "{fields: s, bits: 48}", UINT64_C(1) << 48},
        {"s: {offset: 0, bytes: 4}", "{fields: s, bits: 20}", 1 << 20},
        {"s: {offset: 0, bytes: 6, divide: 8192}", "{fields: s}", UINT64_C(1) << 35},
        {"s: {offset: 0, bytes: 6, divide: 3}", "{fields: s}", 0},
        {"s: {offset: 0, bytes: 4}, h: {offset: 4, bytes: 2}", "{fields: [h, s], times: [4294967296, 1]}",
         UINT64_C(1) << 48},
        /* pulses per second, and samples within the second */
        {"s: {offset: 0, bytes: 2}, h: {offset: 2, bytes: 1}", "{fields: [s, h], times: [1, 100000]}",
         UINT64_C(25600000)},
        {"s: {offset: 0, bytes: 2}, h: {offset: 2, bytes: 1}", "{fields: [s, h], times: [1, 100]}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        struct packet_description *p;
        struct br_error error = {0};
        snprintf(
            text, sizeof text,
            "bytes: 32\nfields: {%s}\nsequence: %s\npayload: {offset: 8, axes: [input], lengths: [24]}\n",
            cases[i].fields, cases[i].sequence);
        if (packet_description_parse(&p, "t.yaml", text, strlen(text), &error) != BR_OK)
            fail_msg("%s", error.text);
        if (p->sequence_period != cases[i].period)
            fail_msg("case %zu: %llu", i, (unsigned long long)p->sequence_period);
        packet_description_free(p);
    }
}

/* Every number near `near` is found again from what is left of it, whatever the period. */
static void test_unwrap(void **state)
{
    (void)state;
    static const uint64_t periods[] = {2, 3, 7, 1 << 24, 25600000, UINT64_C(1) << 38, UINT64_C(1) << 62};
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
        int64_t period = (int64_t)periods[i];
        for (int64_t k = 0; k < 8 && k * (period / 2) < INT64_MAX / 4; k++)
            for (int64_t d = -3; d <= 3; d++) {
                int64_t near = k * (period / 2) + d, half = (period - 1) / 2;
                if (near < half) continue;
                for (int64_t off = -half; off <= half; off += half > 3 ? half / 3 : 1)
                    assert_int_equal(packet_unwrap((uint64_t)(near + off) % periods[i], periods[i], near),
                                     near + off);
            }
    }
    assert_int_equal(packet_unwrap(5, 0, 9), 5);
}

/* A time settles the period within a quarter of it; before the epoch there is none. */
static void test_clock(void **state)
{
    (void)state;
    const struct sample_clock clock = {1000000000, {100000, 1}, 1 << 24}; /* 1677.7 s */
    const int64_t second = 1000000000, period = (int64_t)100000 << 24;
    static const struct {
        int64_t raw, true_sample, late_s;
        enum sample_clock_verdict verdict;
    } cases[] = {
        {100, 100, 0, SAMPLE_CLOCK_SURE},
        {100, 100 + ((int64_t)7 << 24), 400, SAMPLE_CLOCK_SURE},
        {(1 << 24) - 1, (1 << 24) - 1 + ((int64_t)3 << 24), -400, SAMPLE_CLOCK_SURE},
        {(1 << 23) + 5, (1 << 23) + 5, -838, SAMPLE_CLOCK_FIRST_PERIOD},
        {(1 << 24) - 5, (1 << 24) - 5, -1677, SAMPLE_CLOCK_FIRST_PERIOD},
        {100, 100 + ((int64_t)2 << 24), 500, SAMPLE_CLOCK_UNSURE},
        {100, 100 + ((int64_t)2 << 24), -500, SAMPLE_CLOCK_UNSURE},
        {100, 100, -500, SAMPLE_CLOCK_UNSURE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t sample = cases[i].raw, late;
        int64_t near = clock.epoch_ns + cases[i].true_sample * 100000 + cases[i].late_s * second;
        enum sample_clock_verdict verdict = sample_clock_place(&clock, &sample, near, &late);
        if (verdict != cases[i].verdict || sample != cases[i].true_sample)
            fail_msg("case %zu: verdict %d, sample %lld", i, (int)verdict, (long long)sample);
        assert_true(llabs(late - cases[i].late_s * second) <= 100000);
        struct br_error error = {0};
        sample_clock_refuse(&clock, sample, near, "the clock", &error);
        assert_non_null(strstr(error.text, "start_utc"));
    }
    const struct sample_clock endless = {0, {5120, 3}, 0};
    int64_t sample = 123, late;
    assert_int_equal(sample_clock_place(&endless, &sample, period, &late), SAMPLE_CLOCK_SURE);
    assert_int_equal(sample, 123);
    assert_int_equal(sample_clock_at(&endless, -1), -1);
}

/* --- mistakes ---------------------------------------------------------------------------------- */

static const char good[] = "bytes: 30\n"
                           "fields: {seq: {offset: 0, bytes: 4}, board: {offset: 4, bytes: 2}}\n"
                           "sequence: {fields: seq}\n"
                           "source: {fields: board}\n"
                           "payload: {offset: 6, axes: [freq, input], lengths: [3, 8]}\n"
                           "coding: {values: twos_complement, real: low}\n";

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"bytes: 30\n", "bytes: 29\n",
         "t.yaml:5:10: payload: 24 bytes from byte 6 on; the packet has 29 bytes"},
        {"bytes: 30\n", "", "t.yaml:1:1: 'bytes' is missing; expected the bytes of the UDP payload"},
        {"bytes: 30\n", "bytes: 30\nhedder: fixed\n", "did you mean 'header'?"},
        {"bytes: 30\n", "header: spead\n",
         "t.yaml:2:15: fields.seq: expected item, and neither offset, bytes nor byte_order, as the header is "
         "SPEAD's"},
        {"offset: 4, bytes: 2", "offset: 29, bytes: 2",
         "fields.board: ends at byte 31; the packet has 30 bytes"},
        {"offset: 4, bytes: 2", "offset: 5, bytes: 2",
         "t.yaml:5:10: payload: bytes 6 to 29 are samples, but the field 'board' stands at bytes 5 to 6"},
        {"offset: 4, bytes: 2", "offset: 28, bytes: 2", "the field 'board' stands at bytes 28 to 29"},
        {"{fields: seq}", "{fields: seq, bits: 33}",
         "sequence.bits: 33, but its fields start again after 4294967296 counts"},
        {"offset: 4, bytes: 2", "item: 4", "fields.board: expected offset and bytes, and no item"},
        {"offset: 4, bytes: 2", "offset: 4, bytes: 2, shift: 9, bits: 8",
         "shift 9 and bits 8 are more than the 16 bits"},
        {"offset: 4, bytes: 2", "offset: 4, bytes: 9", "fields"},
        {"fields: board", "fields: bord",
         "t.yaml:4:18: source.fields: there is no field 'bord'; did you mean 'board'?"},
        {"fields: board", "fields: board, times: [1, 2]", "source.times: 2 numbers for 1 fields"},
        {"sequence: {fields: seq}\n", "", "'sequence' is missing"},
        {"[freq, input]", "[freq, freq]", "payload.axes: 'freq' stands twice"},
        {"[freq, input]", "[freq, imput]", "payload.axes: 'imput' is not an axis"},
        {"[3, 8]", "[3]", "payload.lengths: 1 lengths for 2 axes"},
        {"[3, 8]", "[65000, 65000]", "payload.lengths: more than the 65507 bytes that UDP carries"},
        {"real: low}\n", "real: low}\nsources: {first: 65535, count: 2}\n", "sources: the last id is 65536"},
        {"real: low}\n", "real: low}\nsources: {ids: [1], count: 2}\n", "sources: expected either count"},
        {"real: low}\n", "real: lower}\n", "coding.real: 'lower' is not a choice"},
    };
    struct packet_description *p;
    struct br_error none = {0};
    assert_int_equal(packet_description_parse(&p, "t.yaml", good, strlen(good), &none), BR_OK);
    packet_description_free(p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        struct br_error error = {0};
        const char *at = strstr(good, cases[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, cases[i].to,
                 at + strlen(cases[i].from));
        assert_int_equal(packet_description_parse(&p, "t.yaml", text, strlen(text), &error), BR_E_INVALID);
        assert_null(p);
        if (strstr(error.text, cases[i].message) == NULL)
            fail_msg("case %zu: expected '%s' in '%s'", i, cases[i].message, error.text);
    }
    struct br_error error = {0};
    assert_int_equal(packet_description_load(&p, "no-such-board", &error), BR_E_INVALID);
    assert_non_null(strstr(error.text, "there is no packet description 'no-such-board'"));
}

static void test_layout_mistakes(void **state)
{
    (void)state;
    struct packet_description *p;
    struct packet_layout l;
    struct br_error error = {0};
    assert_int_equal(packet_description_parse(&p, "t.yaml", good, strlen(good), &error), BR_OK);
    static const int64_t twice[] = {3, 3}, large[] = {65536}, two[] = {3, 4}, other[] = {5};
    static const struct {
        struct packet_node node;
        const char *message;
    } cases[] = {
        {{.frame_samples = 4}, "does not say which sources there are"},
        {{.frame_samples = 4, .sources = {2, twice}}, "source 3 is listed twice"},
        {{.frame_samples = 4, .sources = {1, large}}, "source 65536 is out of range"},
        {{.frame_samples = 4, .sources = {2, two}, .absent = {1, other}}, "absent: 5 is not a source"},
        {{.frame_samples = 4, .sources = {2, two}, .absent = {2, two}}, "absent: all sources"},
        {{.frame_samples = 4, .sources = {2, two}, .streams = {2, two}},
         "channel 4 is in stream 3 and again in stream 4"},
        {{.frame_samples = 0, .sources = {2, two}}, "a frame of 0 samples"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error = (struct br_error){0};
        assert_int_equal(packet_layout_make(&l, p, &cases[i].node, memory, &error), BR_E_INVALID);
        if (strstr(error.text, cases[i].message) == NULL)
            fail_msg("case %zu: expected '%s' in '%s'", i, cases[i].message, error.text);
    }
    packet_description_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_presets, teardown),
        cmocka_unit_test_teardown(test_crs_layout, teardown),
        cmocka_unit_test_teardown(test_dsa_layout, teardown),
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_unwrap),
        cmocka_unit_test(test_clock),
        cmocka_unit_test_teardown(test_mistakes, teardown),
        cmocka_unit_test_teardown(test_layout_mistakes, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
