/* plan.h - inside the correlator. */
#ifndef BEAMRING_KERNELS_CORRELATE_PLAN_H
#define BEAMRING_KERNELS_CORRELATE_PLAN_H

#include "kernels/correlate/correlate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct br_correlate {
    enum br_backend backend;
    struct br_correlate_params p;
    size_t nbaselines;
    uint64_t samples; /* in the sums */

    int64_t *sum64; /* reference: [F][baseline][2] */
    int32_t *sum;   /* cpu: [F][baseline][2] */

    /* cpu: one channel's inputs as bytes, see cpu/cpu.c */
    size_t worker_bytes; /* from one worker's x, y and u to the next one's */
    int8_t *x, *y;       /* [worker][N][ROW] */
    uint8_t *u;          /* [worker][N][ROW] */
    const struct correlate_loops *loops;

    /* cuda: see gpu/launch.cu */
    struct br_cuda *cuda;
    struct br_correlate_gpu *gpu;
};

/* Number of the baseline (i, j), i <= j, of N inputs. */
static inline size_t correlate_baseline(size_t i, size_t j, size_t N)
{
    return i * N - i * (i + 1) / 2 + j;
}

/* The CPU takes CHUNK samples of a channel at a time: 2 CHUNK products of at most 15 x 8 in pairs over 32
 * bytes keep 16-bit sums below 2^15. Rows are an odd number of cache lines apart, so that those of several
 * inputs do not fall into the same set of the cache. */
enum { CORRELATE_CHUNK = 2048, CORRELATE_ROW = 2 * CORRELATE_CHUNK + 64, CORRELATE_I = 2, CORRELATE_J = 2 };

struct correlate_loops {
    /* 16 samples of 16 inputs from nibbles to bytes: x and u go to byte 0 (real) and `half` (imaginary) of
     * their rows, y likewise.
     *   row [16] of 16 bytes each: samples */
    void (*spread)(const uint8_t *const *row, int8_t *x, int8_t *y, uint8_t *u, size_t half);

    /* out[i][j] = {sum of x[i] u[j], sum of y[i] u[j]} over `bytes`, a multiple of 32
     *   x, y [CORRELATE_I] rows, u [CORRELATE_J] rows, CORRELATE_ROW apart */
    void (*block)(const int8_t *x, const int8_t *y, const uint8_t *u, size_t bytes,
                  int32_t out[CORRELATE_I][CORRELATE_J][2]);
};

void br_correlate_spread_avx2(const uint8_t *const *row, int8_t *x, int8_t *y, uint8_t *u, size_t half);
void br_correlate_block_avx2(const int8_t *x, const int8_t *y, const uint8_t *u, size_t bytes,
                             int32_t out[CORRELATE_I][CORRELATE_J][2]);

void br_correlate_reference(struct br_correlate *plan, size_t nsamples, const uint8_t *e,
                            const uint8_t *valid);
int br_correlate_cpu_create(struct br_correlate *plan);
void br_correlate_cpu_destroy(struct br_correlate *plan);
void br_correlate_cpu(struct br_correlate *plan, size_t nsamples, const uint8_t *e, const uint8_t *valid);
size_t br_correlate_cuda_bytes(const struct br_correlate_params *params);
int br_correlate_cuda_create(struct br_correlate *plan, struct br_why *why);
void br_correlate_cuda_destroy(struct br_correlate *plan);
void br_correlate_cuda(struct br_correlate *plan, size_t nsamples, const uint8_t *e, const uint8_t *valid);
void br_correlate_cuda_read(struct br_correlate *plan, int32_t *v);

#ifdef __cplusplus
}
#endif
#endif
