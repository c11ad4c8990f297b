/* stage_history.h - past frames, for stages with BR_STAGE_HISTORY.
 *
 * The queue before the stage keeps the last frames in host memory, and never waits for the stage. Pinned
 * frames are kept longer than others. When only pinned frames are left, the queue takes the oldest one from
 * its pins; the stream loses nothing. The functions may be called from start to the end of stop, by any
 * thread. None of them waits. */
#ifndef BEAMRING_RUNTIME_STAGE_HISTORY_H
#define BEAMRING_RUNTIME_STAGE_HISTORY_H

#include "runtime/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

struct br_pin;

/* The length of input i's history in base samples, as the user set it. Also in configure. */
BR_API uint64_t br_stage_history(const struct br_stage *stage, unsigned i);

/* The base samples that the history holds now: all that arrived of [whole, end), and parts of [first, whole)
 * that were pinned when later frames were dropped. `end` is the end of the newest frame that process has
 * consumed. */
struct br_kept {
    uint64_t first, whole, end;
};
BR_API struct br_kept br_stage_kept(const struct br_stage *stage, unsigned i);

/* Pins base samples [first, end) of input i, past or future; br_stage_unpin ends it. NULL: no memory. */
BR_API struct br_pin *br_stage_pin(struct br_stage *stage, unsigned i, uint64_t first, uint64_t end);

/* Unpins the base samples before `first`. `pin` may be NULL here and below. */
BR_API void br_stage_pin_advance(struct br_pin *pin, uint64_t first);

/* Number of frames that the queue has taken from the pin so far. */
BR_API uint64_t br_stage_pin_taken(const struct br_pin *pin);

/* Unpins the span and frees the pin. */
BR_API void br_stage_unpin(struct br_pin *pin);

/* Counters of a stage that writes past frames, for statistics and metrics: X(NAME, name, text). New ones go
 * to the end, because their numbers are part of the ABI. */
#define BR_DUMP_NUMBERS(X)                                                                                   \
    X(ACCEPTED, "accepted", "requests that became dumps")                                                    \
    X(REFUSED, "refused", "requests that were refused")                                                      \
    X(DONE, "done", "dumps whose files are complete")                                                        \
    X(EMPTY, "empty", "dumps of which nothing was there any more")                                           \
    X(FAILED, "failed", "dumps of which a file could not be written")                                        \
    X(CANCELLED, "cancelled", "dumps that were cancelled")                                                   \
    X(ACTIVE, "active", "dumps that wait or are written now")                                                \
    X(FILES, "files", "files that are complete")                                                             \
    X(FILES_FAILED, "files_failed", "files that could not be written")                                       \
    X(BYTES, "bytes", "bytes of data in complete files")                                                     \
    X(MISSING_SAMPLES, "missing_samples", "base samples of a channel that files lack")                       \
    X(TAKEN_FRAMES, "taken_frames", "pinned frames that the stream took before they were written")

enum br_dump_number {
#define BR_DUMP_NUMBER(NAME, name, text) BR_DUMPS_##NAME,
    BR_DUMP_NUMBERS(BR_DUMP_NUMBER)
#undef BR_DUMP_NUMBER
        BR_DUMP_COUNT
};

/* Adds `count` to one of these counters. Any thread. */
BR_API void br_stage_count_dump(struct br_stage *stage, enum br_dump_number which, int64_t count);

/* Holds the oldest frame of input i that ends after base sample `at` and that process has consumed, and
 * returns it, or NULL. The frame does not change until br_stage_let_go. A stage may hold at most four frames
 * of an input at a time, and only as long as it takes to copy from them. */
BR_API const struct br_frame *br_stage_hold(struct br_stage *stage, unsigned i, uint64_t at);
BR_API void br_stage_let_go(struct br_stage *stage, unsigned i, const struct br_frame *frame);

#ifdef __cplusplus
}
#endif
#endif
