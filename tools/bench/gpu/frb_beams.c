/* frb_beams.c - the frb_beams kernels on the GPU. */
#include "kernels/frb_beams/frb_beams.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct frb_beams {
    struct br_frb_beams *plan;
    const double *direction;
    size_t steps;
    struct gpu_data sets;
    const uint8_t *valid; /* [channels][steps] */
};

static void run_frb_beams(void *arg, unsigned i)
{
    struct frb_beams *b = arg;
    br_frb_beams_execute(b->plan, (uint16_t *)(void *)b->sets.in[i % b->sets.n], b->valid, b->steps,
                         (uint16_t *)(void *)b->sets.out[i % b->sets.n]);
}

static void run_steer(void *arg, unsigned i)
{
    struct frb_beams *b = arg;
    struct br_why why;
    (void)i;
    br_frb_beams_steer(b->plan, b->direction, 0, &why);
}

enum what { BEAMS, BEAMS_FLOAT32, STEERING, WITH_INCOHERENT };

/* Milliseconds of forming beams, or of steering them; negative after a failure. */
static double bench(struct gpu *g, const struct gpu_node *node, size_t channels, size_t steps, size_t bx,
                    size_t by, enum what what)
{
    struct frb_beams b = {.steps = steps};
    size_t nbeams = by > 0 ? bx * by : bx, cells = (size_t)4 * node->m * node->n, columns = by > 0 ? by : 64;
    size_t in = channels * steps * cells * 2,
           out = channels * steps * (nbeams + (what == WITH_INCOHERENT)) * 2;
    double *direction = bench_alloc(nbeams * 2 * sizeof *direction),
           *freq = bench_alloc(channels * sizeof *freq), ms = -1;
    double products =
        (double)(channels * steps) *
        (by > 0 ? (double)(bx * cells) + (double)(bx * by * 2 * node->n) : (double)(nbeams * cells));
    char name[GPU_ROW_NAME], beams[32];
    struct br_why why;
    snprintf(beams, sizeof beams, by > 0 ? "%zu x %zu" : "%zu", bx, by);
    if (what == STEERING)
        snprintf(name, sizeof name, "frb_beams, %s, F %zu, B %s: steer", node->name, channels, beams);
    else
        snprintf(name, sizeof name, "frb_beams%s, %s, F %zu, T %zu, B %s",
                 what == BEAMS_FLOAT32     ? " f32"
                 : what == WITH_INCOHERENT ? " + incoherent"
                                           : "",
                 node->name, channels, steps, beams);
    for (size_t c = 0; c < channels; c++) freq[c] = 600 + 0.0122 * (double)c;
    for (size_t i = 0; i < nbeams; i++) {
        direction[2 * i] = ((double)(i / columns) - (double)(nbeams / columns) / 2) * 0.002;
        direction[2 * i + 1] = ((double)(i % columns) - (double)columns / 2) * 0.002;
        if (by == 0) direction[2 * i] += (double)((bench_random() >> 8) % 1000) * 1e-6;
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
                                               .steered = what == STEERING,
                                               .float32 = what == BEAMS_FLOAT32,
                                               .incoherent = what == WITH_INCOHERENT ? BR_INCOHERENT_APPEND
                                                                                     : BR_INCOHERENT_NONE,
                                               .cuda = g->cuda};
    b.direction = direction;
    b.valid = gpu_validity(steps, channels, true);
    if (br_frb_beams_create(&b.plan, BR_CUDA, &params, &why) != 0)
        gpu_refused(name, why.text);
    else if (what ==
             STEERING) /* reads directions, writes what weights are made of: 32 bytes a beam and channel */
        ms = gpu_measure(g, name, run_steer, &b,
                         &(struct gpu_work){(double)(channels * nbeams) * 32, 0, false, 0});
    else if (gpu_make_data(g, &b.sets, in, GPU_POWERS, out, 0))
        ms = gpu_measure(g, name, run_frb_beams, &b,
                         &(struct gpu_work){(double)(in + out), 2 * products, false,
                                            (double)(steps * node->integrate) * node->sample_us * 1e-6});
    br_frb_beams_destroy(b.plan);
    return ms;
}

double gpu_frb_beams(struct gpu *g, const struct gpu_node *node, size_t channels, size_t steps, size_t bx,
                     size_t by)
{
    return bench(g, node, channels, steps, bx, by, BEAMS);
}

/* Beside the library's product in float32, with all weights made before. Returns how many fall short. */
static int bench_float32(struct gpu *g, const struct gpu_node *node)
{
    enum { CHANNELS = 16 };
    char why[128] = "";
    double ms = bench(g, node, CHANNELS, node->steps, node->beams, 0, BEAMS_FLOAT32);
    const struct gpu_gemm gemm = {.float32 = true,
                                  .m = node->beams,
                                  .n = node->steps,
                                  .k = (size_t)4 * node->m * node->n,
                                  .batch = CHANNELS};
    double library = gpu_gemm(g, &gemm, why);
    gpu_free_all(g);
    if (library <= 0) {
        gpu_refused("the library's product in float32", why);
        return 0;
    }
    printf("  cuBLASLt in float32, weights ready: %.3f ms\n", library);
    return gpu_require("CHORD, float32", ms * 1e3, "us", library * 1e3 / 0.8);
}

int bench_gpu_frb_beams(struct gpu *g)
{
    static const struct gpu_node *const nodes[] = {&gpu_chord, &gpu_pathfinder, &gpu_hirax};
    int shorts = 0;
    for (int i = 0; i < 3; i++) {
        double ms = gpu_frb_beams(g, nodes[i], nodes[i]->fine, nodes[i]->steps, nodes[i]->beams, 0);
        if (i == 0) shorts += gpu_require_time(g, GPU_BY_FP16, "CHORD, any directions", ms * 1e3, "us", 2500);
    }
    for (int i = 0; i < 3; i++) {
        double ms = gpu_frb_beams(g, nodes[i], nodes[i]->fine, nodes[i]->steps, nodes[i]->bx, nodes[i]->by);
        if (i == 0) shorts += gpu_require_time(g, GPU_BY_COPY, "CHORD, a grid of beams", ms * 1e3, "us", 450);
    }
    bench(g, &gpu_chord, gpu_chord.fine, gpu_chord.steps, gpu_chord.bx, gpu_chord.by, WITH_INCOHERENT);
    shorts += gpu_require_time(g, GPU_BY_COPY, "CHORD, steering",
                               bench(g, &gpu_chord, gpu_chord.fine, 1, gpu_chord.beams, 0, STEERING) * 1e3,
                               "us", 50);
    return shorts + bench_float32(g, &gpu_chord);
}
