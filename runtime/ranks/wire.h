/* wire.h - what the ranks of a job say to each other beside their data: messages over a stream socket, with
 * buffers on both ends, so that nobody who has something to say waits for the other side. */
#ifndef BEAMRING_RUNTIME_RANKS_WIRE_H
#define BEAMRING_RUNTIME_RANKS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire_type {
    WIRE_HELLO,    /* the first one: rank `from` of `number`; payload: the token */
    WIRE_BEAT,     /* to and from rank 0: I am alive */
    WIRE_GATHER,   /* to rank 0: my part of what all are to know */
    WIRE_GATHERED, /* to all: all parts, each with its length (64 bits) before it */
    WIRE_POST,     /* something for the stage `number` */
    WIRE_FAILED,   /* to rank 0, and from it to all: `from` has failed, with exit status `number`; a text */
    WIRE_BYE,      /* to rank 0: I am done, with exit status `number` */
    WIRE_ALL_DONE, /* to all: all have said so; the worst exit status */
    WIRE_TYPES
};

struct wire_head {
    uint32_t type, from, number, reserved;
    uint64_t length; /* of the payload that follows */
};

enum { WIRE_MAX_PAYLOAD = 1 << 28, WIRE_MAX_WAITING = 1 << 29, WIRE_TOKEN = 16 };

struct wire_bytes {
    unsigned char *data;
    size_t used, capacity;
};

/* Appends to bytes, whose data are malloc'ed, even where nothing is appended. False: no memory. */
bool wire_append(struct wire_bytes *bytes, const void *data, size_t length);

/* One end of a connection. */
struct wire {
    int fd; /* -1: it is closed */
    struct wire_bytes in, out;
};

/* Appends a message to what is to be sent, and sends what the socket takes now. False: the connection is
 * lost, or the other side has not read for far too long. */
bool wire_send(struct wire *wire, const struct wire_head *head, const void *payload);

/* Sends what the socket takes now. False: the connection is lost. */
bool wire_flush(struct wire *wire);

/* Reads all that there is. False: the other side has closed, or the connection is lost. */
bool wire_fill(struct wire *wire);

/* The next whole message that was read, or NULL; `payload` points behind it. It stays until wire_drop. A
 * message that breaks the rules closes the connection. */
const struct wire_head *wire_next(struct wire *wire, const unsigned char **payload);
void wire_drop(struct wire *wire);

void wire_close(struct wire *wire);

#endif
