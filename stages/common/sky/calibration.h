/* calibration.h - gains of all channels and polarisations from visibilities that were added up. */
#ifndef BEAMRING_STAGES_COMMON_SKY_CALIBRATION_H
#define BEAMRING_STAGES_COMMON_SKY_CALIBRATION_H

#include "formats/tables/gains_file.h"
#include "formats/tables/visibilities.h"
#include "kernels/calibrate/calibrate.h"

struct calibration_options {
    double min_snr, max_residual, min_amplitude; /* see br_calibrate_params */
    /* the dish whose phase is 0; -1: in each polarisation the one that is good in most channels */
    long reference;
};

struct calibration {
    size_t nfreq, npol, ndishes;
    float *gain;        /* [nfreq][npol][ndishes][2] */
    uint8_t *flag;      /* [nfreq][npol][ndishes] */
    float *weight;      /* [nfreq][npol][ndishes] */
    float *residual;    /* [nfreq][npol][ndishes] */
    float *snr;         /* [nfreq][npol] of a visibility; 0: no result */
    float *misfit;      /* [nfreq][npol] rms residual of all, in units of the noise */
    int32_t *reference; /* [nfreq][npol] */
    struct br_why *why; /* [nfreq][npol] why there is no result; empty: there is one */
    size_t nsolved;     /* of nfreq npol */
};

/* Free with calibration_free in any case. Errors: BR_E_NO_MEMORY; BR_E_INVALID where no channel has a result,
 * saying why the first one has none, and for a reference that is not a dish or flagged everywhere. */
int calibration_make(struct calibration *c, const struct visibilities *v,
                     const struct calibration_options *options, struct br_error *error);
void calibration_free(struct calibration *c);

/* FNV-1a of 64 bits over frequencies, sums and numbers of samples. */
uint64_t visibilities_digest(const struct visibilities *v);

#endif
