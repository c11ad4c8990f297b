/* Counters that others read while threads work: without a lock, and numbers that belong together. */
#include "frames.h"

#include "buffers/ring.h"

/* Whoever holds the lock keeps no reader of counters waiting: so none of those takes it, and no stage's
 * thread ever waits for one that is stopped in the middle. */
static void counters_take_no_lock(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 3);
    struct br_reader *r = reader(q, BR_POLICY_BLOCK);
    struct br_queue_counters of_queue;
    struct br_reader_counters of_reader;
    seal(q);
    put(q, 0);
    put(q, 1);
    take(r, 0);
    pthread_mutex_lock(&q->lock);
    br_queue_get_counters(q, &of_queue);
    br_reader_get_counters(r, &of_reader);
    (void)br_queue_gpu_wait_since(q);
    (void)br_reader_gpu_wait_since(r);
    pthread_mutex_unlock(&q->lock);
    assert_int_equal(of_queue.frames, 2);
    assert_int_equal(of_queue.samples, 8);
    assert_int_equal(of_queue.newest, 8);
    assert_int_equal(of_queue.fill, 2);
    assert_int_equal(of_queue.wait_since, 0);
    assert_int_equal(of_reader.held_frames, 1);
    assert_int_equal(of_reader.held_samples, 4);
    assert_int_equal(of_reader.next, 1);
    br_queue_destroy(q);
}

enum { FRAMES = 5000, WATCHERS = 2 };

struct watched {
    struct br_queue *queue;
    struct br_reader *block, *drop;
    _Atomic bool over;
};

static void *produce(void *arg)
{
    struct watched *w = arg;
    for (unsigned i = 0; i < FRAMES; i++) put(w->queue, i);
    br_queue_close(w->queue);
    return NULL;
}

static void *consume(void *arg)
{
    struct br_reader *r = arg;
    const struct br_frame *f;
    while (br_reader_wait(r, &f) == 1) br_reader_release(r);
    return NULL;
}

/* Each number against the others of its struct; what counts never falls. */
static void *watch(void *arg)
{
    struct watched *w = arg;
    struct br_queue_counters q, last_q = {0};
    struct br_reader_counters r, last_r = {0};
    unsigned long wrong = 0;
    while (!atomic_load(&w->over)) {
        br_queue_get_counters(w->queue, &q);
        wrong += q.samples != 4 * q.frames || q.newest != q.samples || q.frames < last_q.frames ||
                 q.fill > q.depth || q.max_fill < last_q.max_fill;
        br_reader_get_counters(w->drop, &r);
        wrong += r.delivered_samples != 4 * r.delivered_frames || r.dropped_samples != 4 * r.dropped_frames ||
                 r.held_samples != 4 * r.held_frames ||
                 r.next != r.delivered_frames + r.dropped_frames + r.held_frames || r.next < last_r.next ||
                 r.dropped_frames < last_r.dropped_frames;
        last_q = q;
        last_r = r;
    }
    return (void *)wrong;
}

static void counters_belong_together(void **state)
{
    (void)state;
    struct watched w = {.queue = create("q", 4)};
    w.block = reader(w.queue, BR_POLICY_BLOCK);
    w.drop = reader(w.queue, BR_POLICY_DROP);
    seal(w.queue);
    pthread_t thread[3], watcher[WATCHERS];
    for (int i = 0; i < WATCHERS; i++) assert_int_equal(pthread_create(&watcher[i], NULL, watch, &w), 0);
    assert_int_equal(pthread_create(&thread[0], NULL, consume, w.block), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, consume, w.drop), 0);
    assert_int_equal(pthread_create(&thread[2], NULL, produce, &w), 0);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    atomic_store(&w.over, true);
    for (int i = 0; i < WATCHERS; i++) {
        void *wrong;
        pthread_join(watcher[i], &wrong);
        assert_null(wrong);
    }
    struct br_queue_counters q;
    struct br_reader_counters r;
    br_queue_get_counters(w.queue, &q);
    br_reader_get_counters(w.block, &r);
    assert_int_equal(q.frames, FRAMES);
    assert_true(q.ended);
    assert_int_equal(r.delivered_frames, FRAMES);
    br_queue_destroy(w.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counters_take_no_lock),
                                       cmocka_unit_test(counters_belong_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
