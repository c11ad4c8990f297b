/* unpack.c - packets to the electric field on the GPU, beside a copy of the same bytes. */
#include "kernels/unpack/unpack.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/gpu.h"
#include "tools/bench/unpack_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 8192 };

static const struct unpack_shape shapes[] = {
    {"chord-crs, pathfinder half", 16, 8, 16, 48, 8, true, false, 256},
    {"chord-crs, 1024 inputs", 128, 1, 16, 48, 8, true, false, 256},
    {"lwa-snap2", 11, 2, 1, 96, 64, true, false, 256},
    {"chime-ice, 16 crates", 16, 4, 2, 16, 128, false, false, 256},
    {"ata-snap", 20, 2, 16, 256, 2, true, true, 256, true},
    {"ata-snap, alternating streams", 20, 2, 16, 256, 2, true, true, 256, false},
};

struct unpack_run {
    struct br_unpack *plan;
    size_t blocks;
    const uint8_t *receipt;
    struct gpu_data sets;
};

static void run_unpack(void *arg, unsigned i)
{
    struct unpack_run *u = arg;
    unsigned set = i % u->sets.n;
    br_unpack_execute(u->plan, u->blocks, u->sets.in[set], u->receipt, u->sets.out[set],
                      (uint32_t *)(void *)u->sets.side[set]);
}

/* Milliseconds; negative: not measured. */
static double measure(struct gpu *g, const struct unpack_shape *shape, bool sums, double *bytes)
{
    struct unpack_shape s = *shape;
    struct unpack_run u = {.blocks = FRAME / s.samples};
    struct br_why why;
    char name[GPU_ROW_NAME];
    double ms = -1;
    if (!sums) s.sum_samples = 0;
    struct br_unpack_params p = unpack_tables(&s);
    p.cuda = g->cuda;
    size_t values = (size_t)FRAME * p.nchannels * p.npositions, receipt = u.blocks * p.receipt_bytes,
           side = sums ? values / s.sum_samples * BR_UNPACK_SUMS * sizeof(uint32_t) : 0;
    *bytes = (double)(2 * values + receipt + side);
    snprintf(name, sizeof name, "unpack, %s%s, F %zu, N %zu", s.name, sums ? ", sums" : "", p.nchannels,
             p.npositions);
    void *all = memset(bench_alloc(receipt), 0xff, receipt), *came = gpu_alloc(g, receipt);
    u.receipt = came;
    if (came == NULL || !gpu_ok(g, br_gpu_copy(came, all, receipt, &g->stream, &g->error))) return -1;
    if (br_unpack_create(&u.plan, BR_CUDA, &p, &why) != 0)
        gpu_refused(name, why.text);
    else if (gpu_make_data(g, &u.sets, values, GPU_BYTES, values, side))
        ms = gpu_measure(g, name, run_unpack, &u, &(struct gpu_work){*bytes, 0, false, FRAME * 5.12e-6});
    br_unpack_destroy(u.plan);
    return ms;
}

int bench_gpu_unpack(struct gpu *g)
{
    int shorts = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int sums = 0; sums < 2; sums++) {
            double bytes, ms = measure(g, &shapes[i], sums, &bytes);
            if (i == 0 && sums)
                shorts += gpu_require("CHORD, with sums, in copies of the same bytes",
                                      ms * 1e-3 * g->copy / bytes, "copies", 1 / 0.70);
        }
    return shorts;
}
