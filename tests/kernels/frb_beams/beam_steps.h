/* beam_steps.h - the steps of FRB stage 2's kernels, each behind a function that runs it on the device.
 *
 * Pointers are memory of the device (cudaMallocManaged). Every function waits and returns 0, or -1 after an
 * error of CUDA's, or 1 where the device has no such instruction. */
#ifndef BEAMRING_TESTS_KERNELS_FRB_BEAMS_BEAM_STEPS_H
#define BEAMRING_TESTS_KERNELS_FRB_BEAMS_BEAM_STEPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* u[count][2n] = U_q of beams at 2 theta = theta2[count] mhz[count], by find_phase() and weight(). */
int beam_weights(unsigned count, const double *theta2, const double *mhz, unsigned n, float *u);

/* Operand a of wgmma/arbitrary.cuh, by make_weights(), load_u_p() and outer_products(), of one group's 64 mb
 * beams in one channel at 1 MHz:
 *
 *   theta2_m, theta2_n  [64 mb]  2 theta along both axes
 *   np, nq              2M, 2N; nq = 24, 32 or 48
 *   a                   [iterations of beam_operand_steps()][k-steps][mb][128 threads][4] pairs of float16
 */
int beam_operand(unsigned nq, unsigned mb, unsigned np, const double *theta2_m, const double *theta2_n,
                 uint32_t *a);

/* How many k-steps of 16 k's an iteration has; whole p's. */
unsigned beam_operand_steps(unsigned nq);

#ifdef __cplusplus
}
#endif
#endif
