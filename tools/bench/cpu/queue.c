/* Queues: frames per second through stages that touch one word of each, how long a frame takes to reach a
 * sleeping reader, and what a waiting thread costs. Beside them the same with nothing but a mutex and
 * condition variables. */
#include "buffers/queue.h"
#include "buffers/clock.h"
#include "tools/bench/bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    STAGES = 2,
    QUEUES = STAGES + 1,
    DEPTH = 8,
    FRAME_BYTES = 4096,
    FRAMES = 200000,
    HOPS = 2000,
    PAUSE_NS = 200000
};

/* --- a textbook bounded queue of pointers
 * --------------------------------------------------------------------------------- */

struct plain {
    pthread_mutex_t lock;
    pthread_cond_t not_full, not_empty;
    void *item[DEPTH];
    unsigned count, next;
};

static void plain_init(struct plain *q)
{
    *q = (struct plain){.count = 0};
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_full, NULL);
    pthread_cond_init(&q->not_empty, NULL);
}

static void plain_destroy(struct plain *q)
{
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
}

static void plain_put(struct plain *q, void *item)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == DEPTH) pthread_cond_wait(&q->not_full, &q->lock);
    q->item[(q->next + q->count++) % DEPTH] = item;
    pthread_mutex_unlock(&q->lock);
    pthread_cond_signal(&q->not_empty);
}

static void *plain_take(struct plain *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == 0) pthread_cond_wait(&q->not_empty, &q->lock);
    void *item = q->item[q->next];
    q->next = (q->next + 1) % DEPTH;
    q->count--;
    pthread_mutex_unlock(&q->lock);
    pthread_cond_signal(&q->not_full);
    return item;
}

/* --- a source, stages, a sink
 * ------------------------------------------------------------------------------------ */

struct bench {
    struct br_queue *queue[QUEUES];
    struct br_reader *reader[QUEUES];
    struct plain plain[QUEUES];
    uint64_t frames;         /* per run */
    bool wrong;              /* the sink's: frames lost or out of order */
    double latency[2][HOPS]; /* through a queue, and with a bare condition variable */
};

struct worker {
    struct bench *bench;
    unsigned stage;
};

static void *source(void *arg)
{
    struct bench *b = arg;
    for (uint64_t i = 0; i < b->frames; i++) {
        struct br_frame *f;
        if (br_queue_acquire(b->queue[0], &f) != BR_OK) break;
        f->first = i;
        f->samples = 1;
        *(uint64_t *)f->data = i;
        br_queue_publish(b->queue[0]);
    }
    br_queue_close(b->queue[0]);
    return NULL;
}

static void *stage(void *arg)
{
    struct worker *w = arg;
    struct br_reader *in = w->bench->reader[w->stage];
    struct br_queue *out = w->bench->queue[w->stage + 1];
    const struct br_frame *f;
    struct br_frame *g;
    while (br_reader_wait(in, &f) == 1 && br_queue_acquire(out, &g) == BR_OK) {
        g->first = f->first;
        g->samples = f->samples;
        *(uint64_t *)g->data = *(const uint64_t *)f->data + 1;
        br_queue_publish(out);
        br_reader_release(in);
    }
    br_queue_close(out);
    return NULL;
}

static void *sink(void *arg)
{
    struct bench *b = arg;
    const struct br_frame *f;
    uint64_t n = 0;
    for (; br_reader_wait(b->reader[STAGES], &f) == 1; n++) {
        if (f->first != n || *(uint64_t *)f->data != n + STAGES) b->wrong = true;
        br_reader_release(b->reader[STAGES]);
    }
    if (n != b->frames) b->wrong = true;
    return NULL;
}

static void *plain_source(void *arg)
{
    struct bench *b = arg;
    static uint64_t item;
    for (uint64_t i = 0; i < b->frames; i++) plain_put(&b->plain[0], &item);
    plain_put(&b->plain[0], NULL);
    return NULL;
}

static void *plain_stage(void *arg)
{
    struct worker *w = arg;
    for (void *item = w; item != NULL;) {
        item = plain_take(&w->bench->plain[w->stage]);
        if (w->stage < STAGES) plain_put(&w->bench->plain[w->stage + 1], item);
    }
    return NULL;
}

/* Makes `queues` of the chain, the first with memory and the others in place. */
static int build(struct bench *b, unsigned queues)
{
    static const double freq = 600, width = 1;
    struct br_stream stream = {.frame_samples = 1,
                               .sample_ns = {1, 1},
                               .nchannels = 1,
                               .freq_mhz = &freq,
                               .width_mhz = &width,
                               .nzones = 1,
                               .zone = {{0, 1, 1, 1, 0}},
                               .scale = 1};
    struct br_error error = {0};
    int status =
        br_array_init(&stream.array, BR_INT4X2, "time,freq,dish", (size_t[]){1, 1, FRAME_BYTES}, &error);
    for (unsigned i = 0; i < queues && status == BR_OK; i++) {
        status = br_queue_create(&b->queue[i], "bench", &stream, DEPTH, BR_HOST, &error);
        if (status == BR_OK)
            status = br_queue_add_reader(b->queue[i], "next", BR_POLICY_BLOCK, &b->reader[i], &error);
    }
    for (unsigned i = 0; i < queues && status == BR_OK; i++) status = br_queue_seal(b->queue[i], &error);
    if (status != BR_OK) fprintf(stderr, "bench queue: %s\n", error.text);
    return status;
}

static void take_down(struct bench *b)
{
    for (unsigned i = QUEUES; i-- > 0;) {
        br_queue_destroy(b->queue[i]);
        b->queue[i] = NULL;
    }
}

/* Runs the four threads to the end. */
static void run_threads(struct bench *b, void *(*first)(void *), void *(*middle)(void *),
                        void *(*last)(void *), void *last_arg)
{
    struct worker worker[STAGES];
    pthread_t thread[STAGES + 2];
    for (unsigned i = 0; i < STAGES; i++) worker[i] = (struct worker){b, i};
    int failed = pthread_create(&thread[STAGES + 1], NULL, last, last_arg);
    for (unsigned i = 0; i < STAGES; i++) failed |= pthread_create(&thread[1 + i], NULL, middle, &worker[i]);
    failed |= pthread_create(&thread[0], NULL, first, b);
    if (failed != 0) {
        fprintf(stderr, "bench queue: cannot start threads\n");
        exit(1);
    }
    for (unsigned i = 0; i < STAGES + 2; i++) pthread_join(thread[i], NULL);
}

static void chain(void *arg)
{
    struct bench *b = arg;
    if (build(b, QUEUES) == BR_OK)
        run_threads(b, source, stage, sink, b);
    else
        b->wrong = true;
    take_down(b);
}

static void plain_chain(void *arg)
{
    struct bench *b = arg;
    struct worker last = {b, STAGES};
    for (unsigned i = 0; i < QUEUES; i++) plain_init(&b->plain[i]);
    run_threads(b, plain_source, plain_stage, plain_stage, &last);
    for (unsigned i = 0; i < QUEUES; i++) plain_destroy(&b->plain[i]);
}

/* --- one frame at a time
 * -------------------------------------------------------------------------------------------------- */

static void *hop_sink(void *arg)
{
    struct bench *b = arg;
    const struct br_frame *f;
    for (unsigned n = 0; n < HOPS && br_reader_wait(b->reader[0], &f) == 1; n++) {
        b->latency[0][n] = (double)(br_clock_ns() - *(uint64_t *)f->data) * 1e-3;
        br_reader_release(b->reader[0]);
    }
    return NULL;
}

static void *plain_hop_sink(void *arg)
{
    struct bench *b = arg;
    for (unsigned n = 0; n < HOPS; n++) {
        const uint64_t *sent = plain_take(&b->plain[0]);
        b->latency[1][n] = (double)(br_clock_ns() - *sent) * 1e-3;
    }
    return NULL;
}

/* Sends frames to two sleeping readers in turn, one behind a queue, one behind a condition variable. */
static void hops(struct bench *b)
{
    pthread_t reader[2];
    uint64_t sent = 0;
    plain_init(&b->plain[0]);
    if (pthread_create(&reader[0], NULL, hop_sink, b) != 0 ||
        pthread_create(&reader[1], NULL, plain_hop_sink, b) != 0) {
        fprintf(stderr, "bench queue: cannot start threads\n");
        exit(1);
    }
    for (unsigned n = 0; n < HOPS; n++) {
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        struct br_frame *f;
        nanosleep(&pause, NULL);
        if (br_queue_acquire(b->queue[0], &f) != BR_OK) break;
        f->samples = 1;
        *(uint64_t *)f->data = br_clock_ns();
        br_queue_publish(b->queue[0]);
        nanosleep(&pause, NULL);
        sent = br_clock_ns();
        plain_put(&b->plain[0], &sent);
    }
    for (int i = 0; i < 2; i++) pthread_join(reader[i], NULL);
    plain_destroy(&b->plain[0]);
}

static void *wait_for_nothing(void *arg)
{
    struct bench *b = arg;
    const struct br_frame *f;
    br_reader_wait(b->reader[0], &f);
    return NULL;
}

/* Processor seconds that a thread spends on waiting for `seconds`. */
static double cost_of_waiting(struct bench *b, double seconds)
{
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, wait_for_nothing, b) != 0) return seconds;
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    struct timespec used = {0};
    clockid_t clock;
    nanosleep(&pause, NULL);
    int status = pthread_getcpuclockid(waiter, &clock);
    if (status == 0) status = clock_gettime(clock, &used);
    br_queue_close(b->queue[0]);
    pthread_join(waiter, NULL);
    return status == 0 ? (double)used.tv_sec + 1e-9 * (double)used.tv_nsec : seconds;
}

int bench_queue(void)
{
    static struct bench bench, *b = &bench;
    int shorts = 0;
    double ours, theirs;
    b->frames = FRAMES;
    bench_pair(chain, b, plain_chain, b, 5, &ours, &theirs);
    shorts += bench_report("queue, source + 2 stages + sink", FRAMES / ours, "frames/s", "300,000 frames/s",
                           FRAMES / ours / 300000, 1, 1);
    bench_report("  beside mutex and condition variables", FRAMES / theirs, "frames/s", "ours over theirs",
                 theirs / ours, 0, 1);
    if (b->wrong) {
        printf("queue: frames were lost or came out of order\n");
        shorts++;
    }
    if (build(b, 1) == BR_OK) {
        hops(b);
        for (int i = 0; i < 2; i++) qsort(b->latency[i], HOPS, sizeof(double), bench_by_value);
        const double *queue = b->latency[0], *bare = b->latency[1];
        static const struct {
            const char *what, *limit;
            unsigned index;
            double microseconds;
        } at[] = {{"queue, unloaded hop, half the frames within", "the 10 us allowed", HOPS / 2, 10},
                  {"queue, unloaded hop, 99 % of frames within", "the 200 us allowed", HOPS / 100 * 99, 200}};
        for (int i = 0; i < 2; i++) {
            double us = queue[at[i].index], bare_us = bare[at[i].index];
            shorts += bench_report(at[i].what, us, "us", at[i].limit, us / at[i].microseconds, 1, 0);
            bench_report("  beside a bare condition variable", bare_us, "us", "ours over theirs",
                         us / bare_us, 0, 0);
        }
        const double waited = 0.5;
        double used = cost_of_waiting(b, waited);
        shorts += bench_report("queue, processor time of a thread that waits 0.5 s", used * 1e6, "us",
                               "the wait", used / waited, 0.001, 0);
    } else {
        shorts++;
    }
    take_down(b);
    return shorts;
}
