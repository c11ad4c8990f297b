/* receive.h - the receiving side of CHIME's L0 packets: packets put together to blocks of all beams and
 * channels.
 *
 * Levels become those of our own 8-bit beams: 0 is missing (255 too), and value = scale (byte - 128) +
 * offset with offset = the packet's + 128 scale, in float32.
 *
 * A packet far off the others' time is not believed (counted as malformed), so that one corrupt count does
 * not make all that follows late, until L0_BELIEVE different ones that agree with it have come, and more of
 * them than of the stream's own time: each of these, if it is new, adds a vote up to L0_VOTES, each of the
 * others takes one away, and a second without any takes all. The same brings the stream back, unless blocks
 * of the other time have been handed on already, behind which frames cannot go. Each decision is reported. */
#ifndef BEAMRING_FORMATS_CHIME_L0_RECEIVE_H
#define BEAMRING_FORMATS_CHIME_L0_RECEIVE_H

#include "formats/chime_l0/chime_l0.h"
#include "formats/links/receiver.h"

#include <sys/socket.h>

enum { L0_BATCH = 64, L0_BUFFER = 9216, L0_BELIEVE = 8, L0_VOTES = 32 };

/* The identity of a packet. */
struct l0_key {
    uint64_t number; /* block */
    unsigned beam, coarse;
};

/* `window` is in blocks. */
struct l0_receiver {
    struct receiver base;
    int fd;                /* -1: none */
    int buffer_bytes;      /* of the socket */
    const char *interface; /* for multicast, or NULL */

    /* what is expected */
    unsigned nupfreq, nsteps, counts_per_sample;
    uint64_t frame0_ns;
    size_t nbeams, ncoarse;
    const uint16_t *beam_ids, *coarse_ids; /* [nbeams], [ncoarse] */

    struct assembly assembly;
    uint16_t beam_of[65536], coarse_of[L0_CHANNELS]; /* index + 1; 0: not expected */
    uint64_t strange;                                /* block of the last packet far off */
    struct l0_key agreeing[L0_BELIEVE];              /* the last different packets that agree with it */
    unsigned different, votes;                       /* how many there were; votes of the stream's time */
    uint64_t taken;                                  /* packets since the time was decided on */
    bool moving;                                     /* to block `target`, where it was decided to be; */
    uint64_t target;                                 /* that may be behind what was handed on */
    const char *why;                                 /* about the last malformed packet */

    uint8_t *buffer; /* [L0_BATCH][L0_BUFFER] */
    struct mmsghdr *message;
    struct iovec *piece;
    unsigned nbatch, next; /* packets read and not taken yet: [next, nbatch) */
};

/* Errors: BR_E_NO_MEMORY, BR_E_INVALID (an id twice). */
int l0_receiver_prepare(struct l0_receiver *receiver, struct br_error *error);

/* One packet. False: it must wait until a block was handed on (assembly_ready). */
bool l0_receiver_take(struct l0_receiver *receiver, const uint8_t *bytes, size_t length);

/* The calls of receiver.h; l0_receiver_prepare comes before `listen`. */
extern const struct receiver_format chime_l0_receiver;
void l0_receiver_free(struct l0_receiver *receiver);

/* Describes what it hands on: uint8 [beam][freq][time], one block a frame, channels descending within each
 * coarse one. */
int l0_receiver_stream(const struct l0_receiver *receiver, struct br_stream *stream,
                       void *(*alloc)(void *owner, size_t bytes), void *owner, struct br_error *error);

#endif
