/* bench_gpu_baseband.c - the baseband kernels on the GPU. */
#include "kernels/baseband/baseband.h"
#include "tools/bench.h"
#include "tools/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct baseband {
    struct br_baseband *plan;
    size_t samples;
    struct gpu_data sets;
};

static void run_baseband(void *arg, unsigned i)
{
    struct baseband *b = arg;
    br_baseband_execute(b->plan, b->sets.in[i % b->sets.n], NULL, b->samples, b->sets.out[i % b->sets.n],
                        NULL, NULL);
}

double gpu_baseband(struct gpu *g, const struct gpu_node *node)
{
    struct baseband b = {.samples = node->samples};
    size_t rows = node->channels * NPOL * node->voltages,
           in = node->samples * node->channels * NPOL * node->dishes;
    size_t out = rows * node->samples;
    int8_t *weights = malloc(rows * node->dishes * 2);
    int32_t *shift = malloc(rows * sizeof *shift), bits = 8;
    double ms = -1;
    char name[GPU_ROW_NAME];
    struct br_why why = {"no memory"};
    snprintf(name, sizeof name, "baseband, %s, F %zu, T %zu, B %zu", node->name, node->channels,
             node->samples, node->voltages);
    for (unsigned d = node->dishes; d > 2; d /= 4) bits++; /* the sums' rms stays near 3 */
    for (size_t i = 0; weights != NULL && i < rows * node->dishes * 2; i++)
        weights[i] = (int8_t)((int)(gpu_random_number() % 255) - 127);
    for (size_t i = 0; shift != NULL && i < rows; i++) shift[i] = bits;
    const struct br_baseband_params params = {.nchannels = node->channels,
                                              .npol = NPOL,
                                              .nbeams = node->voltages,
                                              .ndishes = node->dishes,
                                              .weights = weights,
                                              .shift = shift,
                                              .weight_channels = node->channels,
                                              .cuda = g->cuda};
    if (weights == NULL || shift == NULL || br_baseband_create(&b.plan, BR_CUDA, &params, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &b.sets, in, GPU_BYTES, out, 0))
        ms = gpu_measure(g, name, run_baseband, &b,
                     &(struct gpu_work){(double)(in + out) + (double)(rows * node->dishes * 2),
                                        8 * (double)in * (double)node->voltages, true,
                                        (double)node->samples * node->sample_us * 1e-6});
    br_baseband_destroy(b.plan);
    free(weights);
    free(shift);
    return ms;
}

int bench_gpu_baseband(struct gpu *g)
{
    int shorts = gpu_require("CHORD", gpu_baseband(g, &gpu_chord) * 1e3, "us", 245);
    shorts += gpu_require("HIRAX", gpu_baseband(g, &gpu_hirax) * 1e3, "us", 165);
    shorts += gpu_require("pathfinder", gpu_baseband(g, &gpu_pathfinder) * 1e3, "us", 145);
    return shorts;
}
