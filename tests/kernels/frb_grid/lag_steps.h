/* lag_steps.h - the steps of frb_grid's 1-d autocorrelation, each behind a function that runs it on the
 * device.
 *
 * Pointers are memory of the device (cudaMallocManaged). Every function waits and returns 0, or -1 after an
 * error of CUDA's, or 1 where the device has no such instruction. Complex numbers are pairs (re, im) of
 * float16. N is 12, 16, 20 or 24. */
#ifndef BEAMRING_TESTS_KERNELS_FRB_GRID_LAG_STEPS_H
#define BEAMRING_TESTS_KERNELS_FRB_GRID_LAG_STEPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAG_SAMPLES = 8, LAG_ROWS = 8 };

/* The transform along n of 8 rows of cells of 8 samples by one warpgroup, by make_left_factors() and
 * start_products() of fft_wgmma.cuh; Hopper only.
 *
 *   e        [8 samples][8 m][N]         int4x2
 *   weights  [8 m][N][re, im]            float16
 *   y        [2N][8 m][8 samples][re, im] = sum_n exp(i pi q (n - (N-1)/2) / N) W x */
int lag_transform_wgmma(unsigned N, const uint8_t *e, const uint16_t *weights, uint16_t *y);

/* The same of one row by one warp, by half_transform: sums with cosines and with sines.
 *
 *   x         [8 samples][N]   float16, real
 *   cosines   [N][8 samples] = sum_n cos(pi q (n - (N-1)/2) / N) x
 *   sines     [N][8 samples], the same with sines; of q = 0 those of q = N */
int lag_transform_mma(unsigned N, const uint16_t *x, uint16_t *cosines, uint16_t *sines);

/* Products and lags of four directions by one warp, by lag_products; tiles: 2 or 3.
 *
 *   y     [4 directions][8 tiles m][8 samples][re, im]
 *   lags  [4 directions][8 tiles][re, im] = sum over samples and m of y[m + lag] conj(y[m]) */
int lag_correlate(unsigned tiles, const uint16_t *y, uint16_t *lags);

#ifdef __cplusplus
}
#endif
#endif
