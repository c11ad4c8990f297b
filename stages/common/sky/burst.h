/* burst.h - a coherently dispersed burst as each coarse channel sees it.
 *
 * The burst is white complex noise under a Gaussian envelope. Each frequency of it is delayed by K DM (f^-2 -
 * f_ref^-2), also inside a channel: there the noise passes a filter of constant gain with this group delay
 * (the chirp of the interstellar medium), so that any later splitting of the channel finds each part of it at
 * its own time. Scattering follows the Gaussian envelope with an exponential, whose time grows as f^-4; the
 * fluence stays the same. */
#ifndef BEAMRING_STAGES_COMMON_SKY_BURST_H
#define BEAMRING_STAGES_COMMON_SKY_BURST_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Delay in s = this * DM [pc cm^-3] / f^2 [MHz^2]; the value that pulsar software has agreed on, 1 / 2.41e-4.
 */
#define BURST_DISPERSION (1 / 2.41e-4)

struct burst_params {
    double dm;        /* pc cm^-3 */
    double arrival_s; /* of the envelope's maximum at ref_mhz, after the first simulated sample */
    double ref_mhz;
    double width_s;      /* full width at half maximum of the intensity, before scattering */
    double rms;          /* of a component at the maximum before scattering, levels */
    double scattering_s; /* time of the exponential at ref_mhz; 0: none */
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

/* Delay (s) of frequency f_mhz against frequency ref_mhz. */
static inline double burst_delay_s(double dm, double f_mhz, double ref_mhz)
{
    return BURST_DISPERSION * dm * (1 / (f_mhz * f_mhz) - 1 / (ref_mhz * ref_mhz));
}

/* Time of the exponential at f_mhz, s; 0 where it is too short beside the width to matter. */
double burst_scattering_s(const struct burst_params *params, double f_mhz);

/* The share of the fluence at f_mhz that has arrived at time t_s after the maximum that the burst would have
 * without scattering; dispersion within a channel is not in it. */
double burst_arrived(const struct burst_params *params, double f_mhz, double t_s);

/* The equivalent width: fluence = intensity at the maximum before scattering x this, s. */
double burst_equivalent_s(const struct burst_params *params);

/* Base samples of a channel in which the burst has any field: those of [*first, *end), counted from the
 * first simulated sample. */
void burst_extent(const struct burst_params *params, size_t channel, int64_t *first, int64_t *end);

/* One channel at a time, in memory that is made once. */
struct burst_maker {
    size_t length; /* samples of the longest window; a power of two */
    void *work;    /* of FFTW */
    void *forward, *backward;
    float *field; /* [length][2] */
};

/* Memory and transforms for windows of at most `length` samples (burst_length). False: no memory. Free with
 * burst_maker_free in any case. */
bool burst_maker_create(struct burst_maker *maker, size_t length);
void burst_maker_free(struct burst_maker *maker);

/* Samples of the window of every channel: a power of two, 2^40 where it would be longer. */
size_t burst_length(const struct burst_params *params);

/* Makes the field of a channel and polarisation in maker->field; maker->length must be the burst's. Returns
 * the sample, counted from the first simulated one, of its start. `table` is gaussian_table's. */
int64_t burst_channel(struct burst_maker *maker, const struct burst_params *params, const int16_t *table,
                      size_t channel, size_t pol);

/* Bytes of the field of all channels. */
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
