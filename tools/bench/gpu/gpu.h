/* gpu.h - what the parts of `beamring bench gpu` share: one device, memory and random data on it, times
 * from events, ceilings, rows of the table. */
#ifndef BEAMRING_TOOLS_BENCH_GPU_GPU_H
#define BEAMRING_TOOLS_BENCH_GPU_GPU_H

#include "buffers/gpu.h"
#include "kernels/baseband/baseband.h"
#include "kernels/common/cuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GPU_RUNS = 25, /* of which the median is taken */
    GPU_SETS =
        3, /* of data, used in turn: each is larger than the cache, or all of them together several times */
    GPU_BLOCKS = 64 /* pieces of memory held at a time */
};
#define GPU_L2 (60e6) /* bytes; the sets of a kernel together are made four times as large */

enum gpu_random {
    GPU_BYTES,
    GPU_HALVES,
    GPU_POWERS,
    GPU_STEADY,
    GPU_RANDOMS
}; /* any bytes; float16 of either sign; 0.5 to 2; 1 to 1.25, as sums of many samples: 15 deviations from 0 */

struct gpu {
    struct br_gpu_stream stream;
    struct br_cuda *cuda;        /* on that stream */
    uint8_t *piece[GPU_RANDOMS]; /* locked host memory with random values, from which all data are made */
    void *plug;                  /* two halves: copying one to the other keeps the device busy */
    br_gpu_event event[GPU_RUNS + 1]; /* timed */
    void *block[GPU_BLOCKS];          /* of gpu_alloc */
    unsigned nblocks;
    struct br_error error;     /* the first failure; status BR_OK: none */
    double copy;               /* bytes/s read and written by a device-to-device copy */
    double int8, fp16;         /* operations/s of the library's product; 0: no library */
    double mma_int8, mma_fp16; /* ... of a bare loop of mma.sync */
    double to_device, to_host; /* bytes/s from and to locked memory */
};

/* Memory on the device, freed by gpu_free_all. NULL after a failure, which is kept in g->error. */
void *gpu_alloc(struct gpu *g, size_t bytes);
void *gpu_fill(struct gpu *g, size_t bytes, enum gpu_random kind); /* the same, random */
void gpu_free_all(struct gpu *g);

/* Whether all has gone well so far; takes the status of a br_gpu_ function that was given &g->error, or 0. */
bool gpu_ok(struct gpu *g, int status);

/* Median milliseconds on the device of one `enqueue(arg, i)`, i = 0, 1, ..., called back to back behind work
 * that keeps the device busy meanwhile, so that no launch is waited for. host_us (may be NULL): CPU time of a
 * call on the host. Negative after a failure. */
double gpu_time(struct gpu *g, void (*enqueue)(void *arg, unsigned i), void *arg, double *host_us);

/* Sets of `bytes` each to use in turn. */
unsigned gpu_sets(double bytes);

/* The work of one call of a kernel. */
struct gpu_work {
    double bytes;      /* read and written once */
    double operations; /* multiplications and additions; 0: not worth counting */
    bool int8;         /* they are on int8, so compare with that ceiling */
    double span_s;     /* telescope time that the call works off */
};
void gpu_heading(void);
void gpu_row(const struct gpu *g, const char *name, const struct gpu_work *work, double ms, double host_us);

/* --- gemm.c --------------------------------------------------------------------------------- */

struct gpu_gemm {
    bool int8, narrow; /* int8 (else float16) operands; int8 results (else int32) */
    bool float32;      /* float32 operands, not by tensor cores */
    size_t m, n, k, batch;
};

/* Milliseconds of cuBLASLt's best algorithm for C = A' B with random data; 0 if it is not available, and then
 * `why` (of 128 bytes) says why not. */
double gpu_gemm(struct gpu *g, const struct gpu_gemm *gemm, char *why);

/* --- bench_gpu_<kernel>.c: each prints its row and returns its milliseconds, negative after a failure -- */

/* A telescope, and what one node of it does. */
struct gpu_node {
    const char *name;
    unsigned m, n, dishes;
    double sample_us;
    size_t channels, samples;   /* coarse channels and samples of a frame */
    size_t voltages;            /* baseband beams */
    unsigned factor, integrate; /* U, base samples of an output step */
    size_t fine, steps;         /* channels and time steps of FRB stage 2 and the quantizer */
    size_t beams;               /* arbitrary ones */
    size_t bx, by;              /* ... and as a grid */
    size_t sent;                /* beams quantized, in `sent_channels` channels */
    size_t sent_channels;
};
extern const struct gpu_node gpu_chord, gpu_pathfinder, gpu_hirax;

struct gpu_zone {
    size_t channels;
    unsigned factor;
};

enum { NPOL = 2, TAPS = 4 };

double gpu_upchannelize(struct gpu *g, const struct gpu_node *node, const struct gpu_zone *zone,
                        unsigned nzones);
double gpu_baseband(struct gpu *g, const struct gpu_node *node);
/* Seeded weights; integrate as in br_baseband_params. NULL with `why`. */
struct br_baseband *gpu_baseband_plan(struct gpu *g, const struct gpu_node *node, enum br_baseband_gpu gpu,
                                      unsigned integrate, struct br_why *why);
/* Milliseconds of a frame with one of the device's kernels; negative after a failure. */
double gpu_baseband_with(struct gpu *g, const struct gpu_node *node, enum br_baseband_gpu gpu);
double gpu_frb_grid(struct gpu *g, const struct gpu_node *node, const struct gpu_zone *zone, unsigned nzones);
/* by = 0: bx arbitrary beams */
double gpu_frb_beams(struct gpu *g, const struct gpu_node *node, size_t channels, size_t steps, size_t bx,
                     size_t by);
double gpu_quantize(struct gpu *g, const struct gpu_node *node, size_t channels, size_t beams, size_t steps,
                    unsigned bits, enum gpu_random kind, bool slow);

/* 48 channels of a node with the resolutions that dispersion asks for, from the band's top to its bottom. */
enum { GPU_MIX = 7 };
extern const struct gpu_zone gpu_mix[GPU_MIX];

/* The kernels at the shapes of all telescopes: each prints its rows and returns how many fall short of
 * what is required. */
int bench_gpu_upchannelize(struct gpu *g);
int bench_gpu_baseband(struct gpu *g);
int bench_gpu_power_beams(struct gpu *g);
int bench_gpu_frb_grid(struct gpu *g);
int bench_gpu_frb_beams(struct gpu *g);
int bench_gpu_quantize(struct gpu *g);
int bench_gpu_unpack(struct gpu *g);
int bench_gpu_correlate(struct gpu *g);
int bench_gpu_flag(struct gpu *g);

/* --- kernels.c: what they share ------------------------------------------------------------------ */

enum { GPU_DATA = 16, GPU_ZONES = 8, GPU_ROW_NAME = 72 };

/* Inputs, outputs and side results to use in turn. */
struct gpu_data {
    unsigned n;
    uint8_t *in[GPU_DATA], *out[GPU_DATA];
    float *side[GPU_DATA];
};
bool gpu_make_data(struct gpu *g, struct gpu_data *s, size_t in, enum gpu_random kind, size_t out,
                   size_t side);

/* `bench --missing N`: of every channel one of N samples is missing (at least one of a shorter block), of
 * each at other times, and nothing is required. 0: nothing is missing. */
extern unsigned gpu_missing;

/* [steps][channels], or by channel [channels][steps]: which are there; NULL if all are. Memory of
 * bench_alloc. */
const uint8_t *gpu_validity(size_t steps, size_t channels, bool by_channel);
/* The same of all zones, one after the other, upchannelized: [samples / factor][channels factor]. */
const uint8_t *gpu_zones_validity(const struct gpu_zone *zone, unsigned nzones, size_t samples);

/* Times and prints one kernel, and gives back its memory. Milliseconds; negative after a failure. */
double gpu_measure(struct gpu *g, const char *name, void (*enqueue)(void *, unsigned), void *arg,
                   const struct gpu_work *work);

/* Prints that a kernel cannot be measured, and why. The bench goes on with the others. */
void gpu_refused(const char *name, const char *why);

/* Prints whether `value` is at most what is required of data with nothing missing. Returns 1 if it is not,
 * or if it was not measured (negative). */
int gpu_require(const char *name, double value, const char *unit, double most);

/* The same of a time, where `most` is what an H200 is allowed: other devices get as much more or less as the
 * ceiling that bounds the kernel is lower or higher here, as measured in this run. */
enum gpu_bound { GPU_BY_COPY, GPU_BY_INT8, GPU_BY_FP16 };
int gpu_require_time(const struct gpu *g, enum gpu_bound bound, const char *name, double value,
                     const char *unit, double most);

/* `bench --code sm_80`: portable kernels, of which nothing is required. */
extern bool gpu_portable;

size_t gpu_all_channels(const struct gpu_zone *zone, unsigned nzones);
void gpu_zones_name(char *name, const char *kernel, const struct gpu_node *node, const struct gpu_zone *zone,
                    unsigned nzones);

/* --- gpu.c ------------------------------------------------------------------------------------------- */

typedef int gpu_part(struct gpu *g);

/* Opens the first GPU, measures the ceilings and then each of the `n` parts. Returns how many results fall
 * short. */
int bench_gpu_parts(gpu_part *const *parts, unsigned n);

/* --- pipelines.c ---------------------------------------------------------------------------- */

/* Whole pipelines fed from locked memory. Returns how many take longer than they should. */
int gpu_pipelines(struct gpu *g);

/* --- ../follow.c ---------------------------------------------------------------------------- */

/* CHORD's frames in real time, with beams that follow the sky beside beams that stand still. */
int bench_gpu_follow(struct gpu *g);

/* Milliseconds of one frame's copies alone, both ways at once. Negative after a failure. */
double gpu_transfers(struct gpu *g, size_t to_device, size_t to_host);

#endif
