/* receiver.h - one interface for those who put a stream together from what comes over the network.
 *
 * A format's receiver begins with a struct receiver. Its owner sets what it expects, calls `listen`, then
 * `step` and `fill` in turn, and `free` at the end, also after a failed `listen`. No call blocks or trusts
 * what it reads. Misbehaviour of senders is counted and reported; it is never an error. */
#ifndef BEAMRING_FORMATS_LINKS_RECEIVER_H
#define BEAMRING_FORMATS_LINKS_RECEIVER_H

#include "buffers/clock.h"
#include "formats/links/assembly.h"
#include "formats/links/net.h"

struct receiver;

struct receiver_format {
    const char *name;
    bool udp;     /* else TCP */
    size_t bytes; /* of its state and buffers, whatever the stream */
    /* Listens, and sets `port`. Errors: BR_E_IO, BR_E_NO_MEMORY. */
    int (*listen)(struct receiver *r, const struct net_address *at, struct br_error *error);
    /* Waits up to `ms` for something to come, and takes it. Errors: BR_E_IO, BR_E_NO_MEMORY of the receiver
     * itself. */
    int (*step)(struct receiver *r, int ms, struct br_error *error);
    /* Fills a frame of the stream, if there is one to hand on. `flush`: what is there, complete or not. The
     * same frame is given until it is full. */
    bool (*fill)(struct receiver *r, const struct br_stream *stream, bool flush, struct br_frame *frame);
    /* Senders that are connected now; NULL: there are no connections. */
    unsigned (*connected)(const struct receiver *r);
    void (*free)(struct receiver *r);
};

struct receiver {
    const struct receiver_format *format;
    unsigned window;    /* frames by which data may be ahead of what has not come */
    double handshake_s; /* TCP: see tcp_server.h */
    struct wire_counts counts;
    /* what was wrong with a sender, or was decided about one; whoever has told it empties it */
    char complaint[WIRE_COMPLAINT];
    unsigned port; /* where it listens */
    /* For how long nothing has come while somebody waited for it, and the pieces counted by then. Other time
     * does not count: while the caller writes to a slow disk, or the machine stands still, data may be
     * waiting. */
    uint64_t quiet_ns, pieces;
};

/* `step` of the format, which also keeps quiet_ns. */
static inline int receiver_step(struct receiver *r, int ms, struct br_error *error)
{
    uint64_t began = br_clock_ns(), most = (uint64_t)ms * 2000000;
    int status = r->format->step(r, ms, error);
    uint64_t took = br_clock_ns() - began, pieces = r->counts.received + r->counts.late + r->counts.duplicate;
    r->quiet_ns = pieces != r->pieces ? 0 : r->quiet_ns + (took < most ? took : most);
    r->pieces = pieces;
    return status;
}

#endif
