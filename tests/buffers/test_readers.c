/* Dropping readers, and queues in place. */
#include "tests/buffers/frames.h"

/* --- dropping readers
 * ----------------------------------------------------------------------------------------------------- */

static void a_lapped_reader_loses_its_oldest(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 4; depth++) {
        struct br_queue *q = create("q", depth, NULL);
        struct br_reader *r = reader(q, BR_POLICY_DROP);
        seal(q);
        for (unsigned i = 0; i < 10; i++) put(q, i);
        assert_counts(r, 0, 10 - depth, 0);
        br_queue_close(q);
        for (unsigned i = 10 - depth; i < 10; i++) {
            take(r, i);
            br_reader_release(r);
        }
        assert_ends(r, 0);
        assert_counts(r, depth, 10 - depth, 0);
        br_queue_destroy(q);
    }
}

static void the_frame_being_read_stays(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 3, NULL);
    struct br_reader *fast = reader(q, BR_POLICY_BLOCK), *d[3];
    for (int i = 0; i < 3; i++) d[i] = reader(q, BR_POLICY_DROP);
    assert_true(br_queue_bytes(q) >= 6 * (BYTES + 4));
    seal(q);
    for (unsigned i = 0; i < 50; i++) {
        put(q, i);
        take(fast, i);
        br_reader_release(fast);
        if (i < 3)
            take(d[i], 0), br_reader_release(d[i]); /* they read frame 0, and then take one that they keep */
        if (i >= 3 && i < 6) {
            const struct br_frame *f;
            assert_int_equal(br_reader_wait(d[i - 3], &f), 1);
        }
    }
    for (int i = 0; i < 3; i++) {
        const struct br_frame *f;
        assert_int_equal(br_reader_wait(d[i], &f), 1); /* the kept one: lapped many times, untouched */
        assert_in_range(f->first / 4, 1, 5);
        for (size_t b = 0; b < BYTES; b++) assert_int_equal(((uint8_t *)f->data)[b], f->first / 4);
        br_reader_release(d[i]);
        take(d[i], 47);
        br_reader_release(d[i]);
    }
    br_queue_close(q);
    for (int i = 0; i < 3; i++) {
        take(d[i], 48);
        br_reader_release(d[i]);
        br_reader_detach(d[i]);
        struct br_reader_counters c;
        br_reader_get_counters(d[i], &c);
        assert_int_equal(c.delivered_frames, 4);
        assert_int_equal(c.discarded_frames, 1);
        assert_int_equal(c.delivered_frames + c.dropped_frames + c.discarded_frames, 50);
    }
    assert_counts(fast, 50, 0, 0);
    br_queue_destroy(q);
}

/* --- in place
 * ------------------------------------------------------------------------------------------------------------- */

static void an_alias_hands_the_same_memory_on(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2, NULL);
    struct br_reader *p = reader(q, BR_POLICY_BLOCK);
    struct br_queue *alias = create("alias", 0, p);
    struct br_reader *a = reader(alias, BR_POLICY_BLOCK), *b = reader(alias, BR_POLICY_BLOCK);
    assert_int_equal(br_queue_bytes(alias), 0);
    seal(q);
    seal(alias);
    struct br_frame *out;
    assert_int_equal(br_queue_acquire(alias, &out), BR_E_INTERNAL); /* nothing held on the parent */
    put(q, 0);
    put(q, 1);
    const struct br_frame *in = take(p, 0);
    assert_int_equal(br_queue_acquire(alias, &out), 0);
    assert_ptr_equal(in->data, out->data);
    assert_int_equal(out->samples, 4);
    memset(out->data, 7, BYTES);
    out->first = 4 * 7;
    br_queue_publish(alias);
    assert_int_equal(br_queue_acquire(alias, &out), BR_E_INTERNAL); /* handed on already */
    br_reader_release(p);
    assert_int_equal(fill_of(q), 1);
    assert_int_equal(fill_of(alias), 1);
    take(a, 7);
    br_reader_release(a);
    struct attempt *more = start(q, NULL); /* b has not read it: the slot is not free */
    take(b, 7);
    br_reader_release(b);
    assert_int_equal(outcome(more), 0);
    /* a frame that is acquired and then given up on the parent goes back */
    take(p, 1);
    assert_int_equal(br_queue_acquire(alias, &out), 0);
    br_reader_discard(p);
    br_queue_publish(alias); /* of nothing */
    assert_counts(p, 1, 0, 1);
    assert_int_equal(fill_of(alias), 0);
    br_queue_publish(q); /* what `more` acquired; samples 0 here, so it counts none */
    struct br_queue_counters c;
    br_queue_get_counters(alias, &c);
    assert_int_equal(c.frames, 1);
    assert_int_equal(c.depth, 2);
    br_queue_destroy(alias);
    br_queue_destroy(q);
}

static void an_alias_keeps_the_parents_balance(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2, NULL);
    struct br_reader *p = reader(q, BR_POLICY_BLOCK);
    struct br_queue *alias = create("alias", 0, p);
    struct br_reader *a = reader(alias, BR_POLICY_BLOCK);
    seal(q);
    seal(alias);
    put(q, 0);
    take(p, 0);
    struct br_frame *out;
    assert_int_equal(br_queue_acquire(alias, &out), 0);
    out->samples = 3; /* a stage that cuts frames short: each queue counts what went through it */
    br_queue_publish(alias);
    br_reader_release(p);
    take(a, 0);
    br_reader_release(a);
    assert_counts(p, 1, 0, 0);
    struct br_reader_counters c;
    br_reader_get_counters(a, &c);
    assert_int_equal(c.delivered_samples, 3);
    br_queue_destroy(alias);
    br_queue_destroy(q);
}

static void a_dropping_reader_of_an_alias_is_lapped_by_the_root(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2, NULL), *alias[2];
    struct br_reader *p[3] = {reader(q, BR_POLICY_BLOCK)}, *d;
    for (int i = 0; i < 2; i++) {
        alias[i] = create("alias", 0, p[i]);
        if (i == 0) p[1] = reader(alias[0], BR_POLICY_BLOCK);
    }
    p[2] = reader(alias[1], BR_POLICY_BLOCK);
    d = reader(alias[1], BR_POLICY_DROP);
    seal(q);
    seal(alias[0]);
    seal(alias[1]);
    for (unsigned i = 0; i < 20; i++) {
        struct br_frame *out;
        put(q, i);
        for (int k = 0; k < 2; k++) {
            take(p[k], i);
            assert_int_equal(br_queue_acquire(alias[k], &out), 0);
            br_queue_publish(alias[k]);
            br_reader_release(p[k]);
        }
        take(p[2], i);
        br_reader_release(p[2]);
        if (i == 4) take(d, 3);
    }
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(((const uint8_t *)take(d, 3)->data)[b], 3);
    br_reader_release(d);
    take(d, 18);
    br_reader_release(d);
    take(d, 19);
    br_reader_release(d);
    assert_counts(d, 3, 17, 0);
    assert_counts(p[2], 20, 0, 0);
    br_queue_destroy(alias[1]);
    br_queue_destroy(alias[0]);
    br_queue_destroy(q);
}

/* An in-place stage that reads as a dropping reader, with a blocking reader behind it that does not move:
 * the stage gets stuck when its own queue is full, and the producer goes on all the same. */
static void nothing_behind_a_dropping_reader_holds_the_producer_up(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2, NULL);
    struct br_reader *p = reader(q, BR_POLICY_DROP);
    struct br_queue *alias = create("alias", 0, p);
    struct br_reader *stuck = reader(alias, BR_POLICY_BLOCK);
    seal(q);
    seal(alias);
    struct br_frame *out;
    for (unsigned i = 0; i < 2; i++) {
        put(q, i);
        take(p, i);
        assert_int_equal(br_queue_acquire(alias, &out), 0);
        br_queue_publish(alias);
        br_reader_release(p);
    }
    put(q, 2);
    take(p, 2);
    struct attempt *third = start(alias, NULL);
    for (unsigned i = 3; i < 50; i++) put(q, i);
    take(stuck, 0);
    br_reader_release(stuck);
    assert_int_equal(outcome(third), 0);
    br_queue_publish(alias);
    br_reader_release(p);
    take(p, 48);
    for (unsigned i = 50; i < 90; i++) put(q, i);
    take(stuck, 1);
    br_reader_release(stuck);
    take(stuck, 2);
    br_reader_release(stuck);
    br_reader_release(p);
    br_queue_close(alias);
    assert_ends(stuck, 0);
    assert_counts(stuck, 3, 0, 0);
    assert_counts(p, 4, 84, 0); /* and two more that wait in the ring */
    br_reader_detach(p);
    assert_counts(p, 4, 84, 2);
    br_queue_destroy(alias);
    br_queue_destroy(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lapped_reader_loses_its_oldest),
        cmocka_unit_test(the_frame_being_read_stays),
        cmocka_unit_test(an_alias_hands_the_same_memory_on),
        cmocka_unit_test(an_alias_keeps_the_parents_balance),
        cmocka_unit_test(a_dropping_reader_of_an_alias_is_lapped_by_the_root),
        cmocka_unit_test(nothing_behind_a_dropping_reader_holds_the_producer_up),
    };
    return cmocka_run_group_tests_name("dropping readers and aliases", tests, NULL, NULL);
}
