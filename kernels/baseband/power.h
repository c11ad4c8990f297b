/* power.h - the power of the baseband beamformer's beams, for plans with params.integrate = n > 0:
 *
 *   I[f][tbar][b] = 2^-k R sum_{t in tbar} sum_p 4^-s |sum_d A[f][p][b][d] E[t][f][p][d]|^2,
 *
 * s = shift[f][p][b]. Block tbar has n input samples. Missing samples contribute nothing; R = n / (sum of
 * the shares of the block's samples) restores the level of the noise. A block whose valid fraction, 1 / R, is
 * below params.threshold is masked: all zero bytes, validity 0. One more beam, or what is subtracted from
 * all, is sum_p sum_d c[f][p][d] |E[t][f][p][d]|^2 in the place of the squares, c = params.incoherent.
 *
 * The bits of a result follow from the block's samples alone, whatever the calls, threads and devices: sums
 * over dishes are exact integers, converted to float32, squared and added there (each step rounds to
 * nearest). Sixteen samples, counted from the block's first one, are added as a tree of neighbours, (0 + 1) +
 * (2 + 3) and so on; those of the polarisations are added to each other, and then sixteen by sixteen to the
 * block. Samples that are missing, or behind the block's end, count as 0.
 *
 * A plan carries the unfinished block from call to call. br_baseband_exchange leaves it where it is: new
 * weights begin between two samples. With BR_CUDA e and out are device memory (e 16-byte aligned is
 * fastest), validity is host memory, and the work is enqueued; counters stay 0: nothing is clamped. Fastest
 * where n, and the length of calls, are multiples of 16. */
#ifndef BEAMRING_KERNELS_BASEBAND_POWER_H
#define BEAMRING_KERNELS_BASEBAND_POWER_H

#include "kernels/baseband/baseband.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The smallest k with which int4 full scale on every dish cannot overflow float16:
 * 2^k >= n P 128 (most^2) / 65504, `most` being the largest sum_d |A| 2^-s. */
int br_baseband_log2_scale(const struct br_baseband_params *params, double most);

/* Bytes of device memory that a plan for BR_CUDA takes for what it sums up, at most; of host memory for its
 * `workers` threads with BR_CPU. The shape in the parameters is used. */
size_t br_baseband_power_device_bytes(const struct br_baseband_params *params);
size_t br_baseband_power_host_bytes(const struct br_baseband_params *params, size_t workers);

/* Starts a stream (or goes on behind a hole) `phase` samples into a block, 0 <= phase < n: these count as
 * missing. An unfinished block is discarded. A new plan is at phase 0. */
void br_baseband_power_begin(struct br_baseband *plan, unsigned phase);

/* Adds input and writes every block that it completes, but no more than `max_blocks`; stops taking input
 * there.
 *
 * e          [nsteps][F][P][D]            int4x2
 * e_valid    [nsteps][F]                  0: missing, 255: complete, between: the share of the inputs; NULL
 * out        [F][out_stride][columns]     float16 bits; block i of this call is row i of each channel;
 *                                         columns are the beams, and the incoherent sum unless it is
 *                                         subtracted
 * out_valid  [F][valid_stride]            the valid fraction of block i, 1 to 255, or 0 where masked
 * taken      input samples used; nsteps where fewer than max_blocks blocks were completed
 *
 * Returns the number of blocks written. */
size_t br_baseband_power(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                         size_t max_blocks, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                         size_t valid_stride, size_t *taken);

/* Ends the unfinished block as if the rest were missing and writes it as above; returns 0 if there was none,
 * else 1. */
size_t br_baseband_power_flush(struct br_baseband *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                               size_t valid_stride);

#ifdef __cplusplus
}
#endif
#endif
