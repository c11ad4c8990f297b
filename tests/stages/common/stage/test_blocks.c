/* blocks: frames of any length become the same blocks, holes end them or are bridged, steps that two
 * frames share count once. */
#include "stages/common/stage/blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { STEP = 6, LENGTH = 8, STEPS = 400, PARTS = 512 };

/* A block as it was handed on. */
struct part {
    uint64_t number, start, end;
    size_t begin, fill;
    uint8_t seen[LENGTH]; /* how often each step came */
};

struct run {
    struct blocks blocks;
    struct part part[PARTS];
    size_t nparts;
    uint8_t seen[LENGTH];
};

static void hand_on(struct run *r)
{
    struct blocks *b = &r->blocks;
    assert_true(r->nparts < PARTS);
    struct part *p = &r->part[r->nparts++];
    *p = (struct part){b->number, b->start, b->cursor, b->begin, b->fill, {0}};
    memcpy(p->seen, r->seen, sizeof p->seen);
    memset(r->seen, 0, sizeof r->seen);
    b->open = false;
}

static void feed(struct run *r, uint64_t first, uint64_t samples)
{
    struct br_frame in = {.first = first, .samples = samples};
    if (blocks_gap(&r->blocks, &in)) hand_on(r);
    assert_false(blocks_gap(&r->blocks, &in));
    for (;;) {
        struct blocks_piece p = blocks_take(&r->blocks, &in);
        assert_true(p.count > 0 && p.at + p.count <= LENGTH && p.from + p.count <= p.nsteps);
        assert_int_equal((first / STEP + p.from) % LENGTH, p.at);
        assert_int_equal((first / STEP + p.from) / LENGTH, r->blocks.number);
        for (size_t t = 0; t < p.count; t++) r->seen[p.at + t]++;
        assert_true(!p.whole || (p.ends && p.at == 0 && p.count == LENGTH));
        if (p.ends) hand_on(r);
        if (blocks_used(&r->blocks, &in)) break;
    }
}

static struct run of(bool bridges)
{
    return (struct run){.blocks = {.step = STEP, .length = LENGTH, .bridges = bridges}};
}

/* Frames of 1 to 40 steps, from step 5 on: what is handed on does not depend on them. */
static void frames_of_any_length(void **state)
{
    (void)state;
    for (uint64_t length = 1; length <= 40; length++) {
        struct run r = of(false);
        for (uint64_t at = 5; at < STEPS; at += length)
            feed(&r, at * STEP, (at + length < STEPS ? length : STEPS - at) * STEP);
        if (r.blocks.open) hand_on(&r);
        assert_int_equal(r.nparts, STEPS / LENGTH);
        for (size_t i = 0; i < r.nparts; i++) {
            const struct part *p = &r.part[i];
            assert_int_equal(p->number, i);
            assert_int_equal(p->begin, i == 0 ? 5 : 0);
            assert_int_equal(p->fill, LENGTH);
            assert_int_equal(p->start, (i * LENGTH + p->begin) * STEP);
            assert_int_equal(p->end, (i + 1) * LENGTH * STEP);
            for (size_t t = 0; t < LENGTH; t++) assert_int_equal(p->seen[t], t >= p->begin);
        }
    }
}

/* A hole within a block ends it; the rest of the block is another part. */
static void hole_ends(void **state)
{
    (void)state;
    struct run r = of(false);
    feed(&r, 0, 3 * STEP);
    feed(&r, 5 * STEP, 5 * STEP);
    hand_on(&r);
    assert_int_equal(r.nparts, 3);
    assert_int_equal(r.part[0].fill, 3);
    assert_int_equal(r.part[0].end, 3 * STEP);
    assert_int_equal(r.part[1].number, 0);
    assert_int_equal(r.part[1].begin, 5);
    assert_int_equal(r.part[1].start, 5 * STEP);
    assert_int_equal(r.part[1].fill, LENGTH);
    assert_int_equal(r.part[2].number, 1);
    assert_int_equal(r.part[2].fill, 2);
}

/* Where blocks bridge holes, one within a block is kept in it, and one beyond its end ends it. */
static void hole_is_bridged(void **state)
{
    (void)state;
    struct run r = of(true);
    feed(&r, 0, 3 * STEP);
    feed(&r, 5 * STEP, 2 * STEP);
    assert_int_equal(r.nparts, 0);
    feed(&r, 17 * STEP, 7 * STEP);
    assert_int_equal(r.nparts, 2);
    static const uint8_t first[LENGTH] = {1, 1, 1, 0, 0, 1, 1, 0}, third[LENGTH] = {0, 1, 1, 1, 1, 1, 1, 1};
    assert_memory_equal(r.part[0].seen, first, LENGTH);
    assert_int_equal(r.part[1].number, 2);
    assert_memory_equal(r.part[1].seen, third, LENGTH);
}

/* The last step of a block is cut between two frames: it comes twice, and the block waits for it. */
static void shared_step(void **state)
{
    (void)state;
    struct run r = of(true);
    feed(&r, 0, LENGTH * STEP - 2);
    assert_int_equal(r.nparts, 0);
    feed(&r, LENGTH * STEP - 2, 2 + LENGTH * STEP);
    assert_int_equal(r.nparts, 2);
    static const uint8_t twice[LENGTH] = {1, 1, 1, 1, 1, 1, 1, 2};
    assert_memory_equal(r.part[0].seen, twice, LENGTH);
    assert_int_equal(r.part[1].number, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_of_any_length), cmocka_unit_test(hole_ends),
                                       cmocka_unit_test(hole_is_bridged), cmocka_unit_test(shared_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
