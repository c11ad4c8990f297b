/* hopper.h - FRB stage 1 on a GPU of compute capability 9.0, for grids of 16, 20 or 24 cells each way: what
 * cuda.cu leaves to hopper.cu. The functions are those of plan.h. */
#ifndef BEAMRING_KERNELS_FRB_GRID_HOPPER_H
#define BEAMRING_KERNELS_FRB_GRID_HOPPER_H

#include "kernels/frb_grid/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

bool br_frb_grid_hopper_fits(const struct br_frb_grid *plan, const struct br_frb_grid_params *params);
int br_frb_grid_hopper_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                              struct br_why *why);
void br_frb_grid_hopper_destroy(struct br_frb_grid *plan); /* nothing to do if it was not created */
void br_frb_grid_hopper_begin(struct br_frb_grid *plan);
void br_frb_grid_hopper_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n);

#ifdef __cplusplus
}
#endif
#endif
