/* tap.h - whole frames of a running pipeline for programs that look in.
 *
 * As for a preview (preview.h), whoever wants a frame leaves memory at the edge, and the thread that produces
 * the next frame copies it there just before it publishes it. Nobody waits for anybody. Copying takes at most
 * a part of the time (TAP_SHARE): whoever asks more often gets the same frame again, and sees in the sample
 * numbers how much has passed. */
#ifndef BEAMRING_RUNTIME_CONTROL_TAP_H
#define BEAMRING_RUNTIME_CONTROL_TAP_H

#include "buffers/frame.h"
#include "runtime/control/server.h"

#include <stdatomic.h>

enum { TAP_SHARE = 20, TAP_MOST = 64 << 20 /* bytes of a frame */ };

struct br_graph;
struct taps; /* of one pipeline */

/* A copy of a frame: data, validity, side array, one behind the other. */
struct br_tap {
    _Atomic int state; /* enum preview_state */
    size_t room, bytes, valid_bytes, side_bytes;
    uint64_t first, samples, took_ns, at_ns;
    bool complete;
    uint8_t memory[];
};

/* NULL without memory. The graph must live until taps_free, which follows the end of the stages' threads. */
struct taps *taps_make(struct br_graph *graph);
void taps_free(struct taps *taps);

/* Copies a frame in host memory. The producer's thread. */
void br_tap_fill(struct br_tap *tap, const struct br_stream *stream, const struct br_frame *frame);

/* GET /v1/tap?queue=NAME: the last copy, and asks for the next one. The body: the length of a JSON document (8
 * bytes, little-endian), the document (queue, stream, first, samples, complete, data, valid, side: bytes), and
 * the bytes. 204 while there is none yet, or none that begins at or after the sample `from`. */
void taps_answer(struct taps *taps, const struct control_request *request, struct control_answer *answer);

#endif
