/* frb_grid.h - FRB stage 1, Eqs. (50), (51) of the FRB note: a map of the sky from the dishes' field.
 *
 *   I[f][tbar][p][q] = 2^-k R sum_{t in tbar} sum_pol |Y[t][p][q]|^2,   0 <= p < 2M,  0 <= q < 2N,
 *   Y[t][p][q] = sum_{m<M, n<N} W[f][pol][m][n] E[t][f][pol][m][n] exp(2 pi i (m p / 2M + n q / 2N)).
 *
 * Block tbar has T_ds input samples; cells without a dish contribute zero. Missing samples contribute
 * nothing. In others a part of the inputs may be missing (they are zero): R = T_ds / (sum of the shares of
 * the block's samples) restores the level of the noise. A block whose valid fraction, 1/R, is below
 * `threshold` is masked (all zero bytes, validity 0). The power 2^k is chosen so that int4 full scale on
 * every dish cannot overflow float16:
 *
 *   2^k >= npol T_ds 128 (max over f, pol of sum_d |W|)^2 / 65504.
 *
 * A plan carries the unfinished block from call to call: the length of a call never changes a result by a
 * bit.
 *
 * With BR_CUDA e and out are device memory (fastest where aligned to 16 bytes), validity stays host memory,
 * and the work is enqueued. If something is missing, an execute uploads validity and 4 bytes per channel and
 * block.
 *
 * Which file computes it. A row applies where no row above it does; the files are in kernels/frb_grid/:
 *
 *   backend       grid M x N                      T_ds                   architecture  file
 *   BR_REFERENCE  1 to 64 each way                all                    host          reference.c
 *   BR_CPU        where dishes' rows, each in     not short; see         any host      cpu/lags.c
 *                 fours, have up to 160 places    br_frb_grid_lags_pay
 *   BR_CPU        1 to 64 each way                all                    any host      cpu/cpu.c
 *   BR_CUDA       8 x 8                           >= 4                   any GPU       gpu/autocorr_2d/
 *   BR_CUDA       8 x 12, 12 x 8                  >= 7                   any GPU       gpu/autocorr_2d/
 *   BR_CUDA       12, 16, 20, 24 each way, P = 2  8, 12, 15, 16,         Hopper        gpu/autocorr_1d/,
 *                                                 18 to 20, >= 22                      fft_wgmma.cuh
 *   BR_CUDA       12, 16, 20, 24 each way, P = 1  16, 23, 24, 30 to 32,  Hopper        the same
 *                                                 36 to 40, 43 to 48,
 *                                                 >= 50
 *   BR_CUDA       both of these                   the same               any with      gpu/autocorr_1d/,
 *                                                                        room          warp_roles.cuh
 *   BR_CUDA       8, 12, ... 32 each way          all                    any GPU       gpu/direct/
 *
 * Any GPU is one of compute capability 8.0 or newer, Hopper is 9.0. "With room": a block may have the shared
 * memory that it needs: 61 to 93 KiB where one side has up to 16 cells, else 141 to 143. A block of 8.6, Ada
 * (8.9) and Blackwell's 12.0 may have 99 KiB, so that they take direct/ for 20 and 24 cells each way; 8.0 and
 * 10.0 have room for all. A GPU takes one or two polarisations and no other grids.
 * gpu/launch.cu chooses; docs/kernels.md says how each works.
 *
 * direct/ transforms every sample: weights, fields and first sums are float16, relative to each channel's
 * largest weight; second sums and intensities are float32. autocorr_2d/ sums the autocorrelation of the field
 * (fields and the transforms' factors float16, sums float32) and transforms it once for each block.
 * autocorr_1d/ transforms along one axis (float16) and sums the autocorrelation along the other one (sums
 * float32, lags float16). */
#ifndef BEAMRING_KERNELS_FRB_GRID_FRB_GRID_H
#define BEAMRING_KERNELS_FRB_GRID_FRB_GRID_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

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
    struct br_parallel parallel;     /* BR_CPU: shares the work, by channels and blocks; may be zeroed */
};

struct br_frb_grid;

/* The smallest k that cannot overflow (see above) for these parameters' weights, npol and downsample. */
int br_frb_grid_log2_scale(const struct br_frb_grid_params *params);

/* At most so many bytes of samples that are not in a whole block a plan keeps on a GPU between two calls,
 * twice: those of the last call and of the next. Known without a device. */
size_t br_frb_grid_device_bytes(const struct br_frb_grid_params *params);

/* At most so many bytes of host memory a plan for BR_CPU takes for what it sums up and for its `workers`
 * threads; its weights are 2 P floats a cell, for each channel that has some. The shape and dish_cell of the
 * parameters are used and must be valid. */
size_t br_frb_grid_host_bytes(const struct br_frb_grid_params *params, size_t workers);

int br_frb_grid_create(struct br_frb_grid **plan, enum br_backend backend,
                       const struct br_frb_grid_params *params, struct br_why *why);
void br_frb_grid_destroy(struct br_frb_grid *plan);

/* From here on `plan` has the weights and the threshold of `with`, and the other way round; unfinished blocks
 * stay where they are, so that it is for a moment when none has samples (br_frb_grid_begin may have been
 * called). Enqueued work goes on with the weights that it had. Only where br_frb_grid_may_exchange
 * returns 0: plans of one shape, backend and scale; -1 with `why`. */
int br_frb_grid_may_exchange(const struct br_frb_grid *plan, const struct br_frb_grid *with,
                             struct br_why *why);
void br_frb_grid_exchange(struct br_frb_grid *plan, struct br_frb_grid *with);

/* Starts a stream (or goes on behind a hole) `phase` samples into a block, 0 <= phase < T_ds: these count
 * as missing. An unfinished block is discarded. A new plan is at phase 0. */
void br_frb_grid_begin(struct br_frb_grid *plan, unsigned phase);

/* Adds input and writes every block that it completes, but no more than `max_blocks`; stops taking input
 * there.
 *
 * e          [nsteps][row]             int4x2; this plan's channels are the first F P D bytes of a row
 * e_valid    [nsteps][valid_row]       0: missing, 255: complete, between: the share of the inputs; the first
 *                                      F of each row; NULL: all complete
 * out        [F][out_stride][2M][2N]   float16 bits; block i of this call is row i of each channel
 * out_valid  [F][valid_stride]         the valid fraction of block i, 1 to 255, or 0 where masked
 * taken      input samples used; nsteps where fewer than max_blocks blocks were completed
 *
 * Returns the number of blocks written. */
size_t br_frb_grid_execute(struct br_frb_grid *plan, const uint8_t *e, size_t row, const uint8_t *e_valid,
                           size_t valid_row, size_t nsteps, size_t max_blocks, uint16_t *out,
                           size_t out_stride, uint8_t *out_valid, size_t valid_stride, size_t *taken);

/* The same for several plans at once, none of them twice, made with the same br_parallel; `blocks` and
 * `taken` are written. On a GPU they are one launch (of up to 64 blocks each) where they share br_cuda,
 * grid, polarisations, number of dishes and method: that fills the device better than one after the other. */
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

/* Ends the unfinished block as if the rest were missing and writes it as execute would; returns 0 if there
 * was none, else 1. */
size_t br_frb_grid_flush(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                         size_t valid_stride);

#ifdef __cplusplus
}
#endif
#endif
