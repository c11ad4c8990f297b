/* CHIME's L0 packets, sending: see formats/chime_l0/chime_l0.h and l0_encode.h. */
#include "buffers/clock.h"
#include "formats/chime_l0/chime_l0.h"
#include "stages/common/stage/blocks.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/l0_encode.h"
#include "stages/packetize/packetize.h"
#include "stages/packetize/token_bucket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* Packets of one call; and how many, and how many bytes, the system takes as one message that it cuts into
 * packets itself. */
enum { BATCH = 240, SEGMENTS = 60, SEGMENTS_BYTES = 64000, STOP_PATIENCE_MS = 5000 };

union segment_control { /* room for, and alignment of, a control message with a u16 */
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
    struct cmsghdr align;
};

/* One packet of a block, with its place in memory. */
struct l0_slot {
    uint8_t *bytes, *scales, *data; /* scales: where the scales begin, the offsets follow */
    size_t length;
    size_t first_beam, nbeams;    /* of the stream */
    size_t first_coarse, ncoarse; /* of the coarse table */
};

struct l0_destination {
    struct net_address to;
    int fd;
    struct l0_slot *slot;     /* [nslots], beams slow */
    size_t nslots, per_beams; /* per_beams: packets that share their beams */
    bool whole; /* the system cannot cut messages into packets on the way there: each is a message */
    uint64_t sent, refused;
};

struct l0_sender {
    struct l0_destination *to;
    unsigned step, nup, steps;
    size_t ncoarse;
    uint32_t *channel;   /* [ncoarse][nup] of the stream */
    uint16_t *coarse_id; /* [ncoarse] */
    unsigned nencoders;
    struct l0_encoder *encoder; /* [nencoders]: of a worker */
    struct token_bucket bucket;
    uint8_t *packets;
    struct mmsghdr *message;        /* [BATCH] */
    struct iovec *piece;            /* [BATCH] */
    union segment_control *control; /* [BATCH] */
    unsigned *held;                 /* [BATCH] packets in each message */

    /* A block that lies in several frames. */
    void *gathered;          /* [freq][steps][beam] */
    uint8_t *gathered_valid; /* [freq][steps] */
    size_t value_bytes;
    struct blocks blocks;
    uint64_t given_up; /* packets that were not sent: the pipeline stopped, or there was no way */
};

/* Finds the coarse channels of the stream and where their fine channels are. */
static int find_channels(struct br_stage *stage, struct l0_sender *s, const struct br_stream *in)
{
    size_t F = in->nchannels, place[L0_CHANNELS];
    uint32_t *channel = br_stage_alloc(stage, F * sizeof *channel);
    uint16_t *ids = br_stage_alloc(stage, F * sizeof *ids),
             *filled = br_stage_alloc(stage, F * sizeof *filled);
    for (size_t i = 0; i < L0_CHANNELS; i++) place[i] = F;
    for (size_t f = 0; f < F; f++) {
        unsigned coarse, up, nup;
        if (!l0_channel(in->freq_mhz[f], in->width_mhz[f], &coarse, &up, &nup) || (f > 0 && nup != s->nup))
            return br_stage_fail(
                stage, BR_E_INVALID,
                "channel %zu (%.9g MHz wide at %.9g MHz) is not a %spart of the channels of 0.390625 MHz "
                "at 800, 799.609375, ... MHz that chime-l0 knows",
                f, in->width_mhz[f], in->freq_mhz[f], f > 0 ? "equal " : "");
        s->nup = nup;
        if (place[coarse] == F) {
            place[coarse] = s->ncoarse;
            ids[s->ncoarse++] = (uint16_t)coarse;
        }
        if ((place[coarse] + 1) * nup > F) break;
        channel[place[coarse] * nup + up] = (uint32_t)f;
        filled[place[coarse]]++;
    }
    for (size_t i = 0; i < s->ncoarse; i++)
        if (filled[i] != s->nup)
            return br_stage_fail(
                stage, BR_E_INVALID,
                "the stream has %u of the %u fine channels of coarse channel %u; chime-l0 sends "
                "whole coarse channels",
                filled[i], s->nup, ids[i]);
    s->channel = channel;
    s->coarse_id = ids;
    return BR_OK;
}

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    const struct br_array *a = &in->array;
    char text[160];
    if (a->naxes != 3 || (a->dtype != BR_F16 && a->dtype != BR_F32) || br_array_axis(a, "freq") != 0 ||
        br_array_axis(a, "time") != 1 || br_array_axis(a, "beam") != 2)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input is %s; chime-l0 sends f16 or f32 [freq][time][beam] (frb_beams makes it), "
            "which it quantizes itself",
            br_array_format(a, text, sizeof text));
    if (br_stream_is_zoned(in))
        return br_stage_fail(stage, BR_E_INVALID, "the zones of its input have different time steps");
    if (in->sample_ns.num != L0_COUNT_NS || in->sample_ns.den != 1)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its base samples last %lld/%lld ns; the counts of chime-l0 last %d ns",
                             (long long)in->sample_ns.num, (long long)in->sample_ns.den, L0_COUNT_NS);
    if (in->zone[0].downsample > UINT16_MAX)
        return br_stage_fail(stage, BR_E_INVALID, "a time step of %u counts; at most %u are possible",
                             in->zone[0].downsample, UINT16_MAX);
    if ((p->steps & (p->steps - 1)) != 0)
        return br_stage_fail_at(stage, "steps", "%lld; expected a power of two", (long long)p->steps);
    struct l0_sender *s = p->state = br_stage_alloc(stage, sizeof *s);
    int status = share_beams(stage, p, a->axis[2].length);
    if (status == BR_OK) status = find_channels(stage, s, in);
    if (status != BR_OK) return status;
    if (p->first_beam_id + (int64_t)p->nbeams - 1 > UINT16_MAX)
        return br_stage_fail_at(stage, "first_beam_id", "beam ids up to %lld; chime-l0 has 16 bits for them",
                                (long long)(p->first_beam_id + (int64_t)p->nbeams - 1));
    s->step = in->zone[0].downsample;
    s->steps = (unsigned)p->steps;
    s->blocks = (struct blocks){.step = s->step, .length = s->steps, .bridges = true};
    size_t nb = (size_t)p->packet_beams < p->nbeams ? (size_t)p->packet_beams : p->nbeams;
    size_t nf = (size_t)p->packet_channels < s->ncoarse ? (size_t)p->packet_channels : s->ncoarse;
    size_t data = nb * nf * s->nup * s->steps, all = data + l0_header_bytes((unsigned)p->version, nb, nf);
    if (data > L0_DATA_MAX || all > L0_PACKET_MAX)
        return br_stage_fail_at(
            stage, "steps",
            "packets of %zu beams x %zu channels x %u x %u steps take %zu bytes; at most %d are allowed: "
            "put fewer packet_beams, packet_channels or steps into one",
            nb, nf, s->nup, s->steps, all, L0_PACKET_MAX);
    if (p->rate > 0 && p->burst < (double)all)
        return br_stage_fail_at(stage, "burst", "%g bytes; expected at least one packet, %zu bytes", p->burst,
                                all);
    return BR_OK;
}

/* Lays out the packets of destination i; bytes NULL: only counts what they take. */
static size_t lay_out(const struct packetize *p, const struct br_stream *in, size_t i, uint8_t *bytes)
{
    struct l0_sender *s = p->state;
    struct l0_destination *d = &s->to[i];
    size_t used = 0, end = (size_t)(p->destination[i].first_beam + p->destination[i].beams);
    size_t pb = (size_t)p->packet_beams, pc = (size_t)p->packet_channels;
    d->nslots = 0;
    d->per_beams = (s->ncoarse + pc - 1) / pc;
    for (size_t b = (size_t)p->destination[i].first_beam; b < end; b += pb)
        for (size_t c = 0; c < s->ncoarse; c += pc, d->nslots++) {
            struct l0_slot slot = {.first_beam = b,
                                   .nbeams = end - b < pb ? end - b : pb,
                                   .first_coarse = c,
                                   .ncoarse = s->ncoarse - c < pc ? s->ncoarse - c : pc};
            size_t header = l0_header_bytes((unsigned)p->version, slot.nbeams, slot.ncoarse);
            slot.length = header + slot.nbeams * slot.ncoarse * s->nup * s->steps;
            if (bytes != NULL) {
                uint16_t ids[L0_PACKET_MAX];
                for (size_t k = 0; k < slot.nbeams; k++)
                    ids[k] = (uint16_t)((size_t)p->first_beam_id + b + k);
                struct l0_packet packet = {.version = (unsigned)p->version,
                                           .counts_per_sample = s->step,
                                           .frame0_ns = (uint64_t)in->epoch_ns,
                                           .nbeams = (unsigned)slot.nbeams,
                                           .nfreq = (unsigned)slot.ncoarse,
                                           .nupfreq = s->nup,
                                           .nsteps = s->steps};
                slot.bytes = bytes + used;
                slot.scales = l0_put_header(slot.bytes, &packet, ids, s->coarse_id + c);
                slot.data = slot.bytes + header;
                d->slot[d->nslots] = slot;
            }
            used += (slot.length + 63) / 64 * 64;
        }
    return used;
}

static bool make_encoders(struct l0_sender *s, const struct packetize *p, unsigned workers, float factor)
{
    s->encoder = calloc(workers, sizeof *s->encoder);
    for (; s->encoder != NULL && s->nencoders < workers; s->nencoders++) {
        s->encoder[s->nencoders] = (struct l0_encoder){.nbeams = p->nbeams,
                                                       .nup = s->nup,
                                                       .steps = s->steps,
                                                       .half = s->value_bytes == 2,
                                                       .factor = factor};
        if (l0_encoder_create(&s->encoder[s->nencoders]) == 0) continue;
        l0_encoder_free(&s->encoder[s->nencoders]);
        return false;
    }
    return s->encoder != NULL;
}

static int start(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct l0_sender *s = p->state;
    size_t n = p->destinations.count, total = 0;
    struct br_error error = {0};
    s->value_bytes = in->array.dtype == BR_F16 ? 2 : 4;
    s->bucket = (struct token_bucket){.rate = p->rate, .burst = p->burst};
    s->to = calloc(n, sizeof *s->to);
    for (size_t i = 0; s->to != NULL && i < n; i++)
        s->to[i].fd = -1; /* stop() may come before there are sockets */
    s->message = calloc(BATCH, sizeof *s->message);
    s->piece = calloc(BATCH, sizeof *s->piece);
    s->control = calloc(BATCH, sizeof *s->control);
    s->held = calloc(BATCH, sizeof *s->held);
    s->gathered = malloc(in->nchannels * s->steps * p->nbeams * s->value_bytes);
    s->gathered_valid = malloc(in->nchannels * s->steps);
    if (!s->to || !s->message || !s->piece || !s->control || !s->held || !s->gathered || !s->gathered_valid ||
        !make_encoders(s, p, br_stage_threads(stage), (float)in->scale))
        return br_no_memory(stage, in->nchannels * s->steps * p->nbeams * s->value_bytes);
    for (size_t i = 0; i < n; i++) {
        if (net_resolve(&s->to[i].to, p->destination[i].address, SOCK_DGRAM, &error) != BR_OK)
            return br_stage_fail(stage, error.status, "%s", error.text);
        s->to[i].fd = net_udp_sender(&s->to[i].to, (int)p->send_buffer, (int)p->multicast_hops,
                                     p->multicast_interface, &error);
        if (s->to[i].fd < 0) return br_stage_fail(stage, error.status, "%s", error.text);
        total += lay_out(p, in, i, NULL);
        s->to[i].slot = calloc(s->to[i].nslots, sizeof *s->to[i].slot);
        if (s->to[i].slot == NULL) return br_no_memory(stage, s->to[i].nslots * sizeof *s->to[i].slot);
    }
    s->packets = malloc(total);
    if (s->packets == NULL) return br_no_memory(stage, total);
    for (size_t i = 0, used = 0; i < n; i++) used += lay_out(p, in, i, s->packets + used);
    return BR_OK;
}

/* A block that is quantized into the packets of a destination. */
struct encoding {
    const struct packetize *p;
    const struct l0_destination *to;
    size_t first, beams; /* of the destination */
    const void *in;
    const uint8_t *valid; /* or NULL */
    size_t stride;
};

/* One coarse channel of L0_GROUP beams. */
static void encode_group(void *arg, size_t job, unsigned worker)
{
    const struct encoding *e = arg;
    const struct packetize *p = e->p;
    struct l0_sender *s = p->state;
    size_t pb = (size_t)p->packet_beams, pc = (size_t)p->packet_channels, cell = (size_t)s->nup * s->steps;
    size_t c = job % s->ncoarse, b0 = job / s->ncoarse * L0_GROUP;
    size_t count = e->beams - b0 < L0_GROUP ? e->beams - b0 : L0_GROUP;
    const struct l0_slot *slot[L0_GROUP] = {NULL};
    uint8_t *data[L0_GROUP] = {NULL};
    float scale[L0_GROUP], offset[L0_GROUP];
    for (size_t k = 0; k < count; k++) {
        slot[k] = &e->to->slot[(b0 + k) / pb * e->to->per_beams + c / pc];
        data[k] = slot[k]->data + ((b0 + k) % pb * slot[k]->ncoarse + c % pc) * cell;
    }
    l0_encode(&s->encoder[worker], e->in, e->valid, e->stride, s->channel + c * s->nup, e->first + b0, count,
              data, scale, offset);
    for (size_t k = 0; k < count; k++) {
        size_t at = (b0 + k) % pb * slot[k]->ncoarse + c % pc;
        memcpy(slot[k]->scales + 4 * at, &scale[k], 4);
        memcpy(slot[k]->scales + 4 * (slot[k]->nbeams * slot[k]->ncoarse + at), &offset[k], 4);
    }
}

/* Waits until the socket takes more, or `until` (0: 50 ms at most). */
static void wait_for(struct br_stage *stage, int fd, uint64_t until)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (until == 0)
        poll(&wait, 1, 50);
    else if (br_stage_sleep_until(stage, until)) {
        uint64_t now = br_clock_ns(); /* the pipeline stops: what is on its way is still paced */
        if (until > now) poll(NULL, 0, until - now > 50000000 ? 50 : (int)((until - now) / 1000000) + 1);
    }
}

/* Makes messages of packets [done, done + n): as many equal ones as possible in each, the last one may be
 * shorter. Crossing into the system's network code costs more than copying a packet. Returns the number of
 * messages. */
static unsigned make_messages(struct l0_sender *s, const struct l0_destination *d, size_t done, unsigned n)
{
    unsigned messages = 0;
    for (unsigned i = 0; i < n; messages++) {
        size_t length = d->slot[done + i].length, bytes = 0;
        unsigned count = 0;
        while (i + count < n && count < (d->whole ? 1 : SEGMENTS)) {
            const struct l0_slot *slot = &d->slot[done + i + count];
            if (count > 0 &&
                (slot->length > length || bytes != count * length || bytes + slot->length > SEGMENTS_BYTES))
                break;
            s->piece[i + count] = (struct iovec){slot->bytes, slot->length};
            bytes += slot->length;
            count++;
        }
        struct msghdr *message = &s->message[messages].msg_hdr;
        *message = (struct msghdr){.msg_iov = &s->piece[i], .msg_iovlen = count};
        if (count > 1) {
            uint16_t segment = (uint16_t)length;
            message->msg_control = &s->control[messages];
            message->msg_controllen = sizeof s->control[messages];
            struct cmsghdr *control = CMSG_FIRSTHDR(message);
            control->cmsg_level = IPPROTO_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof segment);
            memcpy(CMSG_DATA(control), &segment, sizeof segment);
        }
        s->held[messages] = count;
        i += count;
    }
    return messages;
}

/* Sends packets [done, end) of a destination. */
static int send_packets(struct br_stage *stage, struct packetize *p, struct l0_destination *d, size_t done,
                        size_t end)
{
    struct l0_sender *s = p->state;
    while (done < end) {
        unsigned most = end - done < BATCH ? (unsigned)(end - done) : BATCH;
        if (br_stage_stopping(stage)) {
            if (p->peers.stop_seen == 0) p->peers.stop_seen = br_clock_ns();
            if (br_clock_ns() - p->peers.stop_seen > (uint64_t)STOP_PATIENCE_MS * 1000000) {
                s->given_up += end - done;
                return BR_OK;
            }
        }
        double tokens = token_bucket_fill(&s->bucket, br_clock_ns()), size = (double)d->slot[done].length;
        unsigned n = 0;
        for (double sum = 0; n < most && (sum += (double)d->slot[done + n].length) <= tokens; n++) continue;
        if (n == 0) {
            double some = s->bucket.rate * 1e-3; /* do not wake up for every packet */
            wait_for(stage, d->fd, token_bucket_when(&s->bucket, some > size ? some : size));
            continue;
        }
        unsigned messages = make_messages(s, d, done, n);
        int sent = sendmmsg(d->fd, s->message, messages, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && !d->whole &&
            (errno == EINVAL || errno == EMSGSIZE || errno == EIO || errno == EOPNOTSUPP)) {
            d->whole = true; /* an interface with small packets, or an old system */
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
            wait_for(stage, d->fd, 0);
            continue;
        }
        if (sent < 0 && errno == ECONNREFUSED) {
            d->refused++; /* an answer to an earlier packet: nobody listens there now */
            continue;
        }
        if (sent < 0 && (errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN)) {
            s->given_up += s->held[0]; /* the way there is gone, for now */
            d->refused++;
            done += s->held[0];
            continue;
        }
        if (sent < 0)
            return br_stage_fail(stage, BR_E_IO, "cannot send to %s: %s", d->to.text, strerror(errno));
        size_t packets = 0, bytes = 0;
        for (int k = 0; k < sent; k++) packets += s->held[k];
        for (size_t k = 0; k < packets; k++) bytes += d->slot[done + k].length;
        token_bucket_spend(&s->bucket, (double)bytes, br_clock_ns());
        done += packets;
        d->sent += packets;
    }
    return BR_OK;
}

static int send_block(struct br_stage *stage, struct packetize *p, uint64_t number, const void *in,
                      const uint8_t *valid, size_t stride)
{
    struct l0_sender *s = p->state;
    uint64_t count = number * s->steps * s->step;
    int status = BR_OK;
    for (size_t i = 0; i < p->destinations.count && status == BR_OK; i++) {
        struct l0_destination *d = &s->to[i];
        struct encoding e = {.p = p,
                             .to = d,
                             .first = (size_t)p->destination[i].first_beam,
                             .beams = (size_t)p->destination[i].beams,
                             .in = in,
                             .valid = valid,
                             .stride = stride};
        for (size_t k = 0; k < d->nslots; k++)
            memcpy(d->slot[k].bytes + (p->version == 1 ? 8 : 16), &count, sizeof count);
        status = br_stage_parallel(stage, (e.beams + L0_GROUP - 1) / L0_GROUP * s->ncoarse, encode_group, &e);
        if (status == BR_OK) status = send_packets(stage, p, d, 0, d->nslots);
    }
    return status;
}

/* Sends the block that was gathered, if there is one. */
static int flush(struct br_stage *stage, struct packetize *p)
{
    struct l0_sender *s = p->state;
    if (!s->blocks.open) return BR_OK;
    s->blocks.open = false;
    return send_block(stage, p, s->blocks.number, s->gathered, s->gathered_valid, s->steps);
}

/* Copies a piece of the frame into the block. */
static void gather(const struct packetize *p, const struct br_frame *in, const struct blocks_piece *piece)
{
    struct l0_sender *s = p->state;
    size_t row = p->nbeams * s->value_bytes, F = s->ncoarse * s->nup;
    for (size_t f = 0; f < F; f++)
        for (size_t t = 0; t < piece->count; t++) {
            size_t from = f * piece->nsteps + piece->from + t, to = f * s->steps + piece->at + t;
            uint8_t valid = in->complete ? BR_VALID : in->valid[from];
            if (valid <= s->gathered_valid[to])
                continue; /* of two frames that share a step the one that has more of it */
            s->gathered_valid[to] = valid;
            memcpy((uint8_t *)s->gathered + to * row, (const uint8_t *)in->data + from * row, row);
        }
}

static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    struct l0_sender *s = p->state;
    size_t row = p->nbeams * s->value_bytes;
    uint64_t given_up = s->given_up;
    int status = blocks_gap(&s->blocks, in) ? flush(stage, p) : BR_OK;
    p->opened = true;
    while (status == BR_OK) {
        bool begins = !s->blocks.open;
        struct blocks_piece piece = blocks_take(&s->blocks, in);
        if (piece.whole) {
            s->blocks.open = false;
            status = send_block(stage, p, s->blocks.number, (const uint8_t *)in->data + piece.from * row,
                                in->complete ? NULL : in->valid + piece.from, piece.nsteps);
        } else {
            if (begins) memset(s->gathered_valid, BR_MISSING, s->ncoarse * s->nup * s->steps);
            gather(p, in, &piece);
            if (piece.ends) status = flush(stage, p);
        }
        if (blocks_used(&s->blocks, in)) break;
    }
    if (s->given_up > given_up) br_stage_count_lost(stage, BR_LOST_NOT_SENT, in->samples);
    return status;
}

static int finish(struct br_stage *stage, struct packetize *p)
{
    return flush(stage, p);
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct l0_sender *s = p->state;
    for (size_t i = 0; s->to != NULL && i < p->destinations.count; i++) {
        struct l0_destination *d = &s->to[i];
        if (p->opened)
            br_stage_note(stage, "%s: %llu packets sent, %llu times nobody listened", d->to.text,
                          (unsigned long long)d->sent, (unsigned long long)d->refused);
        if (d->fd >= 0) close(d->fd);
        free(d->slot);
    }
    for (unsigned i = 0; i < s->nencoders; i++) l0_encoder_free(&s->encoder[i]);
    free(s->encoder);
    free(s->to);
    free(s->message);
    free(s->piece);
    free(s->control);
    free(s->held);
    free(s->gathered);
    free(s->gathered_valid);
    free(s->packets);
    return BR_OK;
}

const struct wire_format chime_l0_format = {"chime-l0", configure, start, frame, finish, stop};
