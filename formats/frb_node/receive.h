/* receive.h - the receiving side of the FRB-node protocol: connections, and minichunks put together over
 * senders.
 *
 * Each sender brings all beams and some of the channels. A connection that breaks the protocol is closed and
 * counted; the others go on. Nothing here blocks or trusts what it reads. */
#ifndef BEAMRING_FORMATS_FRB_NODE_RECEIVE_H
#define BEAMRING_FORMATS_FRB_NODE_RECEIVE_H

#include "formats/frb_node/frb_node.h"
#include "formats/links/receiver.h"
#include "formats/links/tcp_server.h"

enum { FRB_CONNECTIONS = TCP_PEERS, FRB_ANSWERS = 4096 };

enum frb_connection_state { FRB_FREE, FRB_PREFIX, FRB_TEXT, FRB_WAITING, FRB_HEAD, FRB_BODY, FRB_HELD };

struct frb_connection {
    enum frb_connection_state state;
    uint32_t flags;
    uint8_t head[FRB_NODE_PREFIX]; /* a header being read */
    uint8_t *buffer;               /* text, then bodies */
    size_t size, got, want;
    struct frb_node_document document;
    uint32_t *channel; /* [freq_channels] -> channel of the assembly */
    bool any;
    uint64_t seq;                /* of the last minichunk */
    uint64_t heard_at;           /* br_clock_ns */
    uint8_t answer[FRB_ANSWERS]; /* acknowledgements that were not taken yet */
    size_t nanswers;
    uint64_t stuck_at; /* since when; 0: they are taken */
};

/* `window` is in minichunks; a peer that has not said its document within handshake_s is closed. */
struct frb_receiver {
    struct receiver base;
    struct tcp_server server; /* its peers have the numbers of the connections */
    /* without a document: how many to wait for; their channels together are those of the assembly */
    unsigned senders;
    size_t max_bytes;                  /* of the assembly that a first sender may ask for; 0: any */
    struct frb_node_document document; /* whose freq_channels are all that are received */
    bool ready;                        /* the document is known and the assembly made */
    struct assembly assembly;
    struct frb_connection connection[FRB_CONNECTIONS];
    unsigned open;           /* connections */
    struct br_error failure; /* of the receiver itself: no memory */
};

/* Makes the assembly for receiver->document. Errors: BR_E_NO_MEMORY. */
int frb_receiver_prepare(struct frb_receiver *receiver, struct br_error *error);

void frb_receiver_free(struct frb_receiver *receiver);

/* The calls of receiver.h. With a document, frb_receiver_prepare comes before `listen`; else there is nothing
 * to fill until the receiver is ready. */
extern const struct receiver_format frb_node_receiver;

/* The connection's own steps, without a socket: where the next bytes go, and that n of them are there. False
 * when the connection must be closed. */
void frb_connection_begin(struct frb_receiver *receiver, struct frb_connection *connection);
uint8_t *frb_connection_room(struct frb_connection *connection, size_t *bytes);
bool frb_connection_got(struct frb_receiver *receiver, struct frb_connection *connection, size_t bytes);
void frb_connection_end(struct frb_receiver *receiver, struct frb_connection *connection);

/* After a block was handed on: gives held minichunks another try. */
void frb_receiver_retry(struct frb_receiver *receiver);

#endif
