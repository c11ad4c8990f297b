/* ring.c - who may have which slot when, and who sleeps. See ring.h for room.
 *
 * If the ring is full, the producer takes the oldest frames away from dropping readers (a lap); if that
 * frees nothing it sleeps.
 *
 * SLEEP. A thread that must wait, and whose last wait was brief, first lets others run on its processor,
 * YIELDS times: a pipeline whose frames take microseconds then hands them on without a system call to wake
 * anybody, in batches of what the ring holds. Left alone on the processor that takes 2 microseconds, after
 * which the thread sleeps on a condition variable; signals are only sent to sleepers, after the lock is
 * let go. After a long wait the thread sleeps at once the next time: a sleeper is woken by preemption, one
 * that yielded to a thread that computes is not. */
#include "buffers/ring.h"
#include "buffers/clock.h"
#include "buffers/history.h"

#include <sched.h>
#include <string.h>

enum { YIELDS = 4, BRIEF_NS = 100000 };

/* --- slots, under the lock --- */

/* Whom to wake once the lock is let go. */
struct wake {
    bool space, data;
};

static void unlock_and_wake(struct br_queue *queue, struct wake *wake)
{
    unlock(queue);
    if (wake->space) pthread_cond_broadcast(&queue->space);
    if (wake->data) pthread_cond_broadcast(&queue->data);
}

/* To be called whenever somebody has let go of a slot: it may be idle now, or a lap can take it. */
static void settle(struct br_queue *queue, struct br_slot *slot, struct wake *wake)
{
    if (slot->needed > 0) return;
    bool room = slot->used;
    if (slot->waiting == 0) {
        queue->used -= slot->used;
        slot->used = false;
        if (slot->reading == 0 && !slot->kept) br_slots_give(&queue->slots, slot);
    }
    if (room && queue->producer_sleeps) {
        queue->producer_sleeps = false;
        wake->space = true;
    }
}

/* The oldest frame that `reader` has not read, if a lap may take it. */
static struct br_slot *loses_next(const struct br_reader *reader)
{
    if (reader->counters.policy != BR_POLICY_DROP || reader->next == reader->queue->next) return NULL;
    struct br_slot *slot = reader->queue->ring[reader->next & reader->queue->mask].slot;
    return slot->needed > 0 ? NULL : slot;
}

/* Takes the oldest frame that only dropping readers wait for away from them. False if there is none. */
static bool lap(struct br_queue *queue, struct wake *wake)
{
    struct br_slot *oldest = NULL;
    for (struct br_reader *r = queue->ndropping > 0 ? queue->readers : NULL; r != NULL; r = r->sibling) {
        struct br_slot *slot = loses_next(r);
        if (slot != NULL && (oldest == NULL || slot->order < oldest->order)) oldest = slot;
    }
    if (oldest == NULL) return false;
    for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
        if (loses_next(r) != oldest) continue;
        r->counters.dropped_frames++;
        r->counters.dropped_samples += queue->ring[r->next & queue->mask].samples;
        r->next++;
        oldest->waiting--;
        br_reader_show(r);
    }
    settle(queue, oldest, wake);
    return true;
}

/* True when the producer must sleep. While it is false there is an idle slot, too, since there are as many
 * as the queue and all dropping readers can hold at once. Laps dropping readers as far as that makes room. */
static bool is_full(struct br_queue *queue, struct wake *wake)
{
    while (queue->used == queue->depth)
        if (!lap(queue, wake)) return true;
    return false;
}

/* Lends an idle slot to the producer. */
static struct br_slot *lend(struct br_queue *queue)
{
    struct br_slot *slot = br_slots_take(&queue->slots);
    slot->needed = 1;
    slot->used = true;
    queue->used++;
    return slot;
}

/* The producer gives a slot back: unpublished, or to the readers that need it now. */
static void give_up(struct br_queue *queue, struct br_slot *slot, struct wake *wake)
{
    slot->needed--;
    settle(queue, slot, wake);
}

/* The reader gives back the frame that it holds. */
static void let_go(struct br_reader *reader, bool delivered, struct wake *wake)
{
    struct br_slot *slot = reader->held.slot;
    if (slot == NULL) return;
    struct br_reader_counters *c = &reader->counters;
    *(delivered ? &c->delivered_frames : &c->discarded_frames) += 1;
    *(delivered ? &c->delivered_samples : &c->discarded_samples) += reader->held.samples;
    reader->passed = reader->held.first + reader->held.samples;
    reader->held.slot = NULL;
    *(c->policy == BR_POLICY_BLOCK ? &slot->needed : &slot->reading) -= 1;
    settle(reader->queue, slot, wake);
}

/* Everything that the reader has not begun to read counts as discarded. */
static void discard_unread(struct br_reader *reader, struct wake *wake)
{
    struct br_queue *queue = reader->queue;
    for (; reader->next != queue->next; reader->next++) {
        struct entry *entry = &queue->ring[reader->next & queue->mask];
        reader->counters.discarded_frames++;
        reader->counters.discarded_samples += entry->samples;
        if (reader->counters.policy == BR_POLICY_HISTORY) continue; /* what keeps it is the history */
        *(reader->counters.policy == BR_POLICY_BLOCK ? &entry->slot->needed : &entry->slot->waiting) -= 1;
        settle(queue, entry->slot, wake);
    }
}

/* Takes the next frame for a blocking reader before it asks, if it would not have to wait for one. */
static void take_next(struct br_reader *reader)
{
    const struct br_queue *queue = reader->queue;
    if (reader->counters.policy != BR_POLICY_BLOCK || reader->next == queue->next || queue->aborted ||
        reader->detached)
        return;
    reader->held = queue->ring[reader->next++ & queue->mask];
    atomic_store_explicit(&reader->taken, true, memory_order_release);
}

/* The frame that was taken so, if its reader has not asked for it yet, is unread again. */
static void put_back(struct br_reader *reader)
{
    if (!atomic_exchange(&reader->taken, false)) return;
    reader->held.slot = NULL;
    reader->next--;
}

/* For the rare events: everybody looks again. */
static void wake_all(struct br_queue *queue, struct wake *wake)
{
    queue->producer_sleeps = queue->readers_sleep = false;
    wake->space = wake->data = true;
}

/* --- the producer's side --- */

static bool is_over(const struct br_queue *queue)
{
    return queue->aborted || queue->ended || queue->nattached == 0;
}

static void sleep_for_space(struct br_queue *queue, struct wake *wake)
{
    uint64_t since = br_clock_ns();
    queue->wait_since = since;
    br_queue_show(queue);
    if (queue->last_wait_ns < BRIEF_NS) {
        unlock(queue);
        for (unsigned i = 0;
             i < YIELDS && atomic_load_explicit(&queue->used, memory_order_relaxed) > queue->depth / 2; i++)
            sched_yield();
        lock(queue);
    }
    while (!is_over(queue) && is_full(queue, wake)) {
        queue->producer_sleeps = true;
        pthread_cond_wait(&queue->space, &queue->lock);
    }
    queue->producer_sleeps = false;
    queue->wait_since = 0;
    queue->last_wait_ns = br_clock_ns() - since;
    queue->counters.wait_ns += queue->last_wait_ns;
    br_queue_show(queue);
}

/* Lends the slot that comes next to the producer before it asks, if it would not have to wait for one. */
static void lend_next(struct br_queue *queue)
{
    if (is_over(queue)) return;
    if (queue->nahead > 0) {
        queue->acquired = queue->ahead[0];
        queue->nahead--;
        memmove(queue->ahead, queue->ahead + 1, queue->nahead * sizeof *queue->ahead);
    } else if (queue->used < queue->depth) {
        queue->acquired = lend(queue);
    } else {
        return;
    }
    queue->advance = queue->acquired;
    atomic_store_explicit(&queue->lent, true, memory_order_release);
}

int br_queue_acquire(struct br_queue *queue, struct br_frame **frame)
{
    struct wake wake = {false, false};
    *frame = NULL;
    if (!atomic_load_explicit(&queue->aborted, memory_order_relaxed) &&
        atomic_exchange(&queue->lent, false)) {
        struct br_slot *slot = queue->advance;
        int ordered = br_order_producer(queue, slot);
        if (ordered == BR_OK) *frame = &slot->frame;
        return ordered;
    }
    lock(queue);
    if (!queue->sealed) {
        unlock(queue);
        return BR_E_INTERNAL;
    }
    if (queue->acquired == NULL) {
        if (!is_over(queue) && is_full(queue, &wake)) sleep_for_space(queue, &wake);
        if (is_over(queue)) {
            unlock_and_wake(queue, &wake);
            return BR_E_STOPPED;
        }
        queue->acquired = lend(queue);
    } else if (queue->aborted || queue->nattached == 0) {
        unlock(queue);
        return BR_E_STOPPED;
    }
    struct br_slot *slot = queue->acquired;
    unlock_and_wake(queue, &wake);
    int status = br_order_producer(queue, slot);
    if (status == BR_OK) *frame = &slot->frame;
    return status;
}

int br_queue_lend_ahead(struct br_queue *queue, unsigned ahead, struct br_frame **frame)
{
    struct wake wake = {false, false};
    *frame = NULL;
    lock(queue);
    if (queue->acquired == NULL || queue->lent || ahead < 1 || ahead > BR_MAX_AHEAD ||
        ahead > queue->nahead + 1) {
        unlock(queue);
        return BR_E_INTERNAL;
    }
    struct br_slot *slot = ahead <= queue->nahead ? queue->ahead[ahead - 1] : NULL;
    bool fresh = slot == NULL, over = is_over(queue);
    if (fresh && !over && !is_full(queue, &wake)) slot = queue->ahead[queue->nahead++] = lend(queue);
    unlock_and_wake(queue, &wake);
    if (over) return BR_E_STOPPED;
    if (slot == NULL) return BR_OK;
    int status = fresh ? br_order_producer(queue, slot) : BR_OK;
    if (status == BR_OK) *frame = &slot->frame;
    return status;
}

/* Records the event of the acquired frame before the frame is published, without the lock. Meanwhile the
 * frame is nobody's but the producer's, so that another thread may end the queue. Returns with the lock. */
static int record_ready(struct br_queue *queue, struct br_slot *slot)
{
    queue->acquired = NULL;
    unlock(queue);
    int status = br_order_ready(queue, slot);
    lock(queue);
    queue->acquired = slot;
    return status;
}

int br_queue_publish(struct br_queue *queue)
{
    struct wake wake = {false, false};
    lock(queue);
    struct br_slot *slot = queue->acquired;
    if (slot == NULL || queue->lent || queue->ended) {
        unlock(queue);
        return BR_OK;
    }
    int status = queue->gpu != NULL ? record_ready(queue, slot) : BR_OK;
    if (queue->ended) { /* meanwhile */
        queue->acquired = NULL;
        give_up(queue, slot, &wake);
    }
    if (status != BR_OK || queue->ended) {
        unlock_and_wake(queue, &wake);
        return status;
    }
    queue->acquired = NULL;
    uint64_t samples = slot->frame.samples;
    struct br_slot *gone = br_history_keep(queue, slot);
    if (gone != NULL) settle(queue, gone, &wake);
    queue->ring[queue->next++ & queue->mask] = (struct entry){slot, slot->frame.first, samples};
    queue->counters.frames++;
    queue->counters.samples += samples;
    if (!slot->frame.complete) queue->counters.missing += slot->frame.missing;
    slot->needed += queue->nblocking;
    slot->waiting += queue->ndropping;
    /* Where all readers block, what they have not released is what is used: nobody looks at them. */
    bool all_block = queue->nblocking > 0 && queue->ndropping == 0;
    unsigned now = all_block ? queue->used - queue->nahead : br_queue_fill(queue);
    if (now > queue->counters.max_fill) queue->counters.max_fill = now;
    queue->newest = slot->frame.first + samples;
    br_queue_show(queue);
    if (queue->nattached < queue->nreaders || queue->aborted) {
        for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
            if (r->detached) {
                r->next = queue->next;
                r->counters.discarded_frames++;
                r->counters.discarded_samples += samples;
            } else if (queue->aborted) {
                discard_unread(r, &wake);
            }
            br_reader_show(r);
        }
    }
    give_up(queue, slot, &wake); /* what the producer held; its readers hold it now */
    lend_next(queue);
    wake.data = queue->readers_sleep;
    queue->readers_sleep = false;
    unlock_and_wake(queue, &wake);
    return BR_OK;
}

void br_queue_close(struct br_queue *queue)
{
    struct wake wake = {false, false};
    lock(queue);
    if (!queue->ended) {
        queue->ended = true;
        while (queue->nahead > 0) give_up(queue, queue->ahead[--queue->nahead], &wake);
        if (queue->acquired != NULL) give_up(queue, queue->acquired, &wake);
        queue->acquired = NULL;
        atomic_store(&queue->lent, false);
        br_queue_show(queue);
        wake_all(queue, &wake);
    }
    unlock_and_wake(queue, &wake);
}

void br_queue_abort(struct br_queue *queue)
{
    struct wake wake = {false, false};
    lock(queue);
    if (!queue->aborted) {
        queue->aborted = true;
        for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
            put_back(r);
            if (!r->detached) discard_unread(r, &wake);
            br_reader_show(r);
        }
        wake_all(queue, &wake);
    }
    unlock_and_wake(queue, &wake);
}

/* --- a reader's side --- */

static void sleep_for_data(struct br_reader *reader)
{
    struct br_queue *queue = reader->queue;
    uint64_t since = reader->wait_since = br_clock_ns();
    br_reader_show(reader);
    if (reader->last_wait_ns < BRIEF_NS) {
        uint64_t all = queue->next;
        unlock(queue);
        for (unsigned i = 0; i < YIELDS && atomic_load_explicit(&queue->next, memory_order_relaxed) == all;
             i++)
            sched_yield();
        lock(queue);
    }
    while (reader->next == queue->next && !queue->ended && !queue->aborted && !reader->detached) {
        queue->readers_sleep = true;
        pthread_cond_wait(&queue->data, &queue->lock);
    }
    reader->wait_since = 0;
    reader->last_wait_ns = br_clock_ns() - since;
    reader->counters.wait_ns += reader->last_wait_ns;
}

int br_reader_wait(struct br_reader *reader, const struct br_frame **frame)
{
    struct br_queue *queue = reader->queue;
    struct wake wake = {false, false};
    int result = 0;
    *frame = NULL;
    if (!atomic_load_explicit(&queue->aborted, memory_order_relaxed) &&
        atomic_exchange(&reader->taken, false)) {
        const struct br_slot *slot = reader->held.slot;
        int ordered = br_order_reader(reader, slot);
        if (ordered != BR_OK) return ordered;
        *frame = &slot->frame;
        return 1;
    }
    lock(queue);
    if (reader->next == queue->next && reader->held.slot == NULL && !queue->ended && !queue->aborted &&
        !reader->detached)
        sleep_for_data(reader);
    if (queue->aborted) {
        result = BR_E_STOPPED;
    } else if (reader->held.slot != NULL) {
        result = 1; /* it has not been released: the same again */
    } else if (!reader->detached && (br_history_skip_gone(reader), reader->next != queue->next)) {
        reader->held = queue->ring[reader->next++ & queue->mask];
        if (reader->counters.policy == BR_POLICY_DROP) {
            reader->held.slot->waiting--;
            reader->held.slot->reading++;
            settle(queue, reader->held.slot, &wake);
        } else if (reader->counters.policy == BR_POLICY_HISTORY) {
            reader->held.slot->reading++;
        }
        result = 1;
    }
    struct br_slot *slot = reader->held.slot;
    br_reader_show(reader);
    unlock_and_wake(queue, &wake);
    if (result != 1) return result;
    int status = br_order_reader(reader, slot);
    if (status != BR_OK) return status;
    *frame = &slot->frame;
    return 1;
}

static int give_back(struct br_reader *reader, bool delivered)
{
    struct wake wake = {false, false};
    if (atomic_load_explicit(&reader->taken, memory_order_relaxed)) return BR_OK; /* it has none yet */
    struct br_slot *slot = reader->held.slot; /* only the reader's own thread changes it */
    int status = slot != NULL ? br_order_released(reader, slot) : BR_OK;
    lock(reader->queue);
    let_go(reader, delivered, &wake);
    if (delivered && slot != NULL) take_next(reader);
    br_reader_show(reader);
    unlock_and_wake(reader->queue, &wake);
    return status;
}

int br_reader_release(struct br_reader *reader)
{
    return give_back(reader, true);
}

void br_reader_discard(struct br_reader *reader)
{
    give_back(reader, false); /* whoever discards has failed already */
}

void br_reader_detach(struct br_reader *reader)
{
    struct br_queue *queue = reader->queue;
    struct wake wake = {false, false};
    give_back(reader, false);
    lock(queue);
    if (!reader->detached) {
        put_back(reader);
        discard_unread(reader, &wake);
        reader->detached = true;
        if (--queue->nattached == 0) atomic_store(&queue->lent, false); /* acquiring says it */
        queue->nblocking -= reader->counters.policy == BR_POLICY_BLOCK;
        queue->ndropping -= reader->counters.policy == BR_POLICY_DROP;
        br_reader_show(reader);
        wake_all(queue, &wake);
    }
    unlock_and_wake(queue, &wake);
}

void br_history_let_go(struct br_reader *reader, const struct br_frame *frame)
{
    struct wake wake = {false, false};
    struct br_slots *slots = &reader->queue->slots;
    lock(reader->queue);
    size_t index = (size_t)((const char *)frame - (const char *)slots->slot) / sizeof *slots->slot;
    slots->slot[index].reading--;
    reader->nholds--;
    settle(reader->queue, &slots->slot[index], &wake);
    unlock_and_wake(reader->queue, &wake);
}
