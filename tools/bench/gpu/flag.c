/* flag.c - spectral kurtosis on the GPU: how much of real time it takes beyond reading the field once. */
#include "kernels/flag/flag.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>

enum { BLOCK = 256, BLOCKS = 32, LONG = BLOCK * BLOCKS };

struct flag_bench {
    struct br_flag *plan;
    const uint8_t *valid;
    struct gpu_data sets;
};

/* A long block; nobody waits for what comes of it. */
static void run_flag(void *arg, unsigned i)
{
    static const struct br_flag_rules rules = {100, 100, 2, 76, NULL}; /* arbitrary bytes are not noise */
    struct flag_bench *b = arg;
    unsigned set = i % b->sets.n;
    br_flag_begin(b->plan, &rules);
    br_flag_add(b->plan, 0, LONG, b->sets.in[set], b->valid, b->sets.out[set]);
    br_flag_end(b->plan, b->sets.out[set], NULL);
}

/* Milliseconds; negative: not measured. */
static double measure(struct gpu *g, const struct gpu_node *node, double *field)
{
    struct br_flag_params p = {.nchannels = node->channels,
                               .ninputs = NPOL * node->dishes,
                               .block = BLOCK,
                               .nblocks = BLOCKS,
                               .least_level = -8,
                               .cuda = g->cuda};
    struct flag_bench b = {NULL, gpu_validity(LONG, p.nchannels, false), {0}};
    struct br_why why = {""};
    char name[GPU_ROW_NAME];
    double ms = -1;
    *field = (double)LONG * (double)(p.nchannels * p.ninputs);
    snprintf(name, sizeof name, "flag, %s, %zu inputs x %zu channels", node->name, p.ninputs, p.nchannels);
    if (br_flag_create(&b.plan, BR_CUDA, &p, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &b.sets, (size_t)*field, GPU_BYTES, (size_t)*field, 0))
        ms = gpu_measure(g, name, run_flag, &b,
                         &(struct gpu_work){2 * *field, 0, false, LONG * node->sample_us * 1e-6});
    br_flag_destroy(b.plan);
    return ms;
}

int bench_gpu_flag(struct gpu *g)
{
    double field, ms = measure(g, &gpu_chord, &field), real_time = LONG * gpu_chord.sample_us * 1e-3;
    double beyond = 100 * (ms - 1e3 * field / g->copy) / real_time;
    int shorts = gpu_require_time(g, GPU_BY_COPY, "CHORD, of real time, beyond reading E once",
                                  ms < 0 ? ms : beyond, "%", 0.5);
    measure(g, &gpu_pathfinder, &field);
    measure(g, &gpu_hirax, &field);
    return shorts;
}
