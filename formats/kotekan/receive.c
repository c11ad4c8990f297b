#include "formats/kotekan/receive.h"
#include "buffers/clock.h"
#include "formats/dada/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR_WINDOWS = 16 };
#define LIVE_NS UINT64_C(2000000000)

/* --- is it as expected? ------------------------------------------------------------------------------- */

bool kotekan_is_plain(const struct br_stream *stream)
{
    return br_array_axis(&stream->array, "dish") >= 0 && stream->zone[0].factor == 1;
}

static const char *unlike_plain(const struct br_array *wanted, const struct chord_metadata *m)
{
    static const char *const names[] = {"T", "F", "P", "D"};
    if (m->type != CHORD_INT4X2 && m->type != CHORD_INT4X2_CHIME)
        return "its type is not int4x2 (int4p4) or its CHIME coding";
    if (m->dims != 4) return "it has not the 4 dimensions T, F, P, D";
    for (int i = 0; i < 4; i++) {
        if (strcmp(m->dim_name[i], names[i]) != 0) return "its dimensions are not T, F, P, D";
        if (i > 0 && (size_t)m->dim[i] != wanted->axis[i].length)
            return "it has other numbers of channels, polarisations or dishes than the pipeline";
    }
    return NULL;
}

static const char *unlike(const struct br_stream *wanted, const struct kotekan_array *a)
{
    const struct br_array *x = &a->array, *y = &wanted->array;
    if (x->dtype != y->dtype || x->naxes != y->naxes) return "it is another array than `array` says";
    for (unsigned i = 0; i < x->naxes; i++) {
        if (strcmp(x->axis[i].name, y->axis[i].name) != 0) return "its dimensions are not those of `array`";
        if (strcmp(x->axis[i].name, "time") != 0 && x->axis[i].length != y->axis[i].length)
            return "it has other numbers of channels, polarisations, dishes or beams than the pipeline";
    }
    if (a->factor != wanted->zone[0].factor) return "it is upchannelized by another factor";
    if (a->downsample != wanted->zone[0].downsample)
        return "its time steps have other numbers of samples than `downsample` says";
    return NULL;
}

/* --- a link ------------------------------------------------------------------------------------------- */

/* Says why a link is to be closed. */
#define refuse(k, ...)                                                                                       \
    (snprintf((k)->base.complaint, WIRE_COMPLAINT, __VA_ARGS__), (k)->base.counts.malformed++, TCP_CLOSE)

static void expect(struct kotekan_link *link, enum kotekan_link_state state, size_t bytes)
{
    link->state = state;
    link->got = 0;
    link->want = bytes;
}

static enum tcp_next take_sizes(struct kotekan_receiver *k, struct kotekan_link *link)
{
    uint32_t metadata = link->sizes[0], frame = link->sizes[1];
    struct br_error why = {0};
    if (chord_metadata_check_size(metadata, "a sender was closed", &why) != BR_OK)
        return refuse(k, "%s", why.text);
    if (frame == 0 || frame % k->row != 0 || frame > k->max_frame_bytes)
        return refuse(k,
                      "a sender was closed: it announced a frame of %" PRIu32
                      " bytes; expected a multiple of the %zu bytes of a sample, at most %" PRIu64,
                      frame, k->row, k->max_frame_bytes);
    expect(link, LINK_METADATA, metadata);
    return TCP_MORE;
}

/* Memory for a frame whose layout differs from ours. */
static bool make_room(struct kotekan_receiver *k, struct kotekan_link *link,
                      const struct kotekan_array *array)
{
    if (k->plain || array->copy) return true;
    if (k->spare_room < link->room) {
        uint8_t *grown = realloc(k->spare, link->room);
        if (grown == NULL) return false;
        k->spare = grown;
        k->spare_room = link->room;
    }
    if (!array->chime) return true;
    size_t cells = br_array_length(&array->array, "time") * br_array_length(&array->array, "freq");
    uint8_t *grown = realloc(link->valid, cells);
    if (grown != NULL) link->valid = grown;
    return grown != NULL;
}

/* Brings the frame that has come into our order and coding. */
static void decode(struct kotekan_receiver *k, struct kotekan_link *link)
{
    if (k->plain || link->array.copy) return;
    kotekan_array_decode(&link->array, br_array_length(&link->array.array, "time"), link->body, k->spare,
                         link->valid);
    uint8_t *decoded = k->spare;
    size_t room = k->spare_room;
    k->spare = link->body;
    k->spare_room = link->room;
    link->body = decoded;
    link->room = room;
}

static enum tcp_next take_metadata(struct kotekan_receiver *k, struct kotekan_link *link)
{
    struct chord_metadata m;
    struct br_error why = {0};
    uint32_t downsample = 1;
    struct kotekan_array array = {0};
    int status = chord_metadata_decode(&m, link->metadata, link->sizes[0], link->sizes[1], "the peer", &why);
    if (status == BR_OK && !k->plain) status = kotekan_array_describe(&array, &m, "the peer", &why);
    if (status == BR_OK && k->plain)
        status = chord_metadata_first(&m, "the peer", &link->first, &downsample, &why);
    if (status == BR_OK && !k->plain) {
        link->first = array.first;
        downsample = array.downsample;
        link->array = array;
    }
    if (status != BR_OK) return refuse(k, "%s", why.text);
    const struct br_stream *out = k->stream;
    const char *wrong = k->plain ? unlike_plain(&out->array, &m) : unlike(out, &array);
    if (wrong == NULL && k->plain && downsample != 1) wrong = "its samples are not those of the F-engine";
    if (wrong == NULL && (link->first > INT64_MAX / 2)) wrong = "its first sample is out of range";
    if (wrong != NULL) return refuse(k, "a frame was refused: %s", wrong);
    link->end = link->first + (k->plain ? (uint64_t)m.dim[0]
                                        : (uint64_t)br_array_length(&array.array, "time") * downsample);
    link->coding = k->coding != CODING_UNKNOWN    ? k->coding
                   : m.type == CHORD_INT4X2_CHIME ? CODING_CHIME
                                                  : CODING_INT4X2;
    if (link->room < link->sizes[1]) {
        uint8_t *grown = realloc(link->body, link->sizes[1]);
        if (grown == NULL) return refuse(k, "no memory for a frame of %" PRIu32 " bytes", link->sizes[1]);
        link->body = grown;
        link->room = link->sizes[1];
    }
    if (!make_room(k, link, &array))
        return refuse(k, "no memory for a frame of %" PRIu32 " bytes", link->sizes[1]);
    link->known = true;
    expect(link, LINK_BODY, link->sizes[1]);
    return TCP_MORE;
}

/* --- the server's calls ------------------------------------------------------------------------------ */

static void begin(void *owner, unsigned peer)
{
    struct kotekan_receiver *k = owner;
    k->link[peer] = (struct kotekan_link){.heard_at = br_clock_ns()};
    expect(&k->link[peer], LINK_SIZES, sizeof k->link[peer].sizes);
}

static uint8_t *room(void *owner, unsigned peer, size_t *bytes)
{
    struct kotekan_link *link = &((struct kotekan_receiver *)owner)->link[peer];
    *bytes = link->state == LINK_HELD ? 0 : link->want - link->got;
    uint8_t *to = link->state == LINK_SIZES      ? (uint8_t *)link->sizes
                  : link->state == LINK_METADATA ? link->metadata
                                                 : link->body;
    return to + link->got;
}

static enum tcp_next got(void *owner, unsigned peer, size_t bytes)
{
    struct kotekan_receiver *k = owner;
    struct kotekan_link *link = &k->link[peer];
    link->got += bytes;
    link->heard_at = br_clock_ns();
    if (link->got < link->want) return TCP_MORE;
    if (link->state == LINK_SIZES) return take_sizes(k, link);
    if (link->state == LINK_METADATA) return take_metadata(k, link);
    decode(k, link);
    link->state = LINK_HELD;
    link->any = true;
    k->base.counts.received++;
    return TCP_LATER;
}

static bool may_close(const void *owner, unsigned peer)
{
    const struct kotekan_link *link = &((const struct kotekan_receiver *)owner)->link[peer];
    return link->state == LINK_SIZES && link->got == 0;
}

static bool may_be_silent(const void *owner, unsigned peer)
{
    const struct kotekan_link *link = &((const struct kotekan_receiver *)owner)->link[peer];
    return link->state == LINK_HELD || may_close(owner, peer);
}

static bool is_known(const void *owner, unsigned peer)
{
    return ((const struct kotekan_receiver *)owner)->link[peer].known;
}

static void end(void *owner, unsigned peer)
{
    struct kotekan_link *link = &((struct kotekan_receiver *)owner)->link[peer];
    free(link->body);
    free(link->valid);
    *link = (struct kotekan_link){.state = LINK_FREE};
}

static const struct tcp_calls calls = {.begin = begin,
                                       .room = room,
                                       .got = got,
                                       .may_close = may_close,
                                       .may_be_silent = may_be_silent,
                                       .is_known = is_known,
                                       .end = end};

static int listen_at(struct receiver *receiver, const struct net_address *at, struct br_error *error)
{
    struct kotekan_receiver *k = (struct kotekan_receiver *)receiver;
    k->row = br_array_bytes(&k->stream->array) / br_array_length(&k->stream->array, "time");
    k->plain = kotekan_is_plain(k->stream);
    k->server = (struct tcp_server){.calls = &calls,
                                    .owner = k,
                                    .most = KOTEKAN_LINKS,
                                    .handshake_s = receiver->handshake_s,
                                    .counts = &receiver->counts,
                                    .complaint = receiver->complaint,
                                    .listener = -1};
    int status = tcp_server_listen(&k->server, at, error);
    if (status == BR_OK) receiver->port = net_port(k->server.listener);
    return status;
}

static struct kotekan_link *earliest(struct kotekan_receiver *k)
{
    struct kotekan_link *found = NULL;
    for (unsigned i = 0; i < KOTEKAN_LINKS; i++)
        if (k->link[i].state == LINK_HELD && (found == NULL || k->link[i].first < found->first))
            found = &k->link[i];
    return found;
}

static int step(struct receiver *receiver, int ms, struct br_error *error)
{
    struct kotekan_receiver *k = (struct kotekan_receiver *)receiver;
    return tcp_server_step(&k->server, earliest(k) != NULL ? 0 : ms, error);
}

/* --- frames ------------------------------------------------------------------------------------------- */

/* Writes samples [from, to) of the held frame into the output; a CHIME cell without any sample is missing. */
static void copy_rows(const struct kotekan_receiver *k, const struct br_stream *stream,
                      const struct kotekan_link *link, struct br_frame *out, uint64_t from, uint64_t to)
{
    size_t rows = (size_t)(to - from), at = (size_t)(from - k->begin), cell = k->row / stream->nchannels;
    const uint8_t *source = link->body + (size_t)(from - link->first) * k->row;
    uint8_t *valid = out->valid + at * stream->nchannels;
    memset(valid, BR_VALID, rows * stream->nchannels);
    for (size_t i = 0; link->coding == CODING_CHIME && i < rows * stream->nchannels; i++)
        if (coding_all_missing(link->coding, source + i * cell, cell)) valid[i] = BR_MISSING;
    coding_convert(link->coding, source, (uint8_t *)out->data + at * k->row, rows * k->row);
}

/* The same for arrays in which a time step is not one piece. */
static void copy_steps(const struct kotekan_receiver *k, const struct br_stream *stream,
                       const struct kotekan_link *link, struct br_frame *out, uint64_t from, uint64_t to)
{
    struct br_frame held = {.first = link->first,
                            .samples = link->end - link->first,
                            .complete = !link->array.chime,
                            .data = link->body,
                            .valid = link->valid};
    out->first = k->begin;
    out->samples = stream->frame_samples;
    out->complete = false;
    recording_place(stream, out, &held, from, to);
}

/* Nothing is there yet: whole frames only, for where a time step lies depends on their length. */
static void clear_frame(struct kotekan_receiver *k, const struct br_stream *stream, struct br_frame *out)
{
    k->begin = k->begin / stream->frame_samples * stream->frame_samples;
    out->first = k->begin;
    out->samples = stream->frame_samples;
    memset(out->data, recording_missing_byte(stream), br_frame_bytes(stream, out));
    memset(out->valid, BR_MISSING, br_frame_cells(stream, out));
}

static void mark_missing(struct kotekan_receiver *k, const struct br_stream *stream, struct br_frame *out,
                         uint64_t from, uint64_t to)
{
    if (!k->plain) {
        k->base.counts.missing += to - from;
        return;
    }
    size_t at = (size_t)(from - k->begin), rows = (size_t)(to - from);
    memset(out->valid + at * stream->nchannels, BR_MISSING, rows * stream->nchannels);
    memset((uint8_t *)out->data + at * k->row, 0, rows * k->row);
    k->base.counts.missing += rows;
}

/* Hands on [begin, end). */
static bool emit(struct kotekan_receiver *k, const struct br_stream *stream, struct br_frame *out,
                 uint64_t end)
{
    out->first = k->begin;
    out->samples = end - k->begin;
    out->complete = false;
    br_frame_close_validity(stream, out);
    k->filling = false;
    k->base.counts.blocks++;
    return true;
}

/* Whether the frame is so far ahead that all that the other senders are sending would be late. One whose
 * clock is wrong waits until they come there too, or say nothing any more; where all have moved on, nobody
 * waits. */
static bool far_ahead(const struct kotekan_receiver *k, const struct kotekan_link *link,
                      uint64_t frame_samples)
{
    uint64_t far = k->cursor + FAR_WINDOWS * (uint64_t)k->base.window * frame_samples, now = br_clock_ns();
    if (!k->any || link->first < far) return false;
    for (unsigned i = 0; i < KOTEKAN_LINKS; i++) {
        const struct kotekan_link *o = &k->link[i];
        if (o != link && o->state != LINK_FREE && o->any && o->first < far && now - o->heard_at < LIVE_NS)
            return true;
    }
    return false;
}

static bool fill(struct receiver *receiver, const struct br_stream *stream, bool flush, struct br_frame *out)
{
    struct kotekan_receiver *k = (struct kotekan_receiver *)receiver;
    for (struct kotekan_link *link; (link = earliest(k)) != NULL;) {
        if (k->any && link->end <= k->cursor) { /* nothing in it is new */
            *(link->first + stream->frame_samples < k->cursor ? &k->base.counts.late
                                                              : &k->base.counts.duplicate) += 1;
            expect(link, LINK_SIZES, sizeof link->sizes);
            continue;
        }
        if (!flush && far_ahead(k, link, stream->frame_samples)) {
            if (!link->doubted)
                snprintf(receiver->complaint, sizeof receiver->complaint,
                         "a sender's sample %" PRIu64 " is far ahead of the others': it waits for them",
                         link->first);
            link->doubted = true;
            return false;
        }
        link->doubted = false;
        uint64_t from = k->any && link->first < k->cursor ? k->cursor : link->first;
        uint64_t border = (k->begin / stream->frame_samples + 1) * stream->frame_samples;
        if (k->filling && from >= border) { /* a gap that reaches beyond this frame */
            mark_missing(k, stream, out, k->cursor, border);
            k->cursor = border;
            return emit(k, stream, out, border);
        }
        if (!k->filling) {
            if (k->any) k->base.counts.missing += from - k->cursor;
            k->filling = true;
            k->begin = from;
            if (!k->plain) clear_frame(k, stream, out);
            border = (from / stream->frame_samples + 1) * stream->frame_samples;
        } else if (from > k->cursor) {
            mark_missing(k, stream, out, k->cursor, from);
        }
        uint64_t to = link->end < border ? link->end : border;
        (k->plain ? copy_rows : copy_steps)(k, stream, link, out, from, to);
        k->any = true;
        k->cursor = to;
        if (to == link->end) expect(link, LINK_SIZES, sizeof link->sizes);
        if (to == border) return emit(k, stream, out, border);
    }
    if (!flush || !k->filling) return false;
    if (!k->plain) {
        uint64_t border = k->begin + stream->frame_samples;
        mark_missing(k, stream, out, k->cursor, border);
        k->cursor = border;
    }
    return emit(k, stream, out, k->cursor);
}

static unsigned connected(const struct receiver *receiver)
{
    return ((const struct kotekan_receiver *)receiver)->server.open;
}

static void free_receiver(struct receiver *receiver)
{
    struct kotekan_receiver *k = (struct kotekan_receiver *)receiver;
    if (k->server.calls != NULL) tcp_server_close(&k->server);
    free(k->spare);
    k->spare = NULL;
}

const struct receiver_format kotekan_receiver = {.name = "kotekan",
                                                 .bytes = sizeof(struct kotekan_receiver),
                                                 .listen = listen_at,
                                                 .step = step,
                                                 .fill = fill,
                                                 .connected = connected,
                                                 .free = free_receiver};
