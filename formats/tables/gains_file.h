/* gains_file.h - what a calibration found, as an HDF5 file that stages read as `gains`. */
#ifndef BEAMRING_FORMATS_TABLES_GAINS_FILE_H
#define BEAMRING_FORMATS_TABLES_GAINS_FILE_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Datasets: /gain complex64 [freq][pol][dish], /flag uint8 and /weight, /residual float32 of the same shape,
 * /snr float32 [freq][pol], /freq_mhz and /width_mhz float64 [freq], /reference int32 [freq][pol],
 * /antenna_numbers int64 [dish]; the rest are attributes of the file. */
struct gains_file {
    size_t nfreq, npol, ndishes;
    const float *gain;        /* [nfreq][npol][ndishes][2]; 0 where flagged */
    const uint8_t *flag;      /* [nfreq][npol][ndishes] enum br_gain_flag */
    const float *weight;      /* [nfreq][npol][ndishes] 1 / relative variance of the gain; 0 where flagged */
    const float *residual;    /* [nfreq][npol][ndishes] rms, in units of the noise */
    const float *snr;         /* [nfreq][npol] of a visibility; 0: no result */
    const int32_t *reference; /* [nfreq][npol] the dish whose phase is 0 */
    const double *freq_mhz, *width_mhz;   /* [nfreq] */
    const int64_t *antenna;               /* [ndishes] numbers in the visibilities' file */
    const char *sideband, *polarisations; /* "upper" or "lower", of the field that gains multiply; "xx yy" */
    const char *telescope, *source, *visibilities; /* names; the last one of the files, one a line */
    int64_t begin_ns, end_ns;                      /* Unix time of what was averaged */
    uint64_t digest;                               /* of the visibilities */
};

/* Writes a file next to `path` and gives it that name when it is complete, so that nobody reads half of it.
 * Not while another thread uses HDF5. Errors: BR_E_IO; a file that is there is replaced only with
 * `overwrite`. */
int gains_file_write(const struct gains_file *file, const char *path, bool overwrite, struct br_error *error);

#endif
