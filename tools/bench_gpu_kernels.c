/* bench_gpu_kernels.c - the kernels at the shapes of three telescopes, each on random data that no cache
 * holds. */
#include "kernels/baseband/baseband.h"
#include "kernels/frb_beams/frb_beams.h"
#include "kernels/frb_grid/frb_grid.h"
#include "kernels/quantize/quantize.h"
#include "kernels/upchannelize/upchannelize.h"
#include "tools/bench.h"
#include "tools/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { MAX_SETS = 16, MAX_ZONES = 8, ROW_NAME = 64 };

struct sets {
    unsigned n;
    uint8_t *in[MAX_SETS], *out[MAX_SETS];
    float *side[MAX_SETS];
};

static bool make_sets(struct gpu *g, struct sets *s, size_t in, enum gpu_random kind, size_t out, size_t side)
{
    s->n = gpu_sets((double)(in + out));
    for (unsigned i = 0; i < s->n; i++) {
        s->in[i] = gpu_fill(g, in, kind);
        s->out[i] = gpu_alloc(g, out);
        if (side > 0) s->side[i] = gpu_alloc(g, side);
    }
    return gpu_ok(g, BR_OK);
}

/* Times and prints one kernel, and gives back its memory. */
static double measure(struct gpu *g, const char *name, void (*enqueue)(void *, unsigned), void *arg,
                      const struct gpu_work *work)
{
    double host_us = 0, ms = gpu_time(g, enqueue, arg, &host_us);
    if (ms > 0) gpu_row(g, name, work, ms, host_us);
    gpu_free_all(g);
    return ms;
}

/* The others are measured all the same. */
static void refused(const char *name, const char *why)
{
    printf("%-50s cannot run: %s\n", name, why);
}

static uint32_t random_state = 1;

static uint32_t random_number(void)
{
    random_state = random_state * 1664525 + 1013904223;
    return random_state >> 8;
}

static size_t all_channels(const struct gpu_zone *zone, unsigned nzones)
{
    size_t channels = 0;
    for (unsigned z = 0; z < nzones; z++) channels += zone[z].channels;
    return channels;
}

static void zones_name(char *name, const char *kernel, const struct gpu_node *node,
                       const struct gpu_zone *zone, unsigned nzones)
{
    if (nzones == 1)
        snprintf(name, ROW_NAME, "%s, %s, F %zu, T %zu, U %u", kernel, node->name, zone->channels,
                 node->samples, zone->factor);
    else
        snprintf(name, ROW_NAME, "%s, %s, U %u to %u over %zu channels", kernel, node->name, zone->factor,
                 zone[nzones - 1].factor, all_channels(zone, nzones));
}

/* --- upchannelize ------------------------------------------------------------------------------------- */

struct upchannelize {
    struct br_upchannelize *plan[MAX_ZONES];
    const struct gpu_zone *zone;
    unsigned nzones;
    size_t row, nspectators, samples;
    struct sets sets;
    uint8_t *valid;
};

static void run_upchannelize(void *arg, unsigned i)
{
    struct upchannelize *u = arg;
    size_t first = 0;
    for (unsigned z = 0; z < u->nzones; z++) {
        br_upchannelize_execute(u->plan[z], u->sets.in[i % u->sets.n] + first, u->row, NULL, 0, u->samples,
                                u->sets.out[i % u->sets.n] + first * u->samples, u->valid);
        first += u->zone[z].channels * u->nspectators;
    }
}

double gpu_upchannelize(struct gpu *g, const struct gpu_node *node, const struct gpu_zone *zone,
                        unsigned nzones)
{
    struct upchannelize u = {
        .zone = zone, .nzones = nzones, .nspectators = NPOL * node->dishes, .samples = node->samples};
    double ms = -1, samples = 0, operations = 0;
    char name[ROW_NAME];
    struct br_why why;
    zones_name(name, "upchannelize", node, zone, nzones);
    u.row = all_channels(zone, nzones) * u.nspectators;
    u.valid = malloc(all_channels(zone, nzones) * u.samples);
    for (unsigned z = 0; z < nzones; z++) {
        double count = (double)(zone[z].channels * u.nspectators * u.samples), passes = 0;
        for (unsigned factor = zone[z].factor; factor > 1; factor /= 2) passes++;
        samples += count;
        operations +=
            count * (4 * TAPS + 5 * passes); /* a complex sample: its taps, its part of a transform */
        const struct br_upchannelize_params params = {.nchannels = zone[z].channels,
                                                      .nspectators = u.nspectators,
                                                      .factor = zone[z].factor,
                                                      .taps = TAPS,
                                                      .cuda = g->cuda};
        if (u.valid == NULL || br_upchannelize_create(&u.plan[z], BR_CUDA, &params, &why) != 0) {
            refused(name, u.valid != NULL ? why.text : "no memory");
            goto done;
        }
    }
    if (make_sets(g, &u.sets, u.row * u.samples, GPU_BYTES, u.row * u.samples, 0))
        ms = measure(
            g, name, run_upchannelize, &u,
            &(struct gpu_work){2 * samples, operations, false, (double)u.samples * node->sample_us * 1e-6});
done:
    for (unsigned z = 0; z < nzones; z++) br_upchannelize_destroy(u.plan[z]);
    free(u.valid);
    return ms;
}

/* --- baseband ----------------------------------------------------------------------------------------- */

struct baseband {
    struct br_baseband *plan;
    size_t samples;
    struct sets sets;
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
    char name[ROW_NAME];
    struct br_why why = {"no memory"};
    snprintf(name, sizeof name, "baseband, %s, F %zu, T %zu, B %zu", node->name, node->channels,
             node->samples, node->voltages);
    for (unsigned d = node->dishes; d > 2; d /= 4) bits++; /* the sums' rms stays near 3 */
    for (size_t i = 0; weights != NULL && i < rows * node->dishes * 2; i++)
        weights[i] = (int8_t)((int)(random_number() % 255) - 127);
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
        refused(name, why.text);
    else if (make_sets(g, &b.sets, in, GPU_BYTES, out, 0))
        ms = measure(g, name, run_baseband, &b,
                     &(struct gpu_work){(double)(in + out) + (double)(rows * node->dishes * 2),
                                        8 * (double)in * (double)node->voltages, true,
                                        (double)node->samples * node->sample_us * 1e-6});
    br_baseband_destroy(b.plan);
    free(weights);
    free(shift);
    return ms;
}

/* --- frb_grid ----------------------------------------------------------------------------------------- */

struct frb_grid {
    struct br_frb_grid *plan[MAX_ZONES];
    const struct gpu_zone *zone;
    unsigned nzones;
    size_t nspectators, samples, blocks, cells;
    struct sets sets;
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
    size_t fine = 0, in = all_channels(zone, nzones) * f.nspectators * f.samples, out;
    uint16_t(*cell)[2] = malloc(node->dishes * sizeof *cell);
    float *weights = NULL;
    double ms = -1, m = node->m, n = node->n,
           spectra = (double)(all_channels(zone, nzones) * f.samples * NPOL);
    char name[ROW_NAME];
    struct br_why why = {"no memory"};
    zones_name(name, "frb_grid", node, zone, nzones);
    for (unsigned z = 0; z < nzones; z++) fine += zone[z].channels * zone[z].factor;
    out = fine * f.blocks * f.cells * sizeof(uint16_t);
    f.valid = malloc(fine * f.blocks);
    weights = malloc(fine * f.nspectators * 2 * sizeof *weights);
    if (cell == NULL || weights == NULL || f.valid == NULL) {
        refused(name, why.text);
        goto done;
    }
    bench_place_dishes(node->m, node->n, node->dishes, cell);
    for (size_t i = 0; i < fine * f.nspectators * 2; i++) weights[i] = (float)random_number() / (1 << 23) - 1;
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
            refused(name, why.text);
            goto done;
        }
    }
    if (!make_sets(g, &f.sets, in, GPU_BYTES, out, 0)) goto done;
    /* dense transforms, first along n into 2N, then along m into 2M; 8 operations for a complex product and
     * its sum */
    ms = measure(g, name, run_frb_grid, &f,
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

/* --- frb_beams ---------------------------------------------------------------------------------------- */

struct frb_beams {
    struct br_frb_beams *plan;
    size_t steps;
    struct sets sets;
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
    char name[ROW_NAME], beams[32];
    struct br_why why = {"no memory"};
    snprintf(beams, sizeof beams, by > 0 ? "%zu x %zu" : "%zu", bx, by);
    snprintf(name, sizeof name, "frb_beams, %s, F %zu, T %zu, B %s", node->name, channels, steps, beams);
    if (direction == NULL || freq == NULL) {
        refused(name, why.text);
        goto done;
    }
    for (size_t c = 0; c < channels; c++) freq[c] = 600 + 0.0122 * (double)c;
    for (size_t i = 0; i < nbeams; i++) {
        direction[2 * i] = ((double)(i / columns) - (double)(nbeams / columns) / 2) * 0.002;
        direction[2 * i + 1] = ((double)(i % columns) - (double)columns / 2) * 0.002;
        if (by == 0) direction[2 * i] += (double)(random_number() % 1000) * 1e-6;
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
        refused(name, why.text);
    else if (make_sets(g, &b.sets, in, GPU_POWERS, out, 0))
        ms = measure(g, name, run_frb_beams, &b,
                     &(struct gpu_work){(double)(in + out), 2 * products, false,
                                        (double)(steps * node->integrate) * node->sample_us * 1e-6});
done:
    br_frb_beams_destroy(b.plan);
    free(direction);
    free(freq);
    return ms;
}

/* --- quantize ----------------------------------------------------------------------------------------- */

struct quantize {
    struct br_quantize *plan;
    size_t steps;
    struct sets sets;
};

static void run_quantize(void *arg, unsigned i)
{
    struct quantize *q = arg;
    unsigned set = i % q->sets.n;
    br_quantize_execute(q->plan, (uint16_t *)(void *)q->sets.in[set], q->steps, NULL, q->sets.out[set],
                        q->sets.side[set]);
}

double gpu_quantize(struct gpu *g, const struct gpu_node *node, size_t channels, size_t beams, size_t steps,
                    unsigned bits)
{
    struct quantize q = {.steps = steps};
    size_t values = channels * beams * steps, side = channels * beams * 2 * sizeof(float);
    const struct br_quantize_params params = {.nchannels = channels,
                                              .nbeams = beams,
                                              .block = steps,
                                              .bits = bits,
                                              .levels_rms = bits == 4 ? 2.5 : 16,
                                              .cuda = g->cuda};
    double ms = -1;
    char name[ROW_NAME];
    struct br_why why = {""};
    snprintf(name, sizeof name, "quantize to %u, %s, F %zu, T %zu, B %zu", bits, node->name, channels, steps,
             beams);
    if (br_quantize_create(&q.plan, BR_CUDA, &params, &why) != 0)
        refused(name, why.text);
    else if (make_sets(g, &q.sets, values * 2, GPU_POWERS, values * bits / 8, side))
        ms = measure(g, name, run_quantize, &q,
                     &(struct gpu_work){(double)(values * 2 + values * bits / 8 + side), 0, false,
                                        (double)(steps * node->integrate) * node->sample_us * 1e-6});
    br_quantize_destroy(q.plan);
    return ms;
}

/* --- all ---------------------------------------------------------------------------------------------- */

bool gpu_kernels(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    /* 48 channels of a node with the resolutions that dispersion asks for, from the band's top to its bottom
     */
    static const struct gpu_zone mix[] = {{13, 1}, {10, 2}, {8, 4}, {6, 8}, {5, 16}, {4, 32}, {2, 64}};
    enum { ZONES = sizeof mix / sizeof *mix, NODES = sizeof nodes / sizeof *nodes };
    gpu_heading();
    for (unsigned factor = 2; factor <= 128; factor *= 2)
        gpu_upchannelize(g, &gpu_chord, &(struct gpu_zone){gpu_chord.channels, factor}, 1);
    gpu_upchannelize(g, &gpu_chord, mix + 1, ZONES - 1);
    for (int i = 1; i < NODES; i++)
        gpu_upchannelize(g, nodes[i], &(struct gpu_zone){nodes[i]->channels, nodes[i]->factor}, 1);
    for (int i = 0; i < NODES; i++) gpu_baseband(g, nodes[i]);
    for (int i = 0; i < NODES; i++)
        gpu_frb_grid(g, nodes[i], &(struct gpu_zone){nodes[i]->channels, nodes[i]->factor}, 1);
    gpu_frb_grid(g, &gpu_chord, mix, ZONES);
    for (int i = 0; i < NODES; i++)
        gpu_frb_beams(g, nodes[i], nodes[i]->fine, nodes[i]->steps, nodes[i]->beams, 0);
    for (int i = 0; i < NODES; i++)
        gpu_frb_beams(g, nodes[i], nodes[i]->fine, nodes[i]->steps, nodes[i]->bx, nodes[i]->by);
    for (int i = 0; i < NODES; i++)
        gpu_quantize(g, nodes[i], nodes[i]->sent_channels, nodes[i]->sent, nodes[i]->steps, 4);
    gpu_quantize(g, &gpu_chord, gpu_chord.sent_channels, gpu_chord.sent, gpu_chord.steps, 8);
    return gpu_ok(g, BR_OK);
}
