/* calibrate.h - receivers' gains from the visibilities of one source.
 *
 *   which file runs   what for
 *   solve.c           the fit, and which inputs it leaves out
 *   eigenvector.c     its start: LAPACK's eigenvector of the largest eigenvalue
 *
 * An input i receives E_i = g_i (a_i s + n_i): the source's field s with the geometric phase a_i, and noise
 * of its own. With the phases taken out, averaged over n samples,
 *   V_ij = g_i conj(g_j) S + noise, i != j;      V_ii = |g_i|^2 (S + noise power).
 * The autocorrelations' noise would bias a fit, so that they stay out of it and only make the inputs alike:
 * R_ij = V_ij / sqrt(V_ii V_jj) has noise of variance 1 / n whatever the inputs' gains are, and
 *   r = argmin sum_{i != j} n_ij |R_ij - r_i conj(r_j)|^2,   g_i = r_i sqrt(V_ii).
 * Where r is, r_i = sum_{j != i} n_ij R_ij r_j / sum_{j != i} n_ij |r_j|^2. That is iterated, from the
 * leading eigenvector of R without its diagonal; the average of two successive iterates begins the next two
 * (after Salvini & Wijnholds 2014). Gains come out as 1 / g: they make the array coherent. */
#ifndef BEAMRING_KERNELS_CALIBRATE_CALIBRATE_H
#define BEAMRING_KERNELS_CALIBRATE_CALIBRATE_H

#include "kernels/common/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum br_gain_flag {
    BR_GAIN_GOOD,
    BR_GAIN_DEAD,    /* no power, or no samples; or hardly any power, and weak or a misfit besides */
    BR_GAIN_WEAK,    /* it hardly sees the source: 1 / g would be noise */
    BR_GAIN_MISFIT,  /* its residual stands out */
    BR_GAIN_UNSOLVED /* the fit as a whole has no result */
};

struct br_calibrate_params {
    size_t ninputs;
    double min_snr;       /* of a gain: its amplitude over its error; below, a gain has no result */
    double max_residual;  /* of an input, times the median of all */
    double min_amplitude; /* |r_i| over the median of all */
    size_t reference;     /* whose phase is 0; the first good input where this one is flagged */
};

struct br_calibrate_result {
    bool solved;
    struct br_why why;       /* not solved: why not, for the user */
    size_t ngood, reference; /* inputs in the fit; whose phase is 0 */
    double snr;              /* of a visibility: mean |r_i r_j| over the rms of a component of residuals */
    double residual;         /* rms residual, times what noise alone would give */
    size_t iterations;
    double *gain;     /* [ninputs][2]: 1 / g_i, mean amplitude 1; 0 where flagged */
    double *gain_snr; /* [ninputs]: amplitude over standard error; 0 where flagged */
    double *misfit;   /* [ninputs]: rms residual, times what noise would give; 0 where not in the fit */
    uint8_t *flag;    /* [ninputs] enum br_gain_flag */
};

/* The number of pair (i, j), i <= j, of n inputs: row after row of the upper triangle. */
static inline size_t br_calibrate_pair(size_t n, size_t i, size_t j)
{
    return i * n - i * (i + 1) / 2 + j;
}

/* Fits one channel and polarisation.
 *   sum      [pairs][2]: sums over samples of E_i conj(E_j) with the source's phases taken out
 *   samples  [pairs]: how many there are in each; 0: none, the pair is left out
 *   result   its arrays are the caller's, all are written
 * -1 with `why` without memory only: whatever the numbers are, the answer is `solved`, or flags and a
 * reason. */
int br_calibrate(const struct br_calibrate_params *params, const double *sum, const double *samples,
                 struct br_calibrate_result *result, struct br_why *why);

/* Rotates gain[n][2] so that the phase of input `reference`, whose gain is not 0, is 0. */
void br_calibrate_refer(size_t n, double *gain, size_t reference);

/* The eigenvector, of length 1, and the eigenvalue that is largest of the Hermitian matrix a[n][n][2] in
 * column-major order, which is destroyed. False if LAPACK does not converge or memory runs out. */
bool br_leading_eigenvector(size_t n, double *a, double *vector, double *value);

#endif
