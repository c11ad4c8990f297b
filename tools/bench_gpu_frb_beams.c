/* bench_gpu_frb_beams.c - the frb_beams kernels on the GPU. */
#include "kernels/frb_beams/frb_beams.h"
#include "tools/bench.h"
#include "tools/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct frb_beams {
    struct br_frb_beams *plan;
    size_t steps;
    struct gpu_data sets;
};

static void run_frb_beams(void *arg, unsigned i)
{
    struct frb_beams *b = arg;
    br_frb_beams_execute(b->plan, (uint16_t *)(void *)b->sets.in[i % b->sets.n], NULL, b->steps,
                         (uint16_t *)(void *)b->sets.out[i % b->sets.n]);
}

double gpu_frb_beams(struct gpu *g, const struct gpu_node *node, size_t channels, size_t steps, size_t bx,
                     size_t by)
{
    struct frb_beams b = {.steps = steps};
    size_t nbeams = by > 0 ? bx * by : bx, cells = (size_t)4 * node->m * node->n, columns = by > 0 ? by : 64;
    size_t in = channels * steps * cells * 2, out = channels * steps * nbeams * 2;
    double *direction = malloc(nbeams * 2 * sizeof *direction), *freq = malloc(channels * sizeof *freq),
           ms = -1;
    double products =
        (double)(channels * steps) *
        (by > 0 ? (double)(bx * cells) + (double)(bx * by * 2 * node->n) : (double)(nbeams * cells));
    char name[GPU_ROW_NAME], beams[32];
    struct br_why why = {"no memory"};
    snprintf(beams, sizeof beams, by > 0 ? "%zu x %zu" : "%zu", bx, by);
    snprintf(name, sizeof name, "frb_beams, %s, F %zu, T %zu, B %s", node->name, channels, steps, beams);
    if (direction == NULL || freq == NULL) {
        gpu_refused(name, why.text);
        goto done;
    }
    for (size_t c = 0; c < channels; c++) freq[c] = 600 + 0.0122 * (double)c;
    for (size_t i = 0; i < nbeams; i++) {
        direction[2 * i] = ((double)(i / columns) - (double)(nbeams / columns) / 2) * 0.002;
        direction[2 * i + 1] = ((double)(i % columns) - (double)columns / 2) * 0.002;
        if (by == 0) direction[2 * i] += (double)(gpu_random_number() % 1000) * 1e-6;
    }
    const struct br_frb_beams_params params = {.nchannels = channels,
                                               .freq_mhz = freq,
                                               .grid_m = node->m,
                                               .grid_n = node->n,
                                               .spacing_m_m = 8.5,
                                               .spacing_n_m = 6.3,
                                               .nbeams = nbeams,
                                               .beam = direction,
                                               .beams_x = by > 0 ? bx : 0,
                                               .beams_y = by,
                                               .max_steps = steps,
                                               .cuda = g->cuda};
    if (br_frb_beams_create(&b.plan, BR_CUDA, &params, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &b.sets, in, GPU_POWERS, out, 0))
        ms = gpu_measure(g, name, run_frb_beams, &b,
                     &(struct gpu_work){(double)(in + out), 2 * products, false,
                                        (double)(steps * node->integrate) * node->sample_us * 1e-6});
done:
    br_frb_beams_destroy(b.plan);
    free(direction);
    free(freq);
    return ms;
}

int bench_gpu_frb_beams(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    int shorts = 0;
    for (int i = 0; i < 3; i++) {
        double ms = gpu_frb_beams(g, nodes[i], nodes[i]->fine, nodes[i]->steps, nodes[i]->beams, 0);
        if (i == 0) shorts += gpu_require("CHORD, any directions", ms * 1e3, "us", 2500);
    }
    for (int i = 0; i < 3; i++) {
        double ms = gpu_frb_beams(g, nodes[i], nodes[i]->fine, nodes[i]->steps, nodes[i]->bx, nodes[i]->by);
        if (i == 0) shorts += gpu_require("CHORD, a grid of beams", ms * 1e3, "us", 450);
    }
    return shorts;
}
