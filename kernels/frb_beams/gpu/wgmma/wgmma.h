/* wgmma.h - inside FRB stage 2: beams in any directions on Hopper (compute capability 9.0). */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_WGMMA_WGMMA_H
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_WGMMA_WGMMA_H

#include "kernels/frb_beams/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct br_frb_beams_wgmma;

/* *wgmma stays NULL, without an error, where this kernel does not do it: another device, 2N other than 24,
 * 32 and 48, B no multiple of 8, or more cells than shared memory has room for. -1 with `why` on failure. */
int br_frb_beams_wgmma_create(struct br_frb_beams_wgmma **wgmma, const struct br_frb_beams *plan,
                              struct br_why *why);
void br_frb_beams_wgmma_destroy(struct br_frb_beams_wgmma *wgmma);

/* Enqueues the work. phases_m, phases_n: phase_params (weights.cuh) in device memory, shape
 * (F, B). Memory that is not aligned to 16 bytes is a failure, which is kept. */
void br_frb_beams_wgmma(struct br_frb_beams_wgmma *wgmma, const void *phases_m, const void *phases_n,
                        const struct span *span);

#ifdef __cplusplus
}
#endif
#endif
