/* rfi.h - interference from the ground: carriers that are pulsed, and impulses in all channels.
 *
 * A transmitter stands east and north of the grid's cell (0, 0), at the dishes' height. Its wave is
 * spherical: at distance r it is late by r / c, so that an upper sideband has the phase
 * exp(-2 pi i r / lambda), and its amplitude is in proportion to 1 / r. From far away that is the plane wave
 * of sky.h. It is linearly polarised at 45 degrees: alike in both polarisations. */
#ifndef BEAMRING_STAGES_SIMULATE_RFI_H
#define BEAMRING_STAGES_SIMULATE_RFI_H

#include "buffers/stream.h"
#include "runtime/stage.h"

extern const struct br_param rfi_carrier_params[], rfi_impulse_params[];

struct rfi_carrier {
    double freq_mhz, power_db, duty, period_s, start_s, east_m, north_m;
};
struct rfi_impulse {
    double start_s, duration_s, power_db, east_m, north_m;
};

struct rfi {
    size_t ncarriers, nimpulses, nchannels, ndishes;
    const struct rfi_carrier *carrier; /* the parameters; must outlive this */
    const struct rfi_impulse *impulse;
    size_t *channel;  /* [ncarriers] in which it is */
    double *freq_mhz; /* [nchannels] centres */
    float *wave;      /* [ncarriers + nimpulses x nchannels][2][ndishes]: re, im at each dish */
    double noise;     /* rms of a component of the receivers' noise, levels */
    double sample_s;
    const int16_t *table; /* gaussian_table's */
    uint64_t seed;
};

/* Fails at the stage's parameter where a carrier is in no channel or a transmitter next to a dish. */
int rfi_check(struct br_stage *stage, const struct br_stream *stream, const struct br_maps *carriers,
              const struct br_maps *impulses);

/* `table` must outlive it. False without memory. Free with rfi_free in any case. */
bool rfi_make(struct rfi *rfi, const struct br_stream *stream, const struct br_maps *carriers,
              const struct br_maps *impulses, double noise, const int16_t *table, uint64_t seed);
void rfi_free(struct rfi *rfi);

/* Adds the field at base sample `sample`, number k of the simulation, to re[ndishes] and im[ndishes]. */
void rfi_add(const struct rfi *rfi, uint64_t sample, int64_t k, size_t channel, float *restrict re,
             float *restrict im);

#endif
