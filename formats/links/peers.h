/* peers.h - TCP connections to several receivers at once, for senders: connecting with back-off, sending
 * without blocking, noticing peers that stop reading or go away, and closing without losing what is still on
 * its way.
 *
 * Each message to a peer is a few pieces of memory; a peer that is down, or breaks in
 * mid-message, misses it and goes on with a later one. */
#ifndef BEAMRING_FORMATS_LINKS_PEERS_H
#define BEAMRING_FORMATS_LINKS_PEERS_H

#include "formats/links/host.h"
#include "formats/links/net.h"

#include <sys/uio.h>

enum { PEER_PIECES = 4 };

enum peer_state { PEER_DOWN, PEER_CONNECTING, PEER_UP };

struct peer {
    struct net_address to;
    enum peer_state state;
    int fd;
    void *hello; /* sent first on every connection; from malloc; peers_free frees it */
    size_t hello_bytes;
    size_t hello_sent;
    struct iovec piece[PEER_PIECES]; /* what remains of the message */
    unsigned npieces;
    uint64_t retry_at, backoff_ns, progress_at; /* CLOCK_MONOTONIC */
    bool told;                                  /* that it cannot be reached: once per outage */
    uint64_t sent, missed, connections;         /* messages; times it was reached */
    uint64_t expected_acks, acked, refused;     /* answers to wait for; bytes that came: 1, and 0 */
    uint64_t unanswered; /* messages whose answers never came, of earlier connections */
    bool in_flight;      /* a message that may be answered before it is known to be sent */
    uint64_t up_at;      /* when this connection was made */
    bool accepted;       /* it has taken what was sent, in some connection */
    uint64_t endings;    /* connections that it ended before it had accepted anything */
};

struct peers {
    struct link_host host;
    struct peer *peer; /* [count] */
    size_t count;
    bool acks; /* receivers answer one byte per message */

    /* go on without a peer that is lost, and try again; else its loss is an error */
    bool reconnect;
    double connect_s, stall_s, retry_s, idle_s, close_s;
    uint64_t stop_seen; /* when the pipeline was first seen to stop; 0: not yet */
    bool opened;
    struct br_error error; /* of what failed */
};

/* Resolves `count` addresses, "host:port"; peers_free also follows a failure. Status, as of all below: the
 * message is in peers->error. */
int peers_create(struct peers *peers, size_t count, const char *const *address);
void peers_free(struct peers *peers);

/* Once: waits until every peer is up, at most connect_s. Then those that are not have failed, or are down
 * (reconnect). Status. */
int peers_open(struct peers *peers);

/* True when a message may be given to the peer; tries to bring it up again without waiting, else counts a
 * missed message. */
bool peer_ready(struct peers *peers, struct peer *peer);

/* Adds a piece to the peer's message. The memory must stay until peers_send returns. */
void peer_add(struct peer *peer, const void *data, size_t bytes);

/* Sends the messages of all peers; returns when each of them is with the system, or its peer was given up.
 * Returns the number of peers that missed the message, or a negative status. */
int peers_send(struct peers *peers);

/* Waits until everything has arrived - all answers are there, or all bytes acknowledged and idle_s of peace -
 * and closes. */
void peers_close(struct peers *peers);

/* After peers_close: fails, with BR_E_IO, for a destination that ended its connections and never accepted
 * anything: it does not want what it is sent. A destination has accepted when it acknowledged a message, or,
 * where there are no acknowledgements, when it kept a connection over which messages went for a second, or to
 * the end. One that was sent messages and never acknowledged any has not. */
int peers_verdict(struct peers *peers);

/* Notes what was sent to each, in units of `what`. */
void peers_report(const struct peers *peers, const char *what);

/* Closes at once what is still open. */
void peers_abandon(struct peers *peers);

#endif
