/* tap.h - copies of frames of a running pipeline, for programs that look in.
 *
 * As for a preview (preview.h), whoever wants a frame leaves memory with the stage, and the thread that
 * produces the next frame copies it there just before it publishes it. Nobody waits for anybody. */
#ifndef BEAMRING_RUNTIME_RUN_TAP_H
#define BEAMRING_RUNTIME_RUN_TAP_H

#include "buffers/frame.h"
#include "runtime/run/preview.h"

/* A copy of a frame: data, validity, side array, one behind the other. */
struct br_tap {
    _Atomic int state; /* enum preview_state */

    /* Set by the asker. */
    size_t room;    /* bytes of `memory` */
    size_t head;    /* of these, in front of the copy: the asker's own */
    unsigned every; /* br_tap_every */
    unsigned users; /* the asker, and answers that are being sent */

    /* Set by the producer. */
    size_t bytes, valid_bytes, side_bytes;
    uint64_t first, samples, took_ns, at_ns;
    bool complete;
    uint8_t memory[];
};

/* A copy has every n-th time step of the frame, so that it fits into `most` bytes; 1: it is whole. 0: it
 * cannot be thinned, because its steps are too large, share bytes, or differ among the zones. */
unsigned br_tap_every(const struct br_stream *stream, size_t most);

/* Bytes of the largest copy, data, validity and side array together, of every n-th time step. */
size_t br_tap_room(const struct br_stream *stream, unsigned every);

/* Copies a frame in host memory. The producer's thread. */
void br_tap_fill(struct br_tap *tap, const struct br_stream *stream, const struct br_frame *frame);

#endif
