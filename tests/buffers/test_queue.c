/* The promises of a queue, one at a time: order, waiting, ends. Most of it in one thread: what would
 * wait is asked only where it must not. */
#include "tests/buffers/frames.h"

#include <stdlib.h>
#include <sys/mman.h>

static void frames_come_in_order(void **state)
{
    (void)state;
    struct br_queue *q = create("field", 3);
    struct br_reader *a = reader(q, BR_POLICY_BLOCK), *b = reader(q, BR_POLICY_BLOCK);
    assert_true(br_queue_bytes(q) >= 3 * (BYTES + 4));
    seal(q);
    for (unsigned i = 0; i < 20; i++) {
        put(q, i);
        const struct br_frame *x = take(a, i), *again;
        assert_int_equal((uintptr_t)x->data % 64, 0);
        assert_null(x->side);
        assert_int_equal(br_reader_wait(a, &again), 1); /* not released: the same */
        assert_ptr_equal(x, again);
        assert_ptr_equal(x, take(b, i));
        br_reader_release(b);
        assert_int_equal(fill_of(q), 1);
        br_reader_release(a);
        assert_int_equal(fill_of(q), 0);
    }
    put(q, 20);
    put(q, 21);
    br_queue_close(q);
    take(a, 20);
    br_reader_release(a);
    take(a, 21);
    br_reader_discard(a);
    assert_ends(a, 0);
    assert_ends(a, 0);
    take(b, 20);
    br_reader_detach(b);
    assert_ends(b, 0);
    assert_counts(a, 21, 0, 1);
    assert_counts(b, 20, 0, 2);
    struct br_queue_counters c;
    br_queue_get_counters(q, &c);
    assert_int_equal(c.frames, 22);
    assert_int_equal(c.depth, 3);
    assert_int_equal(c.fill, 0);
    assert_int_equal(c.max_fill, 2);
    assert_true(c.ended);
    struct br_frame *f;
    assert_int_equal(br_queue_acquire(q, &f), BR_E_STOPPED);
    br_queue_destroy(q);
}

/* Slots are lent, and frames taken, before anybody asks for them: whoever never asks has published nothing
 * and read nothing, and an abort counts what nobody asked for as discarded. */
static void nothing_happens_unasked(void **state)
{
    (void)state;
    struct br_queue *q = create("field", 4);
    struct br_reader *a = reader(q, BR_POLICY_BLOCK), *b = reader(q, BR_POLICY_BLOCK);
    const struct br_frame *x;
    struct br_queue_counters c;
    seal(q);
    for (unsigned i = 0; i < 3; i++) put(q, i);
    assert_int_equal(br_queue_publish(q), BR_OK); /* not acquired */
    br_queue_get_counters(q, &c);
    assert_int_equal(c.frames, 3);
    take(a, 0);
    assert_int_equal(br_reader_release(a), BR_OK);
    assert_int_equal(br_reader_release(a), BR_OK); /* not waited for */
    br_reader_discard(a);
    assert_counts(a, 1, 0, 0);
    take(a, 1);
    br_reader_release(a);
    take(b, 0);
    br_reader_release(b);
    assert_int_equal(fill_of(q), 2);
    br_reader_detach(b);
    assert_counts(b, 1, 0, 2);
    br_queue_abort(q);
    assert_counts(a, 2, 0, 1);
    assert_int_equal(br_reader_wait(a, &x), BR_E_STOPPED);
    struct br_frame *f;
    assert_int_equal(br_queue_acquire(q, &f), BR_E_STOPPED);
    br_reader_detach(a);
    assert_counts(a, 2, 0, 1);
    br_queue_destroy(q);
}

/* The last reader leaves after the next slot was lent: the producer is told all the same. */
static void lent_to_nobody(void **state)
{
    (void)state;
    struct br_queue *q = create("field", 4);
    struct br_reader *a = reader(q, BR_POLICY_BLOCK);
    struct br_frame *f;
    seal(q);
    put(q, 0);
    br_reader_detach(a);
    assert_int_equal(br_queue_acquire(q, &f), BR_E_STOPPED);
    assert_counts(a, 0, 0, 1);
    br_queue_destroy(q);
}

/* A producer that fills three frames at a time: what is lent ahead is what later acquires bring, with what
 * was written; nothing waits, and what is never published is given back. */
static void frames_are_lent_ahead(void **state)
{
    (void)state;
    struct br_queue *q = create("field", 4);
    struct br_reader *a = reader(q, BR_POLICY_BLOCK);
    seal(q);
    struct br_frame *now, *first, *second, *again, *none;
    assert_int_equal(br_queue_lend_ahead(q, 1, &none), BR_E_INTERNAL); /* nothing is acquired */
    assert_int_equal(br_queue_acquire(q, &now), 0);
    assert_int_equal(br_queue_lend_ahead(q, 2, &none), BR_E_INTERNAL); /* 1 comes before 2 */
    assert_int_equal(br_queue_lend_ahead(q, 1, &first), 0);
    assert_int_equal(br_queue_lend_ahead(q, 2, &second), 0);
    assert_int_equal(br_queue_lend_ahead(q, 1, &again), 0);
    assert_ptr_equal(first, again);
    assert_true(now->data != first->data && now->data != second->data && first->data != second->data);
    memset(first->data, 1, BYTES);
    memset(second->data, 2, BYTES);
    now->first = 0, first->first = 4, second->first = 8;
    now->samples = first->samples = second->samples = 4;
    assert_int_equal(br_queue_publish(q), 0);
    assert_int_equal(br_queue_acquire(q, &again), 0);
    assert_ptr_equal(first, again);
    assert_int_equal(br_queue_publish(q), 0);
    assert_int_equal(br_queue_acquire(q, &again), 0);
    assert_ptr_equal(second, again);
    assert_int_equal(br_queue_lend_ahead(q, 1, &again), 0); /* the fourth slot */
    assert_non_null(again);
    assert_int_equal(br_queue_lend_ahead(q, 2, &none), 0); /* readers hold the others */
    assert_null(none);
    assert_int_equal(br_queue_publish(q), 0);
    const struct br_frame *x;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(br_reader_wait(a, &x), 1);
        assert_int_equal(x->first, 4 * i);
        if (i > 0) assert_int_equal(((const uint8_t *)x->data)[BYTES - 1], i);
        br_reader_release(a);
    }
    br_queue_close(q); /* with one lent ahead, and none acquired */
    assert_ends(a, 0);
    struct br_queue_counters c;
    br_queue_get_counters(q, &c);
    assert_int_equal(c.frames, 3);
    br_queue_destroy(q);
}

static void side_and_validity_have_memory(void **state)
{
    (void)state;
    struct br_stream s = plain_stream(4, 2, 3);
    s.zone[0].downsample = 2;
    s.array.axis[0].length = 2;
    s.side = (struct br_array){.dtype = BR_F32, .naxes = 2, .axis = {{"freq", 2}, {"pair", 2}}};
    struct br_queue *q;
    assert_int_equal(br_queue_create(&q, "x", &s, 2, BR_HOST, NULL), 0);
    struct br_reader *r = reader(q, BR_POLICY_BLOCK);
    size_t promised = br_queue_bytes(q);
    seal(q);
    assert_int_equal(br_queue_bytes(q), promised);
    uint8_t *low = NULL;
    for (unsigned i = 0; i < 2; i++) {
        struct br_frame *f;
        assert_int_equal(br_queue_acquire(q, &f), 0);
        /* a frame that starts inside a step touches 3 of them: all that must be writable without touching
         * neighbours */
        memset(f->data, 1 + (int)i, 3 * 2 * 3);
        memset(f->side, 3 + (int)i, 16);
        memset(f->valid, 5 + (int)i, 3 * 2);
        assert_int_equal((uintptr_t)f->data % 64 + (uintptr_t)f->side % 64 + (uintptr_t)f->valid % 64, 0);
        if (low == NULL || (uint8_t *)f->data < low) low = f->data;
        f->first = 1;
        f->samples = 4;
        f->complete = i == 0;
        f->missing = i == 0 ? 99 : 2; /* of a complete frame nothing is missing, whatever it says */
        br_queue_publish(q);
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct br_frame *f;
        assert_int_equal(br_reader_wait(r, &f), 1);
        for (size_t b = 0; b < 18; b++) assert_int_equal(((uint8_t *)f->data)[b], 1 + i);
        for (size_t b = 0; b < 16; b++) assert_int_equal(((uint8_t *)f->side)[b], 3 + i);
        for (size_t b = 0; b < 6; b++) assert_int_equal(f->valid[b], 5 + i);
        assert_true((uint8_t *)f->valid + 6 <= low + promised);
        br_reader_release(r);
    }
    struct br_queue_counters c;
    br_queue_get_counters(q, &c);
    assert_int_equal(c.missing, 2);
    br_queue_destroy(q);
}

static void producer_waits_for_the_slowest_blocking_reader(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 5; depth++) {
        struct br_queue *q = create("q", depth);
        struct br_reader *a = reader(q, BR_POLICY_BLOCK), *b = reader(q, BR_POLICY_BLOCK),
                         *d = reader(q, BR_POLICY_DROP);
        seal(q);
        for (unsigned i = 0; i < depth; i++) put(q, i);
        for (unsigned i = 0; i < depth; i++) {
            take(a, i);
            br_reader_release(a);
        }
        take(b, 0);
        struct attempt *more =
            start(q, NULL); /* b reads frame 0 still, and the spare slot of d is not for it */
        assert_int_equal(fill_of(q), depth);
        br_reader_release(b);
        assert_int_equal(outcome(more), 0);
        struct br_queue_counters c;
        br_queue_get_counters(q, &c);
        assert_int_equal(c.max_fill, depth);
        assert_true(c.wait_ns >= 15000000 && c.wait_ns < UINT64_C(20000000000));
        assert_counts(d, 0, 1, 0); /* frame 0 went to the new one */
        br_queue_destroy(q);
    }
}

static void reader_waits_for_a_frame(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2);
    struct br_reader *r = reader(q, BR_POLICY_BLOCK);
    seal(q);
    struct attempt *wait = start(NULL, r);
    struct br_reader_counters c;
    br_reader_get_counters(r, &c); /* a wait counts while it lasts */
    assert_true(c.wait_ns >= 10000000);
    put(q, 0);
    assert_int_equal(outcome(wait), 1);
    br_reader_release(r);
    wait = start(NULL, r);
    br_queue_close(q);
    assert_int_equal(outcome(wait), 0);
    br_reader_get_counters(r, &c);
    assert_true(c.wait_ns >= 30000000);
    br_queue_destroy(q);
}

static void everything_wakes_everybody(void **state)
{
    (void)state;
    for (int how = 0; how < 4;
         how++) { /* abort and close wake a reader; abort and detach wake the producer */
        struct br_queue *q = create("q", 1);
        struct br_reader *r = reader(q, BR_POLICY_BLOCK);
        seal(q);
        if (how >= 2) put(q, 0);
        struct attempt *wait = how < 2 ? start(NULL, r) : start(q, NULL);
        if (how == 0 || how == 2) br_queue_abort(q);
        if (how == 1) br_queue_close(q);
        if (how == 3) br_reader_detach(r);
        assert_int_equal(outcome(wait), how == 1 ? 0 : BR_E_STOPPED);
        if (how >= 2) assert_counts(r, 0, 0, 1);
        br_queue_destroy(q);
    }
}

/* --- ends --- */

static void ends_with_a_frame_acquired(void **state)
{
    (void)state;
    for (int aborted = 0; aborted < 2; aborted++) {
        struct br_queue *q = create("q", 2);
        struct br_reader *r = reader(q, BR_POLICY_BLOCK);
        seal(q);
        put(q, 0);
        struct br_frame *f, *same;
        assert_int_equal(br_queue_acquire(q, &f), 0);
        assert_int_equal(br_queue_acquire(q, &same), 0);
        assert_ptr_equal(f, same);
        f->samples = 4;
        f->first = 4;
        if (aborted)
            br_queue_abort(q);
        else
            br_queue_close(q);
        br_queue_publish(
            q); /* after an abort it counts as published and discarded, after an end not at all */
        if (aborted) {
            assert_ends(r, BR_E_STOPPED);
            assert_counts(r, 0, 0, 2);
        } else {
            take(r, 0);
            br_reader_release(r);
            assert_ends(r, 0);
            assert_counts(r, 1, 0, 0);
        }
        struct br_queue_counters c;
        br_queue_get_counters(q, &c);
        assert_int_equal(c.frames, aborted ? 2 : 1);
        assert_int_equal(br_queue_acquire(q, &f), BR_E_STOPPED);
        br_queue_abort(q);
        br_queue_abort(q);
        br_queue_close(q);
        br_queue_destroy(q);
    }
}

static void an_abort_discards_what_was_not_delivered(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 4);
    struct br_reader *a = reader(q, BR_POLICY_BLOCK), *b = reader(q, BR_POLICY_DROP);
    seal(q);
    for (unsigned i = 0; i < 4; i++) put(q, i);
    take(a, 0);
    br_queue_abort(q);
    assert_ends(a, BR_E_STOPPED);
    assert_counts(a, 0, 0, 3);
    br_reader_release(a); /* it was delivered all the same */
    assert_counts(a, 1, 0, 3);
    assert_counts(b, 0, 0, 4);
    br_queue_destroy(q);
}

static void a_detached_reader_holds_nobody_up(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2);
    struct br_reader *a = reader(q, BR_POLICY_BLOCK), *b = reader(q, BR_POLICY_BLOCK);
    seal(q);
    put(q, 0);
    put(q, 1);
    take(b, 0);
    br_reader_detach(b);
    br_reader_detach(b);
    br_reader_release(b);
    for (unsigned i = 0; i < 10; i++) {
        take(a, i);
        br_reader_release(a);
        put(q, i + 2);
    }
    assert_counts(b, 0, 0, 12);
    br_reader_detach(a);
    struct br_frame *f;
    assert_int_equal(br_queue_acquire(q, &f), BR_E_STOPPED);
    assert_counts(a, 10, 0, 2);
    br_queue_destroy(q);
}

/* Pages of a large queue, which several threads touch, are all there, to its last byte. */
static void memory_is_there_from_the_start(void **state)
{
    (void)state;
    struct br_stream s = plain_stream((size_t)25 << 20, 1, 1);
    struct br_error error = {0};
    struct br_queue *q;
    assert_int_equal(br_queue_create(&q, "large", &s, 2, BR_HOST, &error), 0);
    reader(q, BR_POLICY_BLOCK);
    seal(q);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (q->slots.bytes + page - 1) / page;
    assert_true(q->slots.bytes > (size_t)96 << 20);
    unsigned char *there = calloc(pages, 1);
    assert_non_null(there);
    assert_int_equal(mincore(q->slots.memory, q->slots.bytes, there), 0);
    for (size_t i = 0; i < pages; i++) assert_true((there[i] & 1) != 0);
    free(there);
    br_queue_destroy(q);
}

static void refuses(void **state)
{
    (void)state;
    struct br_stream s = plain_stream(4, 1, 3), huge = plain_stream(4, 1, 3);
    struct br_error error = {0};
    struct br_queue *q;
    struct br_reader *r;
    assert_int_equal(br_queue_create(&q, "deep", &s, 0, BR_HOST, &error), BR_E_INVALID);
    assert_says(&error, "deep");
    assert_null(q);
    q = create("q", 2);
    reader(q, BR_POLICY_BLOCK);
    seal(q);
    error = (struct br_error){0};
    assert_int_equal(br_queue_add_reader(q, "late", BR_POLICY_BLOCK, &r, &error), BR_E_INVALID);
    assert_says(&error, "late");
    br_queue_destroy(q);
    /* more than the machine has: a message, not the end of some program */
    huge.frame_samples = huge.array.axis[0].length = (size_t)1 << 40;
    assert_int_equal(br_stream_check(&huge, NULL), 0);
    error = (struct br_error){0};
    assert_int_equal(br_queue_create(&q, "huge", &huge, 8, BR_HOST, &error), 0);
    reader(q, BR_POLICY_BLOCK);
    assert_int_equal(br_queue_seal(q, &error), BR_E_NO_MEMORY);
    assert_says(&error, "huge");
    assert_says(&error, "33554432.0 MiB");
    br_queue_destroy(q);
    br_queue_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_in_order),
        cmocka_unit_test(nothing_happens_unasked),
        cmocka_unit_test(lent_to_nobody),
        cmocka_unit_test(frames_are_lent_ahead),
        cmocka_unit_test(side_and_validity_have_memory),
        cmocka_unit_test(producer_waits_for_the_slowest_blocking_reader),
        cmocka_unit_test(reader_waits_for_a_frame),
        cmocka_unit_test(everything_wakes_everybody),
        cmocka_unit_test(ends_with_a_frame_acquired),
        cmocka_unit_test(an_abort_discards_what_was_not_delivered),
        cmocka_unit_test(a_detached_reader_holds_nobody_up),
        cmocka_unit_test(memory_is_there_from_the_start),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests_name("queues", tests, NULL, NULL);
}
