/* header.h - reading and writing the header of a packet by its description. */
#ifndef BEAMRING_STAGES_COMMON_PACKETS_HEADER_H
#define BEAMRING_STAGES_COMMON_PACKETS_HEADER_H

#include "stages/common/packets/description.h"

enum packet_verdict {
    PACKET_GOOD,
    PACKET_FOREIGN,   /* of another protocol: too short for it, a constant is wrong, an item is missing */
    PACKET_MALFORMED, /* of this protocol, but a length or number cannot be */
    PACKET_FLAGGED    /* the sender says that the payload is no good */
};

struct packet_header {
    uint64_t counter; /* of sequence_bits */
    int64_t source, stream;
    const uint8_t *payload; /* payload_bytes of them; NULL unless PACKET_GOOD or PACKET_FLAGGED */
    bool named;             /* source and stream could be read (also of some malformed packets) */
};

/* Reads the UDP payload of `length` bytes. */
enum packet_verdict packet_header_read(const struct packet_description *packet, const uint8_t *bytes,
                                       size_t length, struct packet_header *header);

/* Bytes of a packet that packet_header_write makes. */
size_t packet_header_length(const struct packet_description *packet);

/* Writes everything but the payload (fields that mean nothing to the description are 0) and says where
 * that goes. BR_E_INVALID when the fields cannot hold one of the three numbers. */
int packet_header_write(const struct packet_description *packet, const struct packet_header *header,
                        uint8_t *bytes, uint8_t **payload, struct br_error *error);

/* Where a counter of `bits` bits stands that was last seen near `near`: the nearest number that ends
 * in it. */
static inline int64_t packet_unwrap(uint64_t counter, unsigned bits, int64_t near)
{
    unsigned above = 64 - bits;
    uint64_t ahead = (counter - (uint64_t)near) << above;
    return (int64_t)((uint64_t)near + (uint64_t)((int64_t)ahead >> above));
}

#endif
