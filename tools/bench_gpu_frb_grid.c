/* bench_gpu_frb_grid.c - the frb_grid kernels on the GPU. */
#include "kernels/frb_grid/frb_grid.h"
#include "tools/bench.h"
#include "tools/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct frb_grid {
    struct br_frb_grid *plan[GPU_ZONES];
    const struct gpu_zone *zone;
    unsigned nzones;
    size_t nspectators, samples, blocks, cells;
    struct gpu_data sets;
    uint8_t *valid;
};

static void run_frb_grid(void *arg, unsigned i)
{
    struct frb_grid *f = arg;
    const uint8_t *in = f->sets.in[i % f->sets.n];
    uint16_t *out = (uint16_t *)(void *)f->sets.out[i % f->sets.n];
    for (unsigned z = 0; z < f->nzones; z++) {
        size_t fine = f->zone[z].channels * f->zone[z].factor, row = fine * f->nspectators, taken;
        size_t steps = f->samples / f->zone[z].factor;
        br_frb_grid_execute(f->plan[z], in, row, NULL, 0, steps, f->blocks, out, f->blocks, f->valid,
                            f->blocks, &taken);
        in += steps * row;
        out += fine * f->blocks * f->cells;
    }
}

double gpu_frb_grid(struct gpu *g, const struct gpu_node *node, const struct gpu_zone *zone, unsigned nzones)
{
    struct frb_grid f = {.zone = zone,
                         .nzones = nzones,
                         .nspectators = NPOL * node->dishes,
                         .samples = node->samples,
                         .blocks = node->samples / node->integrate + 1,
                         .cells = (size_t)4 * node->m * node->n};
    size_t fine = 0, in = gpu_all_channels(zone, nzones) * f.nspectators * f.samples, out;
    uint16_t(*cell)[2] = malloc(node->dishes * sizeof *cell);
    float *weights = NULL;
    double ms = -1, m = node->m, n = node->n,
           spectra = (double)(gpu_all_channels(zone, nzones) * f.samples * NPOL);
    char name[GPU_ROW_NAME];
    struct br_why why = {"no memory"};
    gpu_zones_name(name, "frb_grid", node, zone, nzones);
    for (unsigned z = 0; z < nzones; z++) fine += zone[z].channels * zone[z].factor;
    out = fine * f.blocks * f.cells * sizeof(uint16_t);
    f.valid = malloc(fine * f.blocks);
    weights = malloc(fine * f.nspectators * 2 * sizeof *weights);
    if (cell == NULL || weights == NULL || f.valid == NULL) {
        gpu_refused(name, why.text);
        goto done;
    }
    bench_place_dishes(node->m, node->n, node->dishes, cell);
    for (size_t i = 0; i < fine * f.nspectators * 2; i++) weights[i] = (float)gpu_random_number() / (1 << 23) - 1;
    for (unsigned z = 0; z < nzones; z++) {
        struct br_frb_grid_params params = {.nchannels = zone[z].channels * zone[z].factor,
                                            .npol = NPOL,
                                            .ndishes = node->dishes,
                                            .grid_m = node->m,
                                            .grid_n = node->n,
                                            .dish_cell = &cell[0][0],
                                            .weights = weights,
                                            .weight_channels = zone[z].channels * zone[z].factor,
                                            .downsample = node->integrate / zone[z].factor,
                                            .threshold = 0.5,
                                            .cuda = g->cuda};
        params.log2_scale = br_frb_grid_log2_scale(&params);
        if (br_frb_grid_create(&f.plan[z], BR_CUDA, &params, &why) != 0) {
            gpu_refused(name, why.text);
            goto done;
        }
    }
    if (!gpu_make_data(g, &f.sets, in, GPU_BYTES, out, 0)) goto done;
    /* dense transforms, first along n into 2N, then along m into 2M; 8 operations for a complex product and
     * its sum */
    ms = gpu_measure(g, name, run_frb_grid, &f,
                 &(struct gpu_work){(double)in + (double)(fine * f.samples) / node->integrate *
                                                     (double)(f.cells * sizeof(uint16_t)),
                                    spectra * 8 * (2 * n * n * m + 4 * m * m * n), false,
                                    (double)f.samples * node->sample_us * 1e-6});
    if (ms > 0) printf("%50s %.3f ns for a sample of one channel and polarisation\n", "", ms / spectra * 1e6);
done:
    for (unsigned z = 0; z < nzones; z++) br_frb_grid_destroy(f.plan[z]);
    free(f.valid);
    free(weights);
    free(cell);
    return ms;
}

int bench_gpu_frb_grid(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    for (int i = 0; i < 3; i++) gpu_frb_grid(g, nodes[i], &(struct gpu_zone){nodes[i]->channels, nodes[i]->factor}, 1);
    return gpu_require("a node's mix", gpu_frb_grid(g, &gpu_chord, gpu_mix, GPU_MIX), "ms", 0.9);
}
