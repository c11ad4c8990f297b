/* queue.c - setting queues up, and what can be asked of them. */
#include "buffers/clock.h"
#include "buffers/ring.h"
#include "buffers/threads.h"

#include <stdlib.h>
#include <string.h>

const char *const br_policy_name[] = {"block", "drop", "history"};

static void make_locks(struct br_queue *queue)
{
    br_cond_init(&queue->space);
    br_cond_init(&queue->data);
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_ADAPTIVE_NP); /* it is held for tens of nanoseconds */
#endif
    pthread_mutex_init(&queue->lock, &mutex);
    pthread_mutexattr_destroy(&mutex);
}

int br_queue_create(struct br_queue **queue, const char *name, const struct br_stream *stream, unsigned depth,
                    struct br_place place, struct br_error *error)
{
    *queue = NULL;
    if (place.space != BR_SPACE_HOST && place.space != BR_SPACE_PINNED && place.space != BR_SPACE_CUDA)
        return br_fail(error, BR_E_INVALID, "queue '%s': %d is not a memory space", name, (int)place.space);
    if (depth < 1 || depth > BR_MAX_SLOTS)
        return br_fail(error, BR_E_INVALID, "queue '%s' is %u frames deep; expected 1 to %u", name, depth,
                       (unsigned)BR_MAX_SLOTS);
    struct br_queue *q = calloc(1, sizeof *q);
    char *copy = strdup(name);
    if (q == NULL || copy == NULL) {
        free(q);
        free(copy);
        return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory", name);
    }
    q->name = copy;
    q->place = place;
    q->depth = depth;
    q->stream = *stream;
    q->gpu_waits.stop = &q->aborted;
    make_locks(q);
    *queue = q;
    return BR_OK;
}

int br_queue_add_reader(struct br_queue *queue, const char *name, enum br_policy policy,
                        struct br_reader **reader, struct br_error *error)
{
    *reader = NULL;
    if (policy != BR_POLICY_BLOCK && policy != BR_POLICY_DROP &&
        (policy != BR_POLICY_HISTORY || queue->history.frames == 0))
        return br_fail(error, BR_E_INVALID, "queue '%s': %d is not a policy for '%s'", queue->name,
                       (int)policy, name);
    if (queue->sealed)
        return br_fail(error, BR_E_INVALID, "queue '%s' is sealed: '%s' cannot read it", queue->name, name);
    struct br_reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory for reader '%s'", queue->name, name);
    r->queue = queue;
    r->gpu_waits.stop = &queue->aborted;
    r->counters.policy = policy;
    struct br_reader **end = &queue->readers;
    while (*end != NULL) end = &(*end)->sibling;
    *end = r;
    queue->nreaders++;
    queue->nattached++;
    queue->nblocking += policy == BR_POLICY_BLOCK;
    queue->ndropping += policy == BR_POLICY_DROP;
    *reader = r;
    return BR_OK;
}

/* See ROOM in ring.h. */
static unsigned count_slots(const struct br_queue *queue)
{
    static const unsigned spare[] = {
        [BR_POLICY_BLOCK] = 0, [BR_POLICY_DROP] = 1, [BR_POLICY_HISTORY] = 1 + BR_HISTORY_HOLDS};
    unsigned n = queue->depth + queue->history.frames;
    for (const struct br_reader *r = queue->readers; r != NULL; r = r->sibling)
        n += spare[r->counters.policy];
    return n;
}

void br_queue_set_stream(struct br_queue *queue, const struct br_gpu_stream *stream)
{
    queue->gpu = stream;
}

void br_reader_set_stream(struct br_reader *reader, const struct br_gpu_stream *stream)
{
    reader->gpu = stream;
}

int br_queue_seal(struct br_queue *queue, struct br_error *error)
{
    if (queue->sealed) return BR_OK;
    unsigned count = count_slots(queue);
    int status = br_slots_reserve(&queue->slots, queue->name, &queue->stream, queue->place, count, error);
    if (status != BR_OK) return status;
    size_t length = 1;
    while (length < count) length *= 2;
    queue->ring = calloc(length, sizeof *queue->ring);
    if (queue->ring == NULL) {
        br_slots_free(&queue->slots);
        return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory for %zu entries", queue->name, length);
    }
    queue->mask = length - 1;
    status = br_order_create(queue, count, error);
    queue->sealed = status == BR_OK;
    return status;
}

void br_queue_destroy(struct br_queue *queue)
{
    if (queue == NULL) return;
    br_order_destroy(queue);
    while (queue->readers != NULL) {
        struct br_reader *r = queue->readers;
        queue->readers = r->sibling;
        free(r);
    }
    pthread_cond_destroy(&queue->space);
    pthread_cond_destroy(&queue->data);
    pthread_mutex_destroy(&queue->lock);
    br_slots_free(&queue->slots);
    free(queue->ring);
    free(queue->name);
    free(queue);
}

size_t br_queue_bytes(const struct br_queue *queue)
{
    return br_slots_bytes(&queue->stream, queue->place, count_slots(queue));
}

size_t br_queue_device_bytes(const struct br_queue *queue)
{
    return br_slots_device_bytes(&queue->stream, queue->place, count_slots(queue));
}

void br_queue_error(const struct br_queue *queue, struct br_error *error)
{
    lock(queue);
    *error = queue->failure;
    unlock(queue);
}

uint64_t br_queue_gpu_wait_since(const struct br_queue *queue)
{
    return atomic_load_explicit(&queue->gpu_waits.since, memory_order_relaxed);
}

uint64_t br_reader_gpu_wait_since(const struct br_reader *reader)
{
    return atomic_load_explicit(&reader->gpu_waits.since, memory_order_relaxed);
}

bool br_queue_oldest_unready(const struct br_queue *queue, uint64_t *first)
{
    uint64_t oldest = UINT64_MAX;
    for (size_t i = 0; queue->ready != NULL && i < (size_t)queue->nevents * BR_READY_TRAIL; i++) {
        uint64_t of = atomic_load(&queue->ready_first[i]);
        if (of < oldest && !br_gpu_event_done(queue->ready[i])) oldest = of;
    }
    if (oldest != UINT64_MAX) *first = oldest;
    return oldest != UINT64_MAX;
}

/* --- counters --- */

/* Frames that the slowest blocking reader has not released, when `next` were published. */
static unsigned shown_fill(const struct br_queue *queue, uint64_t next)
{
    uint64_t most = 0, numbers[R_NUMBERS];
    for (const struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
        if (r->counters.policy != BR_POLICY_BLOCK) continue;
        br_board_read(&r->shown_version, r->shown, numbers, R_NUMBERS);
        if (numbers[R_DETACHED]) continue;
        /* The reader's numbers are newer than the queue's: it may have read frames published since. */
        uint64_t done = numbers[R_NEXT] - numbers[R_HELD_FRAMES];
        if (next > done && next - done > most) most = next - done;
    }
    return (unsigned)most;
}

/* A wait counts while it lasts. `now` is from before the board was read. */
static uint64_t waited(uint64_t before, uint64_t since, uint64_t now)
{
    return since != 0 && now > since ? before + (now - since) : before;
}

void br_queue_get_counters(const struct br_queue *queue, struct br_queue_counters *counters)
{
    uint64_t numbers[Q_NUMBERS], now = br_clock_ns();
    br_board_read(&queue->shown_version, queue->shown, numbers, Q_NUMBERS);
    *counters = (struct br_queue_counters){
        .frames = numbers[Q_FRAMES],
        .samples = numbers[Q_SAMPLES],
        .missing = numbers[Q_MISSING],
        .wait_ns = waited(numbers[Q_WAIT_NS], numbers[Q_WAIT_SINCE], now),
        .wait_since = numbers[Q_WAIT_SINCE],
        .newest = numbers[Q_NEWEST],
        .depth = queue->depth,
        .fill = shown_fill(queue, numbers[Q_NEXT]),
        .max_fill = (unsigned)numbers[Q_MAX_FILL],
        .ended = numbers[Q_ENDED] != 0,
    };
}

void br_reader_get_counters(const struct br_reader *reader, struct br_reader_counters *counters)
{
    uint64_t numbers[R_NUMBERS], now = br_clock_ns();
    br_board_read(&reader->shown_version, reader->shown, numbers, R_NUMBERS);
    *counters = (struct br_reader_counters){
        .policy = reader->counters.policy,
        .delivered_frames = numbers[R_DELIVERED_FRAMES],
        .delivered_samples = numbers[R_DELIVERED_SAMPLES],
        .dropped_frames = numbers[R_DROPPED_FRAMES],
        .dropped_samples = numbers[R_DROPPED_SAMPLES],
        .discarded_frames = numbers[R_DISCARDED_FRAMES],
        .discarded_samples = numbers[R_DISCARDED_SAMPLES],
        .held_frames = numbers[R_HELD_FRAMES],
        .held_samples = numbers[R_HELD_SAMPLES],
        .wait_ns = waited(numbers[R_WAIT_NS], numbers[R_WAIT_SINCE], now),
        .wait_since = numbers[R_WAIT_SINCE],
        .next = numbers[R_NEXT],
    };
}
