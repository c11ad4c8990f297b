/* upchannelize.c - the upchannelize kernels on the GPU. */
#include "kernels/upchannelize/upchannelize.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct upchannelize {
    struct br_upchannelize *plan[GPU_ZONES];
    const struct gpu_zone *zone;
    unsigned nzones;
    size_t row, nspectators, samples;
    struct gpu_data sets;
    uint8_t *valid;
    const uint8_t *e_valid;
};

static void run_upchannelize(void *arg, unsigned i)
{
    struct upchannelize *u = arg;
    struct br_upchannelize_call calls[GPU_ZONES];
    size_t first = 0, channels = gpu_all_channels(u->zone, u->nzones);
    for (unsigned z = 0; z < u->nzones; z++) {
        calls[z] = (struct br_upchannelize_call){u->plan[z],
                                                 u->sets.in[i % u->sets.n] + first,
                                                 u->row,
                                                 u->e_valid ? u->e_valid + first / u->nspectators : NULL,
                                                 channels,
                                                 u->samples,
                                                 u->sets.out[i % u->sets.n] + first * u->samples,
                                                 br_upchannelize_whole(u->plan[z]) ? NULL : u->valid};
        first += u->zone[z].channels * u->nspectators;
    }
    br_upchannelize_execute_all(calls, u->nzones);
}

double gpu_upchannelize(struct gpu *g, const struct gpu_node *node, const struct gpu_zone *zone,
                        unsigned nzones)
{
    struct upchannelize u = {
        .zone = zone, .nzones = nzones, .nspectators = NPOL * node->dishes, .samples = node->samples};
    double ms = -1, samples = 0, operations = 0;
    char name[GPU_ROW_NAME];
    struct br_why why;
    gpu_zones_name(name, "upchannelize", node, zone, nzones);
    u.row = gpu_all_channels(zone, nzones) * u.nspectators;
    u.valid = bench_alloc(gpu_all_channels(zone, nzones) * u.samples);
    u.e_valid = gpu_validity(u.samples, gpu_all_channels(zone, nzones), false);
    for (unsigned z = 0; z < nzones; z++) {
        double count = (double)(zone[z].channels * u.nspectators * u.samples), passes = 0;
        for (unsigned factor = zone[z].factor; factor > 1; factor /= 2) passes++;
        samples += count;
        operations +=
            count * (4 * TAPS + 5 * passes); /* for each complex sample: taps, share of the transform */
        const struct br_upchannelize_params params = {.nchannels = zone[z].channels,
                                                      .nspectators = u.nspectators,
                                                      .factor = zone[z].factor,
                                                      .taps = TAPS,
                                                      .cuda = g->cuda};
        if (br_upchannelize_create(&u.plan[z], BR_CUDA, &params, &why) != 0) {
            gpu_refused(name, why.text);
            goto done;
        }
    }
    if (gpu_make_data(g, &u.sets, u.row * u.samples, GPU_BYTES, u.row * u.samples, 0))
        ms = gpu_measure(
            g, name, run_upchannelize, &u,
            &(struct gpu_work){2 * samples, operations, false, (double)u.samples * node->sample_us * 1e-6});
done:
    for (unsigned z = 0; z < nzones; z++) br_upchannelize_destroy(u.plan[z]);
    return ms;
}

int bench_gpu_upchannelize(struct gpu *g)
{
    const double bytes = 2.0 * (double)(gpu_chord.channels * NPOL * gpu_chord.dishes * gpu_chord.samples);
    int shorts = 0;
    for (unsigned factor = 2; factor <= 128; factor *= 2) {
        double least = factor <= 64 ? 0.60 : 0.45; /* required, of the rate of a copy */
        double ms = gpu_upchannelize(g, &gpu_chord, &(struct gpu_zone){gpu_chord.channels, factor}, 1);
        char name[32];
        snprintf(name, sizeof name, "U = %u, %.2f of copy", factor, least);
        if (g->copy > 0) shorts += gpu_require(name, ms * 1e3, "us", bytes / (least * g->copy) * 1e6);
    }
    double mix = gpu_upchannelize(g, &gpu_chord, gpu_mix + 1, GPU_MIX - 1);
    shorts += gpu_require_time(g, GPU_BY_COPY, "a node's mix", mix * 1e3, "us", 230);
    gpu_upchannelize(g, &gpu_pathfinder, &(struct gpu_zone){gpu_pathfinder.channels, gpu_pathfinder.factor},
                     1);
    gpu_upchannelize(g, &gpu_hirax, &(struct gpu_zone){gpu_hirax.channels, gpu_hirax.factor}, 1);
    return shorts;
}
