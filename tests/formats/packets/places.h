/* places.h - where a sample stands in a frame of packets, and whether its packet came. */
#ifndef BEAMRING_TESTS_FORMATS_PACKETS_PLACES_H
#define BEAMRING_TESTS_FORMATS_PACKETS_PLACES_H

#include "formats/packets/layout.h"

/* Byte offset in the frame of time sample t, channel f and input i. */
static inline size_t packet_layout_byte(const struct packet_layout *l, size_t t, size_t f, size_t i)
{
    return t / l->packet_samples * l->block_bytes + t % l->packet_samples * l->time_stride +
           l->channel_offset[f] + l->input_offset[i];
}

/* Number of the receipt bit, counted from the start of the side array, of the same sample. */
static inline size_t packet_layout_receipt(const struct packet_layout *l, size_t t, size_t f, size_t i)
{
    return t / l->packet_samples * l->receipt_bytes * 8 + (size_t)l->input_source[i] * l->nstreams +
           l->channel_stream[f];
}

#endif
