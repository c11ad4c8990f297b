/* ring.h - the structs of a queue and a reader. Private to buffers/.
 *
 * ROOM. A queue has `depth` slots for frames that its producer holds, that a blocking reader has not
 * released, or that any reader has yet to read: these slots count as used. A frame that only dropping readers
 * are reading does not count: the memory has one spare slot for each of them. Frames of the history do not
 * count either: the memory has one slot for each of them, and for each history reader spare slots for the
 * frame that it reads and those that it holds.
 *
 * IN ADVANCE. The producer locks the queue once per frame, and so does a blocking reader. br_queue_publish
 * already lends the next slot if there is room, and br_reader_release already takes the next frame if there
 * is one, so that the next acquire or wait does not need the lock. Slots are used as if that call came at
 * once; in a busy pipeline it does. */
#ifndef BEAMRING_BUFFERS_RING_H
#define BEAMRING_BUFFERS_RING_H

#include "buffers/board.h"
#include "buffers/clock.h"
#include "buffers/gpu_wait.h"
#include "buffers/slots.h"

#include <pthread.h>
#include <stdatomic.h>

/* The numbers on the boards of a queue and of a reader. A thread that changes one of them holds the lock, and
 * writes the board before it unlocks. */
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
    unsigned frames; /* most frames that are kept; 0: no history */
    unsigned nkept, npinned;
    struct br_slot *oldest, *newest;
    struct br_slot *loose; /* the oldest one that is not pinned, or NULL */
    struct br_slot *whole; /* from this frame to the newest one no frame is missing */
    struct br_pin *pins;
};

struct br_reader {
    struct br_queue *queue;
    struct br_reader *sibling;
    uint64_t next;     /* the entry that it reads next */
    struct entry held; /* slot NULL: none */
    bool detached;
    /* True: br_reader_release took the frame `held` in advance, for br_reader_wait (see IN ADVANCE). Set
     * under the lock. The thread that exchanges it for false owns the frame. */
    _Atomic bool taken;
    /* of a history */
    uint64_t passed; /* end of the last frame that it released, a base sample */
    unsigned nholds; /* frames that are held */
    /* Ring of the frames held last, with their numbers at that time: a search begins near them. */
    struct br_slot *last_hold[BR_HISTORY_HOLDS];
    uint64_t last_number[BR_HISTORY_HOLDS];
    unsigned holds;
    uint64_t wait_since, last_wait_ns; /* since 0: not waiting */
    struct br_reader_counters counters;
    const struct br_gpu_stream *gpu; /* NULL: it reads on the host */
    br_gpu_event *released;          /* [nevents of the queue], recorded on gpu */
    bool *pending;                   /* [nevents]: the event was recorded, and no work waits for it yet */
    struct br_gpu_waits gpu_waits;   /* waits of its thread for the producer or for its own work */
    char apart[64];                  /* keeps the board off the cache line of the fields above */
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
    const struct br_gpu_stream *gpu; /* NULL: the producer writes on the host */
    /* [nevents][BR_READY_TRAIL], recorded on gpu, for the last frames that were in each slot. Readers wait
     * for the newest event. If the host has run ahead, the earlier ones show how far the GPU has come. */
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
    /* True: br_queue_publish lent `acquired` in advance, for br_queue_acquire (see IN ADVANCE). Set under the
     * lock. The thread that exchanges it for false owns the frame. */
    _Atomic bool lent;
    struct br_slot *advance;             /* the same slot; only the producer's thread uses it */
    struct br_slot *ahead[BR_MAX_AHEAD]; /* [nahead] lent to the producer for its next acquires */
    unsigned nahead;
    bool sealed, ended;
    _Atomic bool aborted; /* changes under the lock; a thread that waits for a GPU reads it without */
    bool producer_sleeps, readers_sleep;
    uint64_t wait_since, last_wait_ns; /* the producer's */
    struct br_queue_counters counters;
    uint64_t newest; /* end of the newest published frame, a base sample */
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

/* Adds a frame that is being published to the history, if the queue has one. Returns the frame that leaves
 * the history to make room, or NULL. The ring has an entry for as many frames as slots: a reader may miss
 * one. */
struct br_slot *br_history_keep(struct br_queue *queue, struct br_slot *slot);

/* Moves a history reader on to the next frame that is still kept. Does nothing for other readers. */
void br_history_skip_gone(struct br_reader *reader);

/* --- order.c: orders producer and readers with events. The calling thread owns the slot and does not hold
 * the lock. They return BR_OK, BR_E_DEVICE or BR_E_STOPPED. --- */

/* Makes the producer wait for all work that still reads the slot. */
int br_order_producer(struct br_queue *queue, const struct br_slot *slot);

/* Records the event that occurs when the producer's work on the slot is done. */
int br_order_ready(struct br_queue *queue, const struct br_slot *slot);

/* Makes the reader wait for the producer's work on the slot. */
int br_order_reader(struct br_reader *reader, const struct br_slot *slot);

/* Records the event that occurs when the reader's work on the slot is done. */
int br_order_released(struct br_reader *reader, const struct br_slot *slot);

/* Create and destroy `count` events for a queue and for each of its readers. */
int br_order_create(struct br_queue *queue, unsigned count, struct br_error *error);
void br_order_destroy(struct br_queue *queue);

#endif
