/* frb_fft.h - the FFT of kernels/frb_grid/gpu/fft.cuh alone, run by one warp on the device. */
#ifndef BEAMRING_TESTS_KERNELS_FRB_GRID_FRB_FFT_H
#define BEAMRING_TESTS_KERNELS_FRB_GRID_FRB_FFT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FRB_FFT_COLUMNS = 8 };

/* y[2M][columns][re, im] = sum_m exp(+2 pi i m p / 2M) x[m][columns][re, im], float16; M = 8, 12, ... 32.
 * Host memory. 0, or -1 after an error of CUDA's. */
int frb_fft(unsigned M, const uint16_t *x, uint16_t *y);

#ifdef __cplusplus
}
#endif
#endif
