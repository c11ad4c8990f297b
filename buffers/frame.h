/* frame.h - a piece of a stream: consecutive base samples of all channels.
 *
 * VALIDITY. A frame carries one validity byte w per (time step, channel). 0: missing or flagged; 255:
 * complete; in between: the fraction w / 255 of the step's input was valid. So a missing value is never
 * confused with zero. The bytes have the layout of the data without all axes except time and freq:
 * [time][freq] if time is the slower axis of the data, [freq][time] if freq is, zone by zone for a zoned
 * stream. If `complete` is true, every byte counts as 255: readers need not look, and the content of `valid`
 * is unspecified. */
#ifndef BEAMRING_BUFFERS_FRAME_H
#define BEAMRING_BUFFERS_FRAME_H

#include "buffers/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_VALID = 255, BR_MISSING = 0 };

/* The memory belongs to the queue. A producer may write all of it between acquire and publish. A reader may
 * read it between wait and release. */
struct br_frame {
    uint64_t first;   /* first base sample */
    uint64_t samples; /* base samples spanned; > 0 */
    /* number of validity bytes that are 0; the producer sets it (br_frame_close_validity) */
    uint64_t missing;
    bool complete;  /* all valid: `valid` need not be read or written */
    void *data;     /* row-major, see stream.h; 64-byte aligned */
    void *side;     /* the stream's side array, or NULL */
    uint8_t *valid; /* see above */
};

/* The byte for `valid` good samples out of `total`: 0 only if none is good, 255 only if all are. */
BR_API uint8_t br_validity(uint64_t valid, uint64_t total);

/* Number of validity bytes of this frame. */
BR_API size_t br_frame_cells(const struct br_stream *stream, const struct br_frame *frame);

/* Number of data bytes of this frame; a short frame has fewer than a full one. */
BR_API size_t br_frame_bytes(const struct br_stream *stream, const struct br_frame *frame);

/* Call this before changing single validity bytes: if the frame is marked complete, it writes 255 everywhere
 * and clears the mark. */
BR_API void br_frame_open_validity(const struct br_stream *stream, struct br_frame *frame);

/* Call this after writing validity: it counts the zero bytes into `missing` and sets `complete` if every byte
 * is 255. */
BR_API void br_frame_close_validity(const struct br_stream *stream, struct br_frame *frame);

#ifdef __cplusplus
}
#endif
#endif
