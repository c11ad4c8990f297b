/* correlate.c - visibilities on the GPU: how much of real time they take, beside the library's ceiling of
 * products of bytes. */
#include "kernels/correlate/correlate.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>

enum { FRAME = 8192, FRAMES_PER_READ = 8 };

struct correlate_run {
    struct br_correlate *plan;
    const uint8_t *valid;
    void *v;
    struct gpu_data sets;
};

static void run_correlate(void *arg, unsigned i)
{
    struct correlate_run *c = arg;
    br_correlate_add(c->plan, FRAME, c->sets.in[i % c->sets.n], c->valid, NULL);
    if (i % FRAMES_PER_READ == 0) br_correlate_read(c->plan, c->v);
}

/* Milliseconds; negative: not measured. */
static double measure(struct gpu *g, const struct gpu_node *node, bool autos)
{
    struct br_correlate_params p = {node->channels, NPOL * node->dishes, autos, g->cuda};
    struct correlate_run c = {NULL, NULL, NULL, {0}};
    struct br_why why = {""};
    char name[GPU_ROW_NAME];
    size_t field = FRAME * p.nchannels * p.ninputs;
    double pairs = (double)br_correlate_baselines(&p), ms = -1;
    snprintf(name, sizeof name, "correlate, %s, %zu inputs x %zu channels%s", node->name, p.ninputs,
             p.nchannels, autos ? ", autocorrelations" : "");
    c.v = gpu_alloc(g, (size_t)pairs * p.nchannels * 8);
    c.valid = gpu_validity(FRAME, p.nchannels, false);
    if (c.v == NULL || br_correlate_create(&c.plan, BR_CUDA, &p, &why) != 0) {
        gpu_refused(name, c.v == NULL ? "no memory" : why.text);
        return -1;
    }
    if (gpu_make_data(g, &c.sets, field, GPU_BYTES, 0, 0))
        ms = gpu_measure(g, name, run_correlate, &c,
                         &(struct gpu_work){(double)field, 8.0 * pairs * (double)(FRAME * p.nchannels), true,
                                            FRAME * node->sample_us * 1e-6});
    br_correlate_destroy(c.plan);
    return ms;
}

int bench_gpu_correlate(struct gpu *g)
{
    double real_time = FRAME * gpu_chord.sample_us * 1e-3, ms = measure(g, &gpu_chord, false);
    int shorts = gpu_require_time(g, GPU_BY_INT8, "CHORD, of real time", 100 * ms / real_time, "%", 6);
    measure(g, &gpu_pathfinder, false);
    measure(g, &gpu_hirax, false);
    measure(g, &gpu_chord, true);
    return shorts;
}
