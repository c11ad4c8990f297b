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
    size_t room, bytes, valid_bytes, side_bytes;
    uint64_t first, samples, took_ns, at_ns;
    bool complete;
    uint8_t memory[];
};

/* Copies a frame in host memory. The producer's thread. */
void br_tap_fill(struct br_tap *tap, const struct br_stream *stream, const struct br_frame *frame);

#endif
