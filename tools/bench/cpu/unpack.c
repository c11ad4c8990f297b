/* unpack beside a copy of the same bytes, both with all cores: each thread has a plan and a share of the
 * blocks. */
#include "kernels/unpack/unpack.h"
#include "tools/bench/bench.h"
#include "tools/bench/unpack_tables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 64, SUM_BLOCKS = 2 /* a thread, a call */ };

static const struct unpack_shape shapes[] = {
    {"chord-crs", 16, 8, 16, 48, 8, true, false, 256},
    {"lwa-snap2", 11, 2, 1, 96, 64, true, false, 256},
    {"ata-snap", 20, 2, 16, 256, 2, true, true, 256},
};

struct unpack_bench {
    struct share {
        struct br_unpack *plan;
        const uint8_t *in;
        uint8_t *out;
        uint32_t *sums;
        size_t blocks, bytes;
    } share[MOST_THREADS];
    unsigned threads;
};

static void *unpack_one(void *arg)
{
    const struct share *s = arg;
    br_unpack_execute(s->plan, s->blocks, s->in, NULL, s->out, s->sums);
    return NULL;
}

static void *copy_one(void *arg)
{
    const struct share *s = arg;
    memcpy(s->out, s->in, s->bytes);
    return NULL;
}

static void on_all(struct unpack_bench *b, void *(*work)(void *))
{
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS];
    for (unsigned i = 1; i < b->threads; i++)
        started[i] = pthread_create(&thread[i], NULL, work, &b->share[i]) == 0;
    work(&b->share[0]);
    for (unsigned i = 1; i < b->threads; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
        else
            work(&b->share[i]);
}

static void unpack(void *arg)
{
    on_all(arg, unpack_one);
}

static void copy(void *arg)
{
    on_all(arg, copy_one);
}

static int measure(const struct unpack_shape *shape, bool sums, double required)
{
    struct unpack_shape s = *shape;
    struct unpack_bench b = {.threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    struct br_why why;
    bool good = true;
    if (b.threads > MOST_THREADS) b.threads = MOST_THREADS;
    if (!sums) s.sum_samples = 0;
    struct br_unpack_params p = unpack_tables(&s);
    size_t blocks = shape->sum_samples / s.samples * SUM_BLOCKS,
           bytes = blocks * s.sources * s.streams * p.packet_bytes;
    uint8_t *in = bench_alloc(bytes * b.threads), *out = bench_alloc(bytes * b.threads);
    size_t each = SUM_BLOCKS * BR_UNPACK_SUMS * p.nchannels * p.npositions;
    uint32_t *sum = bench_alloc(each * b.threads * sizeof *sum);
    for (size_t i = 0; i < bytes * b.threads; i++) in[i] = (uint8_t)(i * 2654435761u >> 24);
    for (unsigned i = 0; good && i < b.threads; i++) {
        b.share[i] = (struct share){NULL, in + i * bytes, out + i * bytes, sum + i * each, blocks, bytes};
        good = br_unpack_create(&b.share[i].plan, BR_CPU, &p, &why) == 0;
    }
    int shorts = 1;
    if (good) {
        double ours, theirs;
        char what[96];
        bench_pair(unpack, &b, copy, &b, 9, &ours, &theirs);
        snprintf(what, sizeof what, "unpack %s%s, %u threads", s.name, sums ? ", sums" : "", b.threads);
        shorts = bench_report(what, (double)bytes * b.threads / ours / 1e9, "GB/s", "memcpy", theirs / ours,
                              required, 1);
    } else {
        fprintf(stderr, "bench unpack: %s\n", why.text);
    }
    for (unsigned i = 0; i < b.threads; i++) br_unpack_destroy(b.share[i].plan);
    return shorts;
}

int bench_unpack(void)
{
    int shorts = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int sums = 0; sums < 2; sums++) shorts += measure(&shapes[i], sums, i == 0 ? 0.5 : 0);
    return shorts;
}
