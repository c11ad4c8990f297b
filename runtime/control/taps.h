/* taps.h - whole frames of a running pipeline for programs that look in: runtime/run/tap.h over HTTP.
 *
 * Copying takes at most a part of the time (TAP_SHARE). Whoever asks more often gets the same frame again,
 * and sees in the sample numbers how much has passed. */
#ifndef BEAMRING_RUNTIME_CONTROL_TAPS_H
#define BEAMRING_RUNTIME_CONTROL_TAPS_H

#include "runtime/control/server.h"

enum {
    TAP_SHARE = 20,
    TAP_MOST = 8 << 20,      /* bytes of a copy; larger frames are thinned */
    TAPS_MEMORY = 128 << 20, /* bytes of all copies of the process */
};

struct br_graph;
struct taps; /* of one pipeline */

/* NULL without memory. The graph must live until taps_free, which follows the end of the stages' threads. */
struct taps *taps_make(struct br_graph *graph);
void taps_free(struct taps *taps);

/* GET /v1/tap?queue=NAME: the last copy, and asks for the next one. The body: the length of a JSON document
 * (8 bytes, little-endian), the document (queue, stream, first, samples, complete, every, and the bytes of
 * data, valid and side), and those bytes. `every`: the copy has every n-th time step of the frame. 204 while
 * there is none yet, or none that begins at or after the sample `from`; 413: a frame that is too large and
 * cannot be thinned; 503: slow clients hold TAPS_MEMORY. Answers share the copy: the loop copies none. */
void taps_answer(struct taps *taps, const struct control_request *request, struct control_answer *answer);

#endif
