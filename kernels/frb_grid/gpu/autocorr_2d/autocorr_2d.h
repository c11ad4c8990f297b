/* autocorr_2d.h - FRB stage 1 on a GPU for grids of 8 x 8, 8 x 12 and 12 x 8 cells and blocks of time that
 * are not very short. The functions are those of plan.h. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_AUTOCORR_2D_H
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_AUTOCORR_2D_H

#include "kernels/frb_grid/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

bool br_frb_grid_autocorr_2d_fits(const struct br_frb_grid *plan);
int br_frb_grid_autocorr_2d_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                                   struct br_why *why);
void br_frb_grid_autocorr_2d_destroy(struct br_frb_grid *plan); /* nothing to do if it was not created */
/* Exchanges the weights of two plans of the same shape. */
void br_frb_grid_autocorr_2d_exchange(struct br_frb_grid_autocorr_2d *a, struct br_frb_grid_autocorr_2d *b);
void br_frb_grid_autocorr_2d_begin(struct br_frb_grid *plan);
void br_frb_grid_autocorr_2d_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n);

#ifdef __cplusplus
}
#endif
#endif
