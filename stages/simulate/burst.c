#include "stages/simulate/burst.h"
#include "stages/common/stage/random.h"

#include <fftw3.h>
#include <math.h>
#include <stdlib.h>

enum { MARGIN = 64 };   /* samples for the ringing of the filter's sharp edges */
#define HALF_WINDOW 2.5 /* envelope widths on either side of the maximum: 3e-8 of it is left there */

/* Delay of frequency f against frequency ref, s. */
static double delay_s(const struct burst_params *p, double f_mhz, double ref_mhz)
{
    return BURST_DISPERSION * p->dm * (1 / (f_mhz * f_mhz) - 1 / (ref_mhz * ref_mhz));
}

static double band_mhz(const struct burst_params *p)
{
    return 1e-6 / p->sample_s;
}

/* Samples by which the channel's upper edge is early and its lower edge is late. */
static double lead(const struct burst_params *p, double f)
{
    return -delay_s(p, f + band_mhz(p) / 2, f) / p->sample_s;
}
static double lag(const struct burst_params *p, double f)
{
    return delay_s(p, f - band_mhz(p) / 2, f) / p->sample_s;
}

static size_t window_length(const struct burst_params *p)
{
    double longest = 0;
    for (size_t c = 0; c < p->nchannels; c++)
        longest = fmax(longest, lead(p, p->freq_mhz[c]) + lag(p, p->freq_mhz[c]));
    longest += 2 * HALF_WINDOW * p->width_s / p->sample_s + 2 * MARGIN + 2;
    if (!(longest < 1e12)) return (size_t)1 << 40;
    size_t length = 1;
    while ((double)length < longest) length *= 2;
    return length;
}

size_t burst_bytes(const struct burst_params *p)
{
    double bytes = (double)window_length(p) * (double)p->nchannels * (double)p->npol * 2 * sizeof(float);
    return bytes < 0x1p60 ? (size_t)bytes : (size_t)1 << 60; /* exact below 2^53, and nobody has more */
}

/* One channel and polarisation: noise under the envelope, through the chirp. `centre` is the envelope's
 * maximum in samples of the window. */
static void fill(const struct burst_params *p, const int16_t *table, size_t channel, size_t pol,
                 double centre, size_t length, fftw_complex *work, fftw_plan forward, fftw_plan backward,
                 float *field)
{
    double f = p->freq_mhz[channel], width = p->width_s / p->sample_s;
    for (size_t i = 0; i < length; i++) {
        double t = ((double)i - centre) / width;
        work[i][0] = work[i][1] = 0;
        if (fabs(t) > HALF_WINDOW) continue;
        double envelope = p->rms * exp(-2 * M_LN2 * t * t); /* of the field: the intensity is its square */
        float z[2];
        gaussian_pair(table, p->seed, i, (uint32_t)(channel * p->npol + pol), RANDOM_BURST | p->number, z);
        work[i][0] = envelope * (double)z[0];
        work[i][1] = envelope * (double)z[1];
    }
    fftw_execute(forward);
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
    fftw_execute(backward);
    for (size_t i = 0; i < length; i++) {
        field[2 * i] = (float)work[i][0];
        field[2 * i + 1] = (float)work[i][1];
    }
}

int burst_make(struct burst *burst, const struct burst_params *p, const int16_t *table,
               struct br_error *error)
{
    size_t length = window_length(p), bytes = burst_bytes(p);
    *burst = (struct burst){.nchannels = p->nchannels, .npol = p->npol, .length = length};
    burst->first = calloc(p->nchannels, sizeof *burst->first);
    burst->field = malloc(bytes);
    fftw_complex *work = fftw_alloc_complex(length);
    fftw_plan forward = NULL, backward = NULL;
    int status = BR_OK;
    if (work != NULL) {
        fftw_make_planner_thread_safe(); /* one planner for the whole process: other stages plan, too */
        forward = fftw_plan_dft_1d((int)length, work, work, FFTW_FORWARD, FFTW_ESTIMATE);
        backward = fftw_plan_dft_1d((int)length, work, work, FFTW_BACKWARD, FFTW_ESTIMATE);
    }
    if (burst->first == NULL || burst->field == NULL || forward == NULL || backward == NULL) {
        status = br_fail(error, BR_E_NO_MEMORY, "no memory for burst %u (%zu bytes)", p->number, bytes);
    } else {
        for (size_t c = 0; c < p->nchannels; c++) {
            double f = p->freq_mhz[c];
            double maximum =
                (p->arrival_s + delay_s(p, f, p->ref_mhz)) / p->sample_s; /* at the channel's centre */
            double start = floor(maximum - HALF_WINDOW * p->width_s / p->sample_s - lead(p, f)) - MARGIN;
            burst->first[c] = (int64_t)fmax(fmin(start, 4e18), -4e18); /* beyond all samples */
            for (size_t pol = 0; pol < p->npol; pol++)
                fill(p, table, c, pol, maximum - start, length, work, forward, backward,
                     burst->field + 2 * (c * p->npol + pol) * length);
        }
    }
    if (forward != NULL) fftw_destroy_plan(forward);
    if (backward != NULL) fftw_destroy_plan(backward);
    fftw_free(work);
    return status;
}

void burst_free(struct burst *burst)
{
    free(burst->first);
    free(burst->field);
    burst->first = NULL;
    burst->field = NULL;
}
