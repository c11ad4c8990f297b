/* burst.h - a coherently dispersed burst as each coarse channel sees it.
 *
 * The burst is white complex noise under a Gaussian envelope. Each frequency of it is delayed by K DM (f^-2 -
 * f_ref^-2), also inside a channel: there the noise passes a filter of constant gain with this group delay
 * (the chirp of the interstellar medium), so that any later splitting of the channel finds each part of it at
 * its own time. */
#ifndef BEAMRING_STAGES_SIMULATE_BURST_H
#define BEAMRING_STAGES_SIMULATE_BURST_H

#include "buffers/error.h"

#include <stddef.h>
#include <stdint.h>

/* Delay in s = this * DM [pc cm^-3] / f^2 [MHz^2]; the value that pulsar software has agreed on, 1 / 2.41e-4.
 */
#define BURST_DISPERSION (1 / 2.41e-4)

struct burst_params {
    double dm;        /* pc cm^-3 */
    double arrival_s; /* of the envelope's maximum at ref_mhz, after the first simulated sample */
    double ref_mhz;
    double width_s; /* full width at half maximum of the intensity */
    double rms;     /* of a component at the maximum, levels */
    double sample_s;
    size_t nchannels, npol;
    const double *freq_mhz; /* [nchannels] centres */
    uint64_t seed;
    uint32_t number; /* which burst: sets its noise */
};

struct burst {
    size_t nchannels, npol, length;
    int64_t *first; /* [nchannels] sample, counted from the first simulated one, of the window's start */
    float *field;   /* [nchannels][npol][length][2] */
};

/* Bytes of the field. */
size_t burst_bytes(const struct burst_params *params);

/* `table` is gaussian_table's. Errors: BR_E_NO_MEMORY. Free with burst_free in any case. */
int burst_make(struct burst *burst, const struct burst_params *params, const int16_t *table,
               struct br_error *error);
void burst_free(struct burst *burst);

/* The field at sample k, or NULL outside the burst's window. */
static inline const float *burst_at(const struct burst *burst, int64_t k, size_t channel, size_t pol)
{
    uint64_t i = (uint64_t)k - (uint64_t)burst->first[channel];
    if (k < burst->first[channel] || i >= burst->length) return NULL;
    return burst->field + 2 * ((channel * burst->npol + pol) * burst->length + (size_t)i);
}

#endif
