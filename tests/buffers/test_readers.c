/* Dropping readers. */
#include "tests/buffers/frames.h"

/* --- dropping readers --- */

static void a_lapped_reader_loses_its_oldest(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 4; depth++) {
        struct br_queue *q = create("q", depth);
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
    struct br_queue *q = create("q", 3);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lapped_reader_loses_its_oldest),
        cmocka_unit_test(the_frame_being_read_stays),
    };
    return cmocka_run_group_tests_name("dropping readers", tests, NULL, NULL);
}
