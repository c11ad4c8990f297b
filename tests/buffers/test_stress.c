/* Many threads on random chains of queues, with every kind of end. Nothing may hang, be read while it is
 * overwritten, come out of order, or be missing from the balance. */
#include "buffers/history.h"
#include "buffers/ring.h"
#include "tests/buffers/plain.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 32, MAX_STAGES = 3, MAX_LEAVES = 4, FRAMES = 1500 };

enum event { NOTHING, ABORT, SOURCE_FAILS, STAGE_FAILS, LEAF_DETACHES, LEAVES_DETACH, EVENTS };

static const char *const event_name[] = {"nothing",           "abort",        "source fails", "stage fails",
                                         "one leaf detaches", "leaves detach"};

struct run {
    uint64_t seed;
    enum event event;
    unsigned frames, at; /* the event strikes at frame `at` */
    unsigned nstages, nleaves;
    struct br_queue *queue[MAX_STAGES + 1]; /* of the source, and of each stage */
    struct br_reader *stage[MAX_STAGES];    /* reads queue[i] */
    struct br_reader *leaf[MAX_LEAVES];     /* read queue[nstages] */
    enum br_policy policy[MAX_STAGES + MAX_LEAVES];
    atomic_uint wrong;
    char what[200];
};

struct worker {
    struct run *run;
    unsigned index;
    uint64_t random;
    pthread_t thread;
};

static uint64_t draw(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 16;
}

static void complain(struct run *run, const char *what, uint64_t a, uint64_t b)
{
    if (atomic_fetch_add(&run->wrong, 1) == 0)
        snprintf(run->what, sizeof run->what, "%s: %llx, %llx", what, (unsigned long long)a,
                 (unsigned long long)b);
}

/* Work that takes no time, a time slice, or longer. */
static void dawdle(uint64_t *random)
{
    uint64_t n = draw(random) % 256;
    if (n < 20) sched_yield();
    if (n == 255) usleep(100);
}

/* Every word of frame i holds i plus 2^32 for each stage that it went through. */
static void check(struct run *run, const struct br_frame *frame, unsigned stages)
{
    const uint64_t *word = frame->data;
    for (unsigned w = 0; w < WORDS; w++)
        if (word[w] != (frame->first / 4 | (uint64_t)stages << 32))
            complain(run, "content", word[w], frame->first / 4);
    if (frame->samples != 1 + frame->first / 4 % 4) complain(run, "samples", frame->samples, frame->first);
}

static void *source(void *arg)
{
    struct worker *w = arg;
    struct run *run = w->run;
    for (unsigned i = 0; i < run->frames; i++) {
        struct br_frame *f;
        if (run->event == SOURCE_FAILS && i == run->at) {
            br_queue_close(run->queue[0]);
            return NULL;
        }
        int status = br_queue_acquire(run->queue[0], &f);
        if (status != BR_OK) {
            if (status != BR_E_STOPPED || run->event == NOTHING || run->event == LEAF_DETACHES)
                complain(run, "acquire", (uint64_t)status, i);
            break;
        }
        for (unsigned k = 0; k < WORDS; k++) ((uint64_t *)f->data)[k] = i;
        f->first = 4 * (uint64_t)i;
        f->samples = 1 + i % 4;
        dawdle(&w->random);
        br_queue_publish(run->queue[0]);
        if (run->event == ABORT && i == run->at)
            for (unsigned q = 0; q <= run->nstages; q++) br_queue_abort(run->queue[run->nstages - q]);
    }
    br_queue_close(run->queue[0]);
    return NULL;
}

static void *stage(void *arg)
{
    struct worker *w = arg;
    struct run *run = w->run;
    struct br_reader *in = run->stage[w->index];
    struct br_queue *out = run->queue[w->index + 1];
    const struct br_frame *f;
    struct br_frame *g;
    unsigned n = 0;
    while (br_reader_wait(in, &f) == 1) {
        check(run, f, w->index);
        if (run->event == STAGE_FAILS && w->index == 0 && n++ >= run->at) {
            br_queue_close(out);
            br_reader_detach(in);
            return NULL;
        }
        if (br_queue_acquire(out, &g) != BR_OK) break;
        g->first = f->first;
        g->samples = f->samples;
        for (unsigned k = 0; k < WORDS; k++)
            ((uint64_t *)g->data)[k] = ((const uint64_t *)f->data)[k] + ((uint64_t)1 << 32);
        dawdle(&w->random);
        check(run, g, w->index + 1);
        br_queue_publish(out);
        br_reader_release(in);
    }
    br_reader_detach(in);
    br_queue_close(out);
    return NULL;
}

static void *leaf(void *arg)
{
    struct worker *w = arg;
    struct run *run = w->run;
    struct br_reader *in = run->leaf[w->index];
    const struct br_frame *f;
    bool lossless = run->policy[MAX_STAGES + w->index] == BR_POLICY_BLOCK;
    for (unsigned i = 0; i < run->nstages; i++) lossless &= run->policy[i] == BR_POLICY_BLOCK;
    uint64_t next = 0;
    int status;
    for (unsigned n = 0; (status = br_reader_wait(in, &f)) == 1; n++) {
        if (f->first < next || (lossless && f->first != next)) complain(run, "order", f->first, next);
        next = f->first + 4;
        check(run, f, run->nstages);
        if (n >= run->at && (run->event == LEAVES_DETACH || (run->event == LEAF_DETACHES && w->index == 0))) {
            br_reader_detach(in);
            return NULL;
        }
        dawdle(&w->random);
        check(run, f, run->nstages);
        if (draw(&w->random) % 64 == 0)
            br_reader_discard(in);
        else
            br_reader_release(in);
    }
    if (status != 0 && run->event != ABORT) complain(run, "wait", (uint64_t)status, 0);
    return NULL;
}

static void must_be_ok(int status, const struct br_error *error)
{
    if (status != 0) fail_msg("%s", error->text);
}

static void build(struct run *run, uint64_t *random)
{
    struct br_stream s = plain_stream(4, 1, WORDS * 2);
    struct br_error error = {0};
    run->nstages = (unsigned)(draw(random) % (MAX_STAGES + 1));
    run->nleaves = 1 + (unsigned)(draw(random) % MAX_LEAVES);
    for (unsigned i = 0; i <= run->nstages; i++) {
        unsigned depth = 1 + (unsigned)(draw(random) % 8);
        must_be_ok(br_queue_create(&run->queue[i], "q", &s, depth, BR_HOST, &error), &error);
        if (i == run->nstages) break;
        run->policy[i] = draw(random) % 4 == 0 ? BR_POLICY_DROP : BR_POLICY_BLOCK;
        must_be_ok(br_queue_add_reader(run->queue[i], "stage", run->policy[i], &run->stage[i], &error),
                   &error);
    }
    for (unsigned i = 0; i < run->nleaves; i++) {
        enum br_policy policy = (enum br_policy)(draw(random) % 3);
        struct br_queue *queue = run->queue[run->nstages];
        run->policy[MAX_STAGES + i] = policy;
        must_be_ok(
            policy == BR_POLICY_HISTORY
                ? br_queue_add_history(queue, "leaf", 1 + (unsigned)(draw(random) % 9), &run->leaf[i], &error)
                : br_queue_add_reader(queue, "leaf", policy, &run->leaf[i], &error),
            &error);
    }
    for (unsigned i = 0; i <= run->nstages; i++) must_be_ok(br_queue_seal(run->queue[i], &error), &error);
}

/* A reader's account must never run ahead of its queue's, at any time. */
static void look(struct run *run, const struct br_reader *reader)
{
    struct br_reader_counters r;
    struct br_queue_counters q;
    br_reader_get_counters(reader, &r);
    br_queue_get_counters(reader->queue, &q);
    if (r.delivered_frames + r.dropped_frames + r.discarded_frames > q.frames)
        complain(run, "ahead", r.delivered_frames, q.frames);
    if (q.fill > q.depth || q.max_fill > q.depth) complain(run, "fill", q.fill, q.depth);
}

static void settle_account(struct run *run, const struct br_reader *reader, enum br_policy policy)
{
    struct br_reader_counters r;
    struct br_queue_counters q;
    br_reader_get_counters(reader, &r);
    br_queue_get_counters(reader->queue, &q);
    if (r.delivered_frames + r.dropped_frames + r.discarded_frames != q.frames)
        complain(run, "frames do not add up", r.delivered_frames + r.dropped_frames + r.discarded_frames,
                 q.frames);
    if (r.delivered_samples + r.dropped_samples + r.discarded_samples != q.samples)
        complain(run, "samples do not add up", r.delivered_samples + r.dropped_samples + r.discarded_samples,
                 q.samples);
    if (policy == BR_POLICY_BLOCK && r.dropped_frames != 0)
        complain(run, "a lossless reader lost", r.dropped_frames, 0);
    if (!q.ended) complain(run, "not ended", 0, 0);
}

static void one_run(uint64_t seed, enum event event)
{
    uint64_t random = seed;
    struct run run = {.seed = seed, .event = event, .frames = FRAMES, .at = (unsigned)(draw(&random) % 300)};
    for (int i = 0; i < 5; i++) draw(&random);
    build(&run, &random);
    if (event == LEAF_DETACHES && run.nleaves == 1) run.event = NOTHING;
    if (event == STAGE_FAILS && run.nstages == 0) run.event = NOTHING;
    struct worker worker[1 + MAX_STAGES + MAX_LEAVES];
    unsigned n = 0;
    void *(*work[3])(void *) = {source, stage, leaf};
    unsigned count[3] = {1, run.nstages, run.nleaves};
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned i = 0; i < count[kind]; i++, n++) {
            worker[n] = (struct worker){&run, i, seed * 977 + n + 1, 0};
            assert_int_equal(pthread_create(&worker[n].thread, NULL, work[kind], &worker[n]), 0);
        }
    for (int i = 0; i < 5; i++) {
        for (unsigned k = 0; k < run.nstages; k++) look(&run, run.stage[k]);
        for (unsigned k = 0; k < run.nleaves; k++) look(&run, run.leaf[k]);
        usleep(200);
    }
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    for (unsigned i = 0; i < n; i++)
        if (pthread_timedjoin_np(worker[i].thread, NULL, &limit) != 0)
            fail_msg("seed %llu, %s: thread %u of %u hangs", (unsigned long long)seed, event_name[event], i,
                     n);
    for (unsigned k = 0; k < run.nstages; k++) settle_account(&run, run.stage[k], run.policy[k]);
    for (unsigned k = 0; k < run.nleaves; k++) settle_account(&run, run.leaf[k], run.policy[MAX_STAGES + k]);
    if (run.event == NOTHING) {
        struct br_queue_counters q;
        br_queue_get_counters(run.queue[0], &q);
        if (q.frames != FRAMES) complain(&run, "published", q.frames, FRAMES);
    }
    if (run.wrong != 0)
        fail_msg("seed %llu, %s: %u times wrong, first %s", (unsigned long long)seed, event_name[event],
                 run.wrong, run.what);
    for (unsigned i = run.nstages + 1; i-- > 0;) br_queue_destroy(run.queue[i]);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void random_chains(void **state)
{
    (void)state;
    double until = now() + 4;
    uint64_t seed = 1;
    for (; seed <= 12 * EVENTS || (now() < until && seed < 2000); seed++)
        one_run(seed, (enum event)(seed % EVENTS));
    print_message("%llu chains\n", (unsigned long long)seed - 1);
}

/* A source of two streams and a stage that reads both, one deep: whoever sleeps on one of them must have
 * woken the other. */
static void *two_in(void *arg)
{
    struct br_reader **r = arg;
    const struct br_frame *f[2];
    uint64_t n = 0;
    while (br_reader_wait(r[0], &f[0]) == 1 && br_reader_wait(r[1], &f[1]) == 1 &&
           f[0]->first == f[1]->first) {
        br_reader_release(r[n % 2]);
        br_reader_release(r[1 - n++ % 2]);
    }
    return (void *)(uintptr_t)n;
}

static void two_streams_in_step(void **state)
{
    (void)state;
    struct br_stream s = plain_stream(4, 1, 3);
    struct br_queue *q[2];
    struct br_reader *r[2];
    for (unsigned depth = 1; depth < 6; depth += 2) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(br_queue_create(&q[i], "q", &s, i == 0 ? depth : 1, BR_HOST, NULL), 0);
            assert_int_equal(br_queue_add_reader(q[i], "r", BR_POLICY_BLOCK, &r[i], NULL), 0);
            assert_int_equal(br_queue_seal(q[i], NULL), 0);
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, two_in, r), 0);
        for (uint64_t n = 0; n < 3000; n++)
            for (unsigned i = 0; i < 2; i++) {
                struct br_frame *f;
                assert_int_equal(br_queue_acquire(q[(n + i) % 2], &f), 0);
                f->first = 4 * n;
                f->samples = 4;
                br_queue_publish(q[(n + i) % 2]);
            }
        for (int i = 0; i < 2; i++) br_queue_close(q[i]);
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 60;
        void *read = NULL;
        if (pthread_timedjoin_np(thread, &read, &limit) != 0) fail_msg("depth %u hangs", depth);
        assert_int_equal((uintptr_t)read, 3000);
        for (int i = 0; i < 2; i++) br_queue_destroy(q[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_chains),
                                       cmocka_unit_test(two_streams_in_step)};
    alarm(110); /* a source in the main thread cannot be waited for with a limit */
    return cmocka_run_group_tests_name("queues under stress", tests, NULL, NULL);
}
