/* frame.h - one slab of a stream.
 *
 * VALIDITY. Beside its data a frame carries one byte per (time step, channel): 0 = missing or flagged, 255
 * = complete, between = that fraction of the input behind this step was valid (w / 255). Missing is never
 * confused with zero. The bytes are laid out like the data with every axis but time and freq removed:
 * [time][freq] where time is the slower axis of the data, [freq][time] where freq is; zone by zone for a
 * zoned stream. `complete` spares readers from looking: when it is true every byte would be 255 and the
 * array's content is unspecified. */
#ifndef BEAMRING_BUFFERS_FRAME_H
#define BEAMRING_BUFFERS_FRAME_H

#include "buffers/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_VALID = 255, BR_MISSING = 0 };

/* Memory belongs to the queue. A producer may write all of it between acquire and publish, a reader may
 * read it between acquire and release. */
struct br_frame {
    uint64_t first;   /* first base sample */
    uint64_t samples; /* base samples spanned; > 0 */
    /* validity bytes that are 0; kept by whoever fills the frame (br_frame_close_validity) */
    uint64_t missing;
    bool complete;  /* all valid: `valid` need not be read or written */
    void *data;     /* row-major, see stream.h; 64-byte aligned */
    void *side;     /* the stream's side array, or NULL */
    uint8_t *valid; /* see above */
};

/* The byte for `valid` good samples out of `total`: 0 only when none is, 255 only when all are. */
BR_API uint8_t br_validity(uint64_t valid, uint64_t total);

/* Number of validity bytes of this frame. */
BR_API size_t br_frame_cells(const struct br_stream *stream, const struct br_frame *frame);

/* Bytes of data in this frame (less than a full frame's when it is short). */
BR_API size_t br_frame_bytes(const struct br_stream *stream, const struct br_frame *frame);

/* If the frame was marked complete, writes 255 everywhere and clears the mark: call before marking single
 * cells. */
BR_API void br_frame_open_validity(const struct br_stream *stream, struct br_frame *frame);

/* Counts the zero bytes into `missing`, and sets `complete` when every byte is 255. Call when validity was
 * written. */
BR_API void br_frame_close_validity(const struct br_stream *stream, struct br_frame *frame);

#ifdef __cplusplus
}
#endif
#endif
