/* l0_receiver: whose time it believes. Packets of one beam and channel each; blocks are handed on as soon as
 * that may be, as in the stage. */
#include "formats/chime_l0/receive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BEAMS = 4, CHANNELS = 6, STEPS = 16, COUNTS = 384, WINDOW = 8, UNITS = BEAMS * CHANNELS };
enum { FAR_AHEAD = 1000000 };

struct run {
    struct l0_receiver r;
    uint16_t beams[BEAMS], coarse[CHANNELS];
    uint64_t blocks, last; /* handed on; the last one's number */
    uint64_t whole;        /* blocks with all units */
    unsigned notices;
    char notice[WIRE_COMPLAINT];
};

static void begin(struct run *run)
{
    memset(run, 0, sizeof *run);
    for (uint16_t i = 0; i < BEAMS; i++) run->beams[i] = (uint16_t)(100 + i);
    for (uint16_t i = 0; i < CHANNELS; i++) run->coarse[i] = (uint16_t)(20 + i);
    run->r = (struct l0_receiver){.fd = -1,
                                  .nupfreq = 1,
                                  .nsteps = STEPS,
                                  .counts_per_sample = COUNTS,
                                  .nbeams = BEAMS,
                                  .ncoarse = CHANNELS,
                                  .beam_ids = run->beams,
                                  .coarse_ids = run->coarse,
                                  .base = {.window = WINDOW}};
    assert_int_equal(l0_receiver_prepare(&run->r, NULL), BR_OK);
}

static void hand_on(struct run *run)
{
    struct assembly_block *block;
    while ((block = assembly_ready(&run->r.assembly, false)) != NULL) {
        assert_true(run->blocks == 0 || block->number > run->last); /* frames cannot go back */
        run->blocks++;
        run->last = block->number;
        run->whole += block->narrived == UNITS;
        assembly_done(&run->r.assembly, block);
    }
}

/* A packet of unit `unit` of block `number`. */
static void packet(struct run *run, uint64_t number, unsigned unit)
{
    uint8_t bytes[256] = {0};
    struct l0_packet p = {.version = 1,
                          .counts_per_sample = COUNTS,
                          .count = number * COUNTS * STEPS,
                          .nbeams = 1,
                          .nfreq = 1,
                          .nupfreq = 1,
                          .nsteps = STEPS};
    uint8_t *at = l0_put_header(bytes, &p, &run->beams[unit % BEAMS], &run->coarse[unit / BEAMS % CHANNELS]);
    const float scale[2] = {1, 0};
    memcpy(at, scale, sizeof scale);
    memset(at + sizeof scale, 100, STEPS);
    while (!l0_receiver_take(&run->r, bytes, (size_t)(at - bytes) + sizeof scale + STEPS)) hand_on(run);
    hand_on(run);
    if (run->r.base.complaint[0] == '\0') return;
    run->notices++;
    strcpy(run->notice, run->r.base.complaint);
    run->r.base.complaint[0] = '\0';
}

static void blocks(struct run *run, uint64_t first, uint64_t count)
{
    for (uint64_t n = first; n < first + count; n++)
        for (unsigned u = 0; u < UNITS; u++) packet(run, n, u);
}

static void end(struct run *run)
{
    l0_receiver_free(&run->r);
}

/* However many equal packets there are, and as many different ones as there are others at that time. */
static void strangers(void **state)
{
    struct run run;
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        begin(&run);
        blocks(&run, 10, 20);
        for (uint64_t n = 30; n < 60; n++)
            for (unsigned u = 0; u < UNITS; u++) {
                packet(&run, n, u);
                if (kind == 0) packet(&run, FAR_AHEAD, 3);                    /* equal */
                if (kind == 1) packet(&run, FAR_AHEAD + n, u);                /* as many */
                if (kind == 2 && u % 8 == 0) packet(&run, 10 + n % 3, u / 8); /* of the past: late */
            }
        assert_int_equal(run.whole, 50);
        assert_int_equal(run.notices, 0);
        assert_int_equal(kind < 2 ? run.r.base.counts.malformed : run.r.base.counts.late,
                         kind < 2 ? 30 * UNITS : 90);
        assert_int_equal(run.r.base.counts.missing, 0);
        end(&run);
    }
}

/* A burst that outvotes the others for a moment, by less than a window: they bring the stream back. */
static void healed(void **state)
{
    struct run run;
    (void)state;
    begin(&run);
    blocks(&run, 10, 20);
    for (unsigned u = 0; u < 3 * UNITS; u++) packet(&run, FAR_AHEAD + u / UNITS, u % (UNITS - 1));
    assert_int_equal(run.notices, 1);
    assert_non_null(strstr(run.notice, "gone ahead, from block 30 to 1000001"));
    blocks(&run, 30, 100);
    assert_int_equal(run.notices, 2);
    assert_non_null(strstr(run.notice, "gone back"));
    assert_true(run.whole >= 20 + 97);
    assert_int_equal(run.last, 129);
    assert_true(run.r.base.counts.missing <= 3 * UNITS);
    end(&run);
}

/* The first sender is far ahead, with much or little; the others are more. */
static void first_ahead(void **state)
{
    struct run run;
    (void)state;
    for (unsigned many = 1; many <= 5 * UNITS; many *= 3) {
        begin(&run);
        for (unsigned u = 0; u < many; u++) packet(&run, FAR_AHEAD + u / UNITS, u % (UNITS - 1));
        blocks(&run, 10, 30);
        assert_int_equal(run.notices, 1);
        assert_true(run.whole >= 27);
        assert_int_equal(run.last, 39);
        assert_int_equal(run.r.base.counts.late, 0);
        end(&run);
    }
}

/* All have moved, as after a restart: what is open goes on, and little is lost. */
static void all_move(void **state)
{
    struct run run;
    (void)state;
    begin(&run);
    blocks(&run, 10, 20);
    packet(&run, 30, 0);
    blocks(&run, FAR_AHEAD, 20);
    assert_int_equal(run.notices, 1);
    assert_true(run.whole >= 20 + 17);
    assert_int_equal(run.last, FAR_AHEAD + 19);
    blocks(&run, 50, 20); /* and back, where frames cannot go: it is said */
    assert_int_equal(run.notices, 2);
    assert_non_null(strstr(run.notice, "all data are late until that time is reached again"));
    assert_true(run.r.base.counts.late >= 17 * UNITS);
    blocks(&run, FAR_AHEAD + 20, 5); /* now it has come */
    assert_int_equal(run.last, FAR_AHEAD + 24);
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strangers), cmocka_unit_test(healed),
                                       cmocka_unit_test(first_ahead), cmocka_unit_test(all_move)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
