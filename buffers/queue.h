/* queue.h - a ring of frames in one memory space: one producer, any number of readers.
 *
 * THREADS. One thread produces; each reader belongs to one thread. br_queue_close, _abort and _counters may
 * be called from any thread. Everything is set up (create, add_reader, seal) before the first frame.
 *
 * READERS. `block`: lossless; the producer waits for it. `drop`: the producer never waits for it. A reader
 * that is too slow loses its oldest unread frames, which are counted; `first` of its next frame then jumps
 * forward. The frame that it is reading stays untouched, because the ring has one spare slot per dropping
 * reader. `history`: the producer never waits for it, and frames stay readable after they were released
 * (history.h). Such a reader loses an unread frame only if the whole history passes before it reads.
 *
 * MEMORY SPACES. A queue's frames live in host memory, in host memory locked for copies to and from GPUs
 * (pinned), or on a GPU. On a GPU, `data` and `side` are device memory; `valid` and struct br_frame itself
 * are host memory. Nothing here allocates after br_queue_seal.
 *
 * EVENTS. A producer or reader that enqueues its work on a CUDA stream names the stream with
 * br_queue_set_stream or br_reader_set_stream before br_queue_seal. Publish and release then record an event
 * on that stream, and the other side waits for it: a stream waits on the GPU, a host thread sleeps until the
 * event has occurred. So a GPU producer publishes at once, a GPU reader releases at once, and between GPU
 * stages no host thread waits for a GPU. A dropping reader on a stream is the exception: its release waits
 * for its work, because its producer must never wait for it.
 *
 * END. The producer ends the stream with br_queue_close, even if its stage failed: readers still receive all
 * frames published before. br_queue_abort wakes all waiting threads, which return BR_E_STOPPED. A reader that
 * stops early calls br_reader_detach: its unread frames, and all later ones, are counted as discarded, and
 * the producer no longer waits for it.
 *
 * BALANCE. At the end, for every reader: published = delivered + dropped + discarded, in frames and in base
 * samples. A frame that a reader never released is counted as held. */
#ifndef BEAMRING_BUFFERS_QUEUE_H
#define BEAMRING_BUFFERS_QUEUE_H

#include "buffers/frame.h"
#include "buffers/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct br_queue;
struct br_reader;

enum br_space { BR_SPACE_HOST, BR_SPACE_PINNED, BR_SPACE_CUDA };

/* Where frames live; `device` is used only for BR_SPACE_CUDA. */
struct br_place {
    enum br_space space;
    int device;
};
#define BR_HOST ((struct br_place){BR_SPACE_HOST, 0})

enum br_policy { BR_POLICY_BLOCK, BR_POLICY_DROP, BR_POLICY_HISTORY };
extern const char *const br_policy_name[BR_POLICY_HISTORY + 1]; /* "block", ... */

enum { BR_MAX_SLOTS = 1 << 20 }; /* most slots of a queue, and most frames of a history */
enum { BR_HISTORY_HOLDS = 4 };   /* frames that a reader may hold at a time, see history.h */

enum { BR_MAX_AHEAD = 8 }; /* most frames that br_queue_lend_ahead lends */

/* Creates an empty queue of `depth` >= 1 slots for frames of `stream` (copied). `name` is copied and used
 * in messages. Errors: BR_E_INVALID, BR_E_NO_MEMORY. */
int br_queue_create(struct br_queue **queue, const char *name, const struct br_stream *stream, unsigned depth,
                    struct br_place place, struct br_error *error);

/* Adds a reader; call before br_queue_seal. The reader belongs to the queue. `name` (copied) is that of the
 * reading stage. For a history use br_queue_add_history. Errors: BR_E_INVALID, BR_E_NO_MEMORY. */
int br_queue_add_reader(struct br_queue *queue, const char *name, enum br_policy policy,
                        struct br_reader **reader, struct br_error *error);

/* Sets the stream on which the producer (the reader) enqueues its work on frames. Call before br_queue_seal;
 * `stream` must live longer than the queue. */
void br_queue_set_stream(struct br_queue *queue, const struct br_gpu_stream *stream);
void br_reader_set_stream(struct br_reader *reader, const struct br_gpu_stream *stream);

/* Reserves the memory of all slots and creates all events. It touches every page of host memory, so that a
 * machine with too little memory fails here; the message has the requested and the available number of bytes.
 * Errors: BR_E_NO_MEMORY, BR_E_DEVICE. */
int br_queue_seal(struct br_queue *queue, struct br_error *error);

/* Frees the queue and its readers; NULL is allowed. No thread may use them any more. */
void br_queue_destroy(struct br_queue *queue);

/* Bytes that br_queue_seal reserves in the host's memory and on the queue's device. */
size_t br_queue_bytes(const struct br_queue *queue);
size_t br_queue_device_bytes(const struct br_queue *queue);

/* --- the producer's side --- */

/* Waits for a free slot and lends it to the producer until br_queue_publish. The frame starts with complete =
 * true, missing = 0, first = samples = 0. Errors: BR_E_STOPPED if the queue was aborted or all readers have
 * detached; BR_E_DEVICE, see br_queue_error. */
int br_queue_acquire(struct br_queue *queue, struct br_frame **frame);

/* Lends in advance the frame that the `ahead`-th acquire from now on will lend (1: the next one), so that a
 * producer can fill several frames at a time. They are published in this order. Call it only while a frame is
 * acquired. It never waits for a reader: *frame is NULL if no slot is free. Errors as for
 * br_queue_acquire. */
int br_queue_lend_ahead(struct br_queue *queue, unsigned ahead, struct br_frame **frame);

/* Hands the acquired frame to all readers. frame->samples must be > 0. Errors: BR_E_DEVICE if
 * its event could not be recorded; the frame is then not published. */
int br_queue_publish(struct br_queue *queue);

/* Ends the stream: readers see the end after the frames published so far. An acquired frame that was not
 * published returns to the queue. Idempotent. */
void br_queue_close(struct br_queue *queue);

/* Wakes all waiting threads; acquire and wait return BR_E_STOPPED from now on. Idempotent. */
void br_queue_abort(struct br_queue *queue);

/* --- a reader's side --- */

/* Waits for the next frame and lends it until br_reader_release. Returns 1 with a frame, 0 at end of
 * stream, BR_E_STOPPED after an abort, BR_E_DEVICE (see br_queue_error) if the wait for the GPU failed. */
int br_reader_wait(struct br_reader *reader, const struct br_frame **frame);

/* Releases the frame, which counts as delivered. BR_E_DEVICE if its event could not be recorded; the frame is
 * released even then. */
int br_reader_release(struct br_reader *reader);

/* Releases the frame, which counts as discarded, not as delivered: for a stage that failed on it. */
void br_reader_discard(struct br_reader *reader);

/* Ends reading permanently, see END above. */
void br_reader_detach(struct br_reader *reader);

/* Copies the first failure that made this queue or a reader of it return BR_E_DEVICE. */
void br_queue_error(const struct br_queue *queue, struct br_error *error);

/* The time (CLOCK_MONOTONIC, in ns) at which the producer's (the reader's) thread began to wait for a GPU; 0:
 * it does not wait. Any thread. */
uint64_t br_queue_gpu_wait_since(const struct br_queue *queue);
uint64_t br_reader_gpu_wait_since(const struct br_reader *reader);

/* Finds the oldest published frame whose producer's work is not yet done on the GPU, even if the host has run
 * ahead by several frames per slot. *first receives its first sample; false: there is no such frame. It helps
 * to find the stage that delays the others. Any thread, between seal and destroy. */
bool br_queue_oldest_unready(const struct br_queue *queue, uint64_t *first);

/* --- counters: at any time, from any thread, without a lock. The numbers of one struct are from one moment.
 * A wait in progress is included; when it ends, its time may become some nanoseconds shorter. --- */

struct br_queue_counters {
    uint64_t frames, samples; /* published; samples = base samples */
    uint64_t missing;         /* validity bytes that were 0 in published frames */
    uint64_t wait_ns;         /* time the producer waited for a slot */
    uint64_t wait_since;      /* start of the present wait, CLOCK_MONOTONIC in ns; 0: it does not wait */
    uint64_t newest;          /* end of the newest published frame, a base sample (exclusive); 0: none yet */
    unsigned depth;           /* slots */
    unsigned fill,
        max_fill; /* frames published and not yet released by the slowest blocking reader: now, and ever */
    bool ended;
};

struct br_reader_counters {
    enum br_policy policy;
    uint64_t delivered_frames, delivered_samples;
    uint64_t dropped_frames, dropped_samples;     /* lost by a slow reader that does not block */
    uint64_t discarded_frames, discarded_samples; /* left unread by a failed, detached or aborted reader */
    uint64_t held_frames, held_samples;           /* lent to the reader now */
    uint64_t wait_ns;                             /* time the reader waited for a frame */
    uint64_t wait_since; /* start of the present wait, CLOCK_MONOTONIC in ns; 0: it does not wait */
    uint64_t next;       /* frames that it has taken or missed */
};

void br_queue_get_counters(const struct br_queue *queue, struct br_queue_counters *counters);

/* After an abort, frames that were published and never delivered count as discarded. */
void br_reader_get_counters(const struct br_reader *reader, struct br_reader_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
