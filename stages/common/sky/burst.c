#include "stages/common/sky/burst.h"
#include "stages/common/stage/random.h"

#include <fftw3.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 64 };   /* samples for the ringing of the filter's sharp edges */
#define HALF_WINDOW 2.5 /* envelope widths on either side of the maximum: 3e-8 of it is left there */
#define TAIL        9   /* scattering times behind it: 1e-4 of the fluence is left there */
#define FWHM        2.3548200450309493 /* full width at half maximum of a Gaussian of deviation 1 */

static double band_mhz(const struct burst_params *p)
{
    return 1e-6 / p->sample_s;
}

/* Samples by which the channel's upper edge is early and its lower edge is late. */
static double lead(const struct burst_params *p, double f)
{
    return -burst_delay_s(p->dm, f + band_mhz(p) / 2, f) / p->sample_s;
}
static double lag(const struct burst_params *p, double f)
{
    return burst_delay_s(p->dm, f - band_mhz(p) / 2, f) / p->sample_s;
}

double burst_scattering_s(const struct burst_params *p, double f_mhz)
{
    double ratio = p->ref_mhz / f_mhz, tau = p->scattering_s * ratio * ratio * ratio * ratio;
    return tau * FWHM > p->width_s / 30 ? tau : 0;
}

double burst_equivalent_s(const struct burst_params *p)
{
    return p->width_s * sqrt(M_PI / (4 * M_LN2));
}

/* An exponential of unit area, behind a Gaussian: exp(-t / tau) / tau there. */
static double scattered(double t, double sigma, double tau)
{
    double power = sigma * sigma / (2 * tau * tau) - t / tau, z = (sigma / tau - t / sigma) * M_SQRT1_2;
    return exp(power) * erfc(z) / (2 * tau);
}

double burst_arrived(const struct burst_params *p, double f_mhz, double t_s)
{
    double sigma = p->width_s / FWHM, tau = burst_scattering_s(p, f_mhz);
    double share = erfc(-t_s / sigma * M_SQRT1_2) / 2;
    return tau > 0 ? share - tau * scattered(t_s, sigma, tau) : share;
}

/* Amplitude, in units of that at the maximum before scattering, of the field at time t. */
static double envelope(const struct burst_params *p, double tau, double t)
{
    double in_widths = t / p->width_s;
    if (tau == 0) return exp(-2 * M_LN2 * in_widths * in_widths); /* the intensity is its square */
    return sqrt(burst_equivalent_s(p) * scattered(t, p->width_s / FWHM, tau));
}

static double maximum(const struct burst_params *p, double f)
{
    return (p->arrival_s + burst_delay_s(p->dm, f, p->ref_mhz)) / p->sample_s;
}

static double start_of(const struct burst_params *p, double f)
{
    return floor(maximum(p, f) - HALF_WINDOW * p->width_s / p->sample_s - lead(p, f)) - MARGIN;
}

static int64_t whole(double samples)
{
    return (int64_t)fmax(fmin(samples, 4e18), -4e18); /* beyond all samples */
}

void burst_extent(const struct burst_params *p, size_t channel, int64_t *first, int64_t *end)
{
    double f = p->freq_mhz[channel];
    double behind = (HALF_WINDOW * p->width_s + TAIL * burst_scattering_s(p, f)) / p->sample_s;
    *first = whole(start_of(p, f));
    *end = whole(ceil(maximum(p, f) + behind + lag(p, f)) + MARGIN);
}

size_t burst_length(const struct burst_params *p)
{
    double longest = 0;
    for (size_t c = 0; c < p->nchannels; c++) {
        double f = p->freq_mhz[c], tail = TAIL * burst_scattering_s(p, f) / p->sample_s;
        longest = fmax(longest, lead(p, f) + lag(p, f) + tail);
    }
    longest += 2 * HALF_WINDOW * p->width_s / p->sample_s + 2 * MARGIN + 2;
    if (!(longest < 1e12)) return (size_t)1 << 40;
    size_t length = 1;
    while ((double)length < longest) length *= 2;
    return length;
}

size_t burst_bytes(const struct burst_params *p)
{
    double bytes = (double)burst_length(p) * (double)p->nchannels * (double)p->npol * 2 * sizeof(float);
    return bytes < 0x1p60 ? (size_t)bytes : (size_t)1 << 60; /* exact below 2^53, and nobody has more */
}

bool burst_maker_create(struct burst_maker *maker, size_t length)
{
    fftw_complex *work = fftw_alloc_complex(length);
    *maker = (struct burst_maker){
        .length = length, .work = work, .field = malloc(length * 2 * sizeof *maker->field)};
    if (work == NULL || maker->field == NULL) return false;
    fftw_make_planner_thread_safe(); /* one planner for the whole process: other stages plan, too */
    maker->forward = fftw_plan_dft_1d((int)length, work, work, FFTW_FORWARD, FFTW_ESTIMATE);
    maker->backward = fftw_plan_dft_1d((int)length, work, work, FFTW_BACKWARD, FFTW_ESTIMATE);
    return maker->forward != NULL && maker->backward != NULL;
}

void burst_maker_free(struct burst_maker *maker)
{
    if (maker->forward != NULL) fftw_destroy_plan(maker->forward);
    if (maker->backward != NULL) fftw_destroy_plan(maker->backward);
    fftw_free(maker->work);
    free(maker->field);
    *maker = (struct burst_maker){0};
}

/* Noise under the envelope, through the chirp. */
int64_t burst_channel(struct burst_maker *maker, const struct burst_params *p, const int16_t *table,
                      size_t channel, size_t pol)
{
    fftw_complex *work = maker->work;
    size_t length = maker->length;
    double f = p->freq_mhz[channel], tau = burst_scattering_s(p, f), start = start_of(p, f),
           centre = maximum(p, f) - start, half = HALF_WINDOW * p->width_s, behind = half + TAIL * tau;
    for (size_t i = 0; i < length; i++) {
        double t = ((double)i - centre) * p->sample_s;
        work[i][0] = work[i][1] = 0;
        if (t < -half || t > behind) continue;
        double amplitude = p->rms * envelope(p, tau, t);
        float z[2];
        gaussian_pair(table, p->seed, i, (uint32_t)(channel * p->npol + pol), RANDOM_BURST | p->number, z);
        work[i][0] = amplitude * (double)z[0];
        work[i][1] = amplitude * (double)z[1];
    }
    fftw_execute(maker->forward);
    for (size_t i = 0; i < length; i++) {
        double bin = i < length / 2 ? (double)i : (double)i - (double)length;
        double v = bin / (double)length *
                   band_mhz(p); /* offset from the centre; a later sample of e^{2 pi i v t} is further on */
        double cycles = 1e6 * BURST_DISPERSION * p->dm * v * v / (f * f * (f + v));
        cycles -= floor(cycles);
        double c = cos(2 * M_PI * cycles) / (double)length, s = sin(2 * M_PI * cycles) / (double)length;
        double re = work[i][0], im = work[i][1];
        work[i][0] = re * c - im * s;
        work[i][1] = re * s + im * c;
    }
    fftw_execute(maker->backward);
    for (size_t i = 0; i < length; i++) {
        maker->field[2 * i] = (float)work[i][0];
        maker->field[2 * i + 1] = (float)work[i][1];
    }
    return whole(start);
}

int burst_make(struct burst *burst, const struct burst_params *p, const int16_t *table,
               struct br_error *error)
{
    size_t length = burst_length(p), bytes = burst_bytes(p);
    struct burst_maker maker;
    *burst = (struct burst){.nchannels = p->nchannels, .npol = p->npol, .length = length};
    burst->first = calloc(p->nchannels, sizeof *burst->first);
    burst->field = malloc(bytes);
    int status = BR_OK;
    bool made = burst_maker_create(&maker, length);
    if (!made || burst->first == NULL || burst->field == NULL)
        status = br_fail(error, BR_E_NO_MEMORY, "no memory for burst %u (%zu bytes)", p->number, bytes);
    for (size_t line = 0; status == BR_OK && line < p->nchannels * p->npol; line++) {
        burst->first[line / p->npol] = burst_channel(&maker, p, table, line / p->npol, line % p->npol);
        memcpy(burst->field + 2 * line * length, maker.field, length * 2 * sizeof *maker.field);
    }
    burst_maker_free(&maker);
    return status;
}

void burst_free(struct burst *burst)
{
    free(burst->first);
    free(burst->field);
    burst->first = NULL;
    burst->field = NULL;
}
