/* inlines.h - the device inlines of kernels/common/, and the quantizer's pivot, each behind a function
 * that runs it for one warp (or warpgroup) on the device.
 *
 * Pointers are memory of the device (cudaMallocManaged, or registered). Every function waits and returns
 * 0, or -1 after an error of CUDA's. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_INLINES_H
#define BEAMRING_TESTS_KERNELS_COMMON_INLINES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { INLINES_TRANSPOSES = 2 }; /* bytes 0, bytes 1 */

/* in, out [which][2][32 lanes] */
int inlines_transpose(const uint32_t *in, uint32_t *out);

/* Every byte alone, bytes[256]: re, im, packed again. And words[256] of four: times 16. */
int inlines_int4(int32_t *re, int32_t *im, uint32_t *packed, const uint32_t *words, uint32_t *re16,
                 uint32_t *im16, uint32_t *not_im16);

/* c (16 x 8, row-major) += a (16 x k) b (k x 8), all as matrices in memory; which: 0 int8 k 32, 1 float16
 * k 16, 2 float16 k 8 */
int inlines_mma(int which, const void *a, const void *b, void *c);

/* rows [32][8] of 16 bits -> registers [4][32] */
int inlines_load_matrices(const uint16_t *rows, uint32_t *registers);

/* x [2][32 lanes], two float16 each: 4 lanes have 16 values of a beam. start [4][32]: minus the pivot */
int inlines_pivot(const uint32_t *x, float *start);

/* wgmma, c (64 x columns) += a (64 x k) b (k x columns); a row-major, b column-major, k = 128 bytes (4
 * products one after the other).
 *   swizzled  b in shared memory in the 128-byte swizzle, else plainly
 *   columns   one that wgmma_s8 has; with float16 64
 * On other devices than sm_90 returns 1. */
int inlines_wgmma(int is_float, int columns, int swizzled, const void *a, const void *b, void *c);

/* A box of 16 rows of 128 bytes at (x, y) of in [rows][row_bytes], by the accelerator with its swizzle to
 * shared memory, from there as it lies to seen [2048], and back to out at the same place (where neither
 * coordinate is negative). 1 where the device or driver has no such thing. */
int inlines_tensor(const uint8_t *in, uint8_t *seen, uint8_t *out, unsigned rows, unsigned row_bytes, int x,
                   int y);

#ifdef __cplusplus
}
#endif
#endif
