/* quantize.c - the quantize kernels on the GPU. */
#include "kernels/quantize/quantize.h"
#include "kernels/frb_beams/frb_beams.h"
#include "kernels/frb_beams_quantize/frb_beams_quantize.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What a row's name says of its data. */
static const char *kind_of(enum gpu_random kind)
{
    return kind == GPU_STEADY ? ", steady" : "";
}

double gpu_quantize(struct gpu *g, const struct gpu_node *node, size_t channels, size_t beams, size_t steps,
                    unsigned bits, enum gpu_random kind)
{
    struct quantize q = {.steps = steps, .valid = gpu_validity(g, steps, channels, true)};
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
    snprintf(name, sizeof name, "quantize to %u, %s%s, F %zu, T %zu, B %zu", bits, node->name, kind_of(kind),
             channels, steps, beams);
    if (br_quantize_create(&q.plan, BR_CUDA, &params, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &q.sets, values * 2, kind, values * bits / 8, side))
        ms = gpu_measure(g, name, run_quantize, &q,
                         &(struct gpu_work){(double)(values * 2 + values * bits / 8 + side), 0, false,
                                            (double)(steps * node->integrate) * node->sample_us * 1e-6});
    br_quantize_destroy(q.plan);
    return ms;
}

struct fused {
    struct br_frb_beams *beams;
    struct br_frb_beams_quantize *plan;
    struct gpu_data sets;
    const uint8_t *valid; /* [channels][BR_FRB_BEAMS_QUANTIZE_BLOCK] */
};

static void run_fused(void *arg, unsigned i)
{
    struct fused *f = arg;
    unsigned set = i % f->sets.n;
    br_frb_beams_quantize_execute(f->plan, (uint16_t *)(void *)f->sets.in[set], BR_FRB_BEAMS_QUANTIZE_BLOCK,
                                  f->valid, f->sets.out[set], f->sets.side[set]);
}

/* A grid of bx by by beams, formed and quantized to 4 bits in one kernel. Milliseconds; negative: not
 * measured. */
static double gpu_fused(struct gpu *g, const struct gpu_node *node, size_t channels, size_t bx, size_t by,
                        enum gpu_random kind)
{
    struct fused f = {.valid = gpu_validity(g, BR_FRB_BEAMS_QUANTIZE_BLOCK, channels, true)};
    size_t nbeams = bx * by, rows = channels * nbeams,
           in = channels * BR_FRB_BEAMS_QUANTIZE_BLOCK * 4 * node->m * node->n * 2,
           out = rows * BR_FRB_BEAMS_QUANTIZE_BLOCK / 2, side = rows * 2 * sizeof(float);
    double *direction = malloc(nbeams * 2 * sizeof *direction), *freq = malloc(channels * sizeof *freq),
           ms = -1;
    double products = (double)(channels * BR_FRB_BEAMS_QUANTIZE_BLOCK) *
                      (double)(4 * node->m * node->n * by + 2 * node->m * bx * by);
    char name[GPU_ROW_NAME];
    struct br_why why = {"no memory"};
    snprintf(name, sizeof name, "frb_beams and quantize to 4, %s%s, F %zu, T %d, B %zu x %zu", node->name,
             kind_of(kind), channels, BR_FRB_BEAMS_QUANTIZE_BLOCK, bx, by);
    if (direction == NULL || freq == NULL) {
        gpu_refused(name, why.text);
        goto done;
    }
    for (size_t c = 0; c < channels; c++) freq[c] = 600 + 0.0122 * (double)c;
    for (size_t i = 0; i < nbeams; i++) {
        direction[2 * i] = ((double)(i / by) - (double)bx / 2) * 0.002;
        direction[2 * i + 1] = ((double)(i % by) - (double)by / 2) * 0.002;
    }
    const struct br_frb_beams_params params = {.nchannels = channels,
                                               .freq_mhz = freq,
                                               .grid_m = node->m,
                                               .grid_n = node->n,
                                               .spacing_m_m = 8.5,
                                               .spacing_n_m = 6.3,
                                               .nbeams = nbeams,
                                               .beam = direction,
                                               .beams_x = bx,
                                               .beams_y = by,
                                               .max_steps = BR_FRB_BEAMS_QUANTIZE_BLOCK,
                                               .cuda = g->cuda};
    if (br_frb_beams_create(&f.beams, BR_CUDA, &params, &why) != 0 ||
        br_frb_beams_quantize_create(&f.plan, f.beams, 4, 2.5, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &f.sets, in, kind, out, side))
        ms = gpu_measure(g, name, run_fused, &f,
                         &(struct gpu_work){(double)(in + out + side), 2 * products, false,
                                            (double)(BR_FRB_BEAMS_QUANTIZE_BLOCK * node->integrate) *
                                                node->sample_us * 1e-6});
done:
    br_frb_beams_quantize_destroy(f.plan);
    br_frb_beams_destroy(f.beams);
    free(direction);
    free(freq);
    return ms;
}

int bench_gpu_quantize(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    int shorts = 0;
    for (int i = 0; i < 3; i++) {
        double ms = gpu_quantize(g, nodes[i], nodes[i]->sent_channels, nodes[i]->sent, nodes[i]->steps, 4,
                                 GPU_POWERS);
        if (i == 0) shorts += gpu_require("CHORD, 4 bits", ms * 1e3, "us", 90);
    }
    gpu_quantize(g, &gpu_chord, gpu_chord.sent_channels, gpu_chord.sent, gpu_chord.steps, 4, GPU_STEADY);
    gpu_quantize(g, &gpu_chord, gpu_chord.sent_channels, gpu_chord.sent, gpu_chord.steps, 8, GPU_POWERS);
    double ms = gpu_fused(g, &gpu_chord, 256, 96, 96, GPU_POWERS);
    shorts += gpu_require("CHORD, a grid of beams formed and quantized", ms * 1e3, "us", 300);
    gpu_fused(g, &gpu_chord, 256, 96, 96, GPU_STEADY);
    gpu_fused(g, &gpu_hirax, 256, gpu_hirax.bx, gpu_hirax.by, GPU_POWERS);
    return shorts;
}
