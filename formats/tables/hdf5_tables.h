/* hdf5_tables.h - the numbers that users bring in HDF5 files: gains, baseband weights, beam directions.
 *
 * Every reader checks dataset, type and shape and names file and dataset in its message; a value that cannot
 * be used (not finite, -128 as a weight) is named with its position. Complex numbers are stored as h5py does:
 * {r, i}. Integers must fit the type stated here; floats of any width are converted. Results are malloc'ed
 * and freed by the caller. Not while another thread uses HDF5 (hdf5_child.h). */
#ifndef BEAMRING_FORMATS_TABLES_HDF5_TABLES_H
#define BEAMRING_FORMATS_TABLES_HDF5_TABLES_H

#include "buffers/error.h"
#include "buffers/stream.h"

#include <stddef.h>
#include <stdint.h>

/* /gain, complex64 [freq][pol][dish] */
struct br_gains {
    size_t nfreq, npol, ndishes;
    float *value; /* [nfreq][npol][ndishes][2] = re, im; finite */
};

/* Errors: BR_E_IO, BR_E_FORMAT, BR_E_NO_MEMORY. */
int br_gains_read(struct br_gains *gains, const char *path, struct br_error *error);

/* Whether gains are those of a stream's channels and sideband: /freq_mhz float64 [freq], where a file has it,
 * against the channels of the stream or, with as many values, those before they were upchannelized; the
 * attribute `sideband`, where both the file and the stream know theirs. A file that has one frequency or
 * another number of them is left to its reader. Errors: BR_E_INVALID naming file and channel or sideband, and
 * those of reading. */
int br_gains_check_channels(const char *path, const struct br_stream *stream, struct br_error *error);

/* /drift, real [pol][dish]: how fast phases drift, radians per second, finite. Errors as above. */
struct br_drifts {
    size_t npol, ndishes;
    float *value; /* [npol][ndishes] */
};
int br_drifts_read(struct br_drifts *drifts, const char *path, struct br_error *error);

/* /weights int8 [freq or 1][pol][beam][dish][2] = re, im in [-127, 127], and /shift int32 [freq or
 * 1][pol][beam], 0 to 30 */
struct br_weights {
    size_t nfreq, npol, nbeams, ndishes;
    int8_t *weight; /* [nfreq][npol][nbeams][ndishes][2] */
    int32_t *shift; /* [nfreq][npol][nbeams]; a file's single row of shifts is repeated for all of nfreq */
};

int br_weights_read(struct br_weights *weights, const char *path, struct br_error *error);

/* /beams float64 [beam][2]: direction cosines along the grid's m and n axes, finite. */
int br_beams_read(double **beams, size_t *nbeams, const char *path, struct br_error *error);

/* /bad_inputs integer [pol][dish] of at most 32 bits: not 0: bad. */
struct br_bad_inputs {
    size_t npol, ndishes;
    int32_t *value; /* [npol][ndishes] */
};

int br_bad_inputs_read(struct br_bad_inputs *bad, const char *path, struct br_error *error);

/* /rates float64 [beam][2]: how the beams of the same file move, in direction cosines per second, finite.
 * BR_OK with *rates = NULL where there is no such dataset. */
int br_rates_read(double **rates, size_t *nbeams, const char *path, struct br_error *error);

#endif
