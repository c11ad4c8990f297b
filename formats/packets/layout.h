/* layout.h - the packet-order frame: what `capture` writes and `unpack` reads.
 *
 * The frame's array is uint8 [time][freq][input] by its lengths (frame_samples, nchannels, ninputs) and so by
 * its bytes, but the bytes stand as the packets brought them:
 *
 *   data   [block][source][stream][payload of one packet]
 *            block    frame_samples / packet_samples: one packet of every source and stream
 *            source   in the order in which the node lists them (the board permutation)
 *            stream   likewise
 *            payload  packet_bytes bytes: axes and coding as in the description
 *   side   receipt, uint8 [block][receipt_bytes]
 *            bit k % 8 of byte k / 8 of a block is set when the packet of slot k = source x nstreams + stream
 *            is there; receipt_bytes is a multiple of 4; bits behind the last slot are 0.
 *            The data of a slot whose bit is not set are undefined.
 *   valid  [time][freq], written by capture
 *            the share of the expected inputs that came (br_validity), as buffers/frame.h has it. It is host
 *            memory wherever `data` and `side` are: a stage on a GPU hands it on without reading the receipt.
 *            `complete`: all packets of all expected sources came; bits of absent sources are 0 even so.
 *
 * Frames start at multiples of frame_samples from base sample 0. A frame that is cut short has the first
 * samples / packet_samples blocks.
 *
 * E's channels are the F-engine's, ascending by id. E's inputs are numbered source after source, and in a
 * source as the payload's axes other than time and freq have them, row-major; position[] says where in
 * [pol][dish] an input goes.
 *
 * A byte of sample t (in the frame), channel f and input i stands at
 *   (t / packet_samples) x block_bytes + (t % packet_samples) x time_stride
 *     + channel_offset[f] + input_offset[i]
 * and its receipt bit is bit
 *   input_source[i] x nstreams + channel_stream[f]   of block t / packet_samples. */
#ifndef BEAMRING_FORMATS_PACKETS_LAYOUT_H
#define BEAMRING_FORMATS_PACKETS_LAYOUT_H

#include "formats/packets/description.h"

/* Plain data. It lives as long as the pipeline, and hangs on the stream: struct br_stream, `packets`. */
struct packet_layout {
    size_t frame_samples, packet_samples, nblocks;
    size_t nsources, nstreams;
    size_t nchannels, ninputs; /* of the frame: all streams, all sources (absent ones too) */
    size_t packet_channels, packet_inputs;
    size_t packet_bytes;   /* payload: the pitch of slots */
    size_t block_bytes;    /* nsources x nstreams x packet_bytes */
    size_t receipt_bytes;  /* of one block */
    size_t time_stride;    /* bytes from one time sample of a packet to the next */
    size_t channel_stride; /* likewise for channels; packet_bytes where a packet has but one */

    const int64_t *source_id;       /* [nsources] */
    const int64_t *stream_id;       /* [nstreams] */
    const bool *absent;             /* [nsources] at first: not expected; its packets are not taken */
    const int64_t *channel_id;      /* [nchannels], ascending */
    const size_t *channel_offset;   /* [nchannels] bytes */
    const uint32_t *channel_stream; /* [nchannels] */
    const size_t *input_offset;     /* [ninputs] bytes */
    const uint32_t *input_source;   /* [ninputs] */
    /* [ninputs] pol x (ninputs / npol) + dish. With a pol axis in the payload the dishes are counted source
     * after source; without one it is the input itself, so that sources listed pol after pol come out
     * right. `unpack` may be told otherwise. */
    const uint32_t *position;
    size_t npol; /* length of the payload's pol axis; 0: the packets do not say */

    bool offset_binary; /* a nibble is value + 8; else two's complement */
    bool real_high;     /* the real part is the high nibble */
    uint8_t fill;       /* the byte of a zero sample: 0x88 or 0x00 */
};

/* A node's choices. Count 0 and NULL: as in the description. */
struct packet_node {
    struct packet_ids sources, streams;
    struct packet_ids absent;  /* ids of sources that will not come */
    size_t frame_samples;      /* base samples of a frame */
    const char *values, *real; /* coding, of packet_values and packet_real */
};

/* The layout of a node. Errors: BR_E_INVALID for ids that repeat or are out of range, channels that
 * two streams share, absent sources that do not exist, a frame that is not a whole number of packets,
 * and for values that neither node nor description give. */
int packet_layout_make(struct packet_layout *layout, const struct packet_description *packet,
                       const struct packet_node *node, struct packet_memory memory, struct br_error *error);

/* Which sources are absent, as flags [nsources]. Errors: BR_E_INVALID for ids that are not sources, and for
 * all. */
int packet_layout_absent(const struct packet_layout *layout, struct packet_ids absent,
                         struct packet_memory memory, const bool **flags, struct br_error *error);

/* Fills in the array, the side array, the channel table (ids x the description's frequencies, unless
 * the stream has one of that length already), frame_samples, the zone and `packets` of a stream. Its
 * memory is as the layout's. Errors: BR_E_INVALID when frequencies or the sample time are known to
 * neither. */
int packet_layout_describe(const struct packet_layout *layout, const struct packet_description *packet,
                           struct br_stream *stream, struct packet_memory memory, struct br_error *error);

#endif
