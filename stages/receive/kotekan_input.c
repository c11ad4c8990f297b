/* receive, format kotekan: frames of E as bufferSend sends them, u32 metadata bytes, u32 frame bytes,
 * chordMetadata, the array. The sender's frames may have any length and begin anywhere: they are cut anew. */
#include "stages/common/chord_metadata.h"
#include "stages/common/coding.h"
#include "stages/common/shape.h"
#include "stages/receive/receive.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS = 16 };

enum link_state { LINK_FREE, LINK_SIZES, LINK_METADATA, LINK_BODY, LINK_HELD };

struct link {
    enum link_state state;
    int fd;
    uint32_t sizes[2]; /* metadata, frame */
    uint8_t metadata[CHORD_METADATA_BYTES];
    uint8_t *body;
    size_t room, got, want;
    uint64_t first, end, heard_at; /* base samples of the frame held */
};

struct kotekan_input {
    int listener;
    struct wire_counts counts;
    struct link link[LINKS];
    unsigned nopen;
    size_t row; /* bytes of a time step */
    bool any;
    uint64_t cursor; /* the next sample to be written */
    /* The frame being filled. */
    bool filling;
    uint64_t begin;
};

static int configure(struct br_stage *stage, struct receive *r)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    struct br_stream *out = br_stage_output(stage, 0);
    struct br_error error = {0};
    if (telescope == NULL || hints->nfreq == 0 || hints->sample_ns.num == 0 || !hints->have_epoch)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "kotekan's metadata does not say the dishes, channels and times of E: add `telescope:` and "
            "stream: {epoch_ns: ..., sample_ns: ..., freq_mhz: ...} to the pipeline");
    if (r->coding != NULL && strcmp(r->coding, "int4x2") != 0 && strcmp(r->coding, "chime") != 0)
        return br_stage_fail_at(stage, "coding", "'%.40s'; expected int4x2 or chime", r->coding);
    size_t F = hints->nfreq,
           lengths[4] = {(size_t)r->frame_samples, F, hints->npol > 0 ? hints->npol : 2, telescope->ndishes};
    double *width = br_stage_alloc(stage, F * sizeof *width);
    for (size_t f = 0; f < F; f++)
        width[f] = hints->width_mhz > 0 ? hints->width_mhz
                                        : 1e3 * (double)hints->sample_ns.den / (double)hints->sample_ns.num;
    *out = (struct br_stream){.frame_samples = (uint64_t)r->frame_samples,
                              .epoch_ns = hints->epoch_ns,
                              .sample_ns = hints->sample_ns,
                              .nchannels = F,
                              .freq_mhz = hints->freq_mhz,
                              .width_mhz = width,
                              .nzones = 1,
                              .zone = {{0, F, 1, 1, 0}},
                              .scale = 1,
                              .telescope = telescope};
    if (br_array_init(&out->array, BR_INT4X2, "time,freq,pol,dish", lengths, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

static int start(struct br_stage *stage, struct receive *r)
{
    struct br_error error = {0};
    struct kotekan_input *k = r->state = calloc(1, sizeof *k);
    if (k == NULL) return br_no_memory(stage, sizeof *k);
    const struct br_array *a = &br_stage_output(stage, 0)->array;
    k->row = a->axis[1].length * a->axis[2].length * a->axis[3].length;
    r->counts = &k->counts;
    k->listener = net_listen(&r->at, &error);
    if (k->listener < 0) return br_stage_fail(stage, error.status, "%s", error.text);
    br_stage_note(stage, "listening on port %u", net_port(k->listener));
    return BR_OK;
}

static void close_link(struct kotekan_input *k, struct link *link)
{
    close(link->fd);
    free(link->body);
    memset(link, 0, sizeof *link);
    k->nopen--;
}

static void refuse(struct receive *r, struct link *link, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(struct receive *r, struct link *link, const char *format, ...)
{
    struct kotekan_input *k = r->state;
    va_list args;
    va_start(args, format);
    vsnprintf(r->complaint, sizeof r->complaint, format, args);
    va_end(args);
    k->counts.malformed++;
    close_link(k, link);
}

static void expect(struct link *link, enum link_state state, size_t bytes)
{
    link->state = state;
    link->got = 0;
    link->want = bytes;
}

static void take_sizes(struct receive *r, struct link *link)
{
    const struct kotekan_input *k = r->state;
    uint32_t metadata = link->sizes[0], frame = link->sizes[1];
    if (metadata > CHORD_METADATA_BYTES || !chord_metadata_size_known(metadata))
        refuse(r, link, "it announced %" PRIu32 " bytes of metadata; expected %d of chordMetadata", metadata,
               CHORD_METADATA_BYTES);
    else if (frame == 0 || frame % k->row != 0 || frame > (uint64_t)r->max_frame_bytes)
        refuse(r, link,
               "it announced a frame of %" PRIu32
               " bytes; expected a multiple of the %zu bytes of a sample, at most %" PRId64,
               frame, k->row, r->max_frame_bytes);
    else
        expect(link, LINK_METADATA, metadata);
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

static void take_metadata(struct br_stage *stage, struct receive *r, struct link *link)
{
    struct chord_metadata m;
    struct br_error why = {0};
    uint32_t downsample = 1;
    int status = chord_metadata_decode(&m, link->metadata, link->sizes[0], link->sizes[1], "the peer", &why);
    if (status == BR_OK) status = chord_metadata_first(&m, "the peer", &link->first, &downsample, &why);
    if (status != BR_OK) {
        refuse(r, link, "%s", why.text);
        return;
    }
    const char *wrong = check_array(&br_stage_output(stage, 0)->array, &m);
    if (wrong == NULL && downsample != 1) wrong = "its samples are not those of the F-engine";
    if (wrong == NULL && (link->first > INT64_MAX / 2)) wrong = "its first sample is out of range";
    if (wrong != NULL) {
        refuse(r, link, "a frame was refused: %s", wrong);
        return;
    }
    link->end = link->first + (uint64_t)m.dim[0];
    /* the coding travels with the frame, in a byte of the link's that is not needed any more */
    link->metadata[0] = r->coding != NULL ? strcmp(r->coding, "chime") == 0 : m.type == CHORD_INT4X2_CHIME;
    if (link->room < link->sizes[1]) {
        uint8_t *grown = realloc(link->body, link->sizes[1]);
        if (grown == NULL) {
            refuse(r, link, "no memory for a frame of %" PRIu32 " bytes", link->sizes[1]);
            return;
        }
        link->body = grown;
        link->room = link->sizes[1];
    }
    expect(link, LINK_BODY, link->sizes[1]);
}

static void take_part(struct br_stage *stage, struct receive *r, struct link *link)
{
    struct kotekan_input *k = r->state;
    if (link->got < link->want) return;
    if (link->state == LINK_SIZES) {
        take_sizes(r, link);
    } else if (link->state == LINK_METADATA) {
        take_metadata(stage, r, link);
    } else {
        link->state = LINK_HELD;
        k->counts.received++;
    }
}

static void read_some(struct br_stage *stage, struct receive *r, struct link *link)
{
    struct kotekan_input *k = r->state;
    for (unsigned turns = 0; turns < 64 && link->state != LINK_HELD && link->state != LINK_FREE; turns++) {
        uint8_t *to = link->state == LINK_SIZES      ? (uint8_t *)link->sizes
                      : link->state == LINK_METADATA ? link->metadata
                                                     : link->body;
        ssize_t n = recv(link->fd, to + link->got, link->want - link->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            bool orderly = n == 0 && link->got == 0 && link->state == LINK_SIZES;
            if (!orderly) snprintf(r->complaint, sizeof r->complaint, "a connection ended within a frame");
            k->counts.broken += !orderly;
            close_link(k, link);
            return;
        }
        link->got += (size_t)n;
        link->heard_at = net_now();
        take_part(stage, r, link);
    }
}

static void welcome(struct receive *r)
{
    struct kotekan_input *k = r->state;
    for (;;) {
        int fd = accept4(k->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        unsigned i = 0;
        while (i < LINKS && k->link[i].state != LINK_FREE) i++;
        if (i == LINKS) {
            k->counts.malformed++;
            snprintf(r->complaint, sizeof r->complaint, "there are %d connections already", LINKS);
            close(fd);
            continue;
        }
        k->link[i] = (struct link){.fd = fd, .heard_at = net_now()};
        expect(&k->link[i], LINK_SIZES, sizeof k->link[i].sizes);
        k->nopen++;
        k->counts.connections++;
    }
}

static int step(struct br_stage *stage, struct receive *r, int ms)
{
    struct kotekan_input *k = r->state;
    struct pollfd wait[LINKS + 1];
    bool held = false;
    for (unsigned i = 0; i < LINKS; i++) {
        bool reads = k->link[i].state != LINK_FREE && k->link[i].state != LINK_HELD;
        held = held || k->link[i].state == LINK_HELD;
        wait[i] = (struct pollfd){.fd = reads ? k->link[i].fd : -1, .events = POLLIN};
    }
    wait[LINKS] = (struct pollfd){.fd = k->listener, .events = POLLIN};
    int n = poll(wait, LINKS + 1, held ? 0 : ms);
    if (n < 0 && errno != EINTR)
        return br_stage_fail(stage, BR_E_IO, "cannot wait for the network: %s", strerror(errno));
    for (unsigned i = 0; i < LINKS; i++) {
        struct link *link = &k->link[i];
        if (n > 0 && wait[i].fd >= 0 && wait[i].revents != 0) read_some(stage, r, link);
        bool silent = link->state != LINK_FREE && link->state != LINK_HELD &&
                      (link->got > 0 || link->state != LINK_SIZES) &&
                      (double)(net_now() - link->heard_at) * 1e-9 > r->handshake_s;
        if (!silent) continue;
        snprintf(r->complaint, sizeof r->complaint, "a peer said nothing for %g s within a frame",
                 r->handshake_s);
        k->counts.silent++;
        close_link(k, link);
    }
    if (n > 0 && wait[LINKS].revents != 0) welcome(r);
    return BR_OK;
}

/* Writes samples [from, to) of the held frame into the output; a CHIME cell without any sample is missing. */
static void copy_rows(const struct kotekan_input *k, const struct br_stream *stream, const struct link *link,
                      struct br_frame *out, uint64_t from, uint64_t to)
{
    size_t rows = (size_t)(to - from), at = (size_t)(from - k->begin), cell = k->row / stream->nchannels;
    const uint8_t *source = link->body + (size_t)(from - link->first) * k->row;
    enum coding coding = link->metadata[0] ? CODING_CHIME : CODING_INT4X2;
    uint8_t *valid = out->valid + at * stream->nchannels;
    memset(valid, BR_VALID, rows * stream->nchannels);
    for (size_t i = 0; coding == CODING_CHIME && i < rows * stream->nchannels; i++)
        if (coding_all_missing(coding, source + i * cell, cell)) valid[i] = BR_MISSING;
    coding_convert(coding, source, (uint8_t *)out->data + at * k->row, rows * k->row);
}

static void mark_missing(struct kotekan_input *k, const struct br_stream *stream, struct br_frame *out,
                         uint64_t from, uint64_t to)
{
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

static struct link *earliest(struct kotekan_input *k)
{
    struct link *found = NULL;
    for (unsigned i = 0; i < LINKS; i++)
        if (k->link[i].state == LINK_HELD && (found == NULL || k->link[i].first < found->first))
            found = &k->link[i];
    return found;
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
            border = (from / stream->frame_samples + 1) * stream->frame_samples;
        } else if (from > k->cursor) {
            mark_missing(k, stream, out, k->cursor, from);
        }
        uint64_t to = link->end < border ? link->end : border;
        copy_rows(k, stream, link, out, from, to);
        k->any = true;
        k->cursor = to;
        if (to == link->end) expect(link, LINK_SIZES, sizeof link->sizes);
        if (to == border) return emit(k, stream, out, border);
    }
    return flush && k->filling ? emit(k, stream, out, k->cursor) : 0;
}

static bool connected(const struct receive *r)
{
    return ((const struct kotekan_input *)r->state)->nopen > 0;
}

static void stop(struct receive *r)
{
    struct kotekan_input *k = r->state;
    if (k == NULL) return;
    for (unsigned i = 0; i < LINKS; i++)
        if (k->link[i].state != LINK_FREE) close_link(k, &k->link[i]);
    if (k->listener >= 0) close(k->listener);
    free(k);
}

const struct receive_format kotekan_input = {"kotekan", configure, start, step, fill, connected, stop};
