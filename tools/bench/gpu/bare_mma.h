/* bare_mma.h - the rate of mma.sync by itself. */
#ifndef BEAMRING_TOOLS_BENCH_GPU_BARE_MMA_H
#define BEAMRING_TOOLS_BENCH_GPU_BARE_MMA_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues `rounds` of products on all of the current device, and that `waves` times, m16n8k32 of int8 or
 * m16n8k16 of float16 with float32 sums, on a cudaStream_t; out: 4 bytes of device memory that are not
 * written. Returns how many multiplications and additions these are; a failure of the launch is the device's
 * last error. */
#if BR_WITH_CUDA || defined(__CUDACC__)
double gpu_bare_mma(bool int8, unsigned rounds, unsigned waves, void *out, void *stream);
#else
static inline double gpu_bare_mma(bool int8, unsigned rounds, unsigned waves, void *out, void *stream)
{
    (void)int8, (void)rounds, (void)waves, (void)out, (void)stream;
    return 0;
}
#endif

#ifdef __cplusplus
}
#endif

#endif
