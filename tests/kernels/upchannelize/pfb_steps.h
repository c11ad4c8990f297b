/* pfb_steps.h - the steps of the filterbank's tensor-core kernels, each behind a function that runs it on the
 * device.
 *
 * Pointers are memory of the device (cudaMallocManaged). Every function waits and returns 0, or -1 after an
 * error of CUDA's, or 1 where the device has no such instruction. Pairs are two float16 in 32 bits. */
#ifndef BEAMRING_TESTS_KERNELS_UPCHANNELIZE_PFB_STEPS_H
#define BEAMRING_TESTS_KERNELS_UPCHANNELIZE_PFB_STEPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* words [256], of two times each: words[i] and words[(i + 1) % 256]
 * pairs [256][4 samples][re, im], by unpack() */
int pfb_unpack(const uint32_t *words, uint32_t *pairs);

/* words [256]
 * pairs [256][2 samples][re, im][8 + n, 7 - n], by unpack_one() */
int pfb_unpack_one(const uint32_t *words, uint32_t *pairs);

/* The second part of the transform for U = 16 * sets, by join_sets().
 * in, out [32][sets][re, im] pairs; sets 2 or 4 */
int pfb_join_sets(int sets, int mirror, const uint32_t *in, uint32_t *out);

/* X of u and of U - 1 - u, by join_sums().
 * sums   [32][C_re, S_re, C_im, S_im][2 samples] pairs
 * joined [32][low, high][re, im][2 samples] pairs */
int pfb_join_sums(const uint32_t *sums, uint32_t *joined);

/* One warp's tile, by quantize_tile().
 * sums   [C_re, S_re, C_im, S_im][32 lanes] pairs
 * rules  [low, high][ratio, bound] pairs, of all lanes
 * bytes  [low, high][32 lanes]: level + 7 in both nibbles, in the low byte of each half
 * clamped [1], added to, by add_counts() */
int pfb_quantize_tile(const uint32_t *sums, const uint32_t *rules, uint32_t *bytes,
                      unsigned long long *clamped);

/* Samples of a warp, by quantize_sample(), field_bytes and count_masks().
 * x     [re, im][32 lanes] pairs
 * bytes [kept, missing][32 lanes], as they are stored
 * clamped [lower, upper]: how many components of each half, of the warp */
int pfb_quantize_sample(const uint32_t *x, uint32_t scale, uint32_t *bytes, uint32_t *clamped);

/* Rows of 64 bytes into shared memory and, by load_transposed(), to registers; these, by store_transposed(),
 * to other rows: bytes that are neighbours in a register become neighbours in time.
 * rows      [16][64]
 * registers [4 warps][2][32 lanes]
 * back      [32][64]: rows 16 to 31 from the same registers */
int pfb_transpose(const uint8_t *rows, uint32_t *registers, uint8_t *back);

#ifdef __cplusplus
}
#endif
#endif
