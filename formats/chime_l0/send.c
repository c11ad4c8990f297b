#include "formats/chime_l0/send.h"
#include "buffers/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* Packets of one call; and how many, and how many bytes, the system takes as one message that it cuts into
 * packets itself. */
enum { BATCH = 240, SEGMENTS = 60, SEGMENTS_BYTES = 64000, STOP_PATIENCE_MS = 5000 };

struct l0_batch {
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    /* room for a control message with a u16 in each */
    _Alignas(struct cmsghdr) char control[BATCH][CMSG_SPACE(sizeof(uint16_t))];
    unsigned held[BATCH]; /* packets in each message */
};

/* Lays out the packets of a destination; bytes NULL: only counts what they take. */
static size_t lay_out(const struct l0_sender *s, struct l0_destination *d, uint8_t *bytes)
{
    size_t used = 0, end = d->first_beam + d->beams, pb = s->packet_beams, pc = s->packet_channels;
    d->nslots = 0;
    d->per_beams = (s->ncoarse + pc - 1) / pc;
    for (size_t b = d->first_beam; b < end; b += pb)
        for (size_t c = 0; c < s->ncoarse; c += pc, d->nslots++) {
            struct l0_slot slot = {.first_beam = b,
                                   .nbeams = end - b < pb ? end - b : pb,
                                   .ncoarse = s->ncoarse - c < pc ? s->ncoarse - c : pc};
            size_t header = l0_header_bytes(s->version, slot.nbeams, slot.ncoarse);
            slot.length = header + slot.nbeams * slot.ncoarse * s->nup * s->steps;
            if (bytes != NULL) {
                uint16_t ids[L0_PACKET_MAX];
                for (size_t k = 0; k < slot.nbeams; k++) ids[k] = (uint16_t)(s->first_beam_id + b + k);
                struct l0_packet packet = {.version = s->version,
                                           .counts_per_sample = s->step,
                                           .frame0_ns = (uint64_t)s->epoch_ns,
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

int l0_sender_create(struct l0_sender *s, struct br_error *error)
{
    size_t total = 0;
    for (size_t i = 0; i < s->count; i++) s->to[i].fd = -1;
    s->batch = calloc(1, sizeof *s->batch);
    if (s->batch == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for packets");
    for (size_t i = 0; i < s->count; i++) {
        struct l0_destination *d = &s->to[i];
        int status = net_resolve(&d->to, d->address, SOCK_DGRAM, error);
        if (status != BR_OK) return status;
        d->fd = net_udp_sender(&d->to, s->buffer_bytes, s->multicast_hops, s->multicast_interface, error);
        if (d->fd < 0) return BR_E_IO;
        total += lay_out(s, d, NULL);
        d->slot = calloc(d->nslots, sizeof *d->slot);
        if (d->slot == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu packets", d->nslots);
    }
    s->packets = malloc(total);
    if (s->packets == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for packets of %zu bytes", total);
    for (size_t i = 0, used = 0; i < s->count; i++) used += lay_out(s, &s->to[i], s->packets + used);
    return BR_OK;
}

void l0_sender_free(struct l0_sender *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->to[i].fd >= 0) close(s->to[i].fd);
        free(s->to[i].slot);
    }
    free(s->packets);
    free(s->batch);
}

/* Waits until the socket takes more, or `until` (0: 50 ms at most). */
static void wait_for(const struct l0_sender *s, int fd, uint64_t until)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (until == 0)
        poll(&wait, 1, 50);
    else if (s->host.sleep_until(s->host.owner, until)) {
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
            s->batch->piece[i + count] = (struct iovec){slot->bytes, slot->length};
            bytes += slot->length;
            count++;
        }
        struct msghdr *message = &s->batch->message[messages].msg_hdr;
        *message = (struct msghdr){.msg_iov = &s->batch->piece[i], .msg_iovlen = count};
        if (count > 1) {
            uint16_t segment = (uint16_t)length;
            message->msg_control = s->batch->control[messages];
            message->msg_controllen = sizeof s->batch->control[messages];
            struct cmsghdr *control = CMSG_FIRSTHDR(message);
            control->cmsg_level = IPPROTO_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof segment);
            memcpy(CMSG_DATA(control), &segment, sizeof segment);
        }
        s->batch->held[messages] = count;
        i += count;
    }
    return messages;
}

int l0_sender_send(struct l0_sender *s, struct l0_destination *d, uint64_t count, struct br_error *error)
{
    size_t done = 0, end = d->nslots;
    for (size_t k = 0; k < end; k++)
        memcpy(d->slot[k].bytes + (s->version == 1 ? 8 : 16), &count, sizeof count);
    while (done < end) {
        unsigned most = end - done < BATCH ? (unsigned)(end - done) : BATCH;
        if (s->host.stopping(s->host.owner)) {
            if (s->stop_seen == 0) s->stop_seen = br_clock_ns();
            if (br_clock_ns() - s->stop_seen > (uint64_t)STOP_PATIENCE_MS * 1000000) {
                s->given_up += end - done;
                return BR_OK;
            }
        }
        double tokens = token_bucket_fill(&s->bucket, br_clock_ns()), size = (double)d->slot[done].length;
        unsigned n = 0;
        for (double sum = 0; n < most && (sum += (double)d->slot[done + n].length) <= tokens; n++) continue;
        if (n == 0) {
            double some = s->bucket.rate * 1e-3; /* do not wake up for every packet */
            wait_for(s, d->fd, token_bucket_when(&s->bucket, some > size ? some : size));
            continue;
        }
        unsigned messages = make_messages(s, d, done, n);
        int sent = sendmmsg(d->fd, s->batch->message, messages, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && !d->whole &&
            (errno == EINVAL || errno == EMSGSIZE || errno == EIO || errno == EOPNOTSUPP)) {
            d->whole = true; /* an interface with small packets, or an old system */
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
            wait_for(s, d->fd, 0);
            continue;
        }
        if (sent < 0 && errno == ECONNREFUSED) {
            d->refused++; /* an answer to an earlier packet: nobody listens there now */
            continue;
        }
        if (sent < 0 && (errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN)) {
            s->given_up += s->batch->held[0]; /* the way there is gone, for now */
            d->refused++;
            done += s->batch->held[0];
            continue;
        }
        if (sent < 0) return br_fail(error, BR_E_IO, "cannot send to %s: %s", d->to.text, strerror(errno));
        size_t packets = 0, bytes = 0;
        for (int k = 0; k < sent; k++) packets += s->batch->held[k];
        for (size_t k = 0; k < packets; k++) bytes += d->slot[done + k].length;
        token_bucket_spend(&s->bucket, (double)bytes, br_clock_ns());
        done += packets;
        d->sent += packets;
    }
    return BR_OK;
}
