/* recover_filter.c - filters for bursts at known places in filterbank files, and the noise around them. */
#include "tools/beamring/recover.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AROUND = 1024, /* steps on either side from which the noise is measured */
    LEAST_AROUND = 64,
    LEVEL_STEPS = 32, /* of a block whose mean is compared with that of its neighbours */
    FREQUENCIES = 64, /* of a channel, at most, over which a burst is smeared */
    GRID = 2,         /* places on either side at which errors are looked for */
    ZOOMS = 6
};
#define FAINT  5. /* less has no place of its own */
#define JUMPED 6. /* sigma by which two means differ that are not of the same noise */

/* --- what a file has around an event --- */

struct window {
    const struct recover_file *file;
    long first, steps;
    float *value; /* [steps][chan] in units of the noise; NAN: missing, or another event's */
};

static double mhz(const struct recover_file *f, int c)
{
    return f->fch1_mhz + f->foff_mhz * c;
}

/* When the event arrives in a file, s after its first sample. */
static double arrival(const struct recover_file *f, const struct recover_event *e, double f_mhz)
{
    return e->time_s + (f->late ? e->delay_s : 0) - f->start_s +
           burst_delay_s(e->burst.dm, f_mhz, e->burst.ref_mhz);
}

/* The steps [*from, *to) of a channel that an event touches, `widths` of it on either side. */
static void touched(const struct recover_file *f, const struct recover_event *e, int c, double widths,
                    double *from, double *to)
{
    double half = fabs(f->foff_mhz) / 2, high = mhz(f, c) + half, low = fmax(mhz(f, c) - half, 1e-3);
    *from = floor((arrival(f, e, high) - widths * e->burst.width_s) / f->tsamp_s) - 1;
    *to = ceil((arrival(f, e, low) + widths * e->burst.width_s + 9 * burst_scattering_s(&e->burst, low)) /
               f->tsamp_s) +
          1;
}

static void cut(const struct window *w, double from, double to, int c)
{
    long begin = from > (double)w->first ? (long)from - w->first : 0,
         end = to < (double)(w->first + w->steps) ? (long)to - w->first : w->steps;
    for (long k = begin; k < end; k++) w->value[k * w->file->nchans + c] = NAN;
}

/* `length` bytes of the samples from `at` on; several threads may do this at once. */
static bool read_at(const struct recover_file *f, uint8_t *bytes, size_t length, size_t at)
{
    while (length > 0) {
        ssize_t got = pread(fileno(f->file), bytes, length, (off_t)(f->offset + at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        bytes += got, length -= (size_t)got, at += (size_t)got;
    }
    return true;
}

static bool read_window(struct window *w)
{
    const struct recover_file *f = w->file;
    size_t row = (size_t)f->nchans * (size_t)f->nbits / 8, count = (size_t)(w->steps * f->nchans);
    size_t length = row * (size_t)w->steps;
    uint8_t *bytes = malloc(length);
    w->value = malloc(count * sizeof *w->value);
    bool good = bytes != NULL && w->value != NULL && read_at(f, bytes, length, row * (size_t)w->first);
    if (good && f->nbits == 32) memcpy(w->value, bytes, count * sizeof *w->value);
    for (size_t i = 0; good && f->nbits == 8 && i < count; i++) w->value[i] = bytes[i];
    free(bytes);
    if (!good) fprintf(stderr, "beamring recover: cannot read %s\n", f->path);
    for (size_t i = 0; good && i < f->gaps.count; i++) {
        const struct gap *g = &f->gaps.gap[i];
        bool all = g->nchannels == 0;
        for (uint32_t c = 0; g->weight == 0 && c < (all ? (uint32_t)f->nchans : g->nchannels); c++)
            cut(w, (double)g->first, (double)(g->first + g->count), (int)(all ? c : g->channel + c));
    }
    return good;
}

/* Sums over independent values. */
struct level {
    double n, sum, squares;
};

static double mean_of(const struct level *l)
{
    return l->sum / l->n;
}

static double variance_of(const struct level *l)
{
    return l->squares / l->n - mean_of(l) * mean_of(l);
}

/* The smaller variance is that of the noise: the other one may have a change of the level in it. */
static bool differ(const struct level *a, const struct level *b)
{
    double variance = fmin(variance_of(a), variance_of(b)) * (1 / a->n + 1 / b->n);
    return fabs(mean_of(a) - mean_of(b)) > JUMPED * sqrt(variance);
}

/* The mean over the channels of steps [from, to), each channel in units of its mean. */
static struct level level_of(const struct window *w, const double *unit, long from, long to)
{
    struct level l = {0, 0, 0};
    for (long k = from; k < to; k++) {
        double sum = 0, n = 0;
        for (int c = 0; c < w->file->nchans; c++) {
            double v = (double)w->value[k * w->file->nchans + c] / unit[c];
            if (isfinite(v)) sum += v, n++;
        }
        if (n == 0) continue;
        l.n++;
        l.sum += sum / n;
        l.squares += sum / n * (sum / n);
    }
    return l;
}

/* The noise on one side of the event, from `at` on in steps of direction `by`, as far as it keeps its level;
 * what is beyond is cut. */
static struct level keep_level(struct window *w, const double *unit, long at, int by)
{
    struct level all = {0, 0, 0};
    for (; by < 0 ? at > 0 : at < w->steps; at += by * LEVEL_STEPS) {
        long from = by < 0 ? (at > LEVEL_STEPS ? at - LEVEL_STEPS : 0) : at,
             to = by < 0                        ? at
                  : at + LEVEL_STEPS < w->steps ? at + LEVEL_STEPS
                                                : w->steps;
        struct level one = level_of(w, unit, from, to);
        if (one.n < LEVEL_STEPS / 2) continue;
        if (all.n > 0 && differ(&all, &one)) break;
        all = (struct level){all.n + one.n, all.sum + one.sum, all.squares + one.squares};
    }
    for (int c = 0; c < w->file->nchans; c++)
        if (by < 0)
            cut(w, (double)w->first, (double)(w->first + at), c);
        else
            cut(w, (double)(w->first + at), (double)(w->first + w->steps), c);
    return all;
}

/* Leaves of the window what has the level that the noise has around the event: inputs come and go. False: it
 * changes at the event, which cannot be told from a burst. */
static bool keep_steady(struct window *w, const struct recover_event *e)
{
    const struct recover_file *f = w->file;
    size_t nchans = (size_t)f->nchans;
    double *unit = calloc(2 * nchans, sizeof *unit), *n = unit + nchans, begin = INFINITY, end = -INFINITY;
    if (unit == NULL) return false;
    const float *v = w->value;
    for (long k = 0; k < w->steps; k++)
        for (size_t c = 0; c < nchans; c++, v++)
            if (!isnan(*v)) unit[c] += (double)*v, n[c]++;
    for (int c = 0; c < f->nchans; c++) {
        double from, to;
        touched(f, e, c, 3, &from, &to);
        begin = fmin(begin, from - (double)w->first);
        end = fmax(end, to - (double)w->first);
        unit[c] /= n[c];
    }
    struct level before = keep_level(w, unit, (long)fmax(fmin(begin, (double)w->steps), 0), -1),
                 after = keep_level(w, unit, (long)fmax(fmin(end, (double)w->steps), 0), 1);
    free(unit);
    return before.n == 0 || after.n == 0 || !differ(&before, &after);
}

/* Puts the channels into units of their noise, without the burst's own steps. A channel with too little of
 * it is left out. False: no memory. */
static bool normalize(struct window *w, const struct recover_event *e)
{
    struct channel {
        double from, to, n, sum, squares, mean, rms;
    } *channel = calloc((size_t)w->file->nchans, sizeof *channel), *c;
    if (channel == NULL) return false;
    for (int i = 0; i < w->file->nchans; i++) touched(w->file, e, i, 3, &channel[i].from, &channel[i].to);
    float *v = w->value;
    for (long k = w->first; k < w->first + w->steps; k++)
        for (c = channel; c < channel + w->file->nchans; c++, v++) {
            if (isnan(*v) || ((double)k >= c->from && (double)k < c->to)) continue;
            c->n++;
            c->sum += (double)*v;
            c->squares += (double)*v * (double)*v;
        }
    for (c = channel; c < channel + w->file->nchans; c++) {
        c->mean = c->sum / c->n;
        c->rms = sqrt((c->squares - c->n * c->mean * c->mean) / (c->n - 1));
        if (c->n < LEAST_AROUND || !(c->rms > 0)) c->rms = NAN;
    }
    v = w->value;
    for (long k = 0; k < w->steps; k++)
        for (c = channel; c < channel + w->file->nchans; c++, v++)
            *v = (float)(((double)*v - c->mean) / c->rms);
    free(channel);
    return true;
}

/* The steps of a file around the event; steps 0: it has none. *steady becomes false where the noise changes
 * at the event. False: it cannot be read. */
static bool take_window(const struct recover *r, const struct recover_event *e, const struct recover_file *f,
                        struct window *w, bool *steady)
{
    double from, to, first, last;
    touched(f, e, f->foff_mhz < 0 ? 0 : f->nchans - 1, 3, &from, &last);
    touched(f, e, f->foff_mhz < 0 ? f->nchans - 1 : 0, 3, &first, &to);
    from = fmax(from - AROUND, 0);
    to = fmin(to + AROUND, (double)f->samples);
    *w = (struct window){.file = f};
    if (!(from < to)) return true;
    w->first = (long)from;
    w->steps = (long)(to - from);
    if (!read_window(w)) return false;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct recover_event *other = &r->event[i];
        if (other == e || strcmp(other->state, "refused") == 0) continue;
        for (int c = 0; c < f->nchans; c++) {
            touched(f, other, c, 3, &from, &to);
            cut(w, from, to, c);
        }
    }
    if (!keep_steady(w, e)) *steady = false;
    return normalize(w, e);
}

/* --- the filter --- */

/* The share of the fluence in step k of a channel, by dm and time off as they are. */
static double share(const struct recover_file *f, const struct recover_event *e, int c, double k, double dm,
                    double late)
{
    struct recover_event moved = *e;
    moved.burst.dm = dm;
    double smear = burst_delay_s(dm, mhz(f, c) - fabs(f->foff_mhz) / 2, mhz(f, c) + fabs(f->foff_mhz) / 2),
           sum = 0;
    int n = (int)fmin(fmax(ceil(4 * smear / fmin(e->burst.width_s, f->tsamp_s)), 1), FREQUENCIES);
    for (int i = 0; i < n; i++) {
        double at = mhz(f, c) + f->foff_mhz * ((i + 0.5) / n - 0.5),
               t = k * f->tsamp_s - arrival(f, &moved, at) - late;
        sum += burst_arrived(&e->burst, at, t + f->tsamp_s) - burst_arrived(&e->burst, at, t);
    }
    return sum / n;
}

/* S/N of the filter, and in *cover the squared share of it that lies within the files. */
static double filter(const struct window *w, size_t n, const struct recover_event *e, double dm, double late,
                     double *cover)
{
    double sum = 0, squares = 0, all = 0;
    struct recover_event moved = *e;
    moved.burst.dm = dm;
    moved.time_s += late;
    for (size_t i = 0; i < n; i++) {
        const struct recover_file *f = w[i].file;
        for (int c = 0; c < f->nchans; c++) {
            double from, to, weight = pow(mhz(f, c) / e->burst.ref_mhz, e->index);
            touched(f, &moved, c, 1.5, &from, &to);
            for (double k = from; k < to; k++) {
                double s = weight * share(f, e, c, k, dm, late), at = k - (double)w[i].first;
                bool inside = at >= 0 && at < (double)w[i].steps;
                if (!inside || k < 0 || k >= (double)f->samples) {
                    all += s * s;
                    continue;
                }
                double v = (double)w[i].value[(long)at * f->nchans + c];
                if (isnan(v)) continue;
                all += s * s;
                sum += s * v;
                squares += s * s;
            }
        }
    }
    *cover = all > 0 ? squares / all : 0;
    return squares > 0 ? sum / sqrt(squares) : 0;
}

/* Where the filter finds most: around the ledger's values, then more and more closely. */
static void find_errors(const struct window *w, size_t n, const struct recover_event *e,
                        struct recovered *found)
{
    double high = 0, low = INFINITY, tsamp = 0, cover;
    for (size_t i = 0; i < n; i++) {
        const struct recover_file *f = w[i].file;
        double a = mhz(f, 0), b = mhz(f, f->nchans - 1);
        high = fmax(high, fmax(a, b));
        low = fmin(low, fmin(a, b));
        tsamp = fmax(tsamp, f->tsamp_s);
    }
    double step_s = fmax(e->burst.width_s, tsamp) / 2,
           step_dm = high > low ? step_s / burst_delay_s(1, low, high) : 0;
    double best = -INFINITY, dm = e->burst.dm, late = 0;
    for (int zoom = 0; zoom < ZOOMS; zoom++, step_s /= 2, step_dm /= 2) {
        double centre_dm = dm, centre = late;
        for (int i = -GRID; i <= GRID; i++)
            for (int k = -GRID; k <= GRID; k++) {
                double try_dm = fmax(centre_dm + i * step_dm, 0), try = centre + k * step_s,
                       snr = filter(w, n, e, try_dm, try, &cover);
                if (snr > best) best = snr, dm = try_dm, late = try;
            }
    }
    found->dm_error = dm - e->burst.dm;
    found->time_error_s = late;
}

bool recover_measure(const struct recover *r, const struct recover_event *e, long beam, double *cover,
                     struct recovered *found)
{
    size_t n = 0;
    struct window *w = calloc(r->nfiles + 1, sizeof *w);
    bool good = w != NULL, steady = true;
    *cover = 0;
    for (size_t i = 0; good && i < r->nfiles; i++) {
        if (r->file[i].beam != beam) continue;
        good = take_window(r, e, &r->file[i], &w[n], &steady);
        n += w[n].steps > 0 || !good;
    }
    if (good && n > 0) {
        found->snr = filter(w, n, e, e->burst.dm, 0, cover);
        found->unsteady = *cover >= 0.5 && !steady;
        if (!steady) *cover = 0;
        if (*cover >= 0.5 && e->snr != NULL && found->snr > FAINT) find_errors(w, n, e, found);
    }
    for (size_t i = 0; w != NULL && i < n; i++) free(w[i].value);
    free(w);
    return good;
}
