#include "stages/common/sky/winding.h"

#include <math.h>
#include <stdlib.h>

/* CHANNELS, PHASES: bounds of the time that the search takes: channels of all, and phases in all */
enum { CHANNELS = 4, PHASES = 2000000, FINER = 5 };
#define STEP         0.4  /* of the grid, in units of lambda / longest distance */
#define CHANCE       10.0 /* exp(-CHANCE): how probable a find among receivers of random phases may be */
#define LEAST        0.7  /* coherence: groups of receivers that share a phase reach less by chance */
#define LEAST_MIRROR 0.5  /* of the one direction -s */
#define AS_GOOD      0.8  /* the mirror's part of the best coherence squared, to be named instead */
#define LOSS         0.1  /* of the coherence squared: a direction that costs less is not worth a warning */

/* Unit phases of the good inputs of a channel, and their positions in wavelengths: north, east, up. */
struct channel {
    size_t n;
    double *phase; /* [n][2] */
    double *place; /* [n][3], with the sideband's sign: cycles are place.s */
};

struct search {
    struct channel channel[CHANNELS];
    size_t nchannels, phases; /* phases of one direction */
    double inputs;            /* mean number */
    double extent;            /* largest distance, wavelengths */
};

/* Mean over channels of |sum_d phase_d exp(-2 pi i place_d.shift)|^2 / n^2 */
static double coherence2(const struct search *a, const double shift[3])
{
    double mean = 0;
    for (size_t k = 0; k < a->nchannels; k++) {
        const struct channel *c = &a->channel[k];
        double re = 0, im = 0;
        for (size_t i = 0; i < c->n; i++) {
            const double *r = c->place + 3 * i, *p = c->phase + 2 * i;
            double angle = 2 * M_PI * (r[0] * shift[0] + r[1] * shift[1] + r[2] * shift[2]);
            double x = cos(angle), y = sin(angle);
            re += p[0] * x + p[1] * y;
            im += p[1] * x - p[0] * y;
        }
        mean += (re * re + im * im) / ((double)c->n * (double)c->n) / (double)a->nchannels;
    }
    return mean;
}

static bool take_channel(struct search *a, const struct calibration *c, const struct visibilities *v,
                         size_t pol, size_t f)
{
    struct visibilities_part part = {.shape = v->shape,
                                     .freq_mhz = v->freq_mhz,
                                     .east_m = v->east_m,
                                     .north_m = v->north_m,
                                     .up_m = v->up_m};
    static const double axis[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    struct channel *to = &a->channel[a->nchannels];
    size_t row = (f * c->npol + pol) * c->ndishes;
    to->phase = malloc(c->ndishes * 2 * sizeof *to->phase);
    to->place = malloc(c->ndishes * 3 * sizeof *to->place);
    a->nchannels++; /* freed in any case */
    if (to->phase == NULL || to->place == NULL) return false;
    double low[3] = {INFINITY, INFINITY, INFINITY}, high[3] = {-INFINITY, -INFINITY, -INFINITY};
    for (size_t d = 0; d < c->ndishes; d++) {
        double re = (double)c->gain[2 * (row + d)], im = (double)c->gain[2 * (row + d) + 1],
               size = hypot(re, im);
        if (!(size > 0)) continue;
        to->phase[2 * to->n] = re / size;
        to->phase[2 * to->n + 1] = -im / size; /* the receiver's, which the gain undoes */
        for (int k = 0; k < 3; k++) {
            double r = source_cycles(&part, f, d, axis[k]);
            to->place[3 * to->n + (size_t)k] = r;
            low[k] = fmin(low[k], r);
            high[k] = fmax(high[k], r);
        }
        to->n++;
    }
    a->extent = fmax(a->extent, hypot(hypot(high[0] - low[0], high[1] - low[1]), high[2] - low[2]));
    a->inputs += (double)to->n;
    a->phases += to->n;
    return true;
}

/* Up to CHANNELS channels that have a result, from all over the band. */
static bool take_channels(struct search *a, const struct calibration *c, const struct visibilities *v,
                          size_t pol)
{
    size_t solved = 0, seen = 0;
    for (size_t f = 0; f < c->nfreq; f++) solved += c->why[f * c->npol + pol].text[0] == '\0';
    size_t wanted = solved < CHANNELS ? solved : CHANNELS;
    for (size_t f = 0; f < c->nfreq && a->nchannels < wanted; f++) {
        if (c->why[f * c->npol + pol].text[0] != '\0') continue;
        if (seen++ < a->nchannels * solved / wanted) continue;
        if (!take_channel(a, c, v, pol, f)) return false;
    }
    if (a->nchannels > 0) a->inputs /= (double)a->nchannels;
    return true;
}

/* Tries the direction (x, y) above the horizon. */
static void try_direction(const struct search *a, const double s[3], double x, double y, double *best,
                          double found[3])
{
    if (!(x * x + y * y <= 1)) return;
    double at[3] = {x, y, sqrt(1 - x * x - y * y)}, shift[3] = {x - s[0], y - s[1], at[2] - s[2]};
    double value = coherence2(a, shift);
    if (!(value > *best)) return;
    *best = value;
    for (int k = 0; k < 3; k++) found[k] = at[k];
}

/* The best direction of a grid around s, made finer around the best point. Returns the number of points. */
static double search_sky(const struct search *a, const double s[3], double *best, double found[3])
{
    double step = STEP / a->extent;
    long most = lround(0.5 * sqrt((double)PHASES / (double)a->phases)), reach = most;
    if (2 / step < (double)most) reach = (long)(2 / step); /* all of the sky */
    for (long i = -reach; i <= reach; i++)
        for (long j = -reach; j <= reach; j++)
            try_direction(a, s, s[0] + (double)i * step, s[1] + (double)j * step, best, found);
    for (int i = 0; i < FINER; i++) {
        double x = found[0], y = found[1];
        step *= 0.5;
        for (int k = 0; k < 9; k++)
            try_direction(a, s, x + (k / 3 - 1) * step, y + (k % 3 - 1) * step, best, found);
    }
    return pow(2 * (double)reach + 1, 2);
}

/* Whether a coherence squared stands out of another one. That of n random phases, of which the search fits
 * two, is larger than c with a probability of about (1 - c)^((n - 3) / 2) at most, in each of so many
 * directions. */
static bool clearly(double inputs, double than, double better, double directions)
{
    double odds = (inputs - 3) / 2 * log((1 - fmin(than, 1) + 1e-9) / (1 - fmin(better, 1) + 1e-9));
    return better - than > LOSS && odds > log(directions + 1) + CHANCE;
}

int winding_find(const struct calibration *c, const struct visibilities *v, size_t pol, const double s[3],
                 struct winding *winding, struct br_error *error)
{
    struct search a = {0};
    bool good = take_channels(&a, c, v, pol);
    *winding = (struct winding){.s = {s[0], s[1], s[2]}};
    if (good && a.nchannels > 0 && a.extent > 0 && isfinite(a.extent)) {
        double none[3] = {0}, back[3] = {-2 * s[0], -2 * s[1], -2 * s[2]};
        double given = coherence2(&a, none), mirror = coherence2(&a, back), best = given;
        double points = search_sky(&a, s, &best, winding->s);
        bool elsewhere = best > LEAST * LEAST && clearly(a.inputs, given, best, points);
        winding->mirror = mirror > LEAST_MIRROR * LEAST_MIRROR && mirror > AS_GOOD * best &&
                          clearly(a.inputs, given, mirror, 1);
        winding->found = elsewhere || winding->mirror;
        winding->given = sqrt(given);
        winding->coherence = sqrt(winding->mirror ? mirror : best);
        for (int k = 0; k < 3 && winding->mirror; k++) winding->s[k] = -s[k];
    }
    for (size_t k = 0; k < a.nchannels; k++) {
        free(a.channel[k].phase);
        free(a.channel[k].place);
    }
    return good ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory to look at the gains' phases");
}
