/* A million packets with a flipped bit in the header, among whole ones: each is in one counter, and every
 * byte of a frame is what a packet brought whose header said so. */
#include "formats/packets/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* As CRS, with few samples, so that a million are quick. */
static const char text[] = "byte_order: little\n"
                           "bytes: 54\n"
                           "fields:\n"
                           "  cookie: {offset: 0, bytes: 1, equals: 0xCF}\n"
                           "  source_id: {offset: 2, bytes: 2}\n"
                           "  stream_id: {offset: 4, bytes: 2}\n"
                           "  seq: {offset: 8, bytes: 8}\n"
                           "sequence: {fields: seq}\n"
                           "source: {fields: source_id}\n"
                           "stream: {fields: stream_id}\n"
                           "channel: {step: 128}\n"
                           "payload: {offset: 22, axes: [freq, time, input], lengths: [2, 16, 1]}\n"
                           "coding: {values: offset_binary, real: high}\n"
                           "sample_ns: 5120\n"
                           "freq_mhz: {first: 0, step: 0.1953125}\n"
                           "sources: {count: 16}\n"
                           "streams: {step: 16, count: 8}\n";

enum {
    HEADER = 22,
    PAYLOAD = 32,
    BYTES = HEADER + PAYLOAD,
    SOURCES = 16,
    STREAMS = 8,
    STEP = 16,
    FRAME = 512,
    BLOCKS = FRAME / STEP,
    SLOTS = SOURCES * STREAMS,
    OPEN = 3,
    FRAMES = 4,
    FLIPS = 1000000
};

static void *pieces[64];
static unsigned npieces;

static void *alloc(void *owner, size_t bytes)
{
    (void)owner;
    assert_true(npieces < 64);
    return pieces[npieces++] = calloc(1, bytes > 0 ? bytes : 1);
}

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* A packet, whose payload says where it is from. */
static void make_packet(uint8_t *bytes, uint64_t sample, unsigned source, unsigned stream)
{
    memset(bytes, 0, HEADER);
    bytes[0] = 0xCF;
    bytes[2] = (uint8_t)source;
    bytes[4] = (uint8_t)(16 * stream);
    memcpy(bytes + 8, &sample, 8);
    for (unsigned i = 0; i < PAYLOAD; i += 8) {
        uint64_t word = (sample * 1000003 + source * 31 + stream) * 0x9e3779b97f4a7c15u + i;
        memcpy(bytes + HEADER + i, &word, 8);
    }
}

/* State of the running test. */
static struct packet_description *p;
static struct packet_layout l;
static struct br_stream stream;
static struct window w;

/* The expected contents of the frames, from the headers of accepted packets. */
struct model {
    bool there[FRAMES][BLOCKS][SLOTS];
    uint8_t data[FRAMES][BLOCKS][SLOTS][PAYLOAD];
};

static void take(struct model *m, const uint8_t *bytes)
{
    uint64_t sample;
    unsigned source = bytes[2] | (unsigned)bytes[3] << 8, id = bytes[4] | (unsigned)bytes[5] << 8;
    memcpy(&sample, bytes + 8, 8);
    assert_int_equal(bytes[0], 0xCF);
    assert_true(source < SOURCES && id % 16 == 0 && id / 16 < STREAMS && sample % STEP == 0);
    int64_t frame = (int64_t)(sample / FRAME), base = atomic_load(&w.base);
    assert_true(frame >= base && frame < base + OPEN);
    size_t block = sample % FRAME / STEP, slot = source * STREAMS + id / 16;
    assert_false(m->there[frame % FRAMES][block][slot]);
    m->there[frame % FRAMES][block][slot] = true;
    memcpy(m->data[frame % FRAMES][block][slot], bytes + HEADER, PAYLOAD);
}

/* The oldest frame against the model. Returns how many slots hold another packet's samples. */
static uint64_t check_frame(struct model *m, const struct br_frame *frame)
{
    size_t k = (size_t)(frame->first / FRAME % FRAMES);
    uint64_t wrong = 0;
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t slot = 0; slot < SLOTS; slot++) {
            const uint8_t *receipt = (const uint8_t *)frame->side + b * l.receipt_bytes;
            const uint8_t *data = (const uint8_t *)frame->data + b * l.block_bytes + slot * PAYLOAD;
            uint8_t bytes[BYTES];
            assert_int_equal(receipt[slot / 8] >> slot % 8 & 1, m->there[k][b][slot]);
            if (!m->there[k][b][slot]) continue;
            assert_memory_equal(data, m->data[k][b][slot], PAYLOAD);
            make_packet(bytes, frame->first + b * STEP, (unsigned)(slot / STREAMS), slot % STREAMS);
            wrong += memcmp(data, bytes + HEADER, PAYLOAD) != 0;
        }
    for (size_t t = 0; t < FRAME; t++)
        for (size_t f = 0; f < l.nchannels; f++) {
            unsigned came = 0;
            for (size_t s = 0; s < SOURCES; s++)
                came += m->there[k][t / STEP][s * STREAMS + l.channel_stream[f]];
            assert_int_equal(frame->complete ? 255 : frame->valid[t * l.nchannels + f],
                             came == SOURCES ? 255 : (came * 255 + SOURCES / 2) / SOURCES);
        }
    memset(m->there[k], 0, sizeof m->there[k]);
    return wrong;
}

/* The description above, its layout and stream, and a window for so many threads. */
static void set_up(unsigned threads)
{
    struct br_error error = {0};
    struct packet_memory memory = {alloc, NULL};
    struct packet_node node = {.frame_samples = FRAME};
    stream = (struct br_stream){0};
    if (packet_description_parse(&p, "test.yaml", text, sizeof text - 1, &error) != BR_OK ||
        packet_layout_make(&l, p, &node, memory, &error) != BR_OK ||
        packet_layout_describe(&l, p, &stream, memory, &error) != BR_OK ||
        window_make(&w, p, &l, OPEN, threads, &error) != BR_OK)
        fail_msg("%s", error.text);
}

static void tear_down(void)
{
    window_free(&w);
    packet_description_free(p);
    while (npieces > 0) free(pieces[--npieces]);
}

static struct br_frame new_frame(void)
{
    return (struct br_frame){.data = malloc(BLOCKS * l.block_bytes),
                             .side = malloc(BLOCKS * l.receipt_bytes),
                             .valid = malloc(FRAME * l.nchannels)};
}

static void free_frame(struct br_frame *frame)
{
    free(frame->data);
    free(frame->side);
    free(frame->valid);
}

static void test_a_million_flipped_bits(void **state)
{
    (void)state;
    struct model *m = calloc(1, sizeof *m);
    struct br_frame frames[FRAMES];
    set_up(1);
    for (unsigned i = 0; i < FRAMES; i++) frames[i] = new_frame();
    w.hold = FRAME / 4;
    w.far = 16 * FRAME;
    int64_t given = 0;
    uint64_t packets = 0, flips = 0, wrong = 0, closed = 0, slots = 0;
    for (; given < OPEN; given++) window_give(&w, given, &frames[given % FRAMES]);
    window_begin(&w, 0);
    for (uint64_t sample = 0; flips < FLIPS; sample += STEP) {
        window_enter(&w, &w.thread[0]);
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            uint8_t bytes[BYTES];
            make_packet(bytes, sample, slot / STREAMS, slot % STREAMS);
            /* One in three is damaged: in the middle of what holds together by majorities. */
            if (random_bits() % 3 == 0) {
                size_t bit = random_bits() % (8 * HEADER);
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
                flips++;
            }
            if (window_packet(&w, &w.thread[0], bytes, BYTES) == WINDOW_ACCEPTED) take(m, bytes);
            packets++;
        }
        window_leave(&w.thread[0]);
        window_mark_all_live(&w);
        while (window_is_due(&w)) {
            struct br_frame *frame = window_close(&w, &stream);
            assert_non_null(frame);
            wrong += check_frame(m, frame);
            slots += BLOCKS * SLOTS;
            closed++;
            window_give(&w, given, &frames[given % FRAMES]);
            given++;
        }
    }
    uint64_t counted = 0;
    for (size_t s = 0; s <= l.nsources; s++)
        for (int r = 0; r < WINDOW_NREASONS; r++) counted += window_count(&w, s, (enum window_reason)r);
    assert_int_equal(counted, packets);
    assert_true(closed >= FLIPS * 3 / SLOTS / BLOCKS - 5);
    /* A possible number looks like a true one: this is rare, and harms nothing but its own
     * samples. */
    print_message("%zu flips, %zu frames, %.2f %% of the slots hold another packet's samples\n",
                  (size_t)flips, (size_t)closed, 100 * (double)wrong / (double)slots);
    assert_true((double)wrong < 0.02 * (double)slots);
    for (unsigned i = 0; i < FRAMES; i++) free_frame(&frames[i]);
    tear_down();
    free(m);
}

/* Two threads that share the packets, then each what the other had; and one packet that came to both at
 * the same time, which no lock keeps apart. */
static void test_two_threads(void **state)
{
    (void)state;
    set_up(2);
    struct br_frame frame = new_frame();
    window_give(&w, 0, &frame);
    window_begin(&w, 0);
    for (unsigned t = 0; t < 2; t++) window_enter(&w, &w.thread[t]);
    for (unsigned again = 0; again < 2; again++)
        for (unsigned k = 0; k < BLOCKS * SLOTS; k++) {
            uint8_t bytes[BYTES];
            struct window_thread *thread = &w.thread[(k + again) % 2];
            make_packet(bytes, k / SLOTS * STEP, k % SLOTS / STREAMS, k % STREAMS);
            assert_int_equal(window_packet(&w, thread, bytes, BYTES),
                             again ? WINDOW_DUPLICATE : WINDOW_ACCEPTED);
        }
    uint8_t bytes[BYTES];
    make_packet(bytes, 0, 0, 0);
    uint8_t seen = w.thread[0].receipt[0][0];
    w.thread[0].receipt[0][0] = 0; /* as the second thread sees it when the first is about to write */
    assert_int_equal(window_packet(&w, &w.thread[1], bytes, BYTES), WINDOW_ACCEPTED);
    w.thread[0].receipt[0][0] = seen;
    for (unsigned t = 0; t < 2; t++) window_leave(&w.thread[t]);
    assert_int_equal(window_count(&w, 0, WINDOW_ACCEPTED), BLOCKS * STREAMS + 1);
    assert_ptr_equal(window_close(&w, &stream), &frame);
    assert_true(frame.complete);
    for (unsigned k = 0; k < BLOCKS * SLOTS; k++) {
        make_packet(bytes, k / SLOTS * STEP, k % SLOTS / STREAMS, k % STREAMS);
        assert_memory_equal((uint8_t *)frame.data + (size_t)k * PAYLOAD, bytes + HEADER, PAYLOAD);
    }
    for (size_t s = 0; s < SOURCES; s++) {
        assert_int_equal(window_count(&w, s, WINDOW_ACCEPTED), BLOCKS * STREAMS);
        assert_int_equal(window_count(&w, s, WINDOW_DUPLICATE), BLOCKS * STREAMS + (s == 0));
    }
    free_frame(&frame);
    tear_down();
}

/* A packet of `sample`, of the first stream, that goes into the window. */
static enum window_reason put(uint64_t sample, unsigned source)
{
    uint8_t bytes[BYTES];
    make_packet(bytes, sample, source, 0);
    window_enter(&w, &w.thread[0]);
    enum window_reason reason = window_packet(&w, &w.thread[0], bytes, BYTES);
    window_leave(&w.thread[0]);
    return reason;
}

/* Every packet of a frame; how many of source 3 were taken. */
static unsigned fill(int64_t number)
{
    unsigned taken = 0;
    uint8_t bytes[BYTES];
    for (unsigned k = 0; k < BLOCKS * SLOTS; k++) {
        unsigned source = k % SLOTS / STREAMS;
        make_packet(bytes, (uint64_t)number * FRAME + k / SLOTS * STEP, source, k % STREAMS);
        window_enter(&w, &w.thread[0]);
        enum window_reason reason = window_packet(&w, &w.thread[0], bytes, BYTES);
        window_leave(&w.thread[0]);
        assert_true(reason == WINDOW_ACCEPTED || (source == 3 && reason == WINDOW_FOREIGN));
        taken += source == 3 && reason == WINDOW_ACCEPTED;
    }
    return taken;
}

static uint64_t sum_of_counters(void)
{
    uint64_t n = 0;
    for (size_t s = 0; s <= SOURCES; s++)
        for (int r = 0; r < WINDOW_NREASONS; r++) n += window_count(&w, s, (enum window_reason)r);
    return n;
}

/* Source 3 is absent in frames 2, 3 and 5. Which packets are taken, expected and counted depends on the frame
 * alone, in whatever order frames are filled; packets that come early or late go by their frame as well. */
static void test_expected_by_frame(void **state)
{
    (void)state;
    set_up(1);
    w.hold = FRAME / 4;
    w.far = 16 * FRAME;
    struct br_frame frames[7];
    bool absent[SOURCES] = {false};
    uint64_t packets = 0;
    for (unsigned i = 0; i < 7; i++) frames[i] = new_frame();
    assert_int_equal(put(0, 3), WINDOW_EARLY);
    for (int64_t n = 0; n < OPEN; n++) {
        absent[3] = n == 2;
        window_expect(&w, n, absent);
        window_give(&w, n, &frames[n]);
    }
    window_begin(&w, 0);
    assert_int_equal(put(3 * FRAME, 3), WINDOW_FOREIGN); /* no memory; absent as far as is known */
    assert_int_equal(put(3 * FRAME, 4), WINDOW_NO_FRAME);
    assert_int_equal(put(900 * FRAME, 3), WINDOW_FOREIGN);
    assert_int_equal(put(8, 4), WINDOW_MALFORMED);
    packets = 5;
    assert_int_equal(fill(2), 0); /* the later one first */
    assert_int_equal(fill(0), BLOCKS * STREAMS);
    packets += 2 * BLOCKS * SLOTS;
    for (int64_t n = 0; n < 7; n++) {
        struct br_frame *frame = window_close(&w, &stream);
        assert_ptr_equal(frame, &frames[n]);
        bool gone = n == 2 || n == 3 || n == 5, empty = n == 1;
        assert_int_equal(frame->complete, !empty);
        if (empty) assert_int_equal(frame->missing, FRAME * l.nchannels);
        for (size_t b = 0; b < BLOCKS; b++) /* bits of absent sources are 0, and of no other */
            for (size_t k = 0; k < SLOTS; k++) {
                const uint8_t *receipt = (const uint8_t *)frame->side + b * l.receipt_bytes;
                assert_int_equal(receipt[k / 8] >> k % 8 & 1, !empty && !(gone && k / STREAMS == 3));
            }
        if (n + OPEN < 7) {
            int64_t next = n + OPEN;
            absent[3] = next == 3 || next == 5;
            window_expect(&w, next, absent);
            window_give(&w, next, &frames[next]);
            assert_int_equal(fill(next), absent[3] ? 0 : BLOCKS * STREAMS);
            packets += BLOCKS * SLOTS;
        }
        if (n == 0) {                                 /* frame 3 is the last that has memory */
            assert_int_equal(put(0, 3), WINDOW_LATE); /* it was expected there */
            packets++;
        }
    }
    assert_int_equal(put(6 * FRAME, 3), WINDOW_LATE);
    assert_int_equal(put(5 * FRAME, 3), WINDOW_FOREIGN);
    assert_int_equal(put(5 * FRAME, 4), WINDOW_LATE);
    for (size_t s = 0; s < SOURCES; s++) assert_int_equal(w.missing[s], BLOCKS * STREAMS);
    assert_int_equal(sum_of_counters(), packets + 3);
    for (unsigned i = 0; i < 7; i++) free_frame(&frames[i]);
    tear_down();
}

/* The missing part of a cut frame, and the share of inputs in an incomplete one. */
static void test_cut_where_one_is_absent(void **state)
{
    (void)state;
    set_up(1);
    struct br_frame frame = new_frame();
    bool absent[SOURCES] = {[3] = true, [4] = true};
    window_expect(&w, 0, absent);
    window_give(&w, 0, &frame);
    memset(absent, 0, sizeof absent);
    window_expect(&w, 1, absent); /* of the frames behind it */
    window_begin(&w, 0);
    for (unsigned s = 0; s < SOURCES; s++)
        if (s != 7) assert_int_equal(put(0, s), s == 3 || s == 4 ? WINDOW_FOREIGN : WINDOW_ACCEPTED);
    assert_ptr_equal(window_close(&w, &stream), &frame);
    assert_false(frame.complete);
    assert_int_equal(frame.valid[0], (13 * 255 + 7) / 14);
    window_trim(&w, &stream, &frame);
    assert_int_equal(frame.samples, STEP);
    for (unsigned s = 0; s < SOURCES; s++)
        assert_int_equal(w.missing[s], s == 3 || s == 4 ? 0 : STREAMS - (s != 7));
    free_frame(&frame);
    tear_down();
}

/* A packet that is a whole window ahead comes while the oldest frame is being closed: that one's memory is
 * still there, and is not for it. */
static void test_memory_of_the_frame_before(void **state)
{
    (void)state;
    set_up(1);
    w.far = 16 * FRAME;
    struct br_frame frame = new_frame();
    window_give(&w, 0, &frame);
    window_begin(&w, 0);
    atomic_store(&w.base, 1); /* as window_close does first */
    assert_int_equal(put(OPEN * FRAME, 0), WINDOW_NO_FRAME);
    atomic_store(&w.base, 0);
    assert_false(window_has_packets(&w, 0));
    free_frame(&frame);
    tear_down();
}

/* A counter that starts again after 32 frames: before the first frame a packet says where in a period it
 * is, from then on it may start again at any packet, and after a silence the clock says how many periods
 * have passed. */
static void test_counter_starts_again(void **state)
{
    (void)state;
    enum { PERIOD = 32 * FRAME, FIRST = 3 * 32 + 30 };
    set_up(1);
    p->sequence_period = PERIOD;
    w.period = PERIOD;
    atomic_store(&w.near, PERIOD / 2);
    w.far = 4 * FRAME;
    struct br_frame frames[OPEN];
    int64_t sample = 0;
    for (unsigned s = 0; s < SOURCES; s++) assert_int_equal(put(PERIOD - FRAME - STEP, s), WINDOW_EARLY);
    assert_true(window_position(&w, SOURCES, &sample));
    assert_int_equal(sample, PERIOD - FRAME - STEP);
    for (int64_t n = 0; n < OPEN; n++) {
        frames[n] = new_frame();
        window_give(&w, FIRST + n, &frames[n]);
    }
    window_begin(&w, FIRST);
    for (uint64_t t = 0; t < OPEN * FRAME; t += STEP)
        assert_int_equal(put(FIRST * FRAME + t, 5), WINDOW_ACCEPTED);
    assert_int_equal(put(FIRST * FRAME - STEP, 5), WINDOW_EARLY);
    for (int64_t n = 0; n < OPEN; n++) {
        assert_true(window_has_packets(&w, FIRST + n));
        assert_ptr_equal(window_close(&w, &stream), &frames[n]);
        assert_int_equal(frames[n].first, (FIRST + n) * FRAME);
    }
    /* One period later the counter is the same. */
    assert_int_equal(put((FIRST + OPEN) * FRAME, 6), WINDOW_NO_FRAME);
    window_set_near(&w, (FIRST + 40) * FRAME);
    assert_int_equal(put((FIRST + OPEN) * FRAME, 6), WINDOW_STRAY);
    assert_int_equal(atomic_load(&w.source[6].elsewhere), (FIRST + OPEN + 32) * FRAME);
    for (int64_t n = 0; n < OPEN; n++) free_frame(&frames[n]);
    tear_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_million_flipped_bits),     cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_expected_by_frame),          cmocka_unit_test(test_cut_where_one_is_absent),
        cmocka_unit_test(test_memory_of_the_frame_before), cmocka_unit_test(test_counter_starts_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
