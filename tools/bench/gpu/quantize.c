/* quantize.c - the quantize kernels on the GPU. */
#include "kernels/quantize/quantize.h"
#include "kernels/frb_beams/frb_beams.h"
#include "kernels/frb_beams_quantize/frb_beams_quantize.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What a row's name says of its statistics. */
static const char *statistics_of(bool slow)
{
    return slow ? ", slow" : "";
}

/* What a row's name says of its data. */
static const char *kind_of(enum gpu_random kind)
{
    return kind == GPU_STEADY ? ", steady" : "";
}

double gpu_quantize(struct gpu *g, const struct gpu_node *node, size_t channels, size_t beams, size_t steps,
                    unsigned bits, enum gpu_random kind, bool slow)
{
    struct quantize q = {.steps = steps, .valid = gpu_validity(g, steps, channels, true)};
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

struct fused {
    struct br_frb_beams *beams;
    struct br_quantize *levels;
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
                        enum gpu_random kind, bool slow)
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
    snprintf(name, sizeof name, "frb_beams and quantize to 4, %s%s%s, F %zu, T %d, B %zu x %zu", node->name,
             kind_of(kind), statistics_of(slow), channels, BR_FRB_BEAMS_QUANTIZE_BLOCK, bx, by);
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
    /* Slow statistics begin with the kernel's own first block here, which takes as long as every other
     * one. */
    const struct br_quantize_params levels = {.nchannels = channels,
                                              .nbeams = nbeams,
                                              .block = BR_FRB_BEAMS_QUANTIZE_BLOCK,
                                              .bits = 4,
                                              .levels_rms = 2.5,
                                              .cuda = g->cuda,
                                              .follow = slow ? STEADY : 0};
    if (br_frb_beams_create(&f.beams, BR_CUDA, &params, &why) != 0 ||
        br_quantize_create(&f.levels, BR_CUDA, &levels, &why) != 0 ||
        br_frb_beams_quantize_create(&f.plan, f.beams, f.levels, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &f.sets, in, kind, out, side))
        ms = gpu_measure(g, name, run_fused, &f,
                         &(struct gpu_work){(double)(in + out + side), 2 * products, false,
                                            (double)(BR_FRB_BEAMS_QUANTIZE_BLOCK * node->integrate) *
                                                node->sample_us * 1e-6});
done:
    br_frb_beams_quantize_destroy(f.plan);
    br_quantize_destroy(f.levels);
    br_frb_beams_destroy(f.beams);
    free(direction);
    free(freq);
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
    double ms = gpu_fused(g, chord, 256, 96, 96, GPU_POWERS, false),
           slow = gpu_fused(g, chord, 256, 96, 96, GPU_POWERS, true);
    shorts +=
        gpu_require_time(g, GPU_BY_FP16, "CHORD, a grid of beams formed and quantized", ms * 1e3, "us", 300);
    shorts += gpu_require("with slow statistics", ms > 0 ? slow / ms : -1, "of the block's", 1.1);
    gpu_fused(g, chord, 256, 96, 96, GPU_STEADY, true);
    gpu_fused(g, &gpu_hirax, 256, gpu_hirax.bx, gpu_hirax.by, GPU_POWERS, true);
    return shorts;
}
