/* packetize, format vdif: voltage beams as VDIF frames, a UDP packet each, in the order of their times. */
#include "formats/vdif/encode.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/packetize.h"

#include <stdlib.h>
#include <string.h>

/* PACKETS: that wait to be sent at once. JUMBO: what a frame of Ethernet of 9000 bytes holds. SEQUENCE: the
 * number in front of a VDIF frame, by VTP. */
enum { PACKETS = 64, JUMBO = 8972, LARGEST = 65507, SEQUENCE = 8 };

/* A destination, and the packets that wait for it. */
struct vdif_destination {
    struct datagram_destination link;
    struct vdif_encoder encoder;
    struct vdif_sender *sender;
    uint64_t sequence;
    size_t waiting;
    uint8_t *bytes; /* [PACKETS][packet_bytes] */
};

struct vdif_sender {
    struct datagrams wire;
    struct vdif_encoder like; /* with all threads of the stream */
    size_t count, prefix, packet_bytes;
    struct vdif_destination *to; /* [count] */
};

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct vdif_sender *s = p->state = br_stage_alloc(stage, sizeof *s);
    struct br_error error = {0};
    bool of_samples;
    s->prefix = p->vtp ? SEQUENCE : 0;
    size_t most = (p->vdif_samples > 0 ? LARGEST : JUMBO) - s->prefix;
    int status = vdif_encoder_init(&s->like, in, (uint64_t)p->vdif_samples, most, &of_samples, &error);
    if (status != BR_OK)
        return of_samples ? br_stage_fail_at(stage, "vdif_samples", "%s", error.text)
                          : br_stage_fail(stage, status, "%s", error.text);
    if (!s->like.beams)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input is an electric field; vdif sends J[beam][freq][pol][time] "
                             "(baseband_beamform makes it)");
    if (p->vdif_station != NULL && !vdif_station(p->vdif_station, &s->like.station))
        return br_stage_fail_at(stage, "vdif_station",
                                "'%s'; expected two characters, or a number below 65536", p->vdif_station);
    status = share_beams(stage, p, s->like.rows);
    for (size_t i = 0; i < p->destinations.count && status == BR_OK; i++)
        if ((size_t)p->destination[i].beams * s->like.npol > VDIF_MAX_THREADS)
            status = br_stage_fail_at(stage, "destinations",
                                      "%s: %lld beams of %zu polarisations; VDIF has %d "
                                      "threads",
                                      p->destination[i].address, (long long)p->destination[i].beams,
                                      s->like.npol, VDIF_MAX_THREADS);
    s->packet_bytes = s->prefix + s->like.frame_bytes;
    if (status == BR_OK && p->rate > 0 && p->burst < (double)s->packet_bytes)
        return br_stage_fail_at(stage, "burst", "%g bytes; expected at least one packet, %zu bytes", p->burst,
                                s->packet_bytes);
    if (status == BR_OK && s->like.rounded_ns != 0)
        br_stage_warn(stage,
                      "times in VDIF frames are off by up to half a sample: a second of VDIF begins with a "
                      "sample, a second of this stream %.9g ns after one",
                      s->like.rounded_ns);
    return status;
}

/* Sends the packets that wait for a destination. */
static int send_waiting(struct vdif_destination *d, struct br_error *error)
{
    struct iovec packet[PACKETS];
    for (size_t i = 0; i < d->waiting; i++)
        packet[i] = (struct iovec){d->bytes + i * d->sender->packet_bytes, d->sender->packet_bytes};
    size_t count = d->waiting;
    d->waiting = 0;
    return datagrams_send(&d->sender->wire, &d->link, packet, count, error);
}

/* The sink of a destination's encoder. */
static int take_frames(void *owner, struct vdif_encoder *e)
{
    struct vdif_destination *d = owner;
    const struct vdif_sender *s = d->sender;
    for (size_t i = 0; i < e->threads; i++) {
        int status = d->waiting == PACKETS ? send_waiting(d, &e->error) : BR_OK;
        if (status != BR_OK) return status;
        uint8_t *to = d->bytes + d->waiting++ * s->packet_bytes;
        for (size_t k = 0; k < s->prefix; k++) to[k] = (uint8_t)(d->sequence >> 8 * k);
        memcpy(to + s->prefix, e->bytes + i * e->frame_bytes, e->frame_bytes);
        d->sequence++;
    }
    return BR_OK;
}

static int start(struct br_stage *stage, struct packetize *p)
{
    struct vdif_sender *s = p->state;
    struct br_error error = {0};
    s->count = p->destinations.count;
    s->to = calloc(s->count, sizeof *s->to);
    if (s->to == NULL) return br_no_memory(stage, s->count * sizeof *s->to);
    s->wire = wire_of(stage, p);
    for (size_t i = 0; i < s->count; i++) {
        struct vdif_destination *d = &s->to[i];
        *d = (struct vdif_destination){
            .link = {.address = p->destination[i].address, .fd = -1}, .encoder = s->like, .sender = s};
        d->encoder.first = (size_t)p->destination[i].first_beam * s->like.npol;
        d->encoder.threads = (size_t)p->destination[i].beams * s->like.npol;
        d->encoder.sink = take_frames;
        d->encoder.owner = d;
    }
    int status = datagrams_create(&s->wire, &error);
    for (size_t i = 0; i < s->count && status == BR_OK; i++) {
        struct vdif_destination *d = &s->to[i];
        d->bytes = malloc(PACKETS * s->packet_bytes);
        if (d->bytes == NULL) return br_no_memory(stage, PACKETS * s->packet_bytes);
        status = datagrams_open(&s->wire, &d->link, &error);
        if (status == BR_OK && vdif_encoder_start(&d->encoder) != BR_OK)
            status = (error = d->encoder.error).status;
    }
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* The frame's packets, or the last ones (`in` NULL), to every destination. */
static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    struct vdif_sender *s = p->state;
    uint64_t given_up = s->wire.given_up;
    for (size_t i = 0; i < s->count; i++) {
        struct vdif_destination *d = &s->to[i];
        int status = in != NULL ? vdif_encoder_put(&d->encoder, in) : vdif_encoder_flush(&d->encoder);
        if (status == BR_OK) status = send_waiting(d, &d->encoder.error);
        if (status != BR_OK) return br_stage_fail(stage, status, "%s", d->encoder.error.text);
    }
    if (in != NULL && s->wire.given_up > given_up) br_stage_count_lost(stage, BR_LOST_NOT_SENT, in->samples);
    return BR_OK;
}

static int finish(struct br_stage *stage, struct packetize *p)
{
    return frame(stage, p, NULL);
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct vdif_sender *s = p->state;
    uint64_t zeros = 0;
    for (size_t i = 0; i < s->count && s->to != NULL; i++) {
        struct vdif_destination *d = &s->to[i];
        if (d->encoder.begun) wire_report(stage, &d->link);
        zeros += d->encoder.zeros;
        datagrams_close(&d->link);
        vdif_encoder_free(&d->encoder);
        free(d->bytes);
    }
    if (zeros > 0)
        br_stage_note(
            stage,
            "%llu samples of a channel and polarisation were missing in VDIF frames with others, and "
            "went out as zeros",
            (unsigned long long)zeros);
    free(s->to);
    datagrams_free(&s->wire);
    return BR_OK;
}

const struct wire_format vdif_format = {"vdif", configure, start, frame, finish, stop};
