/* launch.h - inside the baseband beamformer on a GPU: what its parts call of each other. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_LAUNCH_H
#define BEAMRING_KERNELS_BASEBAND_GPU_LAUNCH_H

#include "kernels/baseband/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Within a round of uploads (br_cuda_begin): *valid is e_valid [nsteps][F] on the device, or NULL where
 * nothing is missing altogether. False: br_cuda_check says why. */
bool br_baseband_cuda_upload(struct br_baseband *plan, const uint8_t *e_valid, size_t nsteps,
                             const uint8_t **valid);

/* Enqueues the beamformer. `valid` is device memory or NULL. For a plan that integrates, `out` is float32:
 * powers of samples [F P][nsteps][B], or, with `groups`, sums of 16 of them [F P][nsteps / 16][B]. */
void br_baseband_cuda_launch(struct br_baseband *plan, const uint8_t *e, const uint8_t *valid, size_t nsteps,
                             uint8_t *out, bool groups);

/* power/launch.cu; do nothing for a plan that does not integrate. */
int br_baseband_cuda_power_create(struct br_baseband *plan, struct br_why *why);
void br_baseband_cuda_power_destroy(struct br_baseband *plan);
void br_baseband_cuda_power_exchange(struct br_baseband *a, struct br_baseband *b);

#ifdef __cplusplus
}
#endif
#endif
