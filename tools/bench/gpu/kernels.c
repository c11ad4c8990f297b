/* kernels.c - what the benchmarks of the kernels share: three telescopes, random data that no cache holds,
 * a row. */
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

const struct gpu_node gpu_chord = {.name = "chord",
                                   .m = 24,
                                   .n = 24,
                                   .dishes = 512,
                                   .sample_us = 5.12,
                                   .channels = 48,
                                   .samples = 8192,
                                   .voltages = 96,
                                   .factor = 16,
                                   .integrate = 192,
                                   .fine = 256,
                                   .steps = 256,
                                   .beams = 5760,
                                   .bx = 96,
                                   .by = 96,
                                   .sent = 1024,
                                   .sent_channels = 449};
const struct gpu_node gpu_pathfinder = {.name = "pathfinder",
                                        .m = 8,
                                        .n = 12,
                                        .dishes = 64,
                                        .sample_us = 5.12,
                                        .channels = 384,
                                        .samples = 8192,
                                        .voltages = 16,
                                        .factor = 16,
                                        .integrate = 192,
                                        .fine = 2048,
                                        .steps = 256,
                                        .beams = 960,
                                        .bx = 32,
                                        .by = 48,
                                        .sent = 1024,
                                        .sent_channels = 2048};
const struct gpu_node gpu_hirax = {.name = "hirax",
                                   .m = 16,
                                   .n = 16,
                                   .dishes = 256,
                                   .sample_us = 2.56,
                                   .channels = 64,
                                   .samples = 16384,
                                   .voltages = 16,
                                   .factor = 16,
                                   .integrate = 384,
                                   .fine = 1024,
                                   .steps = 256,
                                   .beams = 2560,
                                   .bx = 64,
                                   .by = 64,
                                   .sent = 2560,
                                   .sent_channels = 1024};

const struct gpu_zone gpu_mix[GPU_MIX] = {{13, 1}, {10, 2}, {8, 4}, {6, 8}, {5, 16}, {4, 32}, {2, 64}};

bool gpu_make_data(struct gpu *g, struct gpu_data *s, size_t in, enum gpu_random kind, size_t out,
                   size_t side)
{
    s->n = gpu_sets((double)(in + out));
    for (unsigned i = 0; i < s->n; i++) {
        s->in[i] = gpu_fill(g, in, kind);
        s->out[i] = gpu_alloc(g, out);
        if (side > 0) s->side[i] = gpu_alloc(g, side);
    }
    return gpu_ok(g, BR_OK);
}

unsigned gpu_missing;
bool gpu_portable;

/* Whether sample t of `steps` is there in channel f: neighbours among channels miss theirs at times far
 * apart. */
static bool is_there(size_t t, size_t f, size_t steps)
{
    return (t + 389 * f) % (steps < gpu_missing ? steps : gpu_missing) != 0;
}

const uint8_t *gpu_validity(size_t steps, size_t channels, bool by_channel)
{
    if (gpu_missing == 0) return NULL;
    uint8_t *valid = bench_alloc(steps * channels);
    for (size_t i = 0; i < steps * channels; i++)
        valid[i] =
            by_channel ? is_there(i % steps, i / steps, steps) : is_there(i / channels, i % channels, steps);
    return valid;
}

const uint8_t *gpu_zones_validity(const struct gpu_zone *zone, unsigned nzones, size_t samples)
{
    if (gpu_missing == 0) return NULL;
    uint8_t *valid = bench_alloc(gpu_all_channels(zone, nzones) * samples), *to = valid;
    for (unsigned z = 0; z < nzones; z++) {
        const size_t fine = zone[z].channels * zone[z].factor;
        for (size_t i = 0; i < zone[z].channels * samples; i++)
            *to++ = is_there(i / fine, i % fine / zone[z].factor, samples / zone[z].factor);
    }
    return valid;
}

double gpu_measure(struct gpu *g, const char *name, void (*enqueue)(void *, unsigned), void *arg,
                   const struct gpu_work *work)
{
    double host_us = 0, ms = gpu_time(g, enqueue, arg, &host_us);
    if (ms > 0) gpu_row(g, name, work, ms, host_us);
    gpu_free_all(g);
    return ms;
}

void gpu_refused(const char *name, const char *why)
{
    printf("%-68s cannot run: %s\n", name, why);
}

size_t gpu_all_channels(const struct gpu_zone *zone, unsigned nzones)
{
    size_t channels = 0;
    for (unsigned z = 0; z < nzones; z++) channels += zone[z].channels;
    return channels;
}

void gpu_zones_name(char *name, const char *kernel, const struct gpu_node *node, const struct gpu_zone *zone,
                    unsigned nzones)
{
    if (nzones == 1)
        snprintf(name, GPU_ROW_NAME, "%s, %s, F %zu, T %zu, U %u", kernel, node->name, zone->channels,
                 node->samples, zone->factor);
    else
        snprintf(name, GPU_ROW_NAME, "%s, %s, U %u to %u over %zu channels", kernel, node->name, zone->factor,
                 zone[nzones - 1].factor, gpu_all_channels(zone, nzones));
}

int gpu_require(const char *name, double value, const char *unit, double most)
{
    int falls_short = !(value >= 0 && value <= most);
    if (gpu_missing > 0 || gpu_portable) return 0;
    printf("    %s: %.4g %s, at most %.4g: %s\n", name, value, unit, most, falls_short ? "SHORT" : "ok");
    return falls_short;
}

/* Ceilings of the H200 on which the limits were set: bytes/s of a copy, operations/s of the library's
 * products. */
static const double h200[] = {[GPU_BY_COPY] = 4.20e12, [GPU_BY_INT8] = 1480e12, [GPU_BY_FP16] = 764e12};

int gpu_require_time(const struct gpu *g, enum gpu_bound bound, const char *name, double value,
                     const char *unit, double most)
{
    double here = bound == GPU_BY_COPY ? g->copy : bound == GPU_BY_INT8 ? g->int8 : g->fp16;
    return gpu_require(name, value, unit, here > 0 ? most * h200[bound] / here : most);
}
