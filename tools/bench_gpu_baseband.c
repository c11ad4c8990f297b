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

/* Milliseconds of one shape with one of the device's kernels; negative after a failure. */
static double measure(struct gpu *g, const struct gpu_node *node, enum br_baseband_gpu gpu)
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
    snprintf(name, sizeof name, "baseband%s, %s, F %zu, T %zu, B %zu",
             gpu == BR_BASEBAND_PORTABLE ? ", portable" : "", node->name, node->channels, node->samples,
             node->voltages);
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
                                              .cuda = g->cuda,
                                              .gpu = gpu};
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

double gpu_baseband(struct gpu *g, const struct gpu_node *node)
{
    return measure(g, node, BR_BASEBAND_AUTO);
}

/* CHORD's beams with other numbers of channels and lengths of frames: nanoseconds for a time, channel and
 * polarisation, the worst of them in units of the best. A frame has at least 132 tiles of 128 times, one
 * for each multiprocessor of an H200. */
static double steadiness(struct gpu *g)
{
    static const size_t shapes[][2] = {{1, 16384}, {2, 8192},  {3, 8192},  {5, 8192},   {8, 8192},
                                       {16, 8192}, {33, 8192}, {64, 8192}, {64, 256},   {48, 512},
                                       {48, 1024}, {48, 2048}, {48, 4096}, {48, 16384}, {12, 65536}};
    double best = 0, worst = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct gpu_node node = gpu_chord;
        node.channels = shapes[i][0];
        node.samples = shapes[i][1];
        double ms = measure(g, &node, BR_BASEBAND_AUTO);
        if (ms < 0) return -1;
        double each = ms * 1e6 / ((double)node.channels * (double)node.samples * NPOL);
        if (best <= 0 || each < best) best = each;
        if (each > worst) worst = each;
    }
    return worst / best;
}

int bench_gpu_baseband(struct gpu *g)
{
    int shorts = gpu_require("CHORD", gpu_baseband(g, &gpu_chord) * 1e3, "us", 245);
    shorts += gpu_require("HIRAX", gpu_baseband(g, &gpu_hirax) * 1e3, "us", 165);
    shorts += gpu_require("pathfinder", gpu_baseband(g, &gpu_pathfinder) * 1e3, "us", 145);
    shorts += gpu_require("CHORD, portable", measure(g, &gpu_chord, BR_BASEBAND_PORTABLE) * 1e3, "us", 700);
    shorts += gpu_require("slowest of these to fastest, per sample", steadiness(g), "", 1.5);
    return shorts;
}
