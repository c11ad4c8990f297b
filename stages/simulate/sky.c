#include "stages/simulate/sky.h"
#include "buffers/sky.h"
#include "stages/common/stage/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill_phases(const struct sky *sky, size_t s, double x, double y)
{
    size_t ndishes = sky->ndishes;
    for (size_t c = 0; c < sky->nchannels; c++) {
        float *phase = sky->phase + (s * sky->nchannels + c) * 2 * ndishes;
        for (size_t d = 0; d < ndishes; d++) {
            double cycles =
                br_sky_cycles(BR_SIDEBAND_UPPER, sky->freq_mhz[c], sky->telescope->position[d], x, y);
            phase[d] = isfinite(x) ? (float)cos(2 * M_PI * cycles) : 0;
            phase[ndishes + d] = isfinite(x) ? (float)sin(2 * M_PI * cycles) : 0;
        }
    }
}

void sky_move(struct sky *sky, size_t source, struct br_beam towards)
{
    fill_phases(sky, source, towards.x, towards.y);
}

int sky_make(struct sky *sky, const struct br_telescope *telescope, const struct sky_wave *source,
             size_t nsources, const struct burst_params *bursts, size_t nbursts, size_t nchannels,
             size_t npol, const double *freq_mhz, const int16_t *table, uint64_t seed, struct br_error *error)
{
    size_t count = nsources + nbursts, ndishes = telescope->ndishes, row = 2 * ndishes;
    *sky = (struct sky){.nsources = nsources,
                        .nbursts = nbursts,
                        .nchannels = nchannels,
                        .npol = npol,
                        .ndishes = ndishes,
                        .telescope = telescope,
                        .freq_mhz = freq_mhz,
                        .table = table,
                        .seed = seed};
    sky->rms = calloc(nsources + 1, sizeof *sky->rms);
    sky->burst = calloc(nbursts + 1, sizeof *sky->burst);
    sky->phase = calloc(count * nchannels * row + 1, sizeof *sky->phase);
    if (sky->rms == NULL || sky->burst == NULL || sky->phase == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for the phases of %zu sources and bursts", count);
    for (size_t s = 0; s < count; s++) fill_phases(sky, s, source[s].x, source[s].y);
    for (size_t s = 0; s < nsources; s++) sky->rms[s] = (float)source[s].rms;
    int status = BR_OK;
    for (size_t b = 0; b < nbursts && status == BR_OK; b++)
        status = burst_make(&sky->burst[b], &bursts[b], table, error);
    return status;
}

void sky_free(struct sky *sky)
{
    for (size_t b = 0; sky->burst != NULL && b < sky->nbursts; b++) burst_free(&sky->burst[b]);
    free(sky->rms);
    free(sky->burst);
    free(sky->phase);
    *sky = (struct sky){0};
}

void sky_field(const struct sky *sky, uint64_t sample, int64_t k, size_t channel, size_t pol,
               float *restrict re, float *restrict im)
{
    size_t row = 2 * sky->ndishes;
    memset(re, 0, sky->ndishes * sizeof *re);
    memset(im, 0, sky->ndishes * sizeof *im);
    for (size_t s = 0; s < sky->nsources; s++) {
        float z[2];
        gaussian_pair(sky->table, sky->seed, sample, (uint32_t)(channel * sky->npol + pol),
                      RANDOM_SOURCE | (uint32_t)s, z);
        sky_add_wave(sky->phase + (s * sky->nchannels + channel) * row, sky->ndishes, sky->rms[s] * z[0],
                     sky->rms[s] * z[1], re, im);
    }
    for (size_t b = 0; b < sky->nbursts; b++) {
        const float *z = burst_at(&sky->burst[b], k, channel, pol);
        if (z != NULL)
            sky_add_wave(sky->phase + ((sky->nsources + b) * sky->nchannels + channel) * row, sky->ndishes,
                         z[0], z[1], re, im);
    }
}
