#include "stages/simulate/rfi.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/random.h"
#include "stages/simulate/sky.h"

#include <math.h>
#include <stdlib.h>

#define NEAREST_M 10.0

#define PLACE(STRUCT)                                                                                        \
    PARAM(REAL, STRUCT, power_db,                                                                            \
          "power while it is on, over the noise of an input; the mean of all dishes", .required = true,      \
          .min = -100, .max = 100, .unit = "dB"),                                                            \
        PARAM(REAL, STRUCT, east_m,                                                                          \
              "position of the transmitter, at height 0; (0, 0) is the grid's cell (0, 0)",                  \
              .required = true, .min = -1e7, .max = 1e7, .unit = "m"),                                       \
        PARAM(REAL, STRUCT, north_m, "the same to the north", .required = true, .min = -1e7, .max = 1e7,     \
              .unit = "m")

const struct br_param rfi_carrier_params[] = {
    PARAM(REAL, struct rfi_carrier, freq_mhz, "its frequency, within a channel", .required = true, .min = 0,
          .max = 1e6, .unit = "MHz"),
    PARAM(REAL, struct rfi_carrier, duty, "the fraction of each period in which it is on", .def = "1",
          .min = 0, .max = 1),
    PARAM(REAL, struct rfi_carrier, period_s, "from pulse to pulse; each pulse has a phase of its own",
          .def = "1", .min = 1e-9, .max = 1e9, .unit = "s"),
    PARAM(REAL, struct rfi_carrier, start_s, "when the first pulse begins, after the start of the simulation",
          .def = "0", .min = 0, .max = 1e9, .unit = "s"),
    PLACE(struct rfi_carrier),
    {0},
};
const struct br_param rfi_impulse_params[] = {
    PARAM(REAL, struct rfi_impulse, start_s, "when it begins, after the start of the simulation",
          .required = true, .min = 0, .max = 1e9, .unit = "s"),
    PARAM(REAL, struct rfi_impulse, duration_s, "how long it lasts", .required = true, .min = 1e-9,
          .max = 1e9, .unit = "s"),
    PLACE(struct rfi_impulse),
    {0},
};

static double distance(const struct br_telescope *t, size_t dish, double east, double north)
{
    const double *at = t->position[dish];
    return hypot(hypot(east - at[0], north - at[1]), at[2]);
}

static size_t channel_of(const struct br_stream *s, double freq_mhz)
{
    size_t c = 0;
    while (c < s->nchannels && !(fabs(s->freq_mhz[c] - freq_mhz) <= 0.5 * s->width_mhz[c])) c++;
    return c;
}

static int check_place(struct br_stage *stage, const char *param, size_t i, const struct br_telescope *t,
                       double east, double north)
{
    for (size_t d = 0; d < t->ndishes; d++)
        if (distance(t, d, east, north) < NEAREST_M)
            return br_stage_fail_at(stage, param,
                                    "number %zu stands %.3g m from dish %zu; expected at least %.0f m", i + 1,
                                    distance(t, d, east, north), d, NEAREST_M);
    return BR_OK;
}

int rfi_check(struct br_stage *stage, const struct br_stream *s, const struct br_maps *carriers,
              const struct br_maps *impulses)
{
    const struct rfi_carrier *c = carriers->value;
    const struct rfi_impulse *m = impulses->value;
    int status = BR_OK;
    for (size_t i = 0; i < carriers->count && status == BR_OK; i++) {
        if (channel_of(s, c[i].freq_mhz) == s->nchannels)
            return br_stage_fail_at(stage, "carriers", "number %zu is at %.9g MHz, where there is no channel",
                                    i + 1, c[i].freq_mhz);
        status = check_place(stage, "carriers", i, s->telescope, c[i].east_m, c[i].north_m);
    }
    for (size_t i = 0; i < impulses->count && status == BR_OK; i++)
        status = check_place(stage, "impulses", i, s->telescope, m[i].east_m, m[i].north_m);
    return status;
}

/* The spherical wave at each dish, of mean power 1. */
static void fill_wave(float *wave, const struct br_telescope *t, double freq_mhz, double east, double north)
{
    double sum = 0, per_m = 1e6 * freq_mhz / BR_LIGHT_M_PER_S;
    for (size_t d = 0; d < t->ndishes; d++) sum += pow(distance(t, d, east, north), -2);
    double scale = sqrt((double)t->ndishes / sum);
    for (size_t d = 0; d < t->ndishes; d++) {
        double r = distance(t, d, east, north), cycles = -r * per_m;
        cycles -= floor(cycles);
        wave[d] = (float)(scale / r * cos(2 * M_PI * cycles));
        wave[t->ndishes + d] = (float)(scale / r * sin(2 * M_PI * cycles));
    }
}

bool rfi_make(struct rfi *rfi, const struct br_stream *s, const struct br_maps *carriers,
              const struct br_maps *impulses, double noise, const int16_t *table, uint64_t seed)
{
    size_t row = 2 * s->telescope->ndishes;
    *rfi = (struct rfi){.ncarriers = carriers->count,
                        .nimpulses = impulses->count,
                        .nchannels = s->nchannels,
                        .ndishes = s->telescope->ndishes,
                        .carrier = carriers->value,
                        .impulse = impulses->value,
                        .noise = noise,
                        .sample_s = br_stream_sample_s(s),
                        .table = table,
                        .seed = seed};
    rfi->channel = calloc(rfi->ncarriers + 1, sizeof *rfi->channel);
    rfi->freq_mhz = calloc(s->nchannels, sizeof *rfi->freq_mhz);
    rfi->wave = calloc((rfi->ncarriers + rfi->nimpulses * s->nchannels) * row + 1, sizeof *rfi->wave);
    if (rfi->channel == NULL || rfi->freq_mhz == NULL || rfi->wave == NULL) return false;
    float *wave = rfi->wave;
    for (size_t i = 0; i < rfi->ncarriers; i++, wave += row) {
        const struct rfi_carrier *c = &rfi->carrier[i];
        rfi->channel[i] = channel_of(s, c->freq_mhz);
        fill_wave(wave, s->telescope, c->freq_mhz, c->east_m, c->north_m);
    }
    for (size_t i = 0; i < rfi->nimpulses; i++)
        for (size_t c = 0; c < s->nchannels; c++, wave += row)
            fill_wave(wave, s->telescope, s->freq_mhz[c], rfi->impulse[i].east_m, rfi->impulse[i].north_m);
    for (size_t c = 0; c < s->nchannels; c++) rfi->freq_mhz[c] = s->freq_mhz[c];
    return true;
}

void rfi_free(struct rfi *rfi)
{
    free(rfi->channel);
    free(rfi->freq_mhz);
    free(rfi->wave);
    *rfi = (struct rfi){0};
}

/* The carrier at time t after the start: false while it is off. Its power is noise's of both components. */
static bool carrier_at(const struct rfi *rfi, size_t i, double t, double *a, double *b)
{
    const struct rfi_carrier *c = &rfi->carrier[i];
    double pulse = floor((t - c->start_s) / c->period_s), into = t - c->start_s - pulse * c->period_s;
    uint32_t r[4];
    if (t < c->start_s || (c->duty < 1 && into >= c->duty * c->period_s)) return false;
    random_block(rfi->seed, c->duty < 1 ? (uint64_t)pulse : 0, 0, RANDOM_CARRIER | (uint32_t)i, r);
    double cycles = (c->freq_mhz - rfi->freq_mhz[rfi->channel[i]]) * 1e6 * t + r[0] / 4294967296.0;
    double rms = M_SQRT2 * rfi->noise * pow(10, c->power_db / 20);
    cycles -= floor(cycles);
    *a = rms * cos(2 * M_PI * cycles);
    *b = rms * sin(2 * M_PI * cycles);
    return true;
}

void rfi_add(const struct rfi *rfi, uint64_t sample, int64_t k, size_t channel, float *restrict re,
             float *restrict im)
{
    size_t row = 2 * rfi->ndishes;
    double t = (double)k * rfi->sample_s, a, b;
    for (size_t i = 0; i < rfi->ncarriers; i++)
        if (rfi->channel[i] == channel && carrier_at(rfi, i, t, &a, &b))
            sky_add_wave(rfi->wave + i * row, rfi->ndishes, (float)a, (float)b, re, im);
    for (size_t i = 0; i < rfi->nimpulses; i++) {
        const struct rfi_impulse *m = &rfi->impulse[i];
        float z[2];
        if (t < m->start_s || t >= m->start_s + m->duration_s) continue;
        gaussian_pair(rfi->table, rfi->seed, sample, (uint32_t)channel, RANDOM_IMPULSE | (uint32_t)i, z);
        double rms = rfi->noise * pow(10, m->power_db / 20);
        sky_add_wave(rfi->wave + (rfi->ncarriers + i * rfi->nchannels + channel) * row, rfi->ndishes,
                     (float)(rms * (double)z[0]), (float)(rms * (double)z[1]), re, im);
    }
}
