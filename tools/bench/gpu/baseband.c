/* baseband.c - the baseband kernels on the GPU. */
#include "kernels/baseband/baseband.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct baseband {
    struct br_baseband *plan;
    size_t samples;
    struct gpu_data sets;
    const uint8_t *e_valid;
    uint8_t *valid; /* of what comes out, if something is missing */
};

static void run_baseband(void *arg, unsigned i)
{
    struct baseband *b = arg;
    br_baseband_execute(b->plan, b->sets.in[i % b->sets.n], b->e_valid, b->samples,
                        b->sets.out[i % b->sets.n], b->valid, NULL);
}

struct br_baseband *gpu_baseband_plan(struct gpu *g, const struct gpu_node *node, enum br_baseband_gpu gpu,
                                      unsigned integrate, struct br_why *why)
{
    size_t rows = node->channels * NPOL * node->voltages;
    int8_t *weights = bench_alloc(rows * node->dishes * 2);
    int32_t *shift = bench_alloc(rows * sizeof *shift), bits = 8;
    struct br_baseband *plan = NULL;
    for (unsigned d = node->dishes; d > 2; d /= 4) bits++; /* the sums' rms stays near 3 */
    for (size_t i = 0; i < rows * node->dishes * 2; i++)
        weights[i] = (int8_t)((int)((bench_random() >> 8) % 255) - 127);
    for (size_t i = 0; i < rows; i++) shift[i] = bits;
    const struct br_baseband_params params = {.nchannels = node->channels,
                                              .npol = NPOL,
                                              .nbeams = node->voltages,
                                              .ndishes = node->dishes,
                                              .weights = weights,
                                              .shift = shift,
                                              .weight_channels = node->channels,
                                              .cuda = g->cuda,
                                              .gpu = gpu,
                                              .integrate = integrate,
                                              .threshold = 0.5};
    br_baseband_create(&plan, BR_CUDA, &params, why);
    return plan;
}

static size_t field_bytes(const struct gpu_node *node)
{
    return node->samples * node->channels * NPOL * node->dishes;
}

static size_t beam_bytes(const struct gpu_node *node)
{
    return node->samples * node->channels * NPOL * node->voltages;
}

double gpu_baseband_with(struct gpu *g, const struct gpu_node *node, enum br_baseband_gpu gpu)
{
    struct br_why why = {""};
    struct baseband b = {.plan = gpu_baseband_plan(g, node, gpu, 0, &why), .samples = node->samples};
    size_t in = field_bytes(node), out = beam_bytes(node),
           weights = node->channels * NPOL * node->voltages * node->dishes * 2;
    double ms = -1;
    char name[GPU_ROW_NAME];
    snprintf(name, sizeof name, "baseband%s, %s, F %zu, T %zu, B %zu",
             gpu == BR_BASEBAND_PORTABLE ? ", portable" : "", node->name, node->channels, node->samples,
             node->voltages);
    b.e_valid = gpu_validity(node->samples, node->channels, false);
    if (b.e_valid != NULL) b.valid = bench_alloc(node->samples * node->channels);
    if (b.plan == NULL)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &b.sets, in, GPU_BYTES, out, 0))
        ms = gpu_measure(g, name, run_baseband, &b,
                         &(struct gpu_work){(double)(in + out + weights),
                                            8 * (double)in * (double)node->voltages, true,
                                            (double)node->samples * node->sample_us * 1e-6});
    br_baseband_destroy(b.plan);
    return ms;
}

double gpu_baseband(struct gpu *g, const struct gpu_node *node)
{
    return gpu_baseband_with(g, node, BR_BASEBAND_AUTO);
}

enum { TILE = 128 /* times */, IN_A_ROW = 64, BUSY = 10, ROUNDS = 5 };

/* Milliseconds of a frame where frames are enqueued one after the other with nothing between them: from the
 * end of the first ones to the end of the last, by their number. */
static double in_a_row(struct gpu *g, struct baseband *b, size_t bytes)
{
    double ms[ROUNDS];
    unsigned frames = bytes > 100000000 ? IN_A_ROW / 4 : IN_A_ROW;
    for (int round = 0; round < ROUNDS; round++) {
        /* keeps the device busy while the host enqueues */
        for (int k = 0; k < BUSY; k++)
            gpu_ok(g, br_gpu_copy((uint8_t *)g->plug + ((size_t)1 << 29), g->plug, (size_t)1 << 29,
                                  &g->stream, &g->error));
        for (unsigned i = 0; i < 3; i++) run_baseband(b, i);
        gpu_ok(g, br_gpu_event_record(g->event[0], &g->stream, &g->error));
        for (unsigned i = 3; i < 3 + frames; i++) run_baseband(b, i);
        gpu_ok(g, br_gpu_event_record(g->event[1], &g->stream, &g->error));
        if (!gpu_ok(g, br_gpu_stream_wait(&g->stream, &g->error))) return -1;
        ms[round] = br_gpu_event_ms(g->event[0], g->event[1]) / frames;
    }
    qsort(ms, ROUNDS, sizeof *ms, bench_by_value);
    return ms[ROUNDS / 2];
}

/* CHORD's beams with other numbers of channels and lengths of frames: nanoseconds for a time, channel and
 * polarisation, the worst of them in units of the best. A tile is what one multiprocessor works on at a time,
 * 128 times of one channel and polarisation with all 96 beams: every one of these frames has at least 132,
 * one for each multiprocessor of an H200. Frames follow each other on a stream, as they do where they come
 * in; what one takes that stands alone between two events, with the start and the end of a launch in it, is
 * beside that. */
static double steadiness(struct gpu *g)
{
    static const size_t shapes[][2] = {
        {33, 256},  {64, 256},  {17, 512},  {48, 512},  {9, 1024},   {48, 1024}, {5, 2048},  {48, 2048},
        {3, 4096},  {5, 4096},  {48, 4096}, {2, 8192},  {3, 8192},   {5, 8192},  {8, 8192},  {16, 8192},
        {33, 8192}, {64, 8192}, {1, 16384}, {2, 16384}, {48, 16384}, {1, 65536}, {12, 65536}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    double each[SHAPES] = {0}, alone[SHAPES] = {0}, best = 0, worst = 0;
    for (size_t i = 0; i < SHAPES; i++) {
        struct gpu_node node = gpu_chord;
        struct br_why why = {""};
        node.channels = shapes[i][0];
        node.samples = shapes[i][1];
        struct baseband b = {.plan = gpu_baseband_plan(g, &node, BR_BASEBAND_AUTO, 0, &why),
                             .samples = node.samples};
        double samples = (double)(node.channels * node.samples * NPOL), ms = -1;
        if (b.plan == NULL)
            gpu_refused("baseband, small frames", why.text);
        else if (gpu_make_data(g, &b.sets, field_bytes(&node), GPU_BYTES, beam_bytes(&node), 0)) {
            alone[i] = gpu_time(g, run_baseband, &b, NULL) * 1e6 / samples;
            ms = in_a_row(g, &b, field_bytes(&node));
        }
        gpu_free_all(g);
        br_baseband_destroy(b.plan);
        if (ms < 0) return -1;
        each[i] = ms * 1e6 / samples;
        if (best <= 0 || each[i] < best) best = each[i];
        if (each[i] > worst) worst = each[i];
    }
    printf("\n%-34s %8s %12s %12s %12s %12s\n", "CHORD's beams, frames of", "tiles", "us in a row",
           "ns a sample", "of the best", "alone");
    for (size_t i = 0; i < SHAPES; i++) {
        size_t samples = shapes[i][0] * shapes[i][1] * NPOL;
        printf("F %2zu, T %5zu %22s %8zu %12.2f %12.4f %12.2f %12.2f\n", shapes[i][0], shapes[i][1], "",
               samples / TILE, each[i] * (double)samples * 1e-3, each[i], each[i] / best, alone[i] / best);
    }
    return worst / best;
}

int bench_gpu_baseband(struct gpu *g)
{
    int shorts = gpu_require_time(g, GPU_BY_INT8, "CHORD", gpu_baseband(g, &gpu_chord) * 1e3, "us", 245);
    shorts += gpu_require_time(g, GPU_BY_COPY, "HIRAX", gpu_baseband(g, &gpu_hirax) * 1e3, "us", 165);
    shorts +=
        gpu_require_time(g, GPU_BY_COPY, "pathfinder", gpu_baseband(g, &gpu_pathfinder) * 1e3, "us", 145);
    shorts += gpu_require_time(g, GPU_BY_INT8, "CHORD, portable",
                               gpu_baseband_with(g, &gpu_chord, BR_BASEBAND_PORTABLE) * 1e3, "us", 700);
    if (gpu_missing > 0 || gpu_portable) return shorts;
    shorts += gpu_require("slowest of these in a row to fastest, per sample", steadiness(g), "", 1.5);
    return shorts;
}
