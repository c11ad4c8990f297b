/* preview.h - small pictures of what a queue carries, for people to look at.
 *
 * Whoever wants to look leaves a preview at the edge, asked for. The thread that produces the frames adds
 * some of them to it, each just before it publishes the frame, and hands the preview back after a while;
 * nobody waits for anybody. When nobody looks this costs a load a frame. The thread adds frames so seldom
 * that it takes at most one part in PREVIEW_SHARE of its time, and a frame adds a bounded number of elements.
 *
 * Elements become intensities: |z|^2 of complex ones, the value itself of real ones. Items are what is left
 * of a frame without time and frequency: the inputs (pol, dish) of a field, the beams of a product. */
#ifndef BEAMRING_RUNTIME_RUN_PREVIEW_H
#define BEAMRING_RUNTIME_RUN_PREVIEW_H

#include "buffers/frame.h"

#include <stdatomic.h>

enum {
    PREVIEW_ITEMS = 4096,     /* at most; of more every n-th */
    PREVIEW_ELEMENTS = 32768, /* read of a column's time for the means of items, at most */
    PREVIEW_CHANNELS = 96,    /* of the waterfalls */
    PREVIEW_PICKS = 64,       /* elements read for one cell of a waterfall, at most */
    PREVIEW_LOOKS = 4,        /* items whose waterfalls are wanted */
    PREVIEW_COLUMNS = 32,     /* of the waterfalls, until the preview is handed back */
    PREVIEW_SHARE = 200
};
/* The least time between columns. */
#define PREVIEW_COLUMN_NS ((uint64_t)40 * 1000000)

enum preview_state { PREVIEW_IDLE, PREVIEW_ASKED, PREVIEW_FILLED };

/* The mean power over some time of one frame. */
struct preview_column {
    uint64_t first, samples;                      /* base samples */
    uint64_t at_ns;                               /* CLOCK_MONOTONIC when they passed */
    float power[PREVIEW_LOOKS][PREVIEW_CHANNELS]; /* NAN: missing */
};

struct br_preview {
    _Atomic int state; /* asked: the producer's; else the asker's */

    /* Set by the asker. */
    unsigned nlooks;
    size_t item[PREVIEW_LOOKS]; /* less than the items of the frame */
    uint64_t until_ns;          /* when it shall be handed back, with one frame at least */

    /* Added up by the producer, from 0. */
    size_t nitems, item_step; /* items that are in `sum`: 0, item_step, 2 item_step, ... */
    float sum[PREVIEW_ITEMS];
    uint64_t cells; /* of time and frequency that are in each sum */
    unsigned nchannels, ncolumns;
    double freq_mhz[PREVIEW_CHANNELS]; /* the middle of each */
    struct preview_column column[PREVIEW_COLUMNS];
    uint64_t took_ns; /* processor time for the last frame */

    uint64_t next_ns; /* the producer's: no frame is added before */
};

/* NULL when a preview of this stream can be made; else why not, as the end of a sentence. */
const char *br_preview_refuses(const struct br_stream *stream);

/* Items of a frame: elements without time and frequency. */
size_t br_preview_items(const struct br_stream *stream);

/* Empties what the producer adds up. For the asker, before it asks. */
void br_preview_clear(struct br_preview *preview);

/* Adds a frame in host memory, if it is time for one. True when the preview shall be handed back. */
bool br_preview_add(struct br_preview *preview, const struct br_stream *stream, const struct br_frame *frame);

#endif
