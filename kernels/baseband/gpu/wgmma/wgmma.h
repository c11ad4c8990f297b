/* wgmma.h - inside the baseband beamformer: the kernel for Hopper (compute capability 9.0). */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_WGMMA_H
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_WGMMA_H

#include "kernels/baseband/baseband.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_baseband_hopper;

/* *hopper stays NULL, without an error, where this kernel does not do it: another device, D no multiple of 16
 * or above 1024, more than 1024 beams. -1 with `why` on failure; destroy frees what there is. */
int br_baseband_hopper_create(struct br_baseband_hopper **hopper, const struct br_baseband_params *params,
                              struct br_why *why);
void br_baseband_hopper_destroy(struct br_baseband_hopper *hopper);

/* Whether the tables of two plans of the same shape can be exchanged (both may be NULL), and the exchange. */
bool br_baseband_hopper_alike(const struct br_baseband_hopper *a, const struct br_baseband_hopper *b);
void br_baseband_hopper_exchange(struct br_baseband_hopper *a, struct br_baseband_hopper *b);

/* Enqueues the work; `valid` is device memory or NULL. For a plan that integrates, `out` is float32: powers
 * of samples [F P][nsteps][B], or, with `groups`, sums of 16 [F P][nsteps / 16][B]; nsteps is a multiple of
 * 16 then. Returns false, and does nothing, where it cannot take this call: e no multiple of 16, or more
 * samples than it counts. */
bool br_baseband_hopper(struct br_baseband_hopper *hopper, const uint8_t *e, const uint8_t *valid,
                        size_t nsteps, uint8_t *out, unsigned long long *clamped, bool groups);

#ifdef __cplusplus
}
#endif
#endif
