/* tcp_server.h - the accepting side of a TCP protocol: connections up to a limit, reads without blocking,
 * peers that say nothing, and what is counted of all that. What the bytes mean is the caller's.
 *
 * One thread calls tcp_server_step. Peers are numbered from 0; the caller keeps what it knows of a peer
 * under its number. */
#ifndef BEAMRING_STAGES_COMMON_WIRES_TCP_SERVER_H
#define BEAMRING_STAGES_COMMON_WIRES_TCP_SERVER_H

#include "buffers/error.h"
#include "stages/common/wires/assembly.h"
#include "stages/common/wires/net.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TCP_PEERS = 64 };

enum tcp_next { TCP_CLOSE, TCP_MORE, TCP_LATER };

struct tcp_calls {
    /* A peer has connected. */
    void (*begin)(void *owner, unsigned peer);
    /* Where its next bytes go and how many at most; 0: nothing is read for now. */
    uint8_t *(*room)(void *owner, unsigned peer, size_t *bytes);
    /* So many bytes are there now. TCP_LATER: the other peers come first. */
    enum tcp_next (*got)(void *owner, unsigned peer, size_t bytes);
    /* Whether the peer may close here, as between two messages; and whether it may be silent for as long
     * as it likes. */
    bool (*may_close)(const void *owner, unsigned peer);
    bool (*may_be_silent)(const void *owner, unsigned peer);
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
    unsigned most;              /* connections, up to TCP_PEERS */
    double silent_s;            /* a peer that may not be silent is closed after that time */
    struct wire_counts *counts; /* connections, refused, broken, silent */
    char *complaint;            /* [complaint_size] what the last peer that was refused did */
    size_t complaint_size;

    /* the server's own */
    int listener; /* -1: none */
    unsigned open;
    struct tcp_peer {
        bool open;
        int fd;
        uint64_t heard_at; /* br_clock_ns */
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
