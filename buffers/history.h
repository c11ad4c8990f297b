/* history.h - a queue that keeps what has passed: the last frames stay readable until they are overwritten.
 *
 * A reader with the policy `history` never holds the producer back. It sees frames like any other reader, and
 * may look at those that have passed: the queue keeps the last `frames` of them, released or not.
 *
 * PINS. Who needs a span of samples pins it: frames of the span that are kept, and those that are yet to
 * come, are pinned. A frame that nobody has pinned goes before one that somebody has, so that pinned frames
 * stay while newer ones go. An eighth of the history, the newest frames, is never given up for pins: when all
 * others are pinned, the oldest pinned frame is taken from its pins, which count it. The stream loses nothing
 * by it.
 *
 * HOLDING. A frame is copied while it is held: at most BR_HISTORY_HOLDS at a time for each reader, for which
 * the ring has spare slots. A pin gives priority; only a held frame is certain to stay. */
#ifndef BEAMRING_BUFFERS_HISTORY_H
#define BEAMRING_BUFFERS_HISTORY_H

#include "buffers/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pinned span. It belongs to the caller, in memory that stays until br_pin_end; its fields belong to the
 * queue. */
struct br_pin {
    struct br_reader *reader;
    struct br_pin *next;
    uint64_t first, end;                  /* base samples [first, end) */
    uint64_t taken_frames, taken_samples; /* that the producer took; samples: of the span */
};

/* The extent of a history: everything published of base samples [whole, end), and a part of [first, whole),
 * which stayed when later samples left. */
struct br_history_span {
    uint64_t first, whole, end; /* end: of the newest frame that its reader has given back */
    unsigned frames, pinned;    /* kept now; of them pinned */
};

/* Adds a reader that keeps `frames` >= 1 frames; call before br_queue_seal. Errors as of br_queue_add_reader.
 */
int br_queue_add_history(struct br_queue *queue, const char *name, unsigned frames, struct br_reader **reader,
                         struct br_error *error);

/* Frames that the queue keeps; 0: it has no history. */
unsigned br_queue_history(const struct br_queue *queue);

/* All that follow: from any thread, and they never wait for anybody. */

void br_history_look(const struct br_reader *reader, struct br_history_span *span);

/* Pins base samples [first, end): what is there of them, and what comes. */
void br_pin(struct br_reader *reader, struct br_pin *pin, uint64_t first, uint64_t end);

/* Samples before `first` are not needed any more. */
void br_pin_advance(struct br_pin *pin, uint64_t first);

/* The whole span is released. One that is none (zeroed, or ended) is allowed. */
void br_pin_end(struct br_pin *pin);

/* The frames and samples that the producer has taken from the pin so far. */
void br_pin_taken(const struct br_pin *pin, uint64_t *frames, uint64_t *samples);

/* The oldest kept frame that ends behind base sample `at` and that the reader has given back, or NULL. It is
 * held, and stays as it is, until br_history_let_go. NULL also when BR_HISTORY_HOLDS are held. */
const struct br_frame *br_history_hold(struct br_reader *reader, uint64_t at);
void br_history_let_go(struct br_reader *reader, const struct br_frame *frame);

#ifdef __cplusplus
}
#endif
#endif
