/* frb_grid.c - the frb_grid kernels on the GPU. */
#include "kernels/frb_grid/frb_grid.h"
#include "buffers/half.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <complex.h>
#include <math.h>
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
    const uint8_t *e_valid; /* of gpu_zones_validity */
    uint16_t (*cell)[2];
    const float *weights; /* [fine][NPOL][D][2], the first ones of each zone */
    int log2_scale[GPU_ZONES];
};

static void run_frb_grid(void *arg, unsigned i)
{
    struct frb_grid *f = arg;
    const uint8_t *in = f->sets.in[i % f->sets.n];
    uint16_t *out = (uint16_t *)(void *)f->sets.out[i % f->sets.n];
    const uint8_t *e_valid = f->e_valid;
    uint8_t *valid = f->valid;
    struct br_frb_grid_call call[GPU_ZONES];
    for (unsigned z = 0; z < f->nzones; z++) {
        size_t fine = f->zone[z].channels * f->zone[z].factor, row = fine * f->nspectators,
               steps = f->samples / f->zone[z].factor;
        call[z] = (struct br_frb_grid_call){.plan = f->plan[z],
                                            .e = in,
                                            .row = row,
                                            .e_valid = e_valid,
                                            .valid_row = fine,
                                            .nsteps = steps,
                                            .max_blocks = f->blocks,
                                            .out = out,
                                            .out_stride = f->blocks,
                                            .out_valid = valid,
                                            .valid_stride = f->blocks};
        in += steps * row;
        if (e_valid) e_valid += steps * fine;
        out += fine * f->blocks * f->cells;
        valid += fine * f->blocks;
    }
    br_frb_grid_execute_all(call, f->nzones); /* one launch */
}

/* Adds |FFT2|^2 of one sample and polarisation, in float64, to image[2M][2N]. */
static void add_sky(const struct gpu_node *node, const uint8_t *e, const float *w, uint16_t (*cell)[2],
                    double *image)
{
    unsigned M = node->m, N = node->n;
    const double complex i_unit = (double complex)I;
    double complex field[32][32] = {{0}}, row[32], wave[2][64];
    for (unsigned i = 0; i < 64; i++) {
        wave[0][i] = cexp(i_unit * M_PI * (i % (2 * M)) / M);
        wave[1][i] = cexp(i_unit * M_PI * (i % (2 * N)) / N);
    }
    for (unsigned d = 0; d < node->dishes; d++) {
        int re = ((e[d] & 15) ^ 8) - 8, im = ((e[d] >> 4) ^ 8) - 8;
        field[cell[d][0]][cell[d][1]] =
            (re + i_unit * im) * ((double)w[2 * d] + i_unit * (double)w[2 * d + 1]);
    }
    for (unsigned p = 0; p < 2 * M; p++) {
        for (unsigned n = 0; n < N; n++) {
            row[n] = 0;
            for (unsigned m = 0; m < M; m++) row[n] += field[m][n] * wave[0][m * p % (2 * M)];
        }
        for (unsigned q = 0; q < 2 * N; q++) {
            double complex sum = 0;
            for (unsigned n = 0; n < N; n++) sum += row[n] * wave[1][n * q % (2 * N)];
            image[p * 2 * N + q] += creal(sum * conj(sum));
        }
    }
}

/* Makes one image of each zone once more in float64: relative rms error and the largest error relative to the
 * rms. */
static void print_error(struct gpu *g, struct frb_grid *f, const struct gpu_node *node)
{
    double sum = 0, error = 0, worst = 0;
    size_t count = 0, in = 0, out = 0;
    double *image = memset(bench_alloc(f->cells * sizeof *image), 0, f->cells * sizeof *image);
    uint16_t *got = bench_alloc(f->cells * sizeof *got);
    uint8_t *e = bench_alloc(f->nspectators);
    run_frb_grid(f, 0);
    for (unsigned z = 0; image && got && e && z < f->nzones; z++) {
        size_t fine = f->zone[z].channels * f->zone[z].factor, row = fine * f->nspectators,
               steps = f->samples / f->zone[z].factor;
        size_t block = 1, channel = fine / 2, length = node->integrate / f->zone[z].factor;
        memset(image, 0, f->cells * sizeof *image);
        for (size_t t = 0; t < length; t++) {
            gpu_ok(g,
                   br_gpu_copy(e, f->sets.in[0] + in + (block * length + t) * row + channel * f->nspectators,
                               f->nspectators, &g->stream, &g->error));
            if (!gpu_ok(g, br_gpu_stream_wait(&g->stream, &g->error))) break;
            for (unsigned pol = 0; pol < NPOL; pol++)
                add_sky(node, e + pol * node->dishes, f->weights + (channel * NPOL + pol) * node->dishes * 2,
                        f->cell, image);
        }
        gpu_ok(g,
               br_gpu_copy(got, f->sets.out[0] + (out + channel * f->blocks + block) * f->cells * sizeof *got,
                           f->cells * sizeof *got, &g->stream, &g->error));
        if (!gpu_ok(g, br_gpu_stream_wait(&g->stream, &g->error))) break;
        for (size_t i = 0; i < f->cells; i++) {
            double is = ldexp((double)br_half_to_float(got[i]), f->log2_scale[z]), off = fabs(is - image[i]);
            sum += image[i] * image[i];
            error += off * off;
            if (off > worst) worst = off;
        }
        count += f->cells;
        in += steps * row;
        out += fine * f->blocks;
    }
    printf("%50s error against float64: %.1e relative rms, at most %.2f %% of the rms\n", "",
           sqrt(error / sum), 100 * worst / sqrt(sum / (double)count));
    for (unsigned z = 0; z < f->nzones; z++) br_frb_grid_begin(f->plan[z], 0);
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
    uint16_t(*cell)[2] = bench_alloc(node->dishes * sizeof *cell);
    double ms = -1, m = node->m, n = node->n,
           spectra = (double)(gpu_all_channels(zone, nzones) * f.samples * NPOL);
    char name[GPU_ROW_NAME];
    struct br_why why;
    gpu_zones_name(name, "frb_grid", node, zone, nzones);
    for (unsigned z = 0; z < nzones; z++) fine += zone[z].channels * zone[z].factor;
    out = fine * f.blocks * f.cells * sizeof(uint16_t);
    f.valid = bench_alloc(fine * f.blocks);
    float *weights = bench_alloc(fine * f.nspectators * 2 * sizeof *weights);
    if (node->m * node->n == node->dishes)
        for (unsigned d = 0; d < node->dishes; d++)
            cell[d][0] = (uint16_t)(d / node->n), cell[d][1] = (uint16_t)(d % node->n);
    else
        bench_place_dishes(node->m, node->n, node->dishes, cell);
    for (size_t i = 0; i < fine * f.nspectators * 2; i++)
        weights[i] = (float)(bench_random() >> 8) / (1 << 23) - 1;
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
        f.log2_scale[z] = params.log2_scale;
        if (br_frb_grid_create(&f.plan[z], BR_CUDA, &params, &why) != 0) {
            gpu_refused(name, why.text);
            goto done;
        }
    }
    f.cell = cell;
    f.weights = weights;
    if (!gpu_make_data(g, &f.sets, in, GPU_BYTES, out, 0)) goto done;
    print_error(g, &f, node);
    f.e_valid = gpu_zones_validity(zone, nzones, f.samples);
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
    return ms;
}

/* In ns for a sample of one channel and polarisation. */
static int required(struct gpu *g, const struct gpu_node *node, struct gpu_zone zone, const char *name,
                    double most)
{
    double ms = gpu_frb_grid(g, node, &zone, 1), spectra = (double)(zone.channels * node->samples * NPOL);
    return gpu_require_time(g, GPU_BY_FP16, name, ms < 0 ? ms : ms / spectra * 1e6, "ns", most);
}

int bench_gpu_frb_grid(struct gpu *g)
{
    struct gpu_node longer = gpu_chord, narrow = gpu_pathfinder, wide = gpu_hirax;
    int falls_short = 0;
    longer.integrate = 640, longer.samples = 8320;
    narrow.n = 8;
    wide.n = 20;
    falls_short += required(g, &gpu_chord, (struct gpu_zone){16, 16}, "24 x 24, 12 samples a step", 0.85);
    falls_short += required(g, &longer, (struct gpu_zone){16, 16}, "24 x 24, 40 samples a step", 0.85);
    falls_short += required(g, &gpu_hirax, (struct gpu_zone){64, 16}, "16 x 16", 0.33);
    /* in proportion to the products of 16 x 16, times 1.3 */
    falls_short += required(g, &wide, (struct gpu_zone){64, 16}, "16 x 20", 0.33 * 1.3 * 33280 / 24576);
    falls_short += required(g, &gpu_pathfinder, (struct gpu_zone){256, 16}, "8 x 12", 0.15);
    falls_short += required(g, &narrow, (struct gpu_zone){256, 16}, "8 x 8", 0.33 * 1.3 / 8);
    /* few channels, long blocks: what does not fill a GPU by itself */
    gpu_frb_grid(g, &gpu_chord, &(struct gpu_zone){13, 1}, 1);
    falls_short += gpu_require_time(g, GPU_BY_FP16, "a node's mix",
                                    gpu_frb_grid(g, &gpu_chord, gpu_mix, GPU_MIX), "ms", 0.9);
    return falls_short;
}
