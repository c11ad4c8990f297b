/* power_beams.c - the power of beams on the GPU, beside the bare int8 product of its shape, and beside the
 * portable baseband kernel. */
#include "kernels/baseband/power.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct power {
    struct br_baseband *plan;
    const struct gpu_node *node;
    struct gpu_data sets;
    const uint8_t *e_valid;
    size_t blocks;
    uint8_t *valid; /* of what comes out */
};

static void run_power(void *arg, unsigned i)
{
    struct power *p = arg;
    size_t taken;
    br_baseband_power(p->plan, p->sets.in[i % p->sets.n], p->e_valid, p->node->samples, p->blocks,
                      (uint16_t *)p->sets.out[i % p->sets.n], p->blocks, p->valid, p->blocks, &taken);
}

/* Milliseconds of one shape with one of the device's kernels; negative after a failure. `integrate` divides
 * the frame. */
static double measure(struct gpu *g, const struct gpu_node *node, unsigned integrate,
                      enum br_baseband_gpu gpu)
{
    struct br_why why = {""};
    struct power p = {.plan = gpu_baseband_plan(g, node, gpu, integrate, &why),
                      .node = node,
                      .blocks = node->samples / integrate};
    size_t in = node->samples * node->channels * NPOL * node->dishes,
           out = node->channels * p.blocks * node->voltages * sizeof(uint16_t);
    double ms = -1;
    char name[GPU_ROW_NAME];
    snprintf(name, sizeof name, "power_beams%s, %s, F %zu, T %zu / %u, B %zu",
             gpu == BR_BASEBAND_PORTABLE ? ", portable" : "", node->name, node->channels, node->samples,
             integrate, node->voltages);
    p.e_valid = gpu_validity(node->samples, node->channels, false);
    p.valid = bench_alloc(node->channels * p.blocks);
    if (p.plan == NULL)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &p.sets, in, GPU_BYTES, out, 0))
        ms = gpu_measure(g, name, run_power, &p,
                         &(struct gpu_work){(double)(in + out), 8 * (double)in * (double)node->voltages, true,
                                            (double)node->samples * node->sample_us * 1e-6});
    br_baseband_destroy(p.plan);
    return ms;
}

/* The time of cuBLASLt's product of the same shape, with int8 results, over `least` is what it may take. */
static int beside_product(struct gpu *g, const struct gpu_node *node, unsigned integrate, double least)
{
    char why[128] = "";
    const struct gpu_gemm gemm = {.int8 = true,
                                  .narrow = true,
                                  .m = node->samples,
                                  .n = 2 * node->voltages,
                                  .k = 2 * (size_t)node->dishes,
                                  .batch = node->channels * NPOL};
    double bare = gpu_gemm(g, &gemm, why);
    gpu_free_all(g);
    double ms = measure(g, node, integrate, BR_BASEBAND_AUTO);
    gpu_free_all(g);
    if (!(bare > 0)) {
        printf("%-58s %s\n", "the int8 product of this shape", why);
        return 0;
    }
    printf("%-58s %8.4f ms; power_beams at %.2f of its rate\n", "the int8 product of this shape", bare,
           bare / ms);
    return gpu_require(node->name, ms, "ms", bare / least);
}

int bench_gpu_power_beams(struct gpu *g)
{
    const struct gpu_node array = {.name = "256 inputs",
                                   .dishes = 128,
                                   .sample_us = 5.12,
                                   .channels = 64,
                                   .samples = 8192,
                                   .voltages = 256};
    enum { INTEGRATE = 256 };
    int shorts = beside_product(g, &gpu_chord, INTEGRATE, 0.85);
    shorts += beside_product(g, &array, INTEGRATE, 0.85);
    measure(g, &gpu_chord, 1, BR_BASEBAND_AUTO);
    gpu_free_all(g);
    const struct gpu_node *nodes[] = {&gpu_chord, &array};
    for (int i = 0; i < 2; i++) {
        double voltages = gpu_baseband_with(g, nodes[i], BR_BASEBAND_PORTABLE);
        gpu_free_all(g);
        double ms = measure(g, nodes[i], INTEGRATE, BR_BASEBAND_PORTABLE);
        gpu_free_all(g);
        shorts += gpu_require("portable, beside baseband's voltages", ms, "ms", voltages / 0.8);
    }
    return shorts;
}
