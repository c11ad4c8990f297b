/* autocorr_1d.h - FRB stage 1 on a GPU for grids of 12 to 24 cells each way and blocks of time that are
 * not very short. The functions are those of plan.h. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_AUTOCORR_1D_H
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_AUTOCORR_1D_H

#include "kernels/frb_grid/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether grid and blocks suit it: 12 to 24 cells each way, and enough samples in a block to be faster than
 * direct/. */
bool br_frb_grid_autocorr_1d_pays(const struct br_frb_grid *plan);
/* The same, and there is room in the device's shared memory. */
bool br_frb_grid_autocorr_1d_fits(const struct br_frb_grid *plan, struct br_cuda *cuda);
int br_frb_grid_autocorr_1d_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                                   struct br_why *why);
void br_frb_grid_autocorr_1d_destroy(struct br_frb_grid *plan); /* nothing to do if it was not created */
/* Exchanges the weights of two plans of the same shape. */
void br_frb_grid_autocorr_1d_exchange(struct br_frb_grid_autocorr_1d *a, struct br_frb_grid_autocorr_1d *b);
void br_frb_grid_autocorr_1d_begin(struct br_frb_grid *plan);
void br_frb_grid_autocorr_1d_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n);

#ifdef __cplusplus
}
#endif
#endif
