/* rows.h - frames of beams turned into the rows of filterbank files: time after time, frequency falling. */
#ifndef BEAMRING_FORMATS_SIGPROC_ROWS_H
#define BEAMRING_FORMATS_SIGPROC_ROWS_H

#include "buffers/frame.h"
#include "formats/sigproc/sigproc.h"

enum rows_form { ROWS_UINT8, ROWS_INT4, ROWS_F16, ROWS_F32 };

enum { ROWS_MEAN_LEVEL = 128, ROWS_BEAMS = 8 };

struct rows {
    enum rows_form form;
    bool floats; /* what files hold: float32, else uint8 */
    size_t nchannels, nbeams;
    double scale; /* of the stream */

    /* The frame; data NULL: a hole, all of it missing. */
    const void *data;     /* [freq][step][beam], for levels [beam][freq][step] */
    const float *side;    /* levels: [beam][freq][2] = scale, offset; NULL if there is none */
    const uint8_t *valid; /* [freq][step]; NULL: complete */
    size_t nsteps;

    /* Only with floats: the running mean that takes the place of missing values. */
    float *mean;    /* [freq][beam] */
    uint16_t *seen; /* [freq][beam] values in the mean, up to its time constant */
};

/* Bytes of one value in a file. */
static inline size_t rows_value_bytes(const struct rows *rows)
{
    return rows->floats ? sizeof(float) : 1;
}

/* Makes rows for `nbeams` <= ROWS_BEAMS of the stream's beams from steps [from, from + steps) of the frame:
 * out [nbeams][steps][band->nchannels]. Every step of every beam is to be made once, in order of time, for
 * the sake of the mean. */
void rows_make(struct rows *rows, const struct sigproc_band *band, const size_t *beam, size_t nbeams,
               size_t from, size_t steps, void *out);

#endif
