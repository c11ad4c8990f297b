/* Queues whose producer or reader works on a GPU, with a GPU that is none: what happens around events. */
#include "tests/buffers/fake_gpu.h"
#include "tests/buffers/frames.h"

#define DEVICE ((struct br_place){BR_SPACE_CUDA, 0})
static const struct br_gpu_stream stream = {0, (void *)&stream};

static struct br_queue *on_gpu(unsigned depth, struct br_place place, struct br_reader **r)
{
    struct br_stream s = plain_stream(4, 1, 3);
    struct br_queue *q;
    struct br_error error = {0};
    fake_events_happen = true;
    fake_record_status = BR_OK;
    if (br_queue_create(&q, "q", &s, depth, place, &error) != 0) fail_msg("%s", error.text);
    br_queue_set_stream(q, &stream);
    *r = reader(q, BR_POLICY_BLOCK);
    seal(q);
    return q;
}

static void close_it(void *queue)
{
    br_queue_close(queue);
}

/* Another thread ends the queue while publish records the event, without the lock: the frame is given
 * back, once. */
static void an_end_while_the_event_is_recorded(void **state)
{
    (void)state;
    struct br_reader *r;
    struct br_queue *q = on_gpu(2, DEVICE, &r);
    put(q, 0);
    struct br_frame *f;
    assert_int_equal(br_queue_acquire(q, &f), 0);
    f->first = f->samples = 4;
    fake_on_record = close_it;
    fake_on_record_arg = q;
    assert_int_equal(br_queue_publish(q), 0);
    struct br_queue_counters c;
    br_queue_get_counters(q, &c);
    assert_int_equal(c.frames, 1);
    assert_int_equal(c.fill, 1);
    take(r, 0);
    br_reader_release(r);
    assert_ends(r, 0);
    assert_counts(r, 1, 0, 0);
    br_queue_destroy(q);
}

static void an_event_that_cannot_be_recorded(void **state)
{
    (void)state;
    struct br_reader *r;
    struct br_queue *q = on_gpu(2, DEVICE, &r);
    struct br_frame *f, *again;
    struct br_error error;
    assert_int_equal(br_queue_acquire(q, &f), 0);
    f->samples = 4;
    fake_record_status = BR_E_DEVICE;
    assert_int_equal(br_queue_publish(q), BR_E_DEVICE);
    br_queue_error(q, &error);
    assert_says(&error, "queue 'q': recording failed");
    assert_int_equal(br_queue_acquire(q, &again), 0); /* it is the producer's still */
    assert_ptr_equal(f, again);
    br_queue_close(q);
    assert_ends(r, 0);
    assert_counts(r, 0, 0, 0);
    br_queue_destroy(q);
}

/* How far a GPU has come, although the host has run ahead of it: each slot has been enqueued again and
 * again. */
static void the_oldest_frame_that_is_not_ready(void **state)
{
    (void)state;
    for (int on_device = 0; on_device < 2; on_device++) {
        struct br_reader *r;
        struct br_queue *q = on_gpu(2, on_device ? DEVICE : BR_HOST, &r);
        uint64_t first = 0;
        assert_false(br_queue_oldest_unready(q, &first));
        fake_events_last = true;
        for (unsigned i = 0; i < 8; i++) {
            fake_events_happen = i < 3;
            put(q, i);
            fake_events_happen = true; /* for the reader; those that were recorded before have their answer */
            take(r, i);
            br_reader_release(r);
        }
        fake_events_happen = false;
        assert_true(br_queue_oldest_unready(q, &first));
        assert_int_equal(first, 12);
        fake_events_happen = true;
        fake_events_last = false;
        br_queue_destroy(q);
    }
}

/* A host that waits for a GPU which never gets there: how long can be seen, and an abort ends it. */
static void an_abort_ends_a_wait_for_the_gpu(void **state)
{
    (void)state;
    struct br_reader *r;
    struct br_queue *q = on_gpu(2, DEVICE, &r);
    put(q, 7);
    uint64_t first = 0;
    assert_false(br_queue_oldest_unready(q, &first));
    fake_events_happen = false;
    assert_true(br_queue_oldest_unready(q, &first));
    assert_int_equal(first, 28);
    assert_int_equal(br_reader_gpu_wait_since(r), 0);
    struct attempt a = {.queue = q, .reader = r, .lock = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(pthread_create(&a.thread, NULL, try_it, &a), 0);
    for (int i = 0; i < 20000 && br_reader_gpu_wait_since(r) == 0; i++) usleep(1000);
    assert_true(br_reader_gpu_wait_since(r) > 0);
    usleep(5000);
    assert_false(a.done);
    br_queue_abort(q);
    assert_int_equal(outcome(&a), BR_E_STOPPED);
    assert_int_equal(br_reader_gpu_wait_since(r), 0);
    struct br_error error;
    br_queue_error(q, &error);
    assert_int_equal(error.status, BR_OK); /* nothing failed */
    struct br_reader_counters c;
    br_reader_get_counters(r, &c);
    assert_int_equal(c.held_frames, 1);
    assert_int_equal(c.held_samples, 4);
    br_reader_discard(r);
    assert_counts(r, 0, 0, 1);
    br_queue_destroy(q);
}

/* Which idle slot a producer gets: in host memory the one released last, whose cache is warm; on a GPU the
 * one released first, which streams have long done with. */
static void slots_are_reused(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        struct br_reader *r;
        struct br_queue *q;
        if (gpu) {
            q = on_gpu(4, DEVICE, &r);
        } else {
            q = create("q", 4);
            r = reader(q, BR_POLICY_BLOCK);
            seal(q);
        }
        struct br_frame *f;
        const void *memory[4];
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(br_queue_acquire(q, &f), 0);
            memory[i] = f->data;
            for (unsigned k = 0; k < i; k++) assert_ptr_not_equal(memory[i], memory[k]);
            f->samples = 4;
            br_queue_publish(q);
        }
        for (unsigned i = 0; i < 3; i++) {
            const struct br_frame *g;
            assert_int_equal(br_reader_wait(r, &g), 1);
            assert_ptr_equal(g->data, memory[i]);
            br_reader_release(r);
        }
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(br_queue_acquire(q, &f), 0);
            assert_ptr_equal(f->data, memory[gpu ? i : 2 - i]);
            f->samples = 4;
            br_queue_publish(q);
        }
        br_queue_destroy(q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_while_the_event_is_recorded),
        cmocka_unit_test(an_event_that_cannot_be_recorded),
        cmocka_unit_test(the_oldest_frame_that_is_not_ready),
        cmocka_unit_test(an_abort_ends_a_wait_for_the_gpu),
        cmocka_unit_test(slots_are_reused),
    };
    return cmocka_run_group_tests_name("queues and events", tests, NULL, NULL);
}
