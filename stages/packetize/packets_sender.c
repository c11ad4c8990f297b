/* packets_sender.c - a simulated F-engine: the electric field as packets of any description, in time
 * and with the accidents of networks. */
#include "buffers/clock.h"
#include "formats/packets/header.h"
#include "formats/packets/layout.h"
#include "stages/common/stage/packet.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/packetize.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 64, ROOM = 65536, SLACK_NS = 200000 };

/* Packets on their way to one destination. */
struct queue {
    struct net_address to;
    int fd;
    size_t first_stream, nstreams; /* what goes there */
    unsigned count, room;          /* packets that wait: shuffled, then sent */
    uint8_t *bytes;                /* [room][pitch] */
    size_t *length;                /* [room] */
};

struct packets_sender {
    struct packet_description *description;
    struct packet_layout layout;
    uint8_t code[256];       /* int4x2 -> the packets' coding */
    const int64_t *position; /* [ninputs] in E[pol][dish]; -1: the input is not a dish, and sends zeros */
    size_t field_inputs;     /* pol x dish */
    struct queue *queue;     /* [destinations] */
    size_t pitch;
    struct faults faults;
    uint64_t begun_ns, first, shuffles;
    bool begun;
    uint64_t (*count)[FAULT_KINDS + 1]; /* [nsources]; the last: sent as they should be, or flipped */
    uint64_t unsent;
};

/* Swaps the parts and adds 8 as the packets want it. */
static void make_code(const struct packet_layout *l, uint8_t code[256])
{
    for (unsigned v = 0; v < 256; v++) {
        unsigned real = v & 15, imaginary = v >> 4;
        unsigned byte = l->real_high ? real << 4 | imaginary : imaginary << 4 | real;
        code[v] = (uint8_t)(l->offset_binary ? byte ^ 0x88 : byte);
    }
}

/* Where in E[pol][dish] the inputs' samples are: `unpack` with the same order and positions gives them back.
 */
static int take_positions(struct br_stage *stage, const struct packetize *p, struct packets_sender *s)
{
    const struct packet_layout *l = &s->layout;
    const struct br_array *in = &br_stage_input(stage, 0)->array;
    const struct packet_places places = {p->positions, p->order, br_array_length(in, "pol"),
                                         br_array_length(in, "dish")};
    char text[160];
    s->field_inputs = places.npol * places.ndish;
    if (p->positions.count == 0 && s->field_inputs != l->ninputs)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input is %s, but the packets of %zu sources and %zu streams have %zu channels "
            "and %zu inputs; give `positions`, one for each input, -1 for those that are not a dish",
            br_array_format(in, text, sizeof text), l->nsources, l->nstreams, l->nchannels, l->ninputs);
    s->position = packet_place_inputs(stage, l, &places);
    return s->position != NULL ? BR_OK : BR_E_INVALID;
}

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_error error = {0};
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status != BR_OK) return status;
    if (p->packet == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "'packet' is missing; expected the name of a packet description");
    struct packets_sender *s = p->state = br_stage_alloc(stage, sizeof *s);
    s->description = packet_stage_load(stage, p->packet);
    if (s->description == NULL) return BR_E_INVALID;
    enum br_sideband own = s->description->sideband;
    if (own != BR_SIDEBAND_UNKNOWN && in->sideband != BR_SIDEBAND_UNKNOWN && own != in->sideband)
        return br_stage_fail_at(
            stage, "packet",
            "packets of %s hold the %s sideband, its input the %s one; expected the same: "
            "`stream: {sideband: %s}` for a simulated field",
            s->description->name, br_sideband_name(own), br_sideband_name(in->sideband),
            br_sideband_name(own));
    s->faults.params = p->faults;
    struct packet_node node = {.sources = {p->sources.count, p->sources.value},
                               .streams = {p->streams.count, p->streams.value},
                               .frame_samples = in->frame_samples,
                               .values = p->values,
                               .real = p->real};
    if (packet_layout_make(&s->layout, s->description, &node, packet_stage_memory(stage), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    const struct packet_layout *l = &s->layout;
    if (in->nchannels != l->nchannels)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input has %zu channels, but the packets of %zu streams have %zu",
                             in->nchannels, l->nstreams, l->nchannels);
    if (p->destinations.count > l->nstreams)
        return br_stage_fail_at(stage, "destinations",
                                "%zu destinations for %zu streams; expected at most one for each",
                                p->destinations.count, l->nstreams);
    status = take_positions(stage, p, s);
    const struct destination_param *to = p->destinations.value;
    for (size_t i = 0; i < p->destinations.count && status == BR_OK; i++)
        if (!net_is_address(to[i].address))
            status = br_stage_fail_at(stage, "destinations", "'%.100s' is not an address; expected host:port",
                                      to[i].address);
    make_code(l, s->code);
    return status;
}

static int open_queue(struct br_stage *stage, struct packetize *p, size_t i)
{
    struct packets_sender *s = p->state;
    const struct destination_param *to = p->destinations.value;
    struct queue *q = &s->queue[i];
    struct br_error error = {0};
    size_t n = p->destinations.count, all = s->layout.nstreams;
    int64_t reorder = p->faults != NULL ? p->faults->reorder : 0;
    q->first_stream = i * all / n;
    q->nstreams = (i + 1) * all / n - q->first_stream;
    q->room = reorder > BATCH ? (unsigned)reorder : BATCH;
    q->bytes = malloc(q->room * s->pitch);
    q->length = calloc(q->room, sizeof *q->length);
    if (q->bytes == NULL || q->length == NULL) return br_no_memory(stage, q->room * s->pitch);
    if (net_resolve(&q->to, to[i].address, SOCK_DGRAM, &error) == BR_OK)
        q->fd = net_udp_sender(&q->to, (int)p->send_buffer, (int)p->multicast_hops, p->multicast_interface,
                               &error);
    return q->fd >= 0 ? BR_OK : br_stage_fail(stage, error.status, "%s", error.text);
}

static int start(struct br_stage *stage, struct packetize *p)
{
    struct packets_sender *s = p->state;
    const struct packet_layout *l = &s->layout;
    size_t n = p->destinations.count;
    int status = BR_OK;
    s->pitch = (packet_header_length(s->description) + 63) / 64 * 64;
    s->queue = calloc(n, sizeof *s->queue);
    s->count = calloc(l->nsources, sizeof *s->count);
    if (s->queue == NULL || s->count == NULL) return br_no_memory(stage, l->ninputs);
    for (size_t i = 0; i < n; i++) s->queue[i].fd = -1;
    for (size_t i = 0; i < n && status == BR_OK; i++) status = open_queue(stage, p, i);
    return status;
}

/* --- sending ----------------------------------------------------------------------------------- */

static void exchange(struct packets_sender *s, struct queue *q, size_t a, size_t b)
{
    uint8_t *spare = q->bytes + (size_t)q->room * s->pitch - s->pitch; /* the last place is not shuffled */
    size_t length = q->length[a];
    if (a == b) return;
    memcpy(spare, q->bytes + a * s->pitch, s->pitch);
    memcpy(q->bytes + a * s->pitch, q->bytes + b * s->pitch, s->pitch);
    memcpy(q->bytes + b * s->pitch, spare, s->pitch);
    q->length[a] = q->length[b];
    q->length[b] = length;
}

/* Sends all that waits. */
static void send_queue(struct packets_sender *s, struct queue *q)
{
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    if (s->faults.params != NULL && s->faults.params->reorder > 1)
        for (size_t i = q->count; i > 1; i--)
            exchange(s, q, i - 1, (size_t)faults_below(&s->faults, s->shuffles++, 0, i));
    for (unsigned done = 0; done < q->count;) {
        unsigned n = q->count - done < BATCH ? q->count - done : BATCH;
        for (unsigned i = 0; i < n; i++) {
            piece[i] = (struct iovec){q->bytes + (done + i) * s->pitch, q->length[done + i]};
            message[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &piece[i], .msg_iovlen = 1}};
        }
        int sent = sendmmsg(q->fd, message, n, MSG_DONTWAIT);
        if (sent > 0) {
            done += (unsigned)sent;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            struct pollfd wait = {.fd = q->fd, .events = POLLOUT};
            poll(&wait, 1, 10);
        } else if (errno != EINTR &&
                   errno != ECONNREFUSED) { /* refused: nobody listens yet, as with real boards */
            s->unsent++;
            done++;
        }
    }
    q->count = 0;
}

/* A place for a packet; the last one is kept for shuffling. */
static uint8_t *new_packet(struct packets_sender *s, struct queue *q, size_t length)
{
    int64_t reorder = s->faults.params != NULL ? s->faults.params->reorder : 0;
    unsigned most = reorder > 1 && reorder < q->room ? (unsigned)reorder : q->room - 1;
    if (q->count >= most) send_queue(s, q);
    q->length[q->count] = length;
    return q->bytes + q->count++ * s->pitch;
}

/* Packets that no board sends: noise of another protocol, and what is cut off. */
static void add_strangers(struct packets_sender *s, struct queue *q, size_t source,
                          const struct fault_draw *draw)
{
    size_t length = packet_header_length(s->description);
    if (draw->malformed) {
        q->length[q->count - 1] -= 1 + draw->bits[0] % (s->description->payload_bytes - 1);
        s->count[source][FAULT_MALFORMED]++;
    }
    if (draw->foreign) {
        uint8_t *bytes = new_packet(s, q, length);
        for (size_t i = 0; i < length; i++) bytes[i] = (uint8_t)(draw->bits[i % 4] >> 8 * (i / 4 % 4) ^ i);
        bytes[0] = 0; /* neither a cookie nor a magic byte */
        s->count[source][FAULT_FOREIGN]++;
    }
}

/* --- packets ----------------------------------------------------------------------------------- */

/* The samples of one packet: `in` is the first sample of the field, [time][freq][pol x dish]. */
static void fill_payload(const struct packets_sender *s, size_t source, size_t stream, const uint8_t *in,
                         uint8_t *payload)
{
    const struct packet_layout *l = &s->layout;
    const int64_t *position = s->position + source * l->packet_inputs;
    size_t before = stream * l->packet_bytes;
    for (size_t f = 0; f < l->nchannels; f++) {
        if (l->channel_stream[f] != stream) continue;
        for (size_t t = 0; t < l->packet_samples; t++) {
            const uint8_t *from = in + (t * l->nchannels + f) * s->field_inputs;
            uint8_t *to = payload + (l->channel_offset[f] - before) + t * l->time_stride;
            for (size_t i = 0; i < l->packet_inputs; i++)
                to[l->input_offset[i]] = position[i] < 0 ? l->fill : s->code[from[position[i]]];
        }
    }
}

/* Whether anything of a packet is there. Single cells that are not go out as zero samples: an F-engine
 * has no mask. */
static bool any_valid(const struct packet_layout *l, const struct br_frame *in, size_t t0, size_t stream)
{
    if (in->complete) return true;
    for (size_t t = 0; t < l->packet_samples; t++)
        for (size_t f = 0; f < l->nchannels; f++)
            if (l->channel_stream[f] == stream && in->valid[(t0 + t) * l->nchannels + f] != BR_MISSING)
                return true;
    return false;
}

static int make_packet(struct br_stage *stage, struct packets_sender *s, struct queue *q, size_t source,
                       size_t stream, uint64_t sample, double at_s, const uint8_t *in)
{
    const struct packet_layout *l = &s->layout;
    const struct packet_description *d = s->description;
    struct fault_draw draw = faults_draw(&s->faults, l->source_id[source], l->stream_id[stream], at_s);
    double reset_s = s->faults.params != NULL ? s->faults.params->reset_s : -1;
    struct br_error error = {0};
    size_t length = packet_header_length(d);
    if (reset_s >= 0 && at_s >= reset_s) { /* not NAN */
        uint64_t since = (uint64_t)((at_s - reset_s) / br_stream_sample_s(br_stage_input(stage, 0)) + 0.5);
        sample = since / l->packet_samples * l->packet_samples;
    }
    int64_t counts = (int64_t)sample - d->sequence_offset;
    if (counts % d->sequence_samples != 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "sample %" PRIu64 " is not a multiple of the %" PRId64 " samples of a count",
                             sample, d->sequence_samples);
    struct packet_header header = {.counter = (uint64_t)(counts / d->sequence_samples),
                                   .source = l->source_id[source],
                                   .stream = l->stream_id[stream]};
    if (draw.lost) {
        s->count[source][FAULT_LOST]++;
    } else {
        uint8_t *payload, *bytes = new_packet(s, q, length);
        if (packet_header_write(d, &header, bytes, &payload, &error) != BR_OK)
            return br_stage_fail(stage, error.status, "%s", error.text);
        fill_payload(s, source, stream, in, payload);
        if (draw.flipped) {
            size_t bit = draw.bits[1] % (8 * (size_t)(payload - bytes));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            s->count[source][FAULT_FLIPPED]++;
        }
        s->count[source][FAULT_KINDS]++;
        if (draw.duplicate && q->count + 1 < q->room) { /* with its twin, in one batch */
            memcpy(q->bytes + q->count * s->pitch, bytes, length);
            q->length[q->count++] = length;
            s->count[source][FAULT_DUPLICATE]++;
        }
    }
    if (draw.foreign || (draw.malformed && !draw.lost)) add_strangers(s, q, source, &draw);
    return BR_OK;
}

/* Waits until a block is due; true when the run is to end. */
static bool wait_for(struct br_stage *stage, struct packetize *p, uint64_t sample)
{
    struct packets_sender *s = p->state;
    double seconds = (double)(sample - s->first) * br_stream_sample_s(br_stage_input(stage, 0)) / p->speed;
    uint64_t due = s->begun_ns + (uint64_t)(seconds * 1e9);
    if (due < br_clock_ns() + SLACK_NS) return false;
    for (size_t i = 0; i < p->destinations.count; i++)
        if (p->faults == NULL || p->faults->reorder == 0) send_queue(s, &s->queue[i]);
    return br_stage_sleep_until(stage, due);
}

static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    struct packets_sender *s = p->state;
    const struct packet_layout *l = &s->layout;
    size_t step = l->packet_samples, skip = (step - in->first % step) % step,
           row = l->nchannels * s->field_inputs;
    if (!s->begun) {
        s->begun = true;
        s->begun_ns = br_clock_ns();
        s->first = in->first;
    }
    size_t t = skip;
    for (; t + step <= in->samples; t += step) {
        uint64_t sample = in->first + t;
        if (p->speed > 0 && wait_for(stage, p, sample)) break;
        double at_s = (double)(sample - s->first) * br_stream_sample_s(br_stage_input(stage, 0));
        for (size_t source = 0; source < l->nsources; source++)
            for (size_t i = 0; i < p->destinations.count; i++)
                for (size_t k = 0; k < s->queue[i].nstreams; k++) {
                    size_t stream = s->queue[i].first_stream + k;
                    if (!any_valid(l, in, t, stream)) continue;
                    int status = make_packet(stage, s, &s->queue[i], source, stream, sample, at_s,
                                             (const uint8_t *)in->data + t * row);
                    if (status != BR_OK) return status;
                }
    }
    uint64_t left = in->samples - t + (skip < in->samples ? skip : in->samples);
    if (left > 0) br_stage_count_lost(stage, BR_LOST_NOT_SENT, left); /* no whole packet */
    return BR_OK;
}

static int finish(struct br_stage *stage, struct packetize *p)
{
    struct packets_sender *s = p->state;
    (void)stage;
    for (size_t i = 0; i < p->destinations.count; i++) send_queue(s, &s->queue[i]);
    return BR_OK;
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct packets_sender *s = p->state;
    uint64_t sum[FAULT_KINDS + 1] = {0};
    for (size_t k = 0; s->count != NULL && k < s->layout.nsources; k++) {
        const uint64_t *c = s->count[k];
        for (int i = 0; i <= FAULT_KINDS; i++) sum[i] += c[i];
        if (p->faults != NULL)
            br_stage_note(stage,
                          "source %" PRId64 ": %" PRIu64 " sent, %" PRIu64 " left out, %" PRIu64
                          " twice, %" PRIu64 " malformed, %" PRIu64 " flipped",
                          s->layout.source_id[k], c[FAULT_KINDS], c[FAULT_LOST], c[FAULT_DUPLICATE],
                          c[FAULT_MALFORMED], c[FAULT_FLIPPED]);
    }
    br_stage_note(stage,
                  "%" PRIu64 " packets sent, %" PRIu64 " left out, %" PRIu64 " twice, %" PRIu64
                  " foreign, %" PRIu64 " malformed, %" PRIu64 " flipped; the system refused %" PRIu64,
                  sum[FAULT_KINDS], sum[FAULT_LOST], sum[FAULT_DUPLICATE], sum[FAULT_FOREIGN],
                  sum[FAULT_MALFORMED], sum[FAULT_FLIPPED], s->unsent);
    for (size_t i = 0; s->queue != NULL && i < p->destinations.count; i++) {
        if (s->queue[i].fd >= 0) close(s->queue[i].fd);
        free(s->queue[i].bytes);
        free(s->queue[i].length);
    }
    free(s->queue);
    free(s->count);
    return BR_OK;
}

const struct wire_format packets_format = {"packets", configure, start, frame, finish, stop};
