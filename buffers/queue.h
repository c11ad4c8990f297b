/* queue.h - a ring of frames in one memory space: one producer, any number of readers.
 *
 * THREADS. One thread produces; each reader belongs to one thread. br_queue_close, _abort and
 * _counters may be called from any thread. Everything is set up (create, add_reader, seal) before the
 * first frame.
 *
 * READERS. `block`: lossless; the producer waits for it. `drop`: the producer never waits for it; when the
 * ring laps such a reader it loses its oldest unread frames, which are counted, and the frame that it is
 * reading right now stays untouched (the ring keeps one spare slot per dropping reader for that). After a
 * loss the reader sees `first` jump forward. `history`: the producer never waits for it, and frames stay
 * readable after they were released: see history.h. Such a reader loses a frame that it has yet to read only
 * when the whole history has gone by.
 *
 * MEMORY SPACES. A queue's frames live in host memory, in host memory locked for copies to and from GPUs
 * (pinned), or on a GPU. On a GPU `data` and `side` are device memory; `valid` and everything else of a
 * frame is host memory. Nothing here allocates after br_queue_seal.
 *
 * EVENTS. A producer or reader whose work on frames is enqueued on a CUDA stream says so with
 * br_queue_set_stream or br_reader_set_stream before br_queue_seal. Then publish and release record an
 * event on that stream, and the other side is ordered behind it: a stream is made to wait for the event, a
 * host thread sleeps until it has happened. So a GPU producer publishes at once and a GPU reader releases
 * at once; between GPU stages no host waits for a GPU. A dropping reader on a stream is the exception: its
 * release waits for its work, since a frame that it has not finished must not be what its producer waits
 * for.
 *
 * END. The producer ends the stream with br_queue_close, also when its stage failed: readers still get
 * everything published before. br_queue_abort wakes everybody with BR_E_STOPPED. A reader that gives up
 * calls br_reader_detach: its unread frames, and all later ones, are counted as discarded and hold nobody
 * up.
 *
 * BALANCE. For every reader, when all is over: published = delivered + dropped + discarded, in frames and
 * base samples. Where a reader never came back with a frame, that one is held. */
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

/* Where frames live; `device` counts for BR_SPACE_CUDA only. */
struct br_place {
    enum br_space space;
    int device;
};
#define BR_HOST ((struct br_place){BR_SPACE_HOST, 0})

enum br_policy { BR_POLICY_BLOCK, BR_POLICY_DROP, BR_POLICY_HISTORY };
extern const char *const br_policy_name[BR_POLICY_HISTORY + 1]; /* "block", ... */

enum { BR_MAX_SLOTS = 1 << 20 }; /* of a queue, and frames of a history */
enum { BR_HISTORY_HOLDS = 4 };   /* frames that are held at a time, see history.h */

enum { BR_MAX_AHEAD = 8 }; /* frames that br_queue_lend_ahead lends */

/* Creates an empty queue of `depth` >= 1 slots for frames of `stream` (copied). `name` is copied and used
 * in messages. Errors: BR_E_INVALID, BR_E_NO_MEMORY. */
int br_queue_create(struct br_queue **queue, const char *name, const struct br_stream *stream, unsigned depth,
                    struct br_place place, struct br_error *error);

/* Adds a reader; call before br_queue_seal. The reader belongs to the queue. `name` (copied) is the
 * reading stage's. A history is added by br_queue_add_history. */
int br_queue_add_reader(struct br_queue *queue, const char *name, enum br_policy policy,
                        struct br_reader **reader, struct br_error *error);

/* The stream on which the producer's (the reader's) work on frames is enqueued. Before br_queue_seal;
 * `stream` must live longer than the queue. */
void br_queue_set_stream(struct br_queue *queue, const struct br_gpu_stream *stream);
void br_reader_set_stream(struct br_reader *reader, const struct br_gpu_stream *stream);

/* Reserves the memory of all slots (touching every page of the host's, so that a machine too small for it
 * says so now, in a message with what was asked and what was free) and creates all events. Errors:
 * BR_E_NO_MEMORY, BR_E_DEVICE. */
int br_queue_seal(struct br_queue *queue, struct br_error *error);

/* Frees all; NULL is allowed. Every thread must be done with it. */
void br_queue_destroy(struct br_queue *queue);

/* Bytes that br_queue_seal reserves in the host's memory and on the queue's device. */
size_t br_queue_bytes(const struct br_queue *queue);
size_t br_queue_device_bytes(const struct br_queue *queue);

/* --- the producer's side --- */

/* Waits for a free slot and lends it to the producer until br_queue_publish. A frame starts with complete
 * = true, missing = 0, first = samples = 0. BR_E_STOPPED when the queue was aborted, or when no reader is
 * left attached; BR_E_DEVICE, see br_queue_error. */
int br_queue_acquire(struct br_queue *queue, struct br_frame **frame);

/* Lends the frame that the `ahead`-th acquire from now will (1: the next), so that a producer can fill
 * several at a time; they are published in this order. Only while a frame is acquired. Never waits for a
 * reader: *frame is NULL if no slot is free. Status as of br_queue_acquire. */
int br_queue_lend_ahead(struct br_queue *queue, unsigned ahead, struct br_frame **frame);

/* Hands the acquired frame to all readers. frame->samples must be > 0. BR_E_DEVICE when its event could
 * not be recorded: then the frame is not published. */
int br_queue_publish(struct br_queue *queue);

/* Ends the stream: readers see the end after the frames published so far. An acquired, unpublished frame is
 * given back. Idempotent. */
void br_queue_close(struct br_queue *queue);

/* Wakes everybody; acquire and wait return BR_E_STOPPED from now on. Idempotent. */
void br_queue_abort(struct br_queue *queue);

/* --- a reader's side --- */

/* Waits for the next frame and lends it until br_reader_release. Returns 1 with a frame, 0 at end of
 * stream, BR_E_STOPPED after an abort, BR_E_DEVICE (see br_queue_error) when the frame cannot be waited
 * for. */
int br_reader_wait(struct br_reader *reader, const struct br_frame **frame);

/* Gives the frame back: it counts as delivered. BR_E_DEVICE when its event could not be recorded; the
 * frame is given back all the same. */
int br_reader_release(struct br_reader *reader);

/* Gives the frame back uncounted as delivered: it counts as discarded (the stage failed on it). */
void br_reader_discard(struct br_reader *reader);

/* Stops reading for good, see END above. */
void br_reader_detach(struct br_reader *reader);

/* The first failure behind a BR_E_DEVICE of this queue and its readers. */
void br_queue_error(const struct br_queue *queue, struct br_error *error);

/* Since when (CLOCK_MONOTONIC, in ns) the producer's (the reader's) thread has been waiting for a GPU; 0:
 * it is not. Any thread. */
uint64_t br_queue_gpu_wait_since(const struct br_queue *queue);
uint64_t br_reader_gpu_wait_since(const struct br_reader *reader);

/* First sample of the oldest published frame whose producer's work has not happened on its GPU, also when
 * the host has run ahead of it by several frames a slot; false: there is none. For finding out which of
 * several stages holds up the others. Any thread, between seal and destroy. */
bool br_queue_oldest_unready(const struct br_queue *queue, uint64_t *first);

/* --- counters: at any time, from any thread, without a lock; the numbers of a struct belong together. A wait
 * counts while it lasts; when it ends its time may turn out to be some nanoseconds shorter. --- */

struct br_queue_counters {
    uint64_t frames, samples; /* published; samples = base samples */
    uint64_t missing;         /* validity bytes that were 0 in published frames */
    uint64_t wait_ns;         /* time the producer waited for a slot */
    uint64_t wait_since;      /* since when it waits now, CLOCK_MONOTONIC in ns; 0: it does not */
    uint64_t newest;          /* the base sample behind the last one published; 0: none yet */
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
    uint64_t wait_since; /* since when it waits now, CLOCK_MONOTONIC in ns; 0: it does not */
    uint64_t next;       /* frames that it has taken, or that it missed */
};

void br_queue_get_counters(const struct br_queue *queue, struct br_queue_counters *counters);

/* After an abort, frames that were published and never delivered count as discarded. */
void br_reader_get_counters(const struct br_reader *reader, struct br_reader_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
