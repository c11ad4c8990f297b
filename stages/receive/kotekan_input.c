/* receive, format kotekan: frames of E, or of beams, as bufferSend sends them, u32 metadata bytes, u32 frame
 * bytes, chordMetadata, the array. The sender's frames may have any length and begin anywhere: they are cut
 * anew. */
#include "buffers/clock.h"
#include "stages/common/formats/chord_metadata.h"
#include "stages/common/formats/coding.h"
#include "stages/common/formats/kotekan_array.h"
#include "stages/common/formats/recording.h"
#include "stages/common/stage/shape.h"
#include "stages/common/wires/tcp_server.h"
#include "stages/receive/receive.h"

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
    size_t room, got, want;
    uint64_t first, end, heard_at; /* base samples of the frame held, or of the last one */
    bool any;                      /* there was one */
    bool doubted;                  /* it waits for the others */
};

struct kotekan_input {
    struct tcp_server server; /* its peers have the numbers of the links */
    struct br_stage *stage;
    struct receive *receive;
    struct wire_counts counts;
    struct link link[LINKS];
    size_t row; /* bytes of a time step */
    /* E as the F-engine gives it, in rows; else time steps are placed wherever the array has them */
    bool plain;
    bool any;
    uint64_t cursor; /* the next sample to be written */
    /* The frame being filled. */
    bool filling;
    uint64_t begin;
};

/* E as the F-engine gives it. */
static bool is_plain(const struct br_stream *stream)
{
    return br_array_axis(&stream->array, "dish") >= 0 && stream->zone[0].factor == 1;
}

/* The array that is to come, by the user's words. */
static int describe(struct br_stage *stage, struct receive *r, size_t steps, struct kotekan_array *a)
{
    static const struct {
        const char *name, *axes;
        enum br_dtype dtype;
        bool beams;
    } arrays[] = {{"field", "time,freq,pol,dish", BR_INT4X2, false},
                  {"voltages", "beam,freq,pol,time", BR_INT4X2, true},
                  {"intensities", "freq,time,beam", BR_F16, true},
                  {"grid", "freq,time,gridp,gridq", BR_F16, false}};
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    size_t k = 0, F = hints->nfreq, npol = hints->npol > 0 ? hints->npol : 2, B = (size_t)r->nbeams;
    while (strcmp(arrays[k].name, r->array) != 0) k++;
    if (arrays[k].beams != (r->nbeams > 0))
        return br_stage_fail_at(stage, "nbeams",
                                arrays[k].beams ? "frames of beams have this many; expected at least 1"
                                                : "frames of %s have no beams",
                                r->array);
    if (F % (size_t)r->factor != 0)
        return br_stage_fail_at(stage, "factor",
                                "%" PRId64 " does not divide the %zu channels of `stream: freq_mhz`",
                                r->factor, F);
    if (k == 0 && r->downsample != 0 && r->downsample != r->factor)
        return br_stage_fail_at(stage, "downsample",
                                "%" PRId64 "; a time step of the field is as many samples as `factor`",
                                r->downsample);
    *a = (struct kotekan_array){.what = arrays[k].name,
                                .factor = (unsigned)r->factor,
                                .downsample = (unsigned)(r->downsample > 0 ? r->downsample : r->factor)};
    const size_t lengths[][4] = {{steps, F, npol, telescope->ndishes},
                                 {B, F, npol, steps},
                                 {F, steps, B, 0},
                                 {F, steps, 2 * telescope->grid_m, 2 * telescope->grid_n}};
    struct br_error error = {0};
    if (br_array_init(&a->array, arrays[k].dtype, arrays[k].axes, lengths[k], &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

static int configure(struct br_stage *stage, struct receive *r)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    struct br_stream *out = br_stage_output(stage, 0);
    if (telescope == NULL || hints->nfreq == 0 || hints->sample_ns.num == 0 || !hints->have_epoch)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "kotekan's metadata does not say the dishes, channels and times of E: add `telescope:` and "
            "stream: {epoch_ns: ..., sample_ns: ..., freq_mhz: ...} to the pipeline");
    if (r->coding != NULL && strcmp(r->coding, "int4x2") != 0 && strcmp(r->coding, "chime") != 0)
        return br_stage_fail_at(stage, "coding", "'%.40s'; expected int4x2 or chime", r->coding);
    struct kotekan_array array;
    int status = describe(stage, r, 1, &array);
    if (status != BR_OK) return status;
    if (r->frame_samples % array.downsample != 0)
        return br_stage_fail_at(stage, "frame_samples",
                                "%" PRId64 "; expected a multiple of the %u samples of a time step",
                                r->frame_samples, array.downsample);
    size_t F = hints->nfreq, steps = (size_t)r->frame_samples / array.downsample;
    status = describe(stage, r, steps, &array);
    if (status != BR_OK) return status;
    double *width = br_stage_alloc(stage, F * sizeof *width);
    for (size_t f = 0; f < F; f++)
        width[f] = hints->width_mhz > 0
                       ? hints->width_mhz
                       : 1e3 * (double)hints->sample_ns.den / (double)hints->sample_ns.num / array.factor;
    *out = (struct br_stream){.epoch_ns = hints->epoch_ns,
                              .sample_ns = hints->sample_ns,
                              .freq_mhz = hints->freq_mhz,
                              .width_mhz = width,
                              .scale = 1,
                              .telescope = telescope};
    kotekan_array_stream(out, &array, steps);
    if (r->coding != NULL && !is_plain(out))
        return br_stage_fail_at(stage, "coding",
                                "only the electric field as the F-engine gives it has codings");
    return BR_OK;
}

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
    if (metadata > CHORD_METADATA_BYTES || !chord_metadata_size_known(metadata))
        return refuse(r,
                      "a sender was closed: it announced %" PRIu32
                      " bytes of metadata; expected %d of chordMetadata",
                      metadata, CHORD_METADATA_BYTES);
    if (frame == 0 || frame % k->row != 0 || frame > (uint64_t)r->max_frame_bytes)
        return refuse(r,
                      "a sender was closed: it announced a frame of %" PRIu32
                      " bytes; expected a multiple of the %zu bytes of a sample, at most %" PRId64,
                      frame, k->row, r->max_frame_bytes);
    expect(link, LINK_METADATA, metadata);
    return TCP_MORE;
}

/* What is wrong with the array that the metadata describes; NULL: nothing. */
static const char *check_array(const struct br_array *wanted, const struct chord_metadata *m)
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

/* The same for other arrays, whose frames come in steps of several samples. */
static const char *check_steps(const struct br_stream *wanted, const struct kotekan_array *a)
{
    const struct br_array *x = &a->array, *y = &wanted->array;
    if (x->dtype != y->dtype || x->naxes != y->naxes) return "it is another array than `array` says";
    for (unsigned i = 0; i < x->naxes; i++) {
        if (strcmp(x->axis[i].name, y->axis[i].name) != 0)
            return "its dimensions are not those of `array`, or in another order";
        if (strcmp(x->axis[i].name, "time") != 0 && x->axis[i].length != y->axis[i].length)
            return "it has other numbers of channels, polarisations, dishes or beams than the pipeline";
    }
    if (a->factor != wanted->zone[0].factor) return "it is upchannelized by another factor";
    if (a->downsample != wanted->zone[0].downsample)
        return "its time steps have other numbers of samples than `downsample` says";
    return NULL;
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
    if (status == BR_OK) status = chord_metadata_first(&m, "the peer", &link->first, &downsample, &why);
    if (status != BR_OK) return refuse(r, "%s", why.text);
    const struct br_stream *out = br_stage_output(stage, 0);
    const char *wrong = k->plain ? check_array(&out->array, &m) : check_steps(out, &array);
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

static void end(void *owner, unsigned peer)
{
    struct link *link = &((struct kotekan_input *)owner)->link[peer];
    free(link->body);
    *link = (struct link){.state = LINK_FREE};
}

static const struct tcp_calls calls = {.begin = begin,
                                       .room = room,
                                       .got = got,
                                       .may_close = may_close,
                                       .may_be_silent = may_be_silent,
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
    k->plain = is_plain(out);
    r->counts = &k->counts;
    k->server = (struct tcp_server){.calls = &calls,
                                    .owner = k,
                                    .most = LINKS,
                                    .silent_s = r->handshake_s,
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
    struct br_frame held = {
        .first = link->first, .samples = link->end - link->first, .complete = true, .data = link->body};
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
    free(k);
}

const struct receive_format kotekan_input = {"kotekan", configure, start, step, fill, connected, stop};
