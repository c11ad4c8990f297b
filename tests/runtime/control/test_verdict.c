/* The verdict on pipelines whose numbers are planted: which stage, and why. */
#include "runtime/control/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S ((uint64_t)1000000000)

/* source -> "a" -> middle -> "b" -> sink, two seconds ago and now. */
struct planted {
    struct br_view view;
    struct view_stage stage[3];
    struct view_queue queue[2];
    struct view_reader reader[2];
    struct view_stage_now stages[2][3];
    struct br_queue_counters queues[2][2];
    struct br_reader_counters readers[2][2];
    uint64_t queue_moved[2], reader_moved[2];
};

enum { BEFORE, NOW };

/* All flows: 100 frames of 1000 samples a second, nobody waits long. */
static void plant(struct planted *p)
{
    static char name[][8] = {"source", "middle", "sink"}, queue[][2] = {"a", "b"};
    *p = (struct planted){0};
    p->view = (struct br_view){.nstages = 3,
                               .nqueues = 2,
                               .nreaders = 2,
                               .stage = p->stage,
                               .queue = p->queue,
                               .reader = p->reader,
                               .queue_moved = p->queue_moved,
                               .reader_moved = p->reader_moved,
                               .npast = 1,
                               .start_ns = 10 * S,
                               .failed_stage = -1};
    for (int s = 0; s < 3; s++)
        p->stage[s] = (struct view_stage){.name = name[s],
                                          .type = name[s],
                                          .device = -1,
                                          .nin = s > 0,
                                          .nout = s < 2,
                                          .in = {s - 1},
                                          .out = {s}};
    for (int q = 0; q < 2; q++) {
        p->queue[q] = (struct view_queue){.name = queue[q],
                                          .producer = q,
                                          .depth = 4,
                                          .first_reader = (unsigned)q,
                                          .nreaders = 1,
                                          .sample_s = 1e-5,
                                          .frame_s = 1e-2};
        p->reader[q] = (struct view_reader){.stage = q + 1, .queue = q, .policy = BR_POLICY_BLOCK};
        p->queue_moved[q] = p->reader_moved[q] = 20 * S;
    }
    struct view_moment *moment[2] = {&p->view.past[0], &p->view.now};
    for (int m = 0; m < 2; m++) {
        *moment[m] = (struct view_moment){.at_ns = m == NOW ? 20 * S : 18 * S,
                                          .stream_s = m == NOW ? 10 : 8,
                                          .stage = p->stages[m],
                                          .queue = p->queues[m],
                                          .reader = p->readers[m]};
        for (int q = 0; q < 2; q++) {
            uint64_t frames = m == NOW ? 1000 : 800;
            p->queues[m][q] =
                (struct br_queue_counters){.frames = frames, .samples = frames * 1000, .depth = 4};
            p->readers[m][q] = (struct br_reader_counters){.next = frames, .delivered_frames = frames};
        }
        for (int s = 0; s < 3; s++) {
            uint64_t n = m == NOW ? 1000 : 800;
            p->stages[m][s] = (struct view_stage_now){.totals = {.in_frames = s > 0 ? n : 0,
                                                                 .in_samples = s > 0 ? n * 1000 : 0,
                                                                 .out_frames = s < 2 ? n : 0,
                                                                 .out_samples = s < 2 ? n * 1000 : 0,
                                                                 .busy_ns = n * 2000000,
                                                                 .calls = n},
                                                      .wait_in = VIEW_NO_QUEUE,
                                                      .wait_out = VIEW_NO_QUEUE,
                                                      .latency_ns = INT64_MIN};
        }
    }
}

/* The producer of the queue waits all the time, and the queue is full. */
static void fill(struct planted *p, int q)
{
    p->queues[NOW][q].wait_ns = p->queues[BEFORE][q].wait_ns + 2 * S - S / 10;
    p->queues[NOW][q].wait_since = 20 * S - S / 100;
    p->queues[NOW][q].fill = 4;
    p->readers[NOW][q].next = p->queues[NOW][q].frames - 3;
    p->readers[NOW][q].held_frames = 1;
    p->stages[NOW][q].wait_out = q;
}

static struct verdict judge(struct planted *p)
{
    struct verdict v;
    verdict_make(&p->view, &v);
    return v;
}

static void test_flows(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    p.stages[NOW][1].totals.busy_ns = p.stages[BEFORE][1].totals.busy_ns + S;
    p.stages[NOW][1].totals.cpu_ns = p.stages[BEFORE][1].totals.cpu_ns + 3 * S; /* the pool's threads too */
    p.stages[NOW][2].totals.busy_ns =
        p.stages[BEFORE][2].totals.busy_ns + 2 * S; /* all the time, but it waits */
    p.stages[NOW][2].totals.cpu_ns = p.stages[BEFORE][2].totals.cpu_ns + S / 5;
    struct view_shares shares;
    view_stage_shares(&p.view, 2, &shares);
    assert_true(fabs(shares.busy - 1) < 1e-9 && fabs(shares.works - 0.1) < 1e-9);
    view_stage_shares(&p.view, 1, &shares);
    assert_true(fabs(shares.works - 0.5) < 1e-9);
    struct verdict v = judge(&p);
    assert_int_equal(v.kind, VERDICT_FLOWS);
    assert_string_equal(v.sentence,
                        "the pipeline flows, at 1 times real time; the busiest stage is middle (50 %)");
    assert_int_equal(queue_state(&p.view, 0), QUEUE_FLOWING);
}

/* Both queues are full: the sink is to blame, not the stage between. */
static void test_slow_sink(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    fill(&p, 0);
    fill(&p, 1);
    p.stages[NOW][2].totals.busy_ns = p.stages[BEFORE][2].totals.busy_ns + 2 * S;
    struct verdict v = judge(&p);
    assert_int_equal(v.kind, VERDICT_LIMITS);
    assert_int_equal(v.stage, 2);
    assert_string_equal(v.sentence, "sink limits the pipeline: it takes 10 ms a frame, 100 % of the time; "
                                    "queue 'b' before it is full");
    assert_int_equal(queue_state(&p.view, 1), QUEUE_FULL);
    /* The same when it stands still, in one call, for the disk. */
    p.stages[NOW][2].process_since = 15 * S;
    p.stages[NOW][2].waits_for = "the disk";
    p.reader_moved[1] = p.queue_moved[0] = p.queue_moved[1] = 15 * S;
    v = judge(&p);
    assert_int_equal(v.kind, VERDICT_HOLDS);
    assert_string_equal(v.sentence, "sink holds the pipeline up: it has waited for the disk for 5.0 s; "
                                    "queue 'b' before it is full");
    assert_true(v.since_s == 5);
}

static void test_slow_middle(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    fill(&p, 0);
    struct verdict v = judge(&p);
    assert_int_equal(v.stage, 1);
    assert_int_equal(v.queue, 0);
}

/* Work is enqueued at once, so that the host's side of a GPU's stages is never busy: GPU time decides. */
static void test_slow_on_gpu(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    fill(&p, 0);
    p.stage[1].device = p.stage[2].device = 0;
    for (int s = 1; s < 3; s++) p.stages[NOW][s].gpu_calls = 25;
    p.stages[NOW][1].gpu_ns = 25 * 500000;
    p.stages[NOW][2].gpu_ns = 25 * 9400000;
    struct verdict v = judge(&p);
    assert_int_equal(v.stage, 2);
    assert_string_equal(v.cause, "its work on cuda:0 takes 94 % of the time, 9.4 ms of GPU time a call");
}

static void test_dead_source(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    p.queue_moved[0] = p.queue_moved[1] = 17 * S;
    p.stages[NOW][0].waits_for = "packets";
    p.readers[NOW][0].wait_since = p.readers[NOW][1].wait_since = 17 * S;
    struct verdict v = judge(&p);
    assert_int_equal(v.kind, VERDICT_NO_DATA);
    assert_string_equal(v.sentence, "source source has given nothing for 3.0 s: it waits for packets");
    assert_int_equal(queue_state(&p.view, 0), QUEUE_STARVED);
    /* A frame of ten seconds is not late after three. */
    p.queue[0].frame_s = p.queue[1].frame_s = 10;
    assert_int_equal(judge(&p).kind, VERDICT_FLOWS);
}

static void test_losses(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    p.stages[NOW][2].lost[BR_LOST_NO_DESTINATION] = 50000;
    struct verdict v = judge(&p);
    assert_int_equal(v.kind, VERDICT_TROUBLE);
    assert_string_equal(v.sentence,
                        "sink: 25 % of its samples are lost (no_destination): a destination was not there");
    strcpy(p.stages[NOW][2].trouble, "127.0.0.1:9 does not answer");
    assert_non_null(strstr(judge(&p).sentence, "was not there; 127.0.0.1:9 does not answer"));
    p.stages[NOW][2].lost[BR_LOST_NO_DESTINATION] = 0;
    assert_string_equal(judge(&p).sentence, "sink: 127.0.0.1:9 does not answer");
    plant(&p);
    p.reader[1].policy = BR_POLICY_DROP;
    p.readers[NOW][1].dropped_samples = 7;
    assert_string_equal(judge(&p).sentence, "sink: it is too slow for queue 'b' and drops frames");
}

/* A capture that has no free frame is a victim; who is slow is to blame. */
static void test_a_victim_is_not_blamed(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    fill(&p, 0);
    p.stages[NOW][0].lost[BR_LOST_NO_FRAME] = 100;
    struct verdict v = judge(&p);
    assert_int_equal(v.kind, VERDICT_LIMITS);
    assert_int_equal(v.stage, 1);
    p.stages[NOW][0].lost[BR_LOST_CORRUPT] = 100;
    assert_int_equal(judge(&p).kind, VERDICT_TROUBLE);
}

static void test_failures_and_ends(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    for (int s = 0; s < 3; s++) p.stages[NOW][s].ended = true;
    assert_int_equal(judge(&p).kind, VERDICT_ENDED);
    p.view.failed_stage = 2;
    strcpy(p.view.failure, "no space left on the disk");
    struct verdict v = judge(&p);
    assert_int_equal(v.kind, VERDICT_FAILED);
    assert_string_equal(v.sentence, "sink has failed: no space left on the disk");
}

/* Numbers from the first moments, and none at all. */
static void test_first_moments(void **state)
{
    (void)state;
    struct planted p;
    plant(&p);
    fill(&p, 0);
    p.view.past[0].at_ns = 20 * S - S / 5;
    assert_int_equal(queue_state(&p.view, 0), QUEUE_FLOWING);
    p.view.npast = 0;
    assert_int_equal(judge(&p).kind, VERDICT_FLOWS);
    assert_null(view_before(&p.view, 2));
}

/* Sources and sinks must not be silent for longer than late_s, or than three frames take; those between
 * may. */
static void test_silence(void **state)
{
    (void)state;
    struct planted p;
    double silence;
    plant(&p);
    assert_null(view_silent_stage(&p.view, 5, &silence));
    p.queue_moved[1] = p.reader_moved[0] = 1 * S; /* the middle one's: it is neither source nor sink */
    assert_null(view_silent_stage(&p.view, 5, &silence));
    for (int who = 0; who < 2; who++) {
        const char *name = who == 0 ? "source" : "sink";
        plant(&p);
        uint64_t *moved = who == 0 ? &p.queue_moved[0] : &p.reader_moved[1];
        *moved = 14 * S; /* six seconds ago */
        assert_string_equal(view_silent_stage(&p.view, 5, &silence), name);
        assert_true(silence > 5.99 && silence < 6.01);
        assert_null(view_silent_stage(&p.view, 7, &silence));
        p.queue[who].frame_s = 2.1; /* long frames: 6.3 s are allowed */
        assert_null(view_silent_stage(&p.view, 5, &silence));
        p.queue[who].frame_s = 1.9;
        assert_string_equal(view_silent_stage(&p.view, 5, &silence), name);
        p.queue[who].frame_s = 1.6; /* 4.8 s, and 6 have passed */
        assert_string_equal(view_silent_stage(&p.view, 5, &silence), name);
        plant(&p);
        if (who == 0)
            p.queues[NOW][0].frames = 0;
        else
            p.readers[NOW][1].next = 0;
        assert_string_equal(view_silent_stage(&p.view, 5, &silence), name);
    }
    plant(&p); /* a stage that nobody is connected to is neither */
    p.stage[1].nin = p.stage[1].nout = 0;
    p.reader_moved[0] = p.queue_moved[1] = 1 * S;
    assert_null(view_silent_stage(&p.view, 5, &silence));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_flows),
                                       cmocka_unit_test(test_slow_sink),
                                       cmocka_unit_test(test_slow_middle),
                                       cmocka_unit_test(test_slow_on_gpu),
                                       cmocka_unit_test(test_dead_source),
                                       cmocka_unit_test(test_losses),
                                       cmocka_unit_test(test_first_moments),
                                       cmocka_unit_test(test_a_victim_is_not_blamed),
                                       cmocka_unit_test(test_failures_and_ends),
                                       cmocka_unit_test(test_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
