/* preview.h - a small picture of what a queue carries, for people to look at.
 *
 * Whoever wants one leaves it at the edge, asked for; the thread that produces the next frame fills it in
 * just before it publishes the frame, and nobody waits for anybody. When nobody looks this costs a load a
 * frame. A filling reads a bounded number of elements, and is asked for so seldom that it takes a small part
 * of the time (picture.c).
 *
 * Elements become intensities: |z|^2 of complex ones, the value itself of real ones. Items are what is left
 * of a frame without time and frequency: the inputs (pol, dish) of a field, the beams of a product. */
#ifndef BEAMRING_RUNTIME_RUN_PREVIEW_H
#define BEAMRING_RUNTIME_RUN_PREVIEW_H

#include "buffers/frame.h"

#include <stdatomic.h>

enum {
    PREVIEW_ITEMS = 4096, /* at most; of more every n-th */
    PREVIEW_CELLS = 32,   /* cells of time and frequency over which an item's mean goes, at most */
    PREVIEW_TIMES = 96,
    PREVIEW_CHANNELS = 96
};

enum preview_state { PREVIEW_IDLE, PREVIEW_ASKED, PREVIEW_FILLED };

struct br_preview {
    _Atomic int state; /* asked: the producer's; else the asker's */
    size_t item;       /* whose waterfall is wanted, in items of the frame */

    /* Filled in by the producer. */
    size_t nitems, item_step; /* items that are in `mean`: 0, item_step, 2 item_step, ... */
    float mean[PREVIEW_ITEMS];
    unsigned ntimes, nchannels;
    float waterfall[PREVIEW_CHANNELS][PREVIEW_TIMES]; /* NAN: missing */
    double freq_mhz[PREVIEW_CHANNELS];
    uint64_t first, samples; /* of the frame */
    uint64_t took_ns, at_ns; /* how long the filling took; CLOCK_MONOTONIC when it was done */
};

/* NULL when a preview of this stream can be made; else why not, as the end of a sentence. */
const char *br_preview_refuses(const struct br_stream *stream);

/* Items of a frame: elements without time and frequency. */
size_t br_preview_items(const struct br_stream *stream);

/* Fills the preview from a frame in host memory. */
void br_preview_fill(struct br_preview *preview, const struct br_stream *stream,
                     const struct br_frame *frame);

#endif
