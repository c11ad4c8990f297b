/* tcp_server.h - the accepting side of a TCP protocol: connections up to a limit, reads without blocking,
 * peers that say nothing or take for ever, and their counters. The meaning of the bytes is the
 * caller's.
 *
 * Strangers never shut out who is known: where all connections are taken, the oldest stranger makes room for
 * who comes.
 *
 * One thread calls tcp_server_step. Peers are numbered from 0; the caller keeps what it knows of a peer
 * under its number. */
#ifndef BEAMRING_FORMATS_LINKS_TCP_SERVER_H
#define BEAMRING_FORMATS_LINKS_TCP_SERVER_H

#include "buffers/error.h"
#include "formats/links/assembly.h"
#include "formats/links/net.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TCP_PEERS = 64, TCP_PATIENCE = 60 };

enum tcp_next { TCP_CLOSE, TCP_MORE, TCP_LATER };

struct tcp_calls {
    /* A peer has connected. */
    void (*begin)(void *owner, unsigned peer);
    /* Where its next bytes go and how many at most; 0: nothing is read for now. */
    uint8_t *(*room)(void *owner, unsigned peer, size_t *bytes);
    /* So many bytes are there now. TCP_LATER: the other peers come first. */
    enum tcp_next (*got)(void *owner, unsigned peer, size_t bytes);
    /* Whether the peer may close here, as between two messages; whether it may be silent for as long as it
     * likes; and whether its handshake was accepted. Until then it is a stranger. */
    bool (*may_close)(const void *owner, unsigned peer);
    bool (*may_be_silent)(const void *owner, unsigned peer);
    bool (*is_known)(const void *owner, unsigned peer);
    /* Bytes that wait to be sent, and that so many of them were sent. False: the peer is to be closed, it
     * does not read them. NULL: this protocol sends nothing. */
    const uint8_t *(*pending)(const void *owner, unsigned peer, size_t *bytes);
    bool (*sent)(void *owner, unsigned peer, size_t bytes);
    /* The peer is gone: frees what it had. */
    void (*end)(void *owner, unsigned peer);
};

struct tcp_server {
    const struct tcp_calls *calls;
    void *owner;
    unsigned most; /* connections, up to TCP_PEERS */
    /* A handshake that is not complete so long after it began ends the connection, and so does silence of
     * that length within a message, and a message that takes TCP_PATIENCE times as long. */
    double handshake_s;
    struct wire_counts *counts; /* connections, refused, broken, silent */
    char *complaint;            /* [WIRE_COMPLAINT] what the last peer that was refused did */

    /* the server's own */
    int listener; /* -1: none */
    unsigned open;
    struct tcp_peer {
        bool open;
        int fd;
        uint64_t since, heard_at; /* br_clock_ns: when it connected, was heard last, */
        uint64_t busy_since;      /* and might be silent last */
    } peer[TCP_PEERS];
};

/* Listens. Errors: BR_E_IO. */
int tcp_server_listen(struct tcp_server *server, const struct net_address *address, struct br_error *error);

/* Waits up to `ms` for something to happen, and takes it. Errors: BR_E_IO of the server itself; what peers
 * do is counted. */
int tcp_server_step(struct tcp_server *server, int ms, struct br_error *error);

/* Closes a peer, and all that is open. */
void tcp_server_close_peer(struct tcp_server *server, unsigned peer);
void tcp_server_close(struct tcp_server *server);

#endif
