/* direct.h - FRB stage 1 on a GPU for any grid of 8 to 32 cells each way: every sample is transformed and
 * squared. The functions are those of plan.h. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_DIRECT_H
#define BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_DIRECT_H

#include "kernels/frb_grid/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

int br_frb_grid_direct_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                              struct br_why *why);
void br_frb_grid_direct_destroy(struct br_frb_grid *plan); /* nothing to do if it was not created */
/* Exchanges the weights of two plans of the same shape. */
void br_frb_grid_direct_exchange(struct br_frb_grid_direct *a, struct br_frb_grid_direct *b);
void br_frb_grid_direct_begin(struct br_frb_grid *plan);
void br_frb_grid_direct_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n);

#ifdef __cplusplus
}
#endif
#endif
