/* predict.c - the S/N that a burst should have in a beam.
 *
 * In one channel the burst raises the power of a beam by x(t) = sum_p S_p / sqrt(sum_p M_p^2), in units of
 * the deviation of one base sample: S_p = flux P |sum_d a_d exp(2 pi i r_d.(s - b) / lambda)|^2 is the
 * burst's power after a coherent sum over the inputs that are there, and M_p = sum_d a_d P_d that of the
 * noise, to which `upchannelize` adds that of rounding to 4 bits. A step of D
 * base samples averages x over D independent samples; a filter of the burst's shape over steps and channels
 * then has S/N^2 = sum over channels and steps of D <x>^2. <x> includes dispersion within a fine channel. */
#include "formats/sky/motion.h"
#include "stages/inject/inject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FINE = 4, FREQUENCIES = 64, MOST_TAPS = 32 };
#define ROUNDING      (2. / 12) /* that rounding to 4 bits adds to an input's mean |E|^2 */
#define TYPICAL       8.        /* mean |E|^2 of an input, until it is measured */
#define PHASE(cycles) (2 * M_PI * (cycles))

double inject_flux(const struct inject_event *e, double f_mhz)
{
    return e->fluence_s / burst_equivalent_s(&e->burst) * pow(f_mhz / e->burst.ref_mhz, e->index);
}

static double tap(int i, int taps, int U)
{
    double x = (i - (taps * U - 1) / 2.) / (taps * U + 1), window = cos(M_PI * x), t = M_PI * taps * x;
    return window * window * (t == 0 ? 1 : sin(t) / t);
}

/* How much the variance of a step's mean exceeds that of independent samples, because neighbouring outputs of
 * a polyphase filterbank overlap. The zone tells its taps; its window is the default one of `upchannelize`.
 * */
static double overlap_of(const struct br_zone *zone)
{
    int U = (int)zone->factor, taps = 2 * (int)zone->delay / U + 1, n = (int)zone->downsample / U;
    if (U == 1 || taps == 1) return 1;
    double correlation[MOST_TAPS] = {0}, sum = 1;
    for (int k = 0; k < taps && k < MOST_TAPS; k++)
        for (int i = 0; i < (taps - k) * U; i++) correlation[k] += tap(i, taps, U) * tap(i + k * U, taps, U);
    for (int k = 1; k < taps && k < n && k < MOST_TAPS; k++) {
        double r = correlation[k] / correlation[0];
        sum += 2 * (1 - (double)k / n) * r * r;
    }
    return sum;
}

/* The sum over the steps of one fine channel of D (share of the fluence per base sample)^2. */
static double steps_of(const struct inject_event *e, const struct br_zone *zone, double f_mhz,
                       double width_mhz)
{
    const struct burst_params *p = &e->burst;
    double D = zone->downsample,
           smear_s = fabs(burst_delay_s(p->dm, f_mhz - width_mhz / 2, f_mhz + width_mhz / 2));
    double finest_s = fmin(p->width_s, D * p->sample_s), tail_s = 9 * burst_scattering_s(p, f_mhz), sum = 0;
    int n = (int)fmin(fmax(ceil(4 * smear_s / finest_s), 1), FREQUENCIES);
    /* A step holds what came `delay` base samples earlier. */
    double at = (double)(e->sample % zone->downsample) + zone->delay +
                burst_delay_s(p->dm, f_mhz, p->ref_mhz) / p->sample_s;
    double around = (2.5 * p->width_s + smear_s / 2) / p->sample_s;
    double k0 = floor((at - around) / D), k1 = ceil((at + around + tail_s / p->sample_s) / D);
    for (double k = k0; k < k1; k++) {
        double share = 0;
        for (int i = 0; i < n; i++) {
            double f = f_mhz + width_mhz * ((i + 0.5) / n - 0.5);
            double t = k * D - at - burst_delay_s(p->dm, f, f_mhz) / p->sample_s;
            share += burst_arrived(p, f, (t + D) * p->sample_s) - burst_arrived(p, f, t * p->sample_s);
        }
        share /= n * D;
        sum += D * share * share;
    }
    return sum;
}

/* The power of a coherent sum towards (x, y) of unit amplitudes from the event's direction, over the noise:
 * of S_p and M_p of the head of this file. */
static double ratio(const struct inject *s, const struct inject_event *e, size_t c, double x, double y,
                    bool rounded, bool measured)
{
    const struct br_telescope *t = s->stream->telescope;
    double signal = 0, noise = 0, f = s->stream->freq_mhz[c];
    for (size_t p = 0; p < s->npol; p++) {
        size_t line = c * s->npol + p, alive = 0;
        const uint32_t *power = measured ? e->power + line * s->ndishes : NULL;
        double re = 0, im = 0, M = 0, P = 0;
        for (size_t d = 0; d < s->ndishes; d++) {
            double inverse[2], gain;
            if (!inject_gain(s, e, c, p, d, inverse, &gain) || (measured && power[d] == 0)) continue;
            double there = measured ? inject_there(s, e, line, d) : 1;
            double one = measured ? (double)power[d] / e->measured[c] : TYPICAL;
            double phase = PHASE(br_sky_cycles(BR_SIDEBAND_UPPER, f, t->position[d], e->x, e->y) -
                                 br_sky_cycles(BR_SIDEBAND_UPPER, f, t->position[d], x, y));
            re += there * cos(phase);
            im += there * sin(phase);
            M += there * gain * (one + (rounded ? ROUNDING : 0));
            P += gain * one;
            alive++;
        }
        if (alive == 0) continue;
        signal += P / (double)alive * (re * re + im * im);
        noise += M * M;
    }
    return noise > 0 ? signal / sqrt(noise) : 0;
}

/* The share of the burst in a channel that was added. */
static double added(const struct inject *s, const struct inject_event *e, size_t c)
{
    double full = 0, seen = 0;
    for (size_t p = 0; p < s->npol; p++) full += e->full[c * s->npol + p], seen += e->seen[c * s->npol + p];
    return full > 0 ? seen / full : 0;
}

void inject_steps(const struct inject *s, const struct inject_event *e, const struct inject_product *product,
                  double *steps)
{
    const struct br_stream *stream = product->stream;
    for (size_t c = 0; c < s->nchannels; c++) {
        double f = s->stream->freq_mhz[c], half = s->stream->width_mhz[c] / 2;
        steps[c] = 0;
        /* Some of the product's channels that lie in this one stand for all of them. */
        for (unsigned z = 0; z < stream->nzones; z++) {
            const struct br_zone *zone = &stream->zone[z];
            double overlap = overlap_of(zone);
            size_t stride = zone->factor > FINE ? zone->factor / FINE : 1;
            for (size_t i = 0; i < zone->nchannels; i += stride) {
                size_t k = zone->first_channel + i;
                if (fabs(stream->freq_mhz[k] - f) > half) continue;
                steps[c] += steps_of(e, zone, stream->freq_mhz[k], stream->width_mhz[k]) * (double)stride /
                            (zone->factor * overlap);
            }
        }
    }
}

struct br_beam *inject_beams(const struct inject_product *product, uint64_t sample)
{
    const struct br_stream *stream = product->stream;
    const struct br_motion *motion = stream->motion;
    struct br_beam *beams = malloc((stream->nbeams + 1) * sizeof *beams);
    if (beams == NULL) return NULL;
    memcpy(beams, stream->beams,
           stream->nbeams * sizeof *beams); /* `incoherent` appends one to those that move */
    if (motion != NULL && br_motion_moves(motion) && motion->nbeams <= stream->nbeams)
        br_motion_at(motion, br_motion_interval(motion, sample), beams);
    return beams;
}

double inject_snr(const struct inject *s, const struct inject_event *e, const struct inject_product *product,
                  const double *steps, struct br_beam look, size_t stride, bool measured)
{
    bool rounded = product->stream->zone[0].factor > 1;
    double total = 0;
    if (isnan(look.x)) return 0;
    for (size_t c = stride / 2; c < s->nchannels; c += stride) {
        if (!(steps[c] > 0)) continue;
        double x = ratio(s, e, c, look.x, look.y, rounded, measured) * e->fluence_s / s->sample_s *
                   pow(s->stream->freq_mhz[c] / e->burst.ref_mhz, e->index);
        total += x * x * steps[c] * (measured ? added(s, e, c) : 1);
    }
    return sqrt(total * (double)stride);
}
