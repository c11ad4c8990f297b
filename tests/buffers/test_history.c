/* The history of a queue: pins, frames taken from them, and frames that are held. */
#include "buffers/history.h"
#include "tests/buffers/frames.h"

static struct br_reader *history(struct br_queue *q, unsigned frames)
{
    struct br_reader *r;
    struct br_error error = {0};
    if (br_queue_add_history(q, "history", frames, &r, &error) != 0) fail_msg("%s", error.text);
    return r;
}

/* Publishes frames [from, to), which the history's reader takes and gives back. */
static void pass(struct br_queue *q, struct br_reader *r, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        put(q, i);
        take(r, i);
        br_reader_release(r);
    }
}

/* The frame that is found for base sample `at` is number i, untouched; i < 0: there is none. */
static void assert_holds(struct br_reader *r, uint64_t at, int i)
{
    const struct br_frame *f = br_history_hold(r, at);
    if (i < 0) {
        assert_null(f);
        return;
    }
    assert_non_null(f);
    assert_int_equal(f->first, 4 * i);
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(((uint8_t *)f->data)[b], i & 255);
    br_history_let_go(r, f);
}

static void assert_span(const struct br_reader *r, uint64_t first, uint64_t end, unsigned frames,
                        unsigned pinned)
{
    struct br_history_span span;
    br_history_look(r, &span);
    assert_in_range(span.whole, first, end);
    assert_int_equal(span.first, first);
    assert_int_equal(span.end, end);
    assert_int_equal(span.frames, frames);
    assert_int_equal(span.pinned, pinned);
}

/* From here to the newest frame none has gone. */
static void assert_whole(const struct br_reader *r, uint64_t whole)
{
    struct br_history_span span;
    br_history_look(r, &span);
    assert_int_equal(span.whole, whole);
}

static void the_last_frames_stay(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 3; depth++) {
        struct br_queue *q = create("q", depth);
        struct br_reader *r = history(q, 5), *block = reader(q, BR_POLICY_BLOCK);
        seal(q);
        assert_span(r, 0, 0, 0, 0);
        assert_holds(r, 0, -1);
        for (unsigned i = 0; i < 40; i++) {
            pass(q, r, i, i + 1);
            take(block, i);
            br_reader_release(block);
            unsigned kept = i + 1 < 5 ? i + 1 : 5, oldest = i + 1 - kept;
            assert_span(r, 4 * oldest, 4 * (i + 1), kept, 0);
            assert_whole(r, 4 * oldest);
            for (unsigned k = 0; k <= i; k++) assert_holds(r, 4 * k + 1, (int)(k < oldest ? oldest : k));
            assert_holds(r, 4 * (i + 1), -1);
        }
        assert_counts(r, 40, 0, 0);
        assert_counts(block, 40, 0, 0);
        assert_int_equal(fill_of(q), 0);
        br_queue_destroy(q);
    }
}

static void memory_grows_by_the_history(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 3), *plain = create("plain", 3 + 7 + 1 + BR_HISTORY_HOLDS);
    history(q, 7);
    reader(plain, BR_POLICY_BLOCK);
    assert_int_equal(br_queue_history(q), 7);
    assert_int_equal(br_queue_history(plain), 0);
    assert_int_equal(br_queue_bytes(q), br_queue_bytes(plain));
    struct br_reader *r;
    struct br_error error = {0};
    assert_int_equal(br_queue_add_history(q, "h", 0, &r, &error), BR_E_INVALID);
    assert_int_equal(br_queue_add_history(q, "h", BR_MAX_SLOTS + 1, &r, &error), BR_E_INVALID);
    br_queue_destroy(q);
    br_queue_destroy(plain);
}

static void pinned_frames_stay_longer(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2);
    struct br_reader *r = history(q, 16);
    struct br_pin pin, other = {0};
    uint64_t frames, samples;
    seal(q);
    pass(q, r, 0, 16);
    br_pin(r, &pin, 4 * 3 + 2, 4 * 6 + 1); /* parts of 3 and 6 */
    assert_span(r, 0, 64, 16, 4);
    pass(q, r, 16, 100);
    assert_span(r, 12, 400, 16, 4);
    assert_whole(r, 4 * 88);
    for (int i = 3; i < 7; i++) assert_holds(r, 4 * (uint64_t)i, i);
    assert_holds(r, 4 * 7, 88); /* 12 that are not pinned */
    br_pin(r, &other, 4 * 5, 4 * 6);
    br_pin_advance(&pin, 4 * 5); /* 3 and 4 are released, and go next */
    assert_span(r, 12, 400, 16, 2);
    pass(q, r, 100, 102);
    assert_span(r, 20, 408, 16, 2);
    br_pin_end(&pin); /* 5 has another pin */
    assert_span(r, 20, 408, 16, 1);
    br_pin_taken(&other, &frames, &samples);
    assert_int_equal(frames + samples, 0);
    br_pin_end(&other);
    br_pin_end(&other); /* it is none any more */
    pass(q, r, 102, 104);
    assert_span(r, 4 * 88, 416, 16, 0);
    assert_whole(r, 4 * 88);
    br_queue_destroy(q);
}

static void pins_are_taken_oldest_first(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 1);
    struct br_reader *r = history(q, 16);
    struct br_pin all, some;
    uint64_t frames, samples;
    seal(q);
    pass(q, r, 0, 16);
    br_pin(r, &all, 1, 64);
    br_pin(r, &some, 6, 11); /* of frames 1 and 2 */
    pass(q, r, 16, 17);      /* nothing but pins: the oldest goes */
    br_pin_taken(&all, &frames, &samples);
    assert_int_equal(frames, 1);
    assert_int_equal(samples, 3);
    pass(q, r, 17, 50); /* two of them suffice for what is new */
    br_pin_taken(&all, &frames, &samples);
    assert_int_equal(frames, 2);
    assert_int_equal(samples, 7);
    assert_span(r, 8, 200, 16, 14);
    assert_holds(r, 0, 2);
    assert_holds(r, 4 * 16, 48);
    br_pin_taken(&some, &frames, &samples);
    assert_int_equal(frames, 1);
    assert_int_equal(samples, 2);
    br_pin_end(&all);
    br_pin_end(&some);
    pass(q, r, 50, 66);
    assert_span(r, 200, 264, 16, 0);
    br_queue_destroy(q);
}

static void pins_on_what_is_to_come(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 2);
    struct br_reader *r = history(q, 8);
    struct br_pin pin;
    seal(q);
    pass(q, r, 0, 4);
    br_pin(r, &pin, 4 * 10, 4 * 13);
    assert_span(r, 0, 16, 4, 0);
    pass(q, r, 4, 30);
    assert_span(r, 40, 120, 8, 3);
    for (int i = 10; i < 13; i++) assert_holds(r, 4 * (uint64_t)i, i);
    br_pin_end(&pin);
    br_queue_destroy(q);
}

static void a_held_frame_is_certain(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 1);
    struct br_reader *r = history(q, 2);
    seal(q);
    pass(q, r, 0, 2);
    put(q, 2);
    const struct br_frame *read = take(r, 2), *held = br_history_hold(r, 4);
    assert_int_equal(held->first, 4);
    for (int i = 1; i < BR_HISTORY_HOLDS; i++) assert_ptr_equal(br_history_hold(r, 4), held);
    assert_null(br_history_hold(r, 4)); /* so many at a time */
    for (int i = 1; i < BR_HISTORY_HOLDS; i++) br_history_let_go(r, held);
    for (unsigned i = 3; i < 60; i++) put(q, i);
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(((uint8_t *)held->data)[b], 1);
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(((uint8_t *)read->data)[b], 2);
    br_history_let_go(r, held);
    br_reader_release(r);
    assert_holds(r, 0, -1); /* frames 58 and 59 have not been given back by the reader */
    take(r, 58);
    br_reader_release(r);
    assert_holds(r, 0, 58);
    assert_counts(r, 4, 55, 0);
    br_queue_close(q);
    take(r, 59);
    br_reader_release(r);
    assert_ends(r, 0);
    assert_holds(r, 4 * 59, 59); /* after the end as well */
    assert_counts(r, 5, 55, 0);
    br_queue_destroy(q);
}

/* A blocking reader that is behind holds frames that the history has given up, and the other way round. */
static void released_and_kept_are_two_things(void **state)
{
    (void)state;
    struct br_queue *q = create("q", 6);
    struct br_reader *r = history(q, 2), *block = reader(q, BR_POLICY_BLOCK),
                     *drop = reader(q, BR_POLICY_DROP);
    seal(q);
    pass(q, r, 0, 6);
    assert_span(r, 16, 24, 2, 0);
    struct attempt *a = start(q, NULL); /* full of what `block` has yet to read */
    for (unsigned i = 0; i < 6; i++) {
        take(block, i);
        br_reader_release(block);
    }
    assert_int_equal(outcome(a), 0);
    for (unsigned i = 6; i < 200; i++) {
        struct br_frame *f;
        assert_int_equal(br_queue_acquire(q, &f), 0);
        f->first = 4 * i;
        f->samples = 4;
        memset(f->data, (int)i, BYTES);
        br_queue_publish(q);
        if (i % 3 == 0) take(r, i > 6 ? i - 1 : i), br_reader_release(r); /* i - 2 has gone */
        if (i % 3 != 0 && i % 3 != 1) continue;
        const struct br_frame *g;
        while (fill_of(q) > i % 5) br_reader_wait(block, &g), br_reader_release(block);
    }
    br_queue_abort(q);
    struct br_reader_counters c[3];
    struct br_reader *all[3] = {r, block, drop};
    for (int i = 0; i < 3; i++) {
        br_reader_get_counters(all[i], &c[i]);
        assert_int_equal(c[i].delivered_frames + c[i].dropped_frames + c[i].discarded_frames, 200);
        assert_int_equal(c[i].delivered_samples + c[i].dropped_samples + c[i].discarded_samples, 800);
    }
    assert_int_equal(c[1].dropped_frames, 0);
    br_queue_destroy(q);
}

/* --- all at once --- */

enum { FRAMES = 6000, LOOKERS = 2 };

struct run {
    struct br_queue *q;
    struct br_reader *r;
    _Atomic bool over;
    _Atomic unsigned wrong, seen;
};

static void *produce(void *arg)
{
    struct run *run = arg;
    for (unsigned i = 0; i < FRAMES; i++) put(run->q, i);
    br_queue_close(run->q);
    return NULL;
}

static void *follow(void *arg)
{
    struct run *run = arg;
    const struct br_frame *f;
    while (br_reader_wait(run->r, &f) == 1) br_reader_release(run->r);
    run->over = true;
    return NULL;
}

/* Claims what has passed and what comes, and copies it; one thread holds, as `dump` does. */
static void *look(void *arg)
{
    struct run *run = arg;
    uint64_t random = 88172645463325252u;
    while (!run->over) {
        struct br_history_span span;
        struct br_pin pin[LOOKERS];
        br_history_look(run->r, &span);
        for (int i = 0; i < LOOKERS; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            br_pin(run->r, &pin[i], span.first + random % 80, span.first + random % 80 + random % 40);
        }
        for (uint64_t at = pin[0].first; at < pin[0].end;) {
            const struct br_frame *f = br_history_hold(run->r, at);
            if (f == NULL) break;
            uint8_t byte = (uint8_t)(f->first / 4);
            for (size_t b = 0; b < BYTES; b++) run->wrong += ((const uint8_t *)f->data)[b] != byte;
            run->seen++;
            at = f->first + f->samples;
            br_history_let_go(run->r, f);
            br_pin_advance(&pin[0], at);
        }
        for (int i = 0; i < LOOKERS; i++) br_pin_end(&pin[i]);
    }
    return NULL;
}

static void under_load(void **state)
{
    (void)state;
    struct run run = {.q = create("q", 4)};
    run.r = history(run.q, 24);
    struct br_reader *block = reader(run.q, BR_POLICY_BLOCK);
    pthread_t thread[3];
    seal(run.q);
    assert_int_equal(pthread_create(&thread[0], NULL, follow, &run), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, look, &run), 0);
    assert_int_equal(pthread_create(&thread[2], NULL, produce, &run), 0);
    for (unsigned i = 0; i < FRAMES; i++) {
        take(block, i);
        br_reader_release(block);
    }
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    assert_int_equal(run.wrong, 0);
    assert_true(run.seen > 0);
    assert_counts(block, FRAMES, 0, 0);
    struct br_reader_counters c;
    br_reader_get_counters(run.r, &c);
    assert_int_equal(c.delivered_frames + c.dropped_frames, FRAMES);
    assert_int_equal(c.delivered_samples + c.dropped_samples, 4 * FRAMES);
    struct br_history_span span;
    br_history_look(run.r, &span);
    assert_int_equal(span.frames, 24);
    assert_int_equal(span.pinned, 0);
    br_queue_destroy(run.q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_frames_stay),
        cmocka_unit_test(memory_grows_by_the_history),
        cmocka_unit_test(pinned_frames_stay_longer),
        cmocka_unit_test(pins_are_taken_oldest_first),
        cmocka_unit_test(pins_on_what_is_to_come),
        cmocka_unit_test(a_held_frame_is_certain),
        cmocka_unit_test(released_and_kept_are_two_things),
        cmocka_unit_test(under_load),
    };
    alarm(100);
    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
