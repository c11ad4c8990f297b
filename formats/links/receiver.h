/* receiver.h - one interface for those who put a stream together from what comes over the network.
 *
 * A format's receiver begins with a struct receiver. Its owner sets what it expects, calls `listen`, then
 * `step` and `fill` in turn, and `free` at the end, also after a failed `listen`. No call blocks or trusts
 * what it reads. Misbehaviour of senders is counted and reported; it is never an error. */
#ifndef BEAMRING_FORMATS_LINKS_RECEIVER_H
#define BEAMRING_FORMATS_LINKS_RECEIVER_H

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
};

#endif
