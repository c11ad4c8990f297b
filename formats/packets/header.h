/* header.h - reading and writing the header of a packet by its description. */
#ifndef BEAMRING_FORMATS_PACKETS_HEADER_H
#define BEAMRING_FORMATS_PACKETS_HEADER_H

#include "formats/packets/description.h"

enum packet_verdict {
    PACKET_GOOD,
    PACKET_FOREIGN,   /* of another protocol: too short for it, a constant is wrong, an item is missing */
    PACKET_MALFORMED, /* of this protocol, but a length or number cannot be */
    PACKET_FLAGGED    /* the sender says that the payload is bad */
};

struct packet_header {
    uint64_t counter; /* below sequence_period */
    int64_t source, stream;
    const uint8_t *payload; /* payload_bytes of them; NULL unless PACKET_GOOD or PACKET_FLAGGED */
    bool named;             /* source and stream could be read (also of some malformed packets) */
};

/* Reads the UDP payload of `length` bytes. */
enum packet_verdict packet_header_read(const struct packet_description *packet, const uint8_t *bytes,
                                       size_t length, struct packet_header *header);

/* Counts after which the fields of the sequence start again; 0: never, or nobody can say. The field with the
 * largest factor decides, where the others together stay below one count of it: seconds, and samples within
 * the second, start again with the seconds. */
uint64_t packet_sequence_period(const struct packet_description *packet);

/* Bytes of a packet that packet_header_write makes. */
size_t packet_header_length(const struct packet_description *packet);

/* Writes everything but the payload (fields that mean nothing to the description are 0) and says where
 * that goes. BR_E_INVALID when the fields cannot hold one of the three numbers. */
int packet_header_write(const struct packet_description *packet, const struct packet_header *header,
                        uint8_t *bytes, uint8_t **payload, struct br_error *error);

/* A number without the whole periods in it; period 0 is 2^64. Most periods are powers of two. */
static inline uint64_t packet_remainder(uint64_t number, uint64_t period)
{
    return (period & (period - 1)) == 0 ? number & (period - 1) : number % period;
}

/* Where a counter stands that starts again after `period` counts and was last seen near `near`, which is not
 * negative: of the numbers that it can mean, the nearest one. */
static inline int64_t packet_unwrap(uint64_t counter, uint64_t period, int64_t near)
{
    uint64_t at = packet_remainder((uint64_t)near, period);
    int64_t ahead = (int64_t)(counter - at);
    if (period != 0 && ahead >= (int64_t)(period - period / 2)) ahead -= (int64_t)period;
    if (period != 0 && ahead < -(int64_t)(period / 2)) ahead += (int64_t)period;
    return (int64_t)((uint64_t)near + (uint64_t)ahead);
}

#endif
