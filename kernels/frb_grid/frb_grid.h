/* frb_grid.h - FRB stage 1, Eqs. (50), (51) of the FRB note:
 *
 *   I[f][tbar][p][q] = 2^-k R sum_{t in block tbar} sum_pol | sum_{m<M, n<N} W[f][pol][m][n] E[t][f][pol][m][n]
 *                                                              exp(+2 pi i (m p / 2M + n q / 2N)) |^2
 *
 * for 0 <= p < 2M, 0 <= q < 2N; block tbar has T_ds input samples; cells without a dish contribute zero.
 * Missing samples contribute nothing; R = T_ds / (valid samples in the block) restores the level; a block
 * whose valid fraction is below `threshold` is masked (all zero bytes, validity 0). The power 2^k is
 * chosen so that int4 full scale on every dish cannot overflow float16: 2^k >= npol T_ds 128 (max over f,
 * pol of sum_d |W|)^2 / 65504.
 *
 * A plan carries the unfinished block from call to call, so that the length of a call never changes a
 * result by a bit.
 *
 * BR_CUDA takes grids of 8, 12, ... 32 cells each way and one or two polarisations; e and out (best
 * aligned to 16 bytes) are device memory, validity stays host memory, and the work is enqueued. If
 * something is missing, an execute uploads validity and 4 bytes per channel and block. Weights, fields and
 * first sums are float16, relative to each channel's largest weight; second sums and intensities are
 * float32. Grids of 8 x 8 and 8 x 12 cells with blocks that are not very short go through the field's
 * autocorrelation instead (gpu/autocorr_2d/autocorr.cuh): fields and its transforms' factors are float16,
 * sums float32. Grids of 12 to 24 cells each way with such blocks are transformed along one axis
 * (float16), and go through the autocorrelation along the other one (gpu/autocorr_1d/autocorr.cuh): sums
 * float32, lags float16. */
#ifndef BEAMRING_KERNELS_FRB_GRID_H
#define BEAMRING_KERNELS_FRB_GRID_H

#include "kernels/common/kernel.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_cuda; /* kernels/common/cuda.h */

struct br_frb_grid_params {
    size_t nchannels, npol, ndishes; /* F, P, D */
    unsigned grid_m, grid_n;         /* M, N: 1 to 64 each on the CPU */
    const uint16_t *dish_cell;       /* [D][2] = (m, n); no two equal */
    const float *weights;            /* [weight_channels][P][D][2] = re, im; NULL: all 1 */
    size_t weight_channels;          /* F or 1; ignored without weights */
    unsigned downsample;             /* T_ds >= 1 */
    int log2_scale;                  /* k; see br_frb_grid_log2_scale */
    double threshold;                /* 0 to 1, usually 0.5 */
    struct br_cuda *cuda;            /* BR_CUDA: where its work goes; must live longer than the plan */
};

struct br_frb_grid;

/* The smallest k that cannot overflow (see above) for these parameters' weights, npol and downsample. */
int br_frb_grid_log2_scale(const struct br_frb_grid_params *params);

int br_frb_grid_create(struct br_frb_grid **plan, enum br_backend backend,
                       const struct br_frb_grid_params *params, struct br_why *why);
void br_frb_grid_destroy(struct br_frb_grid *plan);

/* Starts a stream (or goes on behind a hole) `phase` samples into a block, 0 <= phase < T_ds: these count
 * as missing. What was unfinished is forgotten. A new plan is at phase 0. */
void br_frb_grid_begin(struct br_frb_grid *plan, unsigned phase);

/* Adds input and writes every block that it completes, but no more than `max_blocks`; stops taking input
 * there.
 * e         [nsteps][row] bytes, this plan's channels being the first F*P*D of each row
 * e_valid   [nsteps][valid_row], first F of each row; NULL: all valid
 * out       float16 bits [F][out_stride blocks][2M][2N]: block i of this call goes to row i of each channel
 * out_valid [F][valid_stride]: the valid fraction of block i, 1 to 255, or 0 when masked
 * taken     input samples used (always nsteps when fewer than max_blocks blocks completed)
 * Returns the number of blocks written. */
size_t br_frb_grid_execute(struct br_frb_grid *plan, const uint8_t *e, size_t row, const uint8_t *e_valid,
                           size_t valid_row, size_t nsteps, size_t max_blocks, uint16_t *out,
                           size_t out_stride, uint8_t *out_valid, size_t valid_stride, size_t *taken);

/* The same for several plans at once, none of them twice: what goes in and, last, what comes of it. On a
 * GPU all of them are one launch (of up to 64 blocks each) as long as they share br_cuda, grid,
 * polarisations and number of dishes, which fills the device better than one after the other. */
struct br_frb_grid_call {
    struct br_frb_grid *plan;
    const uint8_t *e;
    size_t row;
    const uint8_t *e_valid;
    size_t valid_row, nsteps, max_blocks;
    uint16_t *out;
    size_t out_stride;
    uint8_t *out_valid;
    size_t valid_stride;
    size_t blocks, taken;
};
void br_frb_grid_execute_all(struct br_frb_grid_call *call, size_t ncalls);

/* Samples (missing or not, phase included) in the unfinished block. */
unsigned br_frb_grid_pending(const struct br_frb_grid *plan);

/* Ends the unfinished block as if the rest were missing and writes it as execute would; returns 0 if there
 * was none, else 1. */
size_t br_frb_grid_flush(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                         size_t valid_stride);

#ifdef __cplusplus
}
#endif
#endif
