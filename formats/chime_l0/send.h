/* send.h - CHIME's L0 packets to several destinations: laid out once, filled by the caller block by block,
 * and sent at a steady rate. */
#ifndef BEAMRING_FORMATS_CHIME_L0_SEND_H
#define BEAMRING_FORMATS_CHIME_L0_SEND_H

#include "formats/chime_l0/chime_l0.h"
#include "formats/links/datagrams.h"

/* One packet of a block, with its place in memory. */
struct l0_slot {
    uint8_t *bytes, *scales, *data; /* scales: where the scales begin, the offsets follow */
    size_t first_beam, nbeams;      /* of the stream */
    size_t ncoarse;                 /* of the coarse table */
};

struct l0_destination {
    struct datagram_destination link; /* the caller's address */
    size_t first_beam, beams;         /* of the stream, that go there */

    struct l0_slot *slot;     /* [nslots], beams slow */
    struct iovec *packet;     /* [nslots], each with its slot's bytes */
    size_t nslots, per_beams; /* per_beams: packets that share their beams */
};

struct l0_sender {
    struct datagrams wire;     /* the caller's options */
    struct l0_destination *to; /* [count], the caller's, as the options below */
    size_t count;
    unsigned version, step, nup, steps; /* step: counts of a time step; nup: fine channels of a coarse one */
    size_t packet_beams, packet_channels, first_beam_id, ncoarse;
    const uint16_t *coarse_id; /* [ncoarse] */
    int64_t epoch_ns;
    uint8_t *packets;
};

/* Opens the sockets and lays out all packets. Errors: BR_E_INVALID, BR_E_IO, BR_E_NO_MEMORY; l0_sender_free
 * follows in either case. */
int l0_sender_create(struct l0_sender *sender, struct br_error *error);
void l0_sender_free(struct l0_sender *sender);

/* Sends the packets of a destination, filled by the caller, of the block whose first sample has this count.
 * Waits for the socket and the rate. Packets that cannot go are counted in wire.given_up. Errors: BR_E_IO. */
int l0_sender_send(struct l0_sender *sender, struct l0_destination *destination, uint64_t count,
                   struct br_error *error);

#endif
