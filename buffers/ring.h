/* ring.h - what a queue and a reader are made of. Private to buffers/.
 *
 * ROOM. A queue has `depth` slots for frames that its producer holds, that a blocking reader has not
 * released, or that any reader has yet to read: these slots count as used. A frame that only dropping
 * readers hold while they read it does not count: the memory has one spare slot for each of them. Nor do
 * frames of the history: the memory has a slot for each, and spare ones for each of its readers, for the
 * frame that it reads and those that it holds.
 *
 * IN ADVANCE. The producer locks the queue once a frame, and so does a blocking reader: br_queue_publish
 * lends the next slot at once where there is room, and br_reader_release takes the next frame where there is
 * one, so that the calls that follow find it without the lock. The slots are as used as if those calls had
 * come at once, which is what they do in a pipeline that is busy. */
#ifndef BEAMRING_BUFFERS_RING_H
#define BEAMRING_BUFFERS_RING_H

#include "buffers/board.h"
#include "buffers/clock.h"
#include "buffers/gpu_wait.h"
#include "buffers/slots.h"

#include <pthread.h>
#include <stdatomic.h>

/* The boards of a queue and of a reader: whoever changes one of these under the lock writes the
 * board before it lets the lock go. */
enum {
    Q_FRAMES,
    Q_SAMPLES,
    Q_MISSING,
    Q_WAIT_NS,
    Q_WAIT_SINCE,
    Q_MAX_FILL,
    Q_NEXT,
    Q_ENDED,
    Q_NEWEST,
    Q_NUMBERS
};
enum {
    R_DELIVERED_FRAMES,
    R_DELIVERED_SAMPLES,
    R_DROPPED_FRAMES,
    R_DROPPED_SAMPLES,
    R_DISCARDED_FRAMES,
    R_DISCARDED_SAMPLES,
    R_HELD_FRAMES,
    R_HELD_SAMPLES,
    R_WAIT_NS,
    R_WAIT_SINCE,
    R_NEXT,
    R_DETACHED,
    R_NUMBERS
};

enum { BR_READY_TRAIL = 8 };

struct entry {
    struct br_slot *slot;
    uint64_t first, samples; /* as published */
};

struct br_pin;

/* The frames that a queue keeps, see history.h. Lists go from the oldest frame to the newest. */
struct br_history {
    unsigned frames; /* the most that are kept; 0: no history */
    unsigned nkept, npinned;
    struct br_slot *oldest, *newest;
    struct br_slot *loose; /* the oldest one that is not pinned, or NULL */
    struct br_slot *whole; /* from here to the newest one none has gone */
    struct br_pin *pins;
};

struct br_reader {
    struct br_queue *queue;
    struct br_reader *sibling;
    uint64_t next;     /* the entry that it reads next */
    struct entry held; /* slot NULL: none */
    bool detached;
    /* The frame `held` was taken when the one before it was given back, and waits for br_reader_wait: see
     * IN ADVANCE. Set under the lock; whoever exchanges it for false has the frame. */
    _Atomic bool taken;
    /* of a history */
    uint64_t passed; /* the base sample behind the last frame that it gave back */
    unsigned nholds; /* frames that are held */
    /* The frames that were held last, a ring, and their numbers then: a search begins near them. */
    struct br_slot *last_hold[BR_HISTORY_HOLDS];
    uint64_t last_number[BR_HISTORY_HOLDS];
    unsigned holds;
    uint64_t wait_since, last_wait_ns; /* since 0: not waiting */
    struct br_reader_counters counters;
    const struct br_gpu_stream *gpu; /* NULL: it reads with the host */
    br_gpu_event *released;          /* [nevents of the queue], recorded on gpu */
    bool *pending; /* [nevents]: that event was recorded, and nobody is ordered behind it yet */
    struct br_gpu_waits gpu_waits; /* of its thread, for the producer or for its own work */
    char apart[64];                /* from what only its own thread writes */
    br_board_version shown_version;
    _Atomic uint64_t shown[R_NUMBERS];
};

struct br_queue {
    pthread_mutex_t lock;
    struct br_slots slots;
    struct br_reader *readers;
    unsigned nreaders, nattached, nblocking, ndropping; /* the last two: attached ones */
    struct br_history history;
    char *name;
    struct br_stream stream;
    struct br_place place;
    const struct br_gpu_stream *gpu; /* NULL: its producer writes with the host */
    /* [nevents][BR_READY_TRAIL], recorded on gpu: of the last frames that were in each slot. The newest
     * orders the readers; those before it tell how far the GPU has come, when the host has run ahead. */
    br_gpu_event *ready;
    _Atomic uint64_t
        *ready_first;       /* [nevents][BR_READY_TRAIL]: first sample of that frame; UINT64_MAX: none */
    unsigned *ready_newest; /* [nevents]: which of BR_READY_TRAIL */
    struct br_gpu_waits gpu_waits; /* of the producer's thread, for readers */
    unsigned nevents;              /* one for each slot */
    struct br_error failure;       /* first one of a GPU call */
    unsigned depth;
    struct entry *ring; /* [mask + 1] */
    uint64_t mask;

    /* Both change under the lock; a waiting thread reads them without it. */
    _Atomic uint64_t next; /* the entry that is published next */
    _Atomic unsigned used; /* slots, see ROOM */

    struct br_slot *acquired; /* by the producer, not published yet */
    /* `acquired` was lent when the frame before it was published, and waits for br_queue_acquire: see IN
     * ADVANCE. Set under the lock; whoever exchanges it for false has the frame. */
    _Atomic bool lent;
    struct br_slot *advance;             /* that one, for the producer's thread alone */
    struct br_slot *ahead[BR_MAX_AHEAD]; /* [nahead] lent to the producer for its next acquires */
    unsigned nahead;
    bool sealed, ended;
    _Atomic bool aborted; /* changes under the lock; a thread that waits for a GPU looks without it */
    bool producer_sleeps, readers_sleep;
    uint64_t wait_since, last_wait_ns; /* the producer's */
    struct br_queue_counters counters;
    uint64_t newest; /* the sample behind the last one that was published */
    pthread_cond_t space, data;
    char apart[64]; /* from what only its own thread writes */
    br_board_version shown_version;
    _Atomic uint64_t shown[Q_NUMBERS];
};

static inline void lock(const struct br_queue *queue)
{
    pthread_mutex_lock((pthread_mutex_t *)&queue->lock);
}

static inline void unlock(const struct br_queue *queue)
{
    pthread_mutex_unlock((pthread_mutex_t *)&queue->lock);
}

/* Frames published and not yet released by the slowest blocking reader. */
static inline unsigned br_queue_fill(const struct br_queue *queue)
{
    uint64_t most = 0;
    for (const struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
        if (r->counters.policy != BR_POLICY_BLOCK || r->detached) continue;
        uint64_t behind = queue->next - r->next + (r->held.slot != NULL);
        if (behind > most) most = behind;
    }
    return (unsigned)most;
}

/* Write the boards; the caller holds the lock. */
static inline void br_queue_show(struct br_queue *queue)
{
    uint64_t numbers[Q_NUMBERS] = {[Q_FRAMES] = queue->counters.frames,
                                   [Q_SAMPLES] = queue->counters.samples,
                                   [Q_MISSING] = queue->counters.missing,
                                   [Q_WAIT_NS] = queue->counters.wait_ns,
                                   [Q_WAIT_SINCE] = queue->wait_since,
                                   [Q_MAX_FILL] = queue->counters.max_fill,
                                   [Q_NEXT] = atomic_load_explicit(&queue->next, memory_order_relaxed),
                                   [Q_ENDED] = queue->ended,
                                   [Q_NEWEST] = queue->newest};
    br_board_write(&queue->shown_version, queue->shown, numbers, Q_NUMBERS);
}

static inline void br_reader_show(struct br_reader *reader)
{
    const struct br_reader_counters *c = &reader->counters;
    bool holds = reader->held.slot != NULL;
    uint64_t numbers[R_NUMBERS] = {[R_DELIVERED_FRAMES] = c->delivered_frames,
                                   [R_DELIVERED_SAMPLES] = c->delivered_samples,
                                   [R_DROPPED_FRAMES] = c->dropped_frames,
                                   [R_DROPPED_SAMPLES] = c->dropped_samples,
                                   [R_DISCARDED_FRAMES] = c->discarded_frames,
                                   [R_DISCARDED_SAMPLES] = c->discarded_samples,
                                   [R_HELD_FRAMES] = holds,
                                   [R_HELD_SAMPLES] = holds ? reader->held.samples : 0,
                                   [R_WAIT_NS] = c->wait_ns,
                                   [R_WAIT_SINCE] = reader->wait_since,
                                   [R_NEXT] = reader->next,
                                   [R_DETACHED] = reader->detached};
    br_board_write(&reader->shown_version, reader->shown, numbers, R_NUMBERS);
}

/* --- history.c, under the lock --- */

/* Adds a frame that is being published to the history, if there is one; returns the one that goes for it, or
 * NULL. Entries are kept for as many frames as there are slots: a reader may miss one. */
struct br_slot *br_history_keep(struct br_queue *queue, struct br_slot *slot);

/* Brings the reader of a history to the next frame that is there still; others stay where they are. */
void br_history_skip_gone(struct br_reader *reader);

/* --- order.c: who is ordered behind whom, with events. The calling thread owns the slot; the lock is not
 * held. --- */

/* The producer behind everything that still reads the slot. */
int br_order_producer(struct br_queue *queue, const struct br_slot *slot);

/* The producer's work on the slot is done when this event occurs. */
int br_order_ready(struct br_queue *queue, const struct br_slot *slot);

/* The reader behind the producer. */
int br_order_reader(struct br_reader *reader, const struct br_slot *slot);

/* The reader's work on the slot is done when this event occurs. */
int br_order_released(struct br_reader *reader, const struct br_slot *slot);

/* Events of a queue and its readers. */
int br_order_create(struct br_queue *queue, unsigned count, struct br_error *error);
void br_order_destroy(struct br_queue *queue);

#endif
