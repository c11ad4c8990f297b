/* send.h - the sending side of the FRB-node protocol (frb_node.h). A frame of a 4-bit quantizer with blocks
 * of 256 samples is the body of a minichunk, byte for byte; only its head and scales are made here. */
#ifndef BEAMRING_FORMATS_FRB_NODE_SEND_H
#define BEAMRING_FORMATS_FRB_NODE_SEND_H

#include "buffers/frame.h"
#include "formats/frb_node/frb_node.h"
#include "formats/links/peers.h"

struct frb_beams {
    size_t first, count;
};

struct frb_sender {
    struct peers *peers;
    const struct frb_beams *beams; /* [peers->count] that each destination gets */
    size_t nbeams, nchannels;
    unsigned step;      /* base samples of a time step */
    uint64_t minichunk; /* base samples */
    uint64_t seq_base;  /* base samples per sequence number */
    /* Makes the scales of the wire, f16 [beam][freq][2], from those of the levels. */
    void (*calibrate)(void *arg, const uint8_t *levels, const float *side, uint16_t *scales);
    void *arg;

    uint64_t missed; /* base samples of minichunks that some destination missed */
    uint16_t *scales;
    uint8_t *levels; /* [beam][freq][128]: a minichunk of which the stream covers a part */
    uint8_t header[FRB_NODE_HEADER];

    /* A minichunk of which a part has come: its scale and offset, number and base samples. */
    bool holding;
    float *side; /* [beam][freq][2] */
    uint64_t held, held_samples;
};

/* Reserves memory for the shape above. Errors: BR_E_NO_MEMORY; frb_sender_free follows in either case. */
int frb_sender_create(struct frb_sender *sender, struct br_error *error);
void frb_sender_free(struct frb_sender *sender);

/* The first message to a peer: the document, `length` bytes with the final 0. False: no memory. */
bool frb_sender_hello(struct peer *peer, bool acks, const char *yaml, size_t length);

/* A frame that is a whole minichunk goes out as it is. In a shorter one (at the ends of the stream, next to a
 * hole) the rest is masked. It is held until a later minichunk begins, for behind a hole another part of it
 * may come, and seq may not stand still. Status; the message is in peers->error. */
int frb_sender_put(struct frb_sender *sender, const struct br_frame *in);

/* Sends the minichunk that is held, if there is one. Status. */
int frb_sender_flush(struct frb_sender *sender);

#endif
