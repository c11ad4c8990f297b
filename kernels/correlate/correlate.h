/* correlate.h - visibilities: every input with every other one, exact in integers.
 *
 *   which file runs              when
 *   reference.c                  BR_REFERENCE: one product after the other
 *   cpu/cpu.c                    BR_CPU; inner loops in cpu/avx2.c where the processor has AVX2
 *   gpu/launch.cu                BR_CUDA: autocorrelations alone; all else is spread to bytes here,
 *     gpu/products/products.c    multiplied by cuBLASLt (int8 to int32), and gathered here
 *
 *   V[f][i][j] = sum over the samples that are there of E[t][f][i] conj(E[t][f][j]),  i <= j
 *
 * Inputs are numbered as in E: polarisation x dishes + dish. Baselines are stored row after row of the
 * upper triangle: (0,0) (0,1) ... (0,N-1) (1,1) (1,2) ... A sum stays below 2^31 for
 * BR_CORRELATE_MAX_SAMPLES samples, because each adds at most 128 to either part: -8 is a value like any
 * other. */
#ifndef BEAMRING_KERNELS_CORRELATE_CORRELATE_H
#define BEAMRING_KERNELS_CORRELATE_CORRELATE_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_CORRELATE_MAX_SAMPLES = 16777215 }; /* (2^31 - 1) / 128 */

struct br_correlate_params {
    size_t nchannels, ninputs; /* ninputs: polarisations x dishes, at most 8192 */
    bool autos;                /* the autocorrelations alone */
    struct br_cuda *cuda;      /* BR_CUDA: where its work goes; must live longer than the plan */
    struct br_parallel parallel; /* BR_CPU: shares the work, by channels; may be zeroed */
};

struct br_correlate;

/* N (N + 1) / 2, or N for autocorrelations alone. */
size_t br_correlate_baselines(const struct br_correlate_params *params);

/* Bytes that a plan holds on the device (BR_CUDA), or in host memory (BR_CPU). */
size_t br_correlate_device_bytes(const struct br_correlate_params *params);
size_t br_correlate_host_bytes(const struct br_correlate_params *params);

/* True where a GPU can do it: its library of matrix products is there. False with `why`. */
bool br_correlate_has_products(const struct br_correlate_params *params, struct br_why *why);

/* Checks the parameters and takes all memory. -1 with `why`. A plan is used by one thread at a time; it
 * keeps the sums from call to call. */
int br_correlate_create(struct br_correlate **plan, enum br_backend backend,
                        const struct br_correlate_params *params, struct br_why *why);
void br_correlate_destroy(struct br_correlate *plan); /* NULL is allowed */

/* Adds nsamples to the sums.
 *   e      int4x2 [nsamples][F][N], any alignment
 *   valid  [nsamples][F], 0: this sample of this channel adds nothing; NULL: all are there
 * With BR_CUDA e is device memory, valid host memory; the work is enqueued. -1 with `why`, and nothing is
 * added, where more than BR_CORRELATE_MAX_SAMPLES would be summed. */
int br_correlate_add(struct br_correlate *plan, size_t nsamples, const uint8_t *e, const uint8_t *valid,
                     struct br_why *why);

/* Writes the sums, real part first, and begins again at 0.
 *   v  int32 [F][baseline][2], 8-byte aligned; device memory with BR_CUDA */
void br_correlate_read(struct br_correlate *plan, int32_t *v);

#ifdef __cplusplus
}
#endif
#endif
