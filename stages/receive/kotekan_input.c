/* receive, format kotekan: frames of E, or of beams, as bufferSend sends them, u32 metadata bytes, u32 frame
 * bytes, chordMetadata, the array. The sender's frames may have any length and begin anywhere: they are cut
 * anew. */
#include "buffers/clock.h"
#include "formats/common/coding.h"
#include "formats/dada/recording.h"
#include "formats/kotekan/chord_metadata.h"
#include "formats/kotekan/kotekan_array.h"
#include "formats/links/tcp_server.h"
#include "stages/common/stage/shape.h"
#include "stages/receive/kotekan_stream.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINKS = 16, FAR_WINDOWS = 16 };
#define LIVE_NS UINT64_C(2000000000)

enum link_state { LINK_FREE, LINK_SIZES, LINK_METADATA, LINK_BODY, LINK_HELD };

struct link {
    enum link_state state;
    uint32_t sizes[2]; /* metadata, frame */
    uint8_t metadata[CHORD_METADATA_BYTES];
    enum coding coding; /* of the frame held */
    uint8_t *body;
    uint8_t *valid; /* [cells] of the frame held, where its coding says what is missing */
    size_t room, got, want;
    struct kotekan_array array;    /* how the frame is made; not for plain ones */
    uint64_t first, end, heard_at; /* base samples of the frame held, or of the last one */
    bool any, known;               /* there was one; its header was accepted */
    bool doubted;                  /* it waits for the others */
};

struct kotekan_input {
    struct tcp_server server; /* its peers have the numbers of the links */
    struct br_stage *stage;
    struct receive *receive;
    struct wire_counts counts;
    struct link link[LINKS];
    size_t row;     /* bytes of a time step */
    uint8_t *spare; /* [spare_room] a frame's bytes before they are as ours */
    size_t spare_room;
    /* E as the F-engine gives it, in rows; else time steps are placed wherever the array has them */
    bool plain;
    bool any;
    uint64_t cursor; /* the next sample to be written */

    /* The frame being filled. */
    bool filling;
    uint64_t begin;
};

/* Says why a link is to be closed. */
static enum tcp_next refuse(struct receive *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static enum tcp_next refuse(struct receive *r, const char *format, ...)
{
    struct kotekan_input *k = r->state;
    va_list args;
    va_start(args, format);
    vsnprintf(r->complaint, sizeof r->complaint, format, args);
    va_end(args);
    k->counts.malformed++;
    return TCP_CLOSE;
}

static void expect(struct link *link, enum link_state state, size_t bytes)
{
    link->state = state;
    link->got = 0;
    link->want = bytes;
}

static enum tcp_next take_sizes(struct receive *r, struct link *link)
{
    const struct kotekan_input *k = r->state;
    uint32_t metadata = link->sizes[0], frame = link->sizes[1];
    struct br_error why = {0};
    if (chord_metadata_check_size(metadata, "a sender was closed", &why) != BR_OK)
        return refuse(r, "%s", why.text);
    if (frame == 0 || frame % k->row != 0 || frame > (uint64_t)r->max_frame_bytes)
        return refuse(r,
                      "a sender was closed: it announced a frame of %" PRIu32
                      " bytes; expected a multiple of the %zu bytes of a sample, at most %" PRId64,
                      frame, k->row, r->max_frame_bytes);
    expect(link, LINK_METADATA, metadata);
    return TCP_MORE;
}

/* Memory for a frame whose layout differs from ours. */
static bool make_room(struct kotekan_input *k, struct link *link, const struct kotekan_array *array)
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
static void decode(struct kotekan_input *k, struct link *link)
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

static enum tcp_next take_metadata(struct br_stage *stage, struct receive *r, struct link *link)
{
    struct chord_metadata m;
    struct br_error why = {0};
    uint32_t downsample = 1;
    const struct kotekan_input *k = r->state;
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
    if (status != BR_OK) return refuse(r, "%s", why.text);
    const struct br_stream *out = br_stage_output(stage, 0);
    const char *wrong = k->plain ? kotekan_unlike_plain(&out->array, &m) : kotekan_unlike(out, &array);
    if (wrong == NULL && k->plain && downsample != 1) wrong = "its samples are not those of the F-engine";
    if (wrong == NULL && (link->first > INT64_MAX / 2)) wrong = "its first sample is out of range";
    if (wrong != NULL) return refuse(r, "a frame was refused: %s", wrong);
    link->end = link->first + (k->plain ? (uint64_t)m.dim[0]
                                        : (uint64_t)br_array_length(&array.array, "time") * downsample);
    bool chime = r->coding != NULL ? strcmp(r->coding, "chime") == 0 : m.type == CHORD_INT4X2_CHIME;
    link->coding = chime ? CODING_CHIME : CODING_INT4X2;
    if (link->room < link->sizes[1]) {
        uint8_t *grown = realloc(link->body, link->sizes[1]);
        if (grown == NULL) return refuse(r, "no memory for a frame of %" PRIu32 " bytes", link->sizes[1]);
        link->body = grown;
        link->room = link->sizes[1];
    }
    if (!make_room(r->state, link, &array))
        return refuse(r, "no memory for a frame of %" PRIu32 " bytes", link->sizes[1]);
    link->known = true;
    expect(link, LINK_BODY, link->sizes[1]);
    return TCP_MORE;
}

/* --- the server's calls ------------------------------------------------------------------------------ */

static void begin(void *owner, unsigned peer)
{
    struct kotekan_input *k = owner;
    k->link[peer] = (struct link){.heard_at = br_clock_ns()};
    expect(&k->link[peer], LINK_SIZES, sizeof k->link[peer].sizes);
}

static uint8_t *room(void *owner, unsigned peer, size_t *bytes)
{
    struct link *link = &((struct kotekan_input *)owner)->link[peer];
    *bytes = link->state == LINK_HELD ? 0 : link->want - link->got;
    uint8_t *to = link->state == LINK_SIZES      ? (uint8_t *)link->sizes
                  : link->state == LINK_METADATA ? link->metadata
                                                 : link->body;
    return to + link->got;
}

static enum tcp_next got(void *owner, unsigned peer, size_t bytes)
{
    struct kotekan_input *k = owner;
    struct link *link = &k->link[peer];
    link->got += bytes;
    link->heard_at = br_clock_ns();
    if (link->got < link->want) return TCP_MORE;
    if (link->state == LINK_SIZES) return take_sizes(k->receive, link);
    if (link->state == LINK_METADATA) return take_metadata(k->stage, k->receive, link);
    decode(k, link);
    link->state = LINK_HELD;
    link->any = true;
    k->counts.received++;
    return TCP_LATER;
}

static bool may_close(const void *owner, unsigned peer)
{
    const struct link *link = &((const struct kotekan_input *)owner)->link[peer];
    return link->state == LINK_SIZES && link->got == 0;
}

static bool may_be_silent(const void *owner, unsigned peer)
{
    const struct link *link = &((const struct kotekan_input *)owner)->link[peer];
    return link->state == LINK_HELD || may_close(owner, peer);
}

static bool is_known(const void *owner, unsigned peer)
{
    return ((const struct kotekan_input *)owner)->link[peer].known;
}

static void end(void *owner, unsigned peer)
{
    struct link *link = &((struct kotekan_input *)owner)->link[peer];
    free(link->body);
    free(link->valid);
    *link = (struct link){.state = LINK_FREE};
}

static const struct tcp_calls calls = {.begin = begin,
                                       .room = room,
                                       .got = got,
                                       .may_close = may_close,
                                       .may_be_silent = may_be_silent,
                                       .is_known = is_known,
                                       .end = end};

static int start(struct br_stage *stage, struct receive *r)
{
    struct br_error error = {0};
    struct kotekan_input *k = r->state = calloc(1, sizeof *k);
    if (k == NULL) return br_no_memory(stage, sizeof *k);
    const struct br_stream *out = br_stage_output(stage, 0);
    k->stage = stage;
    k->receive = r;
    k->row = br_array_bytes(&out->array) / br_array_length(&out->array, "time");
    k->plain = kotekan_is_plain(out);
    r->counts = &k->counts;
    k->server = (struct tcp_server){.calls = &calls,
                                    .owner = k,
                                    .most = LINKS,
                                    .handshake_s = r->handshake_s,
                                    .counts = &k->counts,
                                    .complaint = r->complaint,
                                    .complaint_size = sizeof r->complaint,
                                    .listener = -1};
    if (tcp_server_listen(&k->server, &r->at, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    br_stage_note(stage, "listening on port %u", net_port(k->server.listener));
    return BR_OK;
}

static struct link *earliest(struct kotekan_input *k)
{
    struct link *found = NULL;
    for (unsigned i = 0; i < LINKS; i++)
        if (k->link[i].state == LINK_HELD && (found == NULL || k->link[i].first < found->first))
            found = &k->link[i];
    return found;
}

static int step(struct br_stage *stage, struct receive *r, int ms)
{
    struct kotekan_input *k = r->state;
    struct br_error error = {0};
    int status = tcp_server_step(&k->server, earliest(k) != NULL ? 0 : ms, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* --- frames ------------------------------------------------------------------------------------------- */

/* Writes samples [from, to) of the held frame into the output; a CHIME cell without any sample is missing. */
static void copy_rows(const struct kotekan_input *k, const struct br_stream *stream, const struct link *link,
                      struct br_frame *out, uint64_t from, uint64_t to)
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
static void copy_steps(const struct kotekan_input *k, const struct br_stream *stream, const struct link *link,
                       struct br_frame *out, uint64_t from, uint64_t to)
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
static void clear_frame(struct kotekan_input *k, const struct br_stream *stream, struct br_frame *out)
{
    k->begin = k->begin / stream->frame_samples * stream->frame_samples;
    out->first = k->begin;
    out->samples = stream->frame_samples;
    memset(out->data, recording_missing_byte(stream), br_frame_bytes(stream, out));
    memset(out->valid, BR_MISSING, br_frame_cells(stream, out));
}

static void mark_missing(struct kotekan_input *k, const struct br_stream *stream, struct br_frame *out,
                         uint64_t from, uint64_t to)
{
    if (!k->plain) {
        k->counts.missing += to - from;
        return;
    }
    size_t at = (size_t)(from - k->begin), rows = (size_t)(to - from);
    memset(out->valid + at * stream->nchannels, BR_MISSING, rows * stream->nchannels);
    memset((uint8_t *)out->data + at * k->row, 0, rows * k->row);
    k->counts.missing += rows;
}

/* Hands on [begin, end). */
static int emit(struct kotekan_input *k, const struct br_stream *stream, struct br_frame *out, uint64_t end)
{
    out->first = k->begin;
    out->samples = end - k->begin;
    out->complete = false;
    br_frame_close_validity(stream, out);
    k->filling = false;
    k->counts.blocks++;
    return 1;
}

/* Whether the frame is so far ahead that all that the other senders are sending would be late. One whose
 * clock is wrong waits until they come there too, or say nothing any more; where all have moved on, nobody
 * waits. */
static bool far_ahead(const struct receive *r, const struct kotekan_input *k, const struct link *link,
                      uint64_t frame_samples)
{
    uint64_t far = k->cursor + FAR_WINDOWS * (uint64_t)r->window * frame_samples, now = br_clock_ns();
    if (!k->any || link->first < far) return false;
    for (unsigned i = 0; i < LINKS; i++) {
        const struct link *o = &k->link[i];
        if (o != link && o->state != LINK_FREE && o->any && o->first < far && now - o->heard_at < LIVE_NS)
            return true;
    }
    return false;
}

static int fill(struct br_stage *stage, struct receive *r, struct br_frame *out, bool flush)
{
    struct kotekan_input *k = r->state;
    const struct br_stream *stream = br_stage_output(stage, 0);
    for (struct link *link; (link = earliest(k)) != NULL;) {
        if (k->any && link->end <= k->cursor) { /* nothing in it is new */
            *(link->first + stream->frame_samples < k->cursor ? &k->counts.late : &k->counts.duplicate) += 1;
            expect(link, LINK_SIZES, sizeof link->sizes);
            continue;
        }
        if (!flush && far_ahead(r, k, link, stream->frame_samples)) {
            if (!link->doubted)
                snprintf(r->complaint, sizeof r->complaint,
                         "a sender's sample %" PRIu64 " is far ahead of the others': it waits for them",
                         link->first);
            link->doubted = true;
            return 0;
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
            if (k->any) k->counts.missing += from - k->cursor;
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
    if (!flush || !k->filling) return 0;
    if (!k->plain) {
        uint64_t border = k->begin + stream->frame_samples;
        mark_missing(k, stream, out, k->cursor, border);
        k->cursor = border;
    }
    return emit(k, stream, out, k->cursor);
}

static bool connected(const struct receive *r)
{
    return ((const struct kotekan_input *)r->state)->server.open > 0;
}

static void stop(struct receive *r)
{
    struct kotekan_input *k = r->state;
    if (k != NULL && k->server.calls != NULL) tcp_server_close(&k->server);
    if (k != NULL) free(k->spare);
    free(k);
}

const struct receive_format kotekan_input = {
    "kotekan", sizeof(struct kotekan_input), kotekan_configure, start, step, fill, connected, stop};
