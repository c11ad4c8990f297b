/* baseband.h - the baseband beamformer, Eq. (1) of the kernel note, exact; and the power of its beams.
 *
 *   J[b][f][p][t] = clamp((sum_d A[f][p][b][d] E[t][f][p][d] + 2^(s-1)) >> s, -7, 7), component by component,
 *
 * s = s[f][p][b] >= 0, no rounding term at s = 0, arithmetic shift (rounds half up); sums exact in
 * integers. With params.bits = 8 the limits are -127 and 127.
 *
 * With params.integrate > 0 a plan makes intensities instead: power.h.
 *
 * With BR_CUDA e and out are device memory, validity is host memory and is uploaded (T F bytes for each
 * execute in which something is missing: br_cuda_create is told), and execute enqueues its work on the
 * stream of params.cuda. The number of clamped components is added to br_cuda_counter and to the plan's
 * counters on the device, which br_baseband_saturated reads. Fastest where e and out are 16-byte aligned
 * and D and T multiples of 16; best is T a multiple of 128.
 *
 * Frames that a plan is given one after the other, with nothing between them in the stream and nothing in
 * common in memory, may run concurrently on the device; what comes after them in the stream, or between them,
 * sees them in order. That is fastest where fields and beams rotate through at least six buffers each; with
 * less than three, frames run one by one. A kernel of another kind on the same stream that lets the next one
 * begin early (programmatic dependent launch) must have waited for the one before it first.
 *
 * Which file computes it. A row applies where no row above it does; the files are in kernels/baseband/:
 *
 *   backend       shape and call                                 architecture  file
 *   BR_REFERENCE  all                                            host          reference.c
 *   BR_CPU        all                                            AVX2          cpu/avx2.c
 *   BR_CPU        all                                            any host      cpu/cpu.c
 *   BR_CUDA       D not a multiple of 16, or above 1024          any GPU       gpu/mma/
 *   BR_CUDA       B above 1024, F P D from 2^30 - 1 on           any GPU       gpu/mma/
 *   BR_CUDA       e not a multiple of 16, T from 2^30 on         any GPU       gpu/mma/
 *   BR_CUDA       tiles of 96 beams, D <= 512, and at most       Hopper        gpu/wgmma/small_frames.cuh
 *                 one tile for every two multiprocessors
 *   BR_CUDA       the rest                                       Hopper        gpu/wgmma/persistent.cuh
 *   BR_CUDA       the rest                                       any GPU       gpu/mma/
 *
 * A tile is 128 times of one channel and polarisation; on Hopper it has 16, 32, 64 or 96 beams, whichever
 * costs least of those whose weights fit into shared memory (choose() in gpu/wgmma/launch.cu): with D <= 512
 * 96 for 65 to 96 beams, 129 to 192, 257 to 288. Hopper is compute capability 9.0, any GPU 8.0 or newer:
 * Ampere, Ada (8.9) and Blackwell (10.0, 12.0) take gpu/mma/ for all: few_dishes.cuh with D <= 64 and 4 bits,
 * else beamform.cuh.
 * params.gpu leaves out rows. docs/kernels-baseband.md says how each works. */
#ifndef BEAMRING_KERNELS_BASEBAND_BASEBAND_H
#define BEAMRING_KERNELS_BASEBAND_BASEBAND_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_cuda;

/* Which kernel a GPU runs: the results are the same. */
enum br_baseband_gpu {
    BR_BASEBAND_AUTO,     /* the one made for the device, where there is one for the plan's shape */
    BR_BASEBAND_PORTABLE, /* the one that runs on every device; for tests and benchmarks */
    BR_BASEBAND_MANY      /* as AUTO, without the one for frames of few tiles; for tests and benchmarks */
};

struct br_baseband_params {
    size_t nchannels, npol, nbeams, ndishes; /* F, P, B, D, each >= 1; D <= 65536 so that sums fit 32 bits */
    const int8_t *weights;                   /* [weight_channels][P][B][D][2] = re, im in [-127, 127] */
    const int32_t *shift;                    /* [weight_channels][P][B], 0 to 30 */
    size_t weight_channels;                  /* F, or 1 when all channels share them */
    struct br_cuda *cuda; /* BR_CUDA only: where its work goes; must live longer than the plan */
    enum br_baseband_gpu gpu;
    unsigned bits; /* of a component of the output: 4, which 0 is too, or 8 */

    /* Intensities, see power.h. */
    unsigned integrate;        /* input samples in one output; 0: voltages */
    double threshold;          /* outputs with a smaller fraction of valid input are masked; 0 to 1 */
    int log2_scale;            /* see br_baseband_log2_scale */
    const int32_t *incoherent; /* [weight_channels][P][D], 0 to 2^15: of |E|^2 in the sum over inputs; NULL */
    bool subtract;             /* the incoherent sum from all beams; else it is one beam more */

    struct br_parallel parallel; /* BR_CPU: shares the work, by channels and time; may be zeroed */
    struct br_parallel making;   /* BR_CUDA: shares what create does, by channels; may be zeroed */
};

struct br_baseband;

/* Copies the weights into its own layout. Returns -1 with `why` (a weight of -128 or a shift out of range is
 * named with its position). The plan has no state between calls. */
int br_baseband_create(struct br_baseband **plan, enum br_backend backend,
                       const struct br_baseband_params *params, struct br_why *why);
void br_baseband_destroy(struct br_baseband *plan);

/* Gives `plan` the weights and shifts of `with`, and the other way round, from the next execute on;
 * counters stay where they are. Only where br_baseband_may_exchange returns 0, for plans of one shape and
 * backend; else it is -1 with `why`. With BR_CUDA the two may have a br_cuda each; what is enqueued goes
 * on with what it had. */
int br_baseband_may_exchange(const struct br_baseband *plan, const struct br_baseband *with,
                             struct br_why *why);
void br_baseband_exchange(struct br_baseband *plan, struct br_baseband *with);

/* e          [T][F][P][D]  int4x2, components in [-8, 7]
 * e_valid    [T][F]        0: missing, 255: complete, between: the share of the inputs; NULL: all complete
 * out        [B][F][P][T]  int4x2; missing samples are 0x88 = (-8, -8). With params.bits = 8 int8 + int8,
 *                          real part first; missing samples are (-128, -128)
 * out_valid  [F][T]        likewise; may be NULL when e_valid is NULL
 * saturated  [B]           the number of clamped components is added; NULL: not wanted, and with BR_CUDA
 *
 * Returns the total number of clamped components; 0 with BR_CUDA. */
uint64_t br_baseband_execute(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                             size_t nsteps, uint8_t *out, uint8_t *out_valid, uint64_t *saturated);

/* Number of components clamped since the plan was created: fills per_beam [B] (NULL if not wanted), returns
 * the total. With BR_CUDA this waits for all that is enqueued on the stream; after a failure (br_cuda_check)
 * everything is 0. */
uint64_t br_baseband_saturated(struct br_baseband *plan, uint64_t *per_beam);

#ifdef __cplusplus
}
#endif
#endif
