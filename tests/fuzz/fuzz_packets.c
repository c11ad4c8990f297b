/* libFuzzer: any packets into the open frames of capture. Input: which description, then u16 length
 * and so many bytes, again and again. Every packet is in one counter, frames go on in order, and
 * nothing is written beyond them. */
#include "formats/packets/window.h"
#include "tests/fuzz/pieces.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const descriptions[] = {
    "byte_order: little\nbytes: 40\n"
    "fields: {c: {offset: 0, bytes: 1, equals: 0xCF}, b: {offset: 1, bytes: 1}, s: {offset: 2, bytes: 1},\n"
    "         q: {offset: 3, bytes: 5}}\n"
    "sequence: {fields: q, bits: 40}\nsource: {fields: b}\nstream: {fields: s}\nchannel: {step: 4}\n"
    "payload: {offset: 8, axes: [freq, time, input], lengths: [2, 4, 4]}\n",
    "bytes: 24\n"
    "fields: {q: {offset: 0, bytes: 8, shift: 29, bits: 35}, s: {offset: 0, bytes: 8, shift: 16, bits: 13},\n"
    "         b: {offset: 0, bytes: 8, bits: 16}}\n"
    "sequence: {fields: q, bits: 35}\nsource: {fields: b}\nstream: {fields: s}\nchannel: {step: 4}\n"
    "payload: {offset: 8, axes: [dish, time, pol], lengths: [2, 4, 2]}\n",
    "header: spead\n"
    "fields: {p: {item: 3, divide: 16}, q: {item: 5, divide: 4}, b: {item: 6}, d: {item: 7, pointer: true}}\n"
    "sequence: {fields: q, times: 4, bits: 30}\nsource: {fields: b}\nstream: {fields: p}\nchannel: {step: "
    "8}\n"
    "payload: {axes: [freq, time], lengths: [4, 4]}\n",
};
enum { DESCRIPTIONS = sizeof descriptions / sizeof *descriptions, FRAME = 16, OPEN = 3 };

static struct br_frame *new_frame(const struct br_stream *stream)
{
    struct br_frame *frame = calloc(1, sizeof *frame);
    must(frame != NULL);
    frame->data = malloc(br_array_bytes(&stream->array));
    frame->side = malloc(br_array_bytes(&stream->side));
    frame->valid = malloc(br_stream_max_validity(stream));
    return frame;
}

static void free_frame(struct br_frame *frame)
{
    free(frame->data);
    free(frame->side);
    free(frame->valid);
    free(frame);
}

static uint64_t counted(const struct window *w)
{
    uint64_t n = 0;
    for (size_t s = 0; s <= w->layout->nsources; s++)
        for (int r = 0; r < WINDOW_NREASONS; r++) n += window_count(w, s, (enum window_reason)r);
    return n;
}

static void run(struct window *w, const struct br_stream *stream, const uint8_t *data, size_t size)
{
    struct br_frame *frame[OPEN];
    uint64_t packets = 0, next = 0;
    for (int64_t n = 0; n < OPEN; n++) window_give(w, n, frame[n] = new_frame(stream));
    window_begin(w, 0);
    while (size >= 2) {
        size_t length = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        if (length > size) length = size;
        uint8_t *packet = malloc(length + (length == 0)); /* of its own, so that reading beyond it is seen */
        must(packet != NULL);
        memcpy(packet, data, length);
        window_enter(w, &w->thread[0]);
        window_packet(w, &w->thread[0], packet, length);
        window_leave(&w->thread[0]);
        free(packet);
        data += length;
        size -= length;
        must(counted(w) == ++packets);
        int64_t at;
        window_look_who_sends(w);
        window_has_jumped(w, &at);
        window_position(w, 1, &at);
        if (!window_is_due(w)) continue;
        struct br_frame *closed = window_close(w, stream);
        must(closed != NULL && closed->first == next && closed->samples == FRAME);
        next += FRAME;
        window_give(w, (int64_t)(next / FRAME) + OPEN - 1, closed);
    }
    for (int n = 0; n < OPEN; n++) {
        if (window_has_packets(w, (int64_t)(next / FRAME) + n)) {
            struct br_frame *closed = window_close(w, stream);
            window_trim(w, stream, closed);
            must(closed->samples > 0 && closed->samples <= FRAME);
        } else {
            window_close(w, stream);
        }
    }
    for (int n = 0; n < OPEN; n++) free_frame(frame[n]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t sources[] = {2, 0, 5}, streams[] = {0, 1}, absent[] = {5};
    static const double mhz[64], width[64] = {1};
    if (size < 1) return 0;
    struct packet_description *p;
    struct packet_layout layout;
    struct window window;
    struct packet_memory memory = {keep, NULL};
    const char *text = descriptions[data[0] % DESCRIPTIONS];
    struct packet_node node = {.sources = {3, sources},
                               .streams = {2, streams},
                               .absent = {1, absent},
                               .frame_samples = FRAME,
                               .values = "offset_binary",
                               .real = "high"};
    must(packet_description_parse(&p, "fuzz.yaml", text, strlen(text), NULL) == BR_OK);
    must(packet_layout_make(&layout, p, &node, memory, NULL) == BR_OK);
    struct br_stream stream = {
        .sample_ns = {1, 1}, .freq_mhz = mhz, .width_mhz = width, .nchannels = layout.nchannels};
    must(packet_layout_describe(&layout, p, &stream, memory, NULL) == BR_OK);
    must(window_make(&window, p, &layout, OPEN, 1, NULL) == BR_OK);
    window.hold = 4;
    window.far = 64;
    run(&window, &stream, data + 1, size - 1);
    window_free(&window);
    packet_description_free(p);
    free_pieces();
    return 0;
}
