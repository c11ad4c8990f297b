/* history.h - a queue that keeps past frames: the last frames stay readable until they are overwritten.
 *
 * A reader with the policy `history` never holds the producer back. It receives frames like any other reader
 * and may also read past frames: the queue keeps the last `frames` of them, released or not.
 *
 * PINS. A caller that needs a span of samples pins it. This pins all frames of the span, kept ones and future
 * ones. The queue reuses frames without a pin first, so pinned frames stay while newer ones go. The newest
 * eighth of the history is never given up for pins: if all other frames are pinned, the queue takes the
 * oldest pinned frame from its pins, which count it. The stream does not lose data.
 *
 * HOLDING. Hold a frame while you copy from it: each reader may hold at most BR_HISTORY_HOLDS frames at a
 * time, for which the ring has spare slots. A pin only gives priority; a held frame is certain to stay. */
#ifndef BEAMRING_BUFFERS_HISTORY_H
#define BEAMRING_BUFFERS_HISTORY_H

#include "buffers/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pinned span. The caller owns the memory and keeps it until br_pin_end. Only the queue uses the fields. */
struct br_pin {
    struct br_reader *reader;
    struct br_pin *next;
    uint64_t first, end;                  /* base samples [first, end) */
    uint64_t taken_frames, taken_samples; /* taken by the producer; samples within the span */
};

/* The extent of a history in base samples: all published samples of [whole, end), and those parts of [first,
 * whole) that were pinned when later samples left. */
struct br_history_span {
    uint64_t first, whole, end; /* `end`: of the newest frame that the reader has released */
    unsigned frames, pinned;    /* frames kept now, and how many of them are pinned */
};

/* Adds a reader that keeps `frames` >= 1 frames; call before br_queue_seal. The queue owns the reader. Errors
 * as for br_queue_add_reader. */
int br_queue_add_history(struct br_queue *queue, const char *name, unsigned frames, struct br_reader **reader,
                         struct br_error *error);

/* Number of frames that the queue keeps; 0: it has no history. */
unsigned br_queue_history(const struct br_queue *queue);

/* The functions below may be called from any thread and never wait.
 *
 * Copies the present extent of the history. */
void br_history_look(const struct br_reader *reader, struct br_history_span *span);

/* Pins base samples [first, end), kept and future ones. */
void br_pin(struct br_reader *reader, struct br_pin *pin, uint64_t first, uint64_t end);

/* Unpins the samples before `first`. */
void br_pin_advance(struct br_pin *pin, uint64_t first);

/* Unpins the whole span. A zeroed pin, or one that has ended, is allowed. */
void br_pin_end(struct br_pin *pin);

/* Number of frames and samples that the producer has taken from the pin so far. */
void br_pin_taken(const struct br_pin *pin, uint64_t *frames, uint64_t *samples);

/* Holds the oldest kept frame that ends after base sample `at` and that the reader has released. It does not
 * change until br_history_let_go. NULL: there is no such frame, or BR_HISTORY_HOLDS frames are held. */
const struct br_frame *br_history_hold(struct br_reader *reader, uint64_t at);
void br_history_let_go(struct br_reader *reader, const struct br_frame *frame);

#ifdef __cplusplus
}
#endif
#endif
