/* bench_gpu_quantize.c - the quantize kernels on the GPU. */
#include "kernels/quantize/quantize.h"
#include "tools/bench.h"
#include "tools/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct quantize {
    struct br_quantize *plan;
    size_t steps;
    struct gpu_data sets;
};

static void run_quantize(void *arg, unsigned i)
{
    struct quantize *q = arg;
    unsigned set = i % q->sets.n;
    br_quantize_execute(q->plan, (uint16_t *)(void *)q->sets.in[set], q->steps, NULL, q->sets.out[set],
                        q->sets.side[set]);
}

double gpu_quantize(struct gpu *g, const struct gpu_node *node, size_t channels, size_t beams, size_t steps,
                    unsigned bits)
{
    struct quantize q = {.steps = steps};
    size_t values = channels * beams * steps, side = channels * beams * 2 * sizeof(float);
    const struct br_quantize_params params = {.nchannels = channels,
                                              .nbeams = beams,
                                              .block = steps,
                                              .bits = bits,
                                              .levels_rms = bits == 4 ? 2.5 : 16,
                                              .cuda = g->cuda};
    double ms = -1;
    char name[GPU_ROW_NAME];
    struct br_why why = {""};
    snprintf(name, sizeof name, "quantize to %u, %s, F %zu, T %zu, B %zu", bits, node->name, channels, steps,
             beams);
    if (br_quantize_create(&q.plan, BR_CUDA, &params, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &q.sets, values * 2, GPU_POWERS, values * bits / 8, side))
        ms = gpu_measure(g, name, run_quantize, &q,
                     &(struct gpu_work){(double)(values * 2 + values * bits / 8 + side), 0, false,
                                        (double)(steps * node->integrate) * node->sample_us * 1e-6});
    br_quantize_destroy(q.plan);
    return ms;
}

int bench_gpu_quantize(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    int shorts = 0;
    for (int i = 0; i < 3; i++) {
        double ms = gpu_quantize(g, nodes[i], nodes[i]->sent_channels, nodes[i]->sent, nodes[i]->steps, 4);
        if (i == 0) shorts += gpu_require("CHORD, 4 bits", ms * 1e3, "us", 90);
    }
    gpu_quantize(g, &gpu_chord, gpu_chord.sent_channels, gpu_chord.sent, gpu_chord.steps, 8);
    return shorts;
}
