/* quantize.c - the quantize kernels on the GPU. */
#include "kernels/quantize/quantize.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>

/* Time constant of slow statistics, in samples: blocks weigh the same from the second one on, as those of a
 * stream do that has run for a while. */
#define STEADY 1.0

struct quantize {
    struct br_quantize *plan;
    size_t steps;
    struct gpu_data sets;
    const uint8_t *valid; /* [channels][steps] */
};

static void run_quantize(void *arg, unsigned i)
{
    struct quantize *q = arg;
    unsigned set = i % q->sets.n;
    br_quantize_execute(q->plan, (uint16_t *)(void *)q->sets.in[set], q->steps, q->valid, q->sets.out[set],
                        q->sets.side[set]);
}

/* The name of the statistics in a row. */
static const char *statistics_of(bool slow)
{
    return slow ? ", slow" : "";
}

/* The name of the data in a row. */
static const char *kind_of(enum gpu_random kind)
{
    return kind == GPU_STEADY ? ", steady" : "";
}

double gpu_quantize(struct gpu *g, const struct gpu_node *node, size_t channels, size_t beams, size_t steps,
                    unsigned bits, enum gpu_random kind, bool slow)
{
    struct quantize q = {.steps = steps, .valid = gpu_validity(steps, channels, true)};
    size_t values = channels * beams * steps, side = channels * beams * 2 * sizeof(float);
    const struct br_quantize_params params = {.nchannels = channels,
                                              .nbeams = beams,
                                              .block = steps,
                                              .bits = bits,
                                              .levels_rms = bits == 4 ? 2.5 : 4,
                                              .cuda = g->cuda,
                                              .follow = slow ? STEADY : 0};
    double ms = -1;
    char name[GPU_ROW_NAME];
    struct br_why why = {""};
    snprintf(name, sizeof name, "quantize to %u, %s%s%s, F %zu, T %zu, B %zu", bits, node->name,
             kind_of(kind), statistics_of(slow), channels, steps, beams);
    if (br_quantize_create(&q.plan, BR_CUDA, &params, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &q.sets, values * 2, kind, values * bits / 8, side))
        ms = gpu_measure(g, name, run_quantize, &q,
                         &(struct gpu_work){(double)(values * 2 + values * bits / 8 + side), 0, false,
                                            (double)(steps * node->integrate) * node->sample_us * 1e-6});
    br_quantize_destroy(q.plan);
    return ms;
}

int bench_gpu_quantize(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    const struct gpu_node *chord = &gpu_chord;
    const size_t F = chord->sent_channels, B = chord->sent, T = chord->steps;
    int shorts = 0;
    double slow_four = -1, four = gpu_quantize(g, chord, F, B, T, 4, GPU_POWERS, false);
    shorts += gpu_require_time(g, GPU_BY_COPY, "CHORD, 4 bits", four * 1e3, "us", 90);
    for (int i = 0; i < 3; i++) {
        double ms = gpu_quantize(g, nodes[i], nodes[i]->sent_channels, nodes[i]->sent, nodes[i]->steps, 4,
                                 GPU_POWERS, true);
        if (i == 0) slow_four = ms;
    }
    shorts += gpu_require("with slow statistics", four > 0 ? slow_four / four : -1, "of the block's", 1.1);
    gpu_quantize(g, chord, F, B, T, 4, GPU_STEADY, true);
    double eight = gpu_quantize(g, chord, F, B, T, 8, GPU_POWERS, false),
           slow_eight = gpu_quantize(g, chord, F, B, T, 8, GPU_POWERS, true);
    shorts += gpu_require("with slow statistics", eight > 0 ? slow_eight / eight : -1, "of the block's", 1.1);
    return shorts;
}
