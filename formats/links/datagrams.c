#include "formats/links/datagrams.h"
#include "buffers/clock.h"

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

struct datagram_batch {
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    /* room for a control message with a u16 in each */
    _Alignas(struct cmsghdr) char control[BATCH][CMSG_SPACE(sizeof(uint16_t))];
    unsigned held[BATCH]; /* packets in each message */
};

int datagrams_create(struct datagrams *s, struct br_error *error)
{
    s->batch = calloc(1, sizeof *s->batch);
    return s->batch != NULL ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory for packets");
}

void datagrams_free(struct datagrams *s)
{
    free(s->batch);
    s->batch = NULL;
}

int datagrams_open(const struct datagrams *s, struct datagram_destination *d, struct br_error *error)
{
    d->fd = -1;
    int status = net_resolve(&d->to, d->address, SOCK_DGRAM, error);
    if (status != BR_OK) return status;
    d->fd = net_udp_sender(&d->to, s->buffer_bytes, s->multicast_hops, s->multicast_interface, error);
    return d->fd >= 0 ? BR_OK : BR_E_IO;
}

void datagrams_close(struct datagram_destination *d)
{
    if (d->fd >= 0) close(d->fd);
    d->fd = -1;
}

/* Waits until the socket takes more, or `until` (0: 50 ms at most). */
static void wait_for(const struct datagrams *s, int fd, uint64_t until)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (until == 0)
        poll(&wait, 1, 50);
    else if (s->host.sleep_until(s->host.owner, until)) {
        uint64_t now = br_clock_ns(); /* the pipeline stops: what is on its way is still paced */
        if (until > now) poll(NULL, 0, until - now > 50000000 ? 50 : (int)((until - now) / 1000000) + 1);
    }
}

/* Makes messages of `n` packets: as many equal ones as possible in each, the last one may be
 * shorter. Crossing into the system's network code costs more than copying a packet. Returns the number of
 * messages. */
static unsigned make_messages(struct datagrams *s, const struct datagram_destination *d,
                              const struct iovec *packet, unsigned n)
{
    unsigned messages = 0;
    for (unsigned i = 0; i < n; messages++) {
        size_t length = packet[i].iov_len, bytes = 0;
        unsigned count = 0;
        while (i + count < n && count < (d->whole ? 1 : SEGMENTS)) {
            const struct iovec *next = &packet[i + count];
            if (count > 0 &&
                (next->iov_len > length || bytes != count * length || bytes + next->iov_len > SEGMENTS_BYTES))
                break;
            s->batch->piece[i + count] = *next;
            bytes += next->iov_len;
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

int datagrams_send(struct datagrams *s, struct datagram_destination *d, const struct iovec *packet,
                   size_t end, struct br_error *error)
{
    size_t done = 0;
    while (done < end) {
        unsigned most = end - done < BATCH ? (unsigned)(end - done) : BATCH;
        if (s->host.stopping(s->host.owner)) {
            if (s->stop_seen == 0) s->stop_seen = br_clock_ns();
            if (br_clock_ns() - s->stop_seen > (uint64_t)STOP_PATIENCE_MS * 1000000) {
                s->given_up += end - done;
                return BR_OK;
            }
        }
        double tokens = token_bucket_fill(&s->bucket, br_clock_ns()), size = (double)packet[done].iov_len;
        unsigned n = 0;
        for (double sum = 0; n < most && (sum += (double)packet[done + n].iov_len) <= tokens; n++) continue;
        if (n == 0) {
            double some = s->bucket.rate * 1e-3; /* do not wake up for every packet */
            wait_for(s, d->fd, token_bucket_when(&s->bucket, some > size ? some : size));
            continue;
        }
        unsigned messages = make_messages(s, d, packet + done, n);
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
        for (size_t k = 0; k < packets; k++) bytes += packet[done + k].iov_len;
        token_bucket_spend(&s->bucket, (double)bytes, br_clock_ns());
        done += packets;
        d->sent += packets;
    }
    return BR_OK;
}
