/* frames.h - putting numbered frames into queues, taking them out, and waiting with a limit. */
#ifndef BEAMRING_TESTS_BUFFERS_FRAMES_H
#define BEAMRING_TESTS_BUFFERS_FRAMES_H

#include "buffers/ring.h"
#include "tests/buffers/plain.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4 * 3 }; /* of a full frame: int8 [4][1][3] */

static inline struct br_queue *create(const char *name, unsigned depth)
{
    struct br_stream s = plain_stream(4, 1, 3);
    struct br_queue *q;
    struct br_error error = {0};
    if (br_queue_create(&q, name, &s, depth, BR_HOST, &error) != 0) fail_msg("%s", error.text);
    return q;
}

static inline struct br_reader *reader(struct br_queue *q, enum br_policy policy)
{
    struct br_reader *r;
    struct br_error error = {0};
    if (br_queue_add_reader(q, "reader", policy, &r, &error) != 0) fail_msg("%s", error.text);
    return r;
}

static inline void seal(struct br_queue *q)
{
    struct br_error error = {0};
    if (br_queue_seal(q, &error) != 0) fail_msg("%s", error.text);
}

/* Publishes frame number i: base samples [4i, 4i + 4), every byte i. */
static inline void put(struct br_queue *q, unsigned i)
{
    struct br_frame *f;
    assert_int_equal(br_queue_acquire(q, &f), 0);
    assert_true(f->complete);
    assert_int_equal(f->missing + f->first + f->samples, 0);
    f->first = 4 * (uint64_t)i;
    f->samples = 4;
    memset(f->data, (int)i, BYTES);
    br_queue_publish(q);
}

/* Waits for a frame (which must be there) and checks that it is number i. */
static inline const struct br_frame *take(struct br_reader *r, unsigned i)
{
    const struct br_frame *f;
    assert_int_equal(br_reader_wait(r, &f), 1);
    assert_int_equal(f->first, 4 * i);
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(((uint8_t *)f->data)[b], i & 255);
    return f;
}

static inline void assert_ends(struct br_reader *r, int result)
{
    const struct br_frame *f = (void *)r;
    assert_int_equal(br_reader_wait(r, &f), result);
    assert_null(f);
}

static inline void assert_counts(const struct br_reader *r, uint64_t delivered, uint64_t dropped,
                                 uint64_t discarded)
{
    struct br_reader_counters c;
    struct br_queue_counters q;
    br_reader_get_counters(r, &c);
    br_queue_get_counters(r->queue, &q);
    assert_int_equal(c.delivered_frames, delivered);
    assert_int_equal(c.dropped_frames, dropped);
    assert_int_equal(c.discarded_frames, discarded);
    assert_int_equal(c.delivered_samples, 4 * delivered);
    assert_int_equal(c.dropped_samples, 4 * dropped);
    assert_int_equal(c.discarded_samples, 4 * discarded);
    assert_int_equal(q.samples, 4 * q.frames);
}

static inline unsigned fill_of(const struct br_queue *q)
{
    struct br_queue_counters c;
    br_queue_get_counters(q, &c);
    return c.fill;
}

/* --- waiting needs a second thread --- */

struct attempt {
    struct br_queue *queue;
    struct br_reader *reader;
    int result;
    bool done; /* under lock */
    pthread_mutex_t lock;
    pthread_t thread;
};

static inline void *try_it(void *arg)
{
    struct attempt *a = arg;
    struct br_frame *f;
    const struct br_frame *g;
    int result = a->reader != NULL ? br_reader_wait(a->reader, &g) : br_queue_acquire(a->queue, &f);
    pthread_mutex_lock(&a->lock);
    a->result = result;
    a->done = true;
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* How long the producer, or this reader, has waited in all. */
static inline uint64_t waited(struct br_queue *q, struct br_reader *r)
{
    struct br_queue_counters of_queue;
    struct br_reader_counters of_reader;
    if (r != NULL)
        br_reader_get_counters(r, &of_reader);
    else
        br_queue_get_counters(q, &of_queue);
    return r != NULL ? of_reader.wait_ns : of_queue.wait_ns;
}

/* Starts an acquire or a wait in a thread of its own and checks that it has waited for 20 ms. */
static inline struct attempt *start(struct br_queue *q, struct br_reader *r)
{
    static struct attempt a;
    uint64_t before = waited(q, r);
    bool done = false;
    a = (struct attempt){.queue = q, .reader = r, .lock = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(pthread_create(&a.thread, NULL, try_it, &a), 0);
    while (!done && waited(q, r) - before < 20000000) { /* however late a busy machine starts the thread */
        usleep(1000);
        pthread_mutex_lock(&a.lock);
        done = a.done;
        pthread_mutex_unlock(&a.lock);
    }
    assert_false(done);
    return &a;
}

static inline int outcome(struct attempt *a)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    if (pthread_timedjoin_np(a->thread, NULL, &limit) != 0) fail_msg("it waits for ever");
    return a->result;
}

#endif
