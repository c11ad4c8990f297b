/* ring.c - who may have which slot when, and who sleeps. See ring.h for chains and room.
 *
 * When there is no room the producer takes the oldest frames away from dropping readers (a lap); if that
 * frees nothing it sleeps.
 *
 * SLEEP. A thread that must wait, and whose last wait was brief, first lets others run on its processor,
 * YIELDS times: a pipeline whose frames take microseconds then hands them on without a system call to wake
 * anybody, in batches of what the ring holds. Left alone on the processor that takes 2 microseconds, after
 * which the thread sleeps on a condition variable; signals are only sent to sleepers, after the lock is
 * let go. After a long wait the thread sleeps at once the next time: a sleeper is woken by preemption, one
 * that yielded to a thread that computes is not. */
#include "buffers/ring.h"

#include <sched.h>
#include <string.h>

enum { YIELDS = 4, BRIEF_NS = 100000 };

/* --- slots, under the lock
 * ------------------------------------------------------------------------------------------------ */

/* Threads to wake once the lock is let go. More than a few at once are rare, and then woken at once. */
struct wake {
    pthread_cond_t *cond[4];
    unsigned n;
};

static void wake_later(struct wake *wake, pthread_cond_t *cond)
{
    if (wake->n < sizeof wake->cond / sizeof *wake->cond)
        wake->cond[wake->n++] = cond;
    else
        pthread_cond_broadcast(cond);
}

static void wake_now(struct wake *wake)
{
    while (wake->n > 0) pthread_cond_broadcast(wake->cond[--wake->n]);
}

static void unlock_and_wake(const struct br_queue *queue, struct wake *wake)
{
    unlock(queue);
    wake_now(wake);
}

/* A slot of this pool came free, or can be had by a lap. */
static void made_room(struct br_queue *pool, struct wake *wake)
{
    if (!pool->producer_sleeps) return;
    pool->producer_sleeps = false;
    wake_later(wake, &pool->space);
}

/* To be called whenever somebody has let go of a slot. */
static void settle(struct br_queue *queue, struct br_slot *slot, struct wake *wake)
{
    struct br_queue *pool = slot->pool;
    if (slot->needed > 0) return;
    if (slot->waiting == 0) {
        if (pool != NULL) pool->used--;
        slot->pool = NULL;
        if (slot->reading == 0) br_slots_give(&queue->chain->slots, slot);
    }
    if (pool != NULL) made_room(pool, wake);
}

/* The oldest frame that `reader` has not read, if a lap may take it. */
static struct br_slot *loses_next(const struct br_reader *reader)
{
    if (reader->counters.policy != BR_POLICY_DROP || reader->next == reader->queue->next) return NULL;
    struct br_slot *slot = reader->queue->ring[reader->next & reader->queue->mask].slot;
    return slot->needed > 0 ? NULL : slot;
}

/* Takes the oldest frame of a pool that only dropping readers wait for away from them. False if there is
 * none. */
static bool lap(struct br_queue *pool, struct wake *wake)
{
    struct br_queue *last = pool;
    while (downstream(last) != NULL && !downstream(last)->limited) last = downstream(last);
    struct br_slot *oldest = NULL;
    for (struct br_reader *r = last->ndropping > 0 ? last->readers : NULL; r != NULL; r = r->sibling) {
        struct br_slot *slot = loses_next(r);
        if (slot != NULL && (oldest == NULL || slot->order < oldest->order)) oldest = slot;
    }
    if (oldest == NULL) return false;
    for (struct br_reader *r = last->readers; r != NULL; r = r->sibling) {
        if (loses_next(r) != oldest) continue;
        r->counters.dropped_frames++;
        r->counters.dropped_samples += last->ring[r->next & last->mask].samples;
        r->next++;
        oldest->waiting--;
    }
    settle(last, oldest, wake);
    return true;
}

/* True when the producer must sleep. While it is false the chain has an idle slot, too, since there are as
 * many as all pools and all dropping readers can hold at once. Laps dropping readers as far as that makes
 * room. */
static bool is_full(struct br_queue *queue, struct wake *wake)
{
    if (!queue->limited) return false;
    while (queue->used == queue->depth)
        if (!lap(queue, wake)) return true;
    return false;
}

/* Lends a slot to the producer. */
static void lend(struct br_queue *queue, struct br_slot *slot, struct wake *wake)
{
    slot->needed++;
    if (queue->limited) {
        if (slot->pool != NULL) { /* it leaves the pool upstream */
            slot->pool->used--;
            made_room(slot->pool, wake);
        }
        slot->pool = queue;
        queue->used++;
    }
}

/* Gives the acquired frame, and those lent ahead, back unpublished. An alias' frame stays with the reader of its
 * parent. */
static void unacquire(struct br_queue *queue, struct wake *wake)
{
    struct br_slot *slot = queue->acquired;
    while (queue->nahead > 0) {
        struct br_slot *lent = queue->ahead[--queue->nahead];
        lent->needed--;
        settle(queue, lent, wake);
    }
    if (slot == NULL) return;
    queue->acquired = NULL;
    slot->needed--;
    settle(queue, slot, wake);
}

/* The reader gives back the frame that it holds. */
static void let_go(struct br_reader *reader, bool delivered, struct wake *wake)
{
    struct br_slot *slot = reader->held.slot;
    if (slot == NULL) return;
    if (reader->alias != NULL) {
        if (reader->alias->acquired == slot) unacquire(reader->alias, wake);
        reader->alias->handed_on = NULL;
    }
    struct br_reader_counters *c = &reader->counters;
    *(delivered ? &c->delivered_frames : &c->discarded_frames) += 1;
    *(delivered ? &c->delivered_samples : &c->discarded_samples) += reader->held.samples;
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
        *(reader->counters.policy == BR_POLICY_BLOCK ? &entry->slot->needed : &entry->slot->waiting) -= 1;
        settle(queue, entry->slot, wake);
    }
}

/* Wakes everybody at and before a queue, and its readers: for the rare events. */
static void wake_all(struct br_queue *queue)
{
    pthread_cond_broadcast(&queue->data);
    for (struct br_queue *q = queue; q != NULL; q = upstream(q)) {
        q->producer_sleeps = false;
        pthread_cond_broadcast(&q->space);
    }
}

/* --- the producer's side
 * -------------------------------------------------------------------------------------------------- */

static bool is_over(const struct br_queue *queue)
{
    return queue->aborted || queue->ended || queue->nattached == 0;
}

static void sleep_for_space(struct br_queue *queue, struct wake *wake)
{
    uint64_t since = now_ns();
    queue->wait_since = since;
    if (queue->last_wait_ns < BRIEF_NS) {
        unlock_and_wake(queue, wake);
        for (unsigned i = 0;
             i < YIELDS && atomic_load_explicit(&queue->used, memory_order_relaxed) > queue->depth / 2; i++)
            sched_yield();
        lock(queue);
    }
    while (!is_over(queue) && is_full(queue, wake)) {
        wake_now(wake);
        queue->producer_sleeps = true;
        pthread_cond_wait(&queue->space, &queue->chain->lock);
    }
    queue->producer_sleeps = false;
    queue->wait_since = 0;
    queue->last_wait_ns = now_ns() - since;
    queue->counters.wait_ns += queue->last_wait_ns;
}

int br_queue_acquire(struct br_queue *queue, struct br_frame **frame)
{
    struct wake wake = {.n = 0};
    *frame = NULL;
    lock(queue);
    if (!queue->sealed) {
        unlock(queue);
        return BR_E_INTERNAL;
    }
    if (queue->acquired == NULL && queue->nahead > 0 && !is_over(queue)) {
        queue->acquired = queue->ahead[0];
        queue->nahead--;
        memmove(queue->ahead, queue->ahead + 1, queue->nahead * sizeof *queue->ahead);
        struct br_slot *lent = queue->acquired;
        unlock(queue);
        *frame = &lent->frame; /* ordered behind its readers when it was lent */
        return BR_OK;
    }
    if (queue->acquired == NULL) {
        if (!is_over(queue) && is_full(queue, &wake)) sleep_for_space(queue, &wake);
        if (is_over(queue)) {
            unlock_and_wake(queue, &wake);
            return BR_E_STOPPED;
        }
        struct br_slot *slot =
            queue->parent == NULL ? br_slots_take(&queue->chain->slots) : queue->parent->held.slot;
        if (slot == NULL || slot == queue->handed_on) {
            unlock_and_wake(queue, &wake);
            return BR_E_INTERNAL;
        }
        lend(queue, slot, &wake);
        queue->acquired = slot;
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
    struct wake wake = {.n = 0};
    *frame = NULL;
    lock(queue);
    if (queue->acquired == NULL || queue->parent != NULL || ahead < 1 || ahead > BR_MAX_AHEAD ||
        ahead > queue->nahead + 1) {
        unlock(queue);
        return BR_E_INTERNAL;
    }
    struct br_slot *slot = ahead <= queue->nahead ? queue->ahead[ahead - 1] : NULL;
    bool fresh = slot == NULL, over = is_over(queue);
    if (fresh && !over && !is_full(queue, &wake)) {
        slot = br_slots_take(&queue->chain->slots);
        lend(queue, slot, &wake);
        queue->ahead[queue->nahead++] = slot;
    }
    unlock_and_wake(queue, &wake);
    if (over) return BR_E_STOPPED;
    if (slot == NULL) return BR_OK;
    int status = fresh ? br_order_producer(queue, slot) : BR_OK;
    if (status == BR_OK) *frame = &slot->frame;
    return status;
}

int br_queue_publish(struct br_queue *queue)
{
    struct wake wake = {.n = 0};
    lock(queue);
    struct br_slot *slot = queue->acquired;
    if (slot == NULL || queue->ended) {
        unlock(queue);
        return BR_OK;
    }
    if (queue->gpu != NULL) { /* the event goes before the frame */
        unlock(queue);
        int status = br_order_ready(queue, slot);
        if (status != BR_OK) return status;
        lock(queue);
    }
    queue->acquired = NULL;
    uint64_t samples = slot->frame.samples;
    queue->ring[queue->next++ & queue->mask] = (struct entry){slot, samples};
    queue->counters.frames++;
    queue->counters.samples += samples;
    if (!slot->frame.complete) queue->counters.missing += slot->frame.missing;
    slot->needed += queue->nblocking;
    slot->waiting += queue->ndropping;
    unsigned now = br_queue_fill(queue);
    if (now > queue->counters.max_fill) queue->counters.max_fill = now;
    if (queue->nattached < queue->nreaders || queue->aborted) {
        for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
            if (r->detached) {
                r->next = queue->next;
                r->counters.discarded_frames++;
                r->counters.discarded_samples += samples;
            } else if (queue->aborted) {
                discard_unread(r, &wake);
            }
        }
    }
    if (queue->parent != NULL) queue->handed_on = slot;
    slot->needed--;
    settle(queue, slot, &wake);
    if (queue->readers_sleep) {
        queue->readers_sleep = false;
        wake_later(&wake, &queue->data);
    }
    unlock_and_wake(queue, &wake);
    return BR_OK;
}

static void end(struct br_queue *queue, bool failed)
{
    struct wake wake = {.n = 0};
    lock(queue);
    if (!queue->ended) {
        queue->ended = true;
        queue->failed = failed;
        unacquire(queue, &wake);
        wake_all(queue);
    }
    unlock_and_wake(queue, &wake);
}

void br_queue_close(struct br_queue *queue)
{
    end(queue, false);
}

void br_queue_fail(struct br_queue *queue)
{
    end(queue, true);
}

void br_queue_abort(struct br_queue *queue)
{
    struct wake wake = {.n = 0};
    lock(queue);
    if (!queue->aborted) {
        queue->aborted = true;
        for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling)
            if (!r->detached) discard_unread(r, &wake);
        wake_all(queue);
    }
    unlock_and_wake(queue, &wake);
}

/* --- a reader's side
 * ------------------------------------------------------------------------------------------------------ */

static void sleep_for_data(struct br_reader *reader)
{
    struct br_queue *queue = reader->queue;
    uint64_t since = reader->wait_since = now_ns();
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
        pthread_cond_wait(&queue->data, &queue->chain->lock);
    }
    reader->wait_since = 0;
    reader->last_wait_ns = now_ns() - since;
    reader->counters.wait_ns += reader->last_wait_ns;
}

int br_reader_wait(struct br_reader *reader, const struct br_frame **frame)
{
    struct br_queue *queue = reader->queue;
    struct wake wake = {.n = 0};
    int result = 0;
    *frame = NULL;
    lock(queue);
    if (reader->next == queue->next && reader->held.slot == NULL && !queue->ended && !queue->aborted &&
        !reader->detached)
        sleep_for_data(reader);
    if (queue->aborted) {
        result = BR_E_STOPPED;
    } else if (reader->held.slot != NULL) {
        result = 1; /* it has not been released: the same again */
    } else if (!reader->detached && reader->next != queue->next) {
        reader->held = queue->ring[reader->next++ & queue->mask];
        if (reader->counters.policy == BR_POLICY_DROP) {
            reader->held.slot->waiting--;
            reader->held.slot->reading++;
            settle(queue, reader->held.slot, &wake);
        }
        result = 1;
    }
    struct br_slot *slot = reader->held.slot;
    unlock_and_wake(queue, &wake);
    if (result != 1) return result;
    int status = br_order_reader(reader, slot);
    if (status != BR_OK) return status;
    *frame = &slot->frame;
    return 1;
}

static int give_back(struct br_reader *reader, bool delivered)
{
    struct wake wake = {.n = 0};
    struct br_slot *slot = reader->held.slot; /* only the reader's own thread changes it */
    int status = slot != NULL ? br_order_released(reader, slot) : BR_OK;
    lock(reader->queue);
    let_go(reader, delivered, &wake);
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
    struct wake wake = {.n = 0};
    give_back(reader, false);
    lock(queue);
    if (!reader->detached) {
        discard_unread(reader, &wake);
        reader->detached = true;
        queue->nattached--;
        if (reader->counters.policy == BR_POLICY_BLOCK)
            queue->nblocking--;
        else
            queue->ndropping--;
        wake_all(queue);
    }
    unlock_and_wake(queue, &wake);
}

bool br_reader_failed(const struct br_reader *reader)
{
    lock(reader->queue);
    bool failed = reader->queue->failed;
    unlock(reader->queue);
    return failed;
}
