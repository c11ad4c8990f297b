/* add.c - adds bursts to a field of 4 bits.
 *
 * A level is the noise, rounded. So the noise before it was rounded is drawn anew, from those values of a
 * normal distribution that have this level; the burst is added to it, and the sum is rounded. The field then
 * has the distribution that it would have if the burst had come from the sky. Without a burst every level
 * comes back as it was, bit for bit.
 *
 * An input that did not arrive has zeros. Nothing is added to it: a run of INPUT_GONE zeros is not noise. */
#include "buffers/sky.h"
#include "stages/common/stage/random.h"
#include "stages/common/stage/shape.h"
#include "stages/inject/inject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    INPUT_GONE = 8,
    CHUNK = 256,     /* samples that are worked on at a time */
    CLASSES = 40,    /* of noise, each CLASS_RATIO louder than the last one */
    QUANTILES = 256, /* of a level, interpolated between */
    LEVELS = 16,     /* -8 to 7 */
    DISHES_PER_BLOCK = 4
};
#define LEAST_RMS   0.3 /* of the quietest class, levels */
#define CLASS_RATIO 1.1

/* The memory of one worker, for one polarisation. */
struct scratch {
    uint8_t *there;  /* [CHUNK][dish] whether the input had arrived */
    uint16_t *zeros; /* [dish] that came one after another up to here */
    uint8_t *class;  /* [dish] of its noise; CLASSES: it has none */
    float *factor;   /* [dish][2] phase and strength of the burst */
};

struct inject_adder {
    float *quantile; /* [CLASSES][LEVELS][QUANTILES + 1] of the noise less the level */
    unsigned nworkers;
    struct scratch *scratch; /* [nworkers] */
    struct job *job;         /* [room] of one frame */
    size_t room;
};

struct job {
    struct inject_event *event;
    size_t channel;
};

/* --- the noise that was rounded away --- */

/* Quantiles of a normal distribution between a and b. */
static void cut_normal(double rms, double a, double b, double centre, float *to)
{
    enum { STEPS = 2048 };
    double sum[STEPS + 1] = {0}, h = (b - a) / STEPS;
    for (int i = 0; i < STEPS; i++) {
        double t = (a + (i + 0.5) * h) / rms;
        sum[i + 1] = sum[i] + exp(-t * t / 2);
    }
    int k = 0;
    for (int q = 0; q <= QUANTILES; q++) {
        double want = sum[STEPS] * q / QUANTILES;
        while (k < STEPS - 1 && sum[k + 1] < want) k++;
        double part = sum[k + 1] > sum[k] ? (want - sum[k]) / (sum[k + 1] - sum[k]) : 0;
        to[q] = (float)(a + (k + part) * h - centre);
    }
}

/* The levels at the ends stand for all that is beyond, but for -8, which noise that is clamped to -7 lacks.
 * */
static void fill_quantiles(float *quantile)
{
    double rms = LEAST_RMS;
    for (int c = 0; c < CLASSES; c++, rms *= CLASS_RATIO)
        for (int level = -8; level < 8; level++) {
            double a = level == -7 ? fmin(-7.5, -6.5 - 5 * rms) : level - 0.5,
                   b = level == 7 ? fmax(7.5, 6.5 + 5 * rms) : level + 0.5;
            cut_normal(rms, a, b, level, quantile + (c * LEVELS + level + 8) * (QUANTILES + 1));
        }
}

/* `power` is the mean |E|^2 of an input; rounding has added 1/12 to each component's. */
static uint8_t class_of(double power)
{
    if (!(power > 0)) return CLASSES;
    double rms = sqrt(fmax(power / 2 - 1. / 12, 1e-6));
    return (uint8_t)fmin(fmax(rint(log(rms / LEAST_RMS) / log(CLASS_RATIO)), 0), CLASSES - 1);
}

/* --- one line: a channel and polarisation of an event --- */

/* The part of a frame that concerns a line. */
struct line {
    uint8_t *data;        /* of the first sample of the frame */
    const uint8_t *valid; /* likewise; NULL: complete */
    size_t row, cells;    /* bytes, and bytes of validity, from sample to sample */
    size_t ndishes, samples;
    uint32_t number; /* channel x polarisations + polarisation */
};

static inline int nibble(unsigned bits)
{
    return (int)((bits & 15) ^ 8) - 8;
}

static bool is_gone(const struct line *l, size_t t)
{
    return l->valid != NULL && l->valid[t * l->cells] == BR_MISSING;
}

static void measure(const struct line *l, size_t from, size_t to, float *power)
{
    for (size_t t = from; t < to; t++) {
        const uint8_t *e = l->data + t * l->row;
        if (is_gone(l, t)) continue;
        for (size_t d = 0; d < l->ndishes; d++) {
            int re = nibble(e[d]), im = nibble(e[d] >> 4);
            power[d] += (float)(re * re + im * im);
        }
    }
}

/* Marks which inputs had arrived in [from, to): a run of zeros counts from its first one on, also where it
 * began before or goes on behind. */
static void find_missing(const struct line *l, struct scratch *w, size_t from, size_t to)
{
    size_t begin = from >= INPUT_GONE ? from - INPUT_GONE + 1 : 0,
           end = to + INPUT_GONE - 1 < l->samples ? to + INPUT_GONE - 1 : l->samples, D = l->ndishes;
    memset(w->there, 1, (to - from) * D);
    memset(w->zeros, 0, D * sizeof *w->zeros);
    for (size_t t = begin; t < end; t++) {
        const uint8_t *e = l->data + t * l->row;
        for (size_t d = 0; d < D; d++) {
            w->zeros[d] = e[d] == 0 ? (uint16_t)(w->zeros[d] + 1) : 0;
            if (w->zeros[d] < INPUT_GONE) continue;
            size_t run = w->zeros[d] == INPUT_GONE ? INPUT_GONE : 1; /* the rest of it is marked */
            for (size_t i = t + 1 - run; i <= t; i++)
                if (i >= from && i < to) w->there[(i - from) * D + d] = 0;
        }
    }
}

/* A level with a burst of strength s on the noise that random bits choose. */
static inline int with(const float *quantile, int level, float s, unsigned bits, uint64_t *clipped)
{
    const float *q = quantile + (level + 8) * (QUANTILES + 1) + (bits >> 8);
    float noise = q[0] + (q[1] - q[0]) * ((float)(bits & 255) + 0.5f) * (1.0f / 256);
    long change = lrintf(noise + s), sum = level + change;
    if (change == 0 || sum == level) return level;
    if (sum > 7 || sum < -7) *clipped += level < 7 && level > -7;
    return sum > 7 ? 7 : sum < -7 ? -7 : (int)sum;
}

static void add_sample(const struct inject_adder *a, const struct scratch *w, const struct line *l,
                       const struct inject_event *e, uint64_t sample, const uint8_t *there, const float z[2],
                       uint8_t *field, uint64_t *clipped)
{
    uint32_t r[DISHES_PER_BLOCK];
    for (size_t d = 0; d < l->ndishes; d++) {
        if (d % DISHES_PER_BLOCK == 0)
            random_block(e->burst.seed, sample, l->number, RANDOM_DITHER | (uint32_t)(d / DISHES_PER_BLOCK),
                         r);
        if (!there[d] || w->class[d] == CLASSES) continue;
        const float *q = a->quantile + (size_t)w->class[d] * LEVELS * (QUANTILES + 1), *f = w->factor + 2 * d;
        uint32_t bits = r[d % DISHES_PER_BLOCK];
        int re = with(q, nibble(field[d]), f[0] * z[0] - f[1] * z[1], bits & 0xffff, clipped),
            im = with(q, nibble(field[d] >> 4), f[0] * z[1] + f[1] * z[0], bits >> 16, clipped);
        field[d] = (uint8_t)((re & 15) | (im & 15) << 4);
    }
}

/* Strength and phase of the burst at each input, in the stream's sideband. False: the noise of none is
 * known. */
static bool aim(const struct inject *s, struct scratch *w, const struct inject_event *e, size_t c, size_t p)
{
    const struct br_telescope *t = s->stream->telescope;
    const float *power = e->power + (c * s->npol + p) * s->ndishes;
    double f = s->stream->freq_mhz[c], sum = 0, alive = 0, inverse[2], gain;
    for (size_t d = 0; d < s->ndishes; d++) {
        double mean = e->measured[c] > 0 ? (double)power[d] / e->measured[c] : 0;
        w->class[d] = inject_gain(s, e, c, p, d, inverse, &gain) ? class_of(mean) : CLASSES;
        if (w->class[d] == CLASSES) continue;
        sum += mean * gain;
        alive++;
    }
    if (alive == 0) return false;
    double rms = sqrt(inject_flux(e, f) * sum / alive / 2);
    for (size_t d = 0; d < s->ndishes; d++) {
        double phase = 2 * M_PI * br_sky_cycles(s->stream->sideband, f, t->position[d], e->x, e->y),
               re = rms * cos(phase), im = rms * sin(phase);
        inject_gain(s, e, c, p, d, inverse, &gain);
        w->factor[2 * d] = (float)(re * inverse[0] - im * inverse[1]);
        w->factor[2 * d + 1] = (float)(re * inverse[1] + im * inverse[0]);
    }
    return true;
}

struct frame {
    struct inject *s;
    uint8_t *data;
    uint64_t first, samples;
    const uint8_t *valid;
};

/* Where [from, to) of the counter lies in the frame. */
static void overlap(const struct frame *frame, int64_t from, int64_t to, size_t *begin, size_t *end)
{
    int64_t first = (int64_t)frame->first, last = first + (int64_t)frame->samples;
    *begin = (size_t)((from < first ? first : from > last ? last : from) - first);
    *end = (size_t)((to < first ? first : to > last ? last : to) - first);
}

static void add_line(const struct frame *frame, const struct job *job, unsigned worker, size_t p,
                     size_t begin, size_t end)
{
    struct inject *s = frame->s;
    struct inject_event *e = job->event;
    struct scratch *w = &s->adder->scratch[worker];
    struct burst_maker *maker = &e->maker[worker];
    size_t c = job->channel, number = c * s->npol + p, D = s->ndishes;
    struct line l = {.data = frame->data + number * D,
                     .valid = frame->valid != NULL ? frame->valid + c : NULL,
                     .row = s->nchannels * s->npol * D,
                     .cells = s->nchannels,
                     .ndishes = D,
                     .samples = (size_t)frame->samples,
                     .number = (uint32_t)number};
    bool lower = s->stream->sideband == BR_SIDEBAND_LOWER;
    int64_t start = burst_channel(maker, &e->burst, s->normal, c, p) + (int64_t)e->sample;
    const float *field = maker->field;
    double full = 0;
    for (int64_t i = e->first[c] - start; i < e->last[c] - start && i < (int64_t)maker->length; i++)
        full += (double)(field[2 * i] * field[2 * i] + field[2 * i + 1] * field[2 * i + 1]);
    e->full[number] = full;
    if (!aim(s, w, e, c, p)) return;
    for (size_t from = begin; from < end; from += CHUNK) {
        size_t to = from + CHUNK < end ? from + CHUNK : end;
        find_missing(&l, w, from, to);
        for (size_t t = from; t < to; t++) {
            int64_t sample = (int64_t)(frame->first + t), i = sample - start;
            if (is_gone(&l, t) || i < 0 || i >= (int64_t)maker->length) continue;
            float z[2] = {field[2 * i], lower ? -field[2 * i + 1] : field[2 * i + 1]};
            float energy = z[0] * z[0] + z[1] * z[1], *lost = e->lost + number * D;
            const uint8_t *there = w->there + (t - from) * D;
            e->seen[number] += (double)energy;
            for (size_t d = 0; d < D; d++) lost[d] += there[d] ? 0 : energy;
            add_sample(s->adder, w, &l, e, (uint64_t)sample, there, z, l.data + t * l.row,
                       &e->clipped[worker]);
        }
    }
}

static void work(void *arg, size_t number, unsigned worker)
{
    const struct frame *frame = arg;
    const struct inject *s = frame->s;
    const struct job *job = &s->adder->job[number];
    struct inject_event *e = job->event;
    size_t c = job->channel, D = s->ndishes, begin, end;
    overlap(frame, e->first[c] - INJECT_NOISE, e->first[c], &begin, &end);
    for (size_t p = 0; begin < end && p < s->npol; p++) {
        size_t line = c * s->npol + p;
        struct line l = {.data = frame->data + line * D,
                         .valid = frame->valid != NULL ? frame->valid + c : NULL,
                         .row = s->nchannels * s->npol * D,
                         .cells = s->nchannels,
                         .ndishes = D};
        measure(&l, begin, end, e->power + line * D);
        for (size_t t = begin; p == 0 && t < end; t++) e->measured[c] += !is_gone(&l, t);
    }
    overlap(frame, e->first[c], e->last[c], &begin, &end);
    for (size_t p = 0; begin < end && p < s->npol; p++) add_line(frame, job, worker, p, begin, end);
}

/* --- a frame --- */

struct inject_adder *inject_adder_create(const struct inject *s, unsigned nworkers)
{
    struct inject_adder *a = calloc(1, sizeof *a);
    if (a == NULL) return NULL;
    a->nworkers = nworkers;
    a->scratch = calloc(nworkers, sizeof *a->scratch);
    a->quantile = malloc(sizeof(float) * CLASSES * LEVELS * (QUANTILES + 1));
    a->room = 2 * s->nchannels;
    a->job = malloc(a->room * sizeof *a->job);
    bool good = a->scratch != NULL && a->quantile != NULL && a->job != NULL;
    for (unsigned i = 0; good && i < nworkers; i++) {
        struct scratch *w = &a->scratch[i];
        w->there = malloc(CHUNK * s->ndishes);
        w->zeros = malloc(s->ndishes * sizeof *w->zeros);
        w->class = malloc(s->ndishes);
        w->factor = malloc(2 * s->ndishes * sizeof *w->factor);
        good = w->there != NULL && w->zeros != NULL && w->class != NULL && w->factor != NULL;
    }
    if (good) {
        fill_quantiles(a->quantile);
        return a;
    }
    inject_adder_free(a);
    return NULL;
}

void inject_adder_free(struct inject_adder *a)
{
    if (a == NULL) return;
    for (unsigned i = 0; a->scratch != NULL && i < a->nworkers; i++) {
        free(a->scratch[i].there);
        free(a->scratch[i].zeros);
        free(a->scratch[i].class);
        free(a->scratch[i].factor);
    }
    free(a->scratch);
    free(a->quantile);
    free(a->job);
    free(a);
}

size_t inject_adder_bytes(size_t ndishes, unsigned nworkers)
{
    return sizeof(float) * CLASSES * LEVELS * (QUANTILES + 1) +
           nworkers * ndishes * (CHUNK + sizeof(uint16_t) + 1 + 2 * sizeof(float));
}

/* No two events have the same samples of a channel, so that their jobs may run in any order. */
int inject_add(struct br_stage *stage, struct inject *s, uint8_t *data, uint64_t first, uint64_t samples,
               const uint8_t *valid)
{
    struct inject_adder *a = s->adder;
    struct frame frame = {s, data, first, samples, valid};
    struct inject_event *e = s->active;
    int status = BR_OK;
    while (e != NULL && status == BR_OK) {
        size_t count = 0;
        for (; e != NULL && count + s->nchannels <= a->room; e = e->next)
            for (size_t c = 0; c < s->nchannels; c++)
                if (e->first[c] - INJECT_NOISE < (int64_t)(first + samples) && e->last[c] > (int64_t)first)
                    a->job[count++] = (struct job){e, c};
        if (count > 0) status = br_stage_parallel(stage, count, work, &frame);
    }
    return status;
}
