/* sky.h - what the dishes see: steady sources and bursts, each a plane wave from its direction.
 *
 * The field here is that of an upper sideband (buffers/sky.h), with the phase of each channel's centre.
 * simulate conjugates the sum of everything for a lower one. */
#ifndef BEAMRING_STAGES_SIMULATE_SKY_H
#define BEAMRING_STAGES_SIMULATE_SKY_H

#include "buffers/stream.h"
#include "stages/common/sky/burst.h"

struct sky_wave {
    double x, y; /* direction cosines; NAN: below the horizon */
    double rms;  /* of a component of its field, levels; 0 for a burst */
};

struct sky {
    size_t nsources, nbursts, nchannels, npol, ndishes;
    float *rms;          /* [nsources] */
    float *phase;        /* [nsources + nbursts][nchannels][2][ndishes]: cos, sin */
    struct burst *burst; /* [nbursts] */
    const struct br_telescope *telescope;
    const double *freq_mhz; /* [nchannels] */
    const int16_t *table;   /* gaussian_table's */
    uint64_t seed;
};

/* The sources' directions and strengths, then the bursts' directions, are in source[nsources + nbursts];
 * `bursts` is [nbursts]. `telescope`, `freq_mhz` and `table` must outlive the sky. Errors: BR_E_NO_MEMORY.
 * Free with sky_free in any case. */
int sky_make(struct sky *sky, const struct br_telescope *telescope, const struct sky_wave *source,
             size_t nsources, const struct burst_params *bursts, size_t nbursts, size_t nchannels,
             size_t npol, const double *freq_mhz, const int16_t *table, uint64_t seed,
             struct br_error *error);
void sky_free(struct sky *sky);

/* field += (a + ib) wave, dish by dish; wave is [2][ndishes]: re, im. */
static inline void sky_add_wave(const float *restrict wave, size_t ndishes, float a, float b,
                                float *restrict re, float *restrict im)
{
    for (size_t d = 0; d < ndishes; d++) {
        re[d] += a * wave[d] - b * wave[ndishes + d];
        im[d] += a * wave[ndishes + d] + b * wave[d];
    }
}

/* Moves a source: its phases of all channels; below the horizon (NAN) its field is 0. */
void sky_move(struct sky *sky, size_t source, struct br_beam towards);

/* Sets re[ndishes], im[ndishes] to the field of all sources and bursts at base sample `sample`, which is
 * number k of the simulation. */
void sky_field(const struct sky *sky, uint64_t sample, int64_t k, size_t channel, size_t pol,
               float *restrict re, float *restrict im);

#endif
