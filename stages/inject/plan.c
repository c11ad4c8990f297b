/* plan.c - events from the parameters `bursts` and `schedule`: checked, drawn, accepted or refused. */
#include "stages/common/stage/random.h"
#include "stages/inject/inject.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A burst brighter than this many times an input's noise loses more than a few percent in 4 bits. */
#define MAX_FLUX   4.0
#define MAX_SPAN_S 3600.0 /* of a burst's sweep over the band */

/* Right ascensions that are plain numbers, and directions that move with the sky. */
struct followed {
    size_t said, count;
};

static bool check_direction(const struct br_towards *towards, struct followed *followed, char *text,
                            size_t size)
{
    struct br_error error = {0};
    struct sky_source source;
    bool good = br_towards_source(towards, &source, &followed->said, &error) == BR_OK;
    if (!good) snprintf(text, size, "%.180s", error.text);
    followed->count += good && source.kind != SKY_FIXED;
    return good;
}

static int check_burst(struct br_stage *stage, const struct inject *s, const struct inject_burst *b, size_t i,
                       struct followed *followed)
{
    char text[200] = "";
    const struct br_towards *t = &b->towards;
    int directions = (t->xy.count > 0) + (t->azel.count > 0) + (t->radec.count > 0 || t->name != NULL) +
                     (b->beam >= 0),
        strengths = !isnan(b->fluence_s) + !isnan(b->snr);
    if (b->id[0] == '\0' || strlen(b->id) >= INJECT_ID)
        snprintf(text, sizeof text, "the id has %zu characters; expected 1 to %d", strlen(b->id),
                 INJECT_ID - 1);
    else if (directions != 1)
        snprintf(text, sizeof text, "it has %s of xy, azel, radec, name and beam; expected exactly one",
                 directions ? "more than one" : "none");
    else if (strengths != 1)
        snprintf(text, sizeof text, "%s of fluence_s and snr; expected exactly one",
                 strengths ? "it has both" : "it has none");
    else if (b->at_mhz != 0 && (b->at_mhz < s->low_mhz || b->at_mhz > s->high_mhz))
        snprintf(text, sizeof text, "at_mhz %.9g is outside the band; expected %.9g to %.9g", b->at_mhz,
                 s->low_mhz, s->high_mhz);
    else if (b->width_s < s->sample_s)
        snprintf(text, sizeof text, "width_s %.6g is less than one sample, %.6g s", b->width_s, s->sample_s);
    else if (b->beam < 0)
        check_direction(t, followed, text, sizeof text);
    if (text[0] != '\0')
        return br_stage_fail_at(stage, "bursts", "number %zu ('%.80s'): %s", i + 1, b->id, text);
    const struct inject_burst *all = s->bursts.value;
    for (size_t k = 0; k < i; k++)
        if (strcmp(all[k].id, b->id) == 0)
            return br_stage_fail_at(stage, "bursts", "numbers %zu and %zu have the same id '%s'", k + 1,
                                    i + 1, b->id);
    return BR_OK;
}

static double most(const struct br_reals *r)
{
    return r->value[r->count - 1];
}

/* The burst of the schedule whose sweep is the longest. */
static struct inject_event longest(const struct inject *s)
{
    const struct inject_schedule *p = s->schedule;
    struct inject_event e = {.burst = {.dm = most(&p->dm),
                                       .width_s = most(&p->width_s),
                                       .scattering_s = most(&p->scattering_s),
                                       .ref_mhz = s->top_mhz,
                                       .sample_s = s->sample_s,
                                       .nchannels = s->nchannels,
                                       .npol = s->npol,
                                       .freq_mhz = s->stream->freq_mhz}};
    return e;
}

static void span(const struct burst_params *burst, double *before, double *after)
{
    *before = *after = 0;
    for (size_t c = 0; c < burst->nchannels; c++) {
        int64_t first, end;
        burst_extent(burst, c, &first, &end);
        *before = fmax(*before, INJECT_NOISE - (double)first);
        *after = fmax(*after, (double)end);
    }
}

/* Needs its sample. False: it would begin before sample 0. */
static bool take_span(struct inject_event *e)
{
    double before, after;
    span(&e->burst, &before, &after);
    e->begin = before <= (double)e->sample ? e->sample - (uint64_t)before : 0;
    e->end = after < 0x1p62 ? e->sample + (uint64_t)after : UINT64_MAX;
    return before <= (double)e->sample;
}

double inject_slot(const struct inject *s)
{
    return 3600 / s->schedule->per_hour / s->sample_s;
}

double inject_lead(const struct inject *s)
{
    struct inject_event e = longest(s);
    double before, after;
    span(&e.burst, &before, &after);
    return before;
}

static int check_schedule(struct br_stage *stage, const struct inject *s, struct followed *followed)
{
    const struct inject_schedule *p = s->schedule;
    const struct br_towards *towards = p->towards.value;
    char text[200];
    if (p->towards.count > 0 && p->beams.count > 0)
        return br_stage_fail_at(stage, "schedule", "it has both of beams and towards; expected one of them");
    for (size_t i = 0; i < p->towards.count; i++)
        if (!check_direction(&towards[i], followed, text, sizeof text))
            return br_stage_fail_at(stage, "schedule", "towards[%zu]: %s", i, text);
    const struct br_reals *ranges[] = {&p->snr, &p->dm, &p->width_s, &p->scattering_s, &p->index};
    static const char *const names[] = {"snr", "dm", "width_s", "scattering_s", "index"};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i]->value[0] > most(ranges[i]))
            return br_stage_fail_at(stage, "schedule", "%s: %g to %g is not a range; expected [least, most]",
                                    names[i], ranges[i]->value[0], most(ranges[i]));
    if (p->width_s.value[0] < s->sample_s)
        return br_stage_fail_at(stage, "schedule", "width_s: %g is less than one sample, %.6g s",
                                p->width_s.value[0], s->sample_s);
    struct inject_event e = longest(s);
    double before, after, slot = inject_slot(s);
    span(&e.burst, &before, &after);
    if (before + after > slot)
        return br_stage_fail_at(stage, "schedule",
                                "%g an hour leave %.6g s for each; a burst takes up to %.6g s in this band: "
                                "expected at most %.6g an hour",
                                p->per_hour, slot * s->sample_s, (before + after) * s->sample_s,
                                3600 / ((before + after) * s->sample_s));
    return BR_OK;
}

int inject_check(struct br_stage *stage, struct inject *s)
{
    const struct inject_burst *b = s->bursts.value;
    struct followed followed = {0, 0};
    int status = BR_OK;
    for (size_t i = 0; i < s->bursts.count && status == BR_OK; i++)
        status = check_burst(stage, s, &b[i], i, &followed);
    const char *at = followed.count > 0 ? "bursts" : "schedule";
    if (status == BR_OK && s->schedule != NULL) status = check_schedule(stage, s, &followed);
    if (status == BR_OK) status = br_stage_site(stage, at, s->stream->telescope, &s->site);
    return status == BR_OK && followed.count > 0
               ? br_stage_follows(stage, at, s->site, followed.said, s->stream->epoch_ns)
               : status;
}

/* --- events --- */

static struct inject_event *new_event(const struct inject *s, double dm, double width_s, double scattering_s,
                                      double at_mhz)
{
    struct inject_event *e = calloc(1, sizeof *e);
    if (e == NULL) return NULL;
    e->burst = (struct burst_params){.dm = dm,
                                     .ref_mhz = at_mhz > 0 ? at_mhz : s->top_mhz,
                                     .width_s = width_s,
                                     .scattering_s = scattering_s,
                                     .rms = 1,
                                     .sample_s = s->sample_s,
                                     .nchannels = s->nchannels,
                                     .npol = s->npol,
                                     .freq_mhz = s->stream->freq_mhz,
                                     .seed = (uint64_t)s->seed};
    return e;
}

/* The burst's noise and its dither depend on its id alone. */
static void name_event(struct inject_event *e, const char *id)
{
    uint32_t hash = 2166136261u;
    snprintf(e->id, sizeof e->id, "%s", id);
    for (const char *c = id; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
    e->burst.seed ^= (uint64_t)hash << 32;
}

/* The direction has been checked. Its name belongs to the parameters, which an event may outlive. */
static void take_source(struct inject_event *e, const struct br_towards *towards)
{
    br_towards_source(towards, &e->source, NULL, NULL);
    e->source.name = NULL;
}

struct inject_event *inject_events(const struct inject *s, bool *failed)
{
    const struct inject_burst *b = s->bursts.value;
    struct inject_event *list = NULL, **end = &list;
    *failed = false;
    for (size_t i = 0; i < s->bursts.count; i++, end = &(*end)->next) {
        struct inject_event *e = *end = new_event(s, b[i].dm, b[i].width_s, b[i].scattering_s, b[i].at_mhz);
        *failed = e == NULL;
        if (*failed) return list;
        name_event(e, b[i].id);
        e->sample = (uint64_t)b[i].sample;
        take_span(e);
        e->beam = b[i].beam;
        if (e->beam < 0) take_source(e, &b[i].towards);
        e->wanted_snr = b[i].snr;
        e->fluence_s = b[i].fluence_s;
        e->index = b[i].index;
    }
    return list;
}

/* A number in [0, 1) that depends on the seed, the slot and `what` alone. */
static double uniform(const struct inject *s, uint64_t k, uint32_t what)
{
    uint32_t r[4];
    random_block((uint64_t)s->schedule->seed, k, what, RANDOM_SCHEDULE, r);
    return r[0] * 0x1p-32;
}

/* Within [least, most]: their logarithms are uniform where the least is positive, else the values. */
static double drawn(const struct inject *s, uint64_t k, uint32_t what, const struct br_reals *range)
{
    double low = range->value[0], high = most(range), u = uniform(s, k, what);
    return low > 0 ? low * pow(high / low, u) : low + (high - low) * u;
}

struct inject_event *inject_draw(const struct inject *s, uint64_t k)
{
    const struct inject_schedule *p = s->schedule;
    struct inject_event widest = longest(s);
    double before, after, slot = inject_slot(s);
    span(&widest.burst, &before, &after);
    struct inject_event *e = new_event(s, drawn(s, k, 0, &p->dm), drawn(s, k, 1, &p->width_s),
                                       drawn(s, k, 2, &p->scattering_s), 0);
    if (e == NULL) return NULL;
    /* Anywhere in its slot, but with the whole sweep in it, so that two never overlap. */
    e->sample = (uint64_t)((double)k * slot + before + uniform(s, k, 3) * (slot - before - after));
    take_span(e);
    char id[INJECT_ID];
    snprintf(id, sizeof id, "%" PRId64 "-%" PRId64, p->seed,
             br_stream_time_ns(s->stream, e->sample) / 1000000);
    name_event(e, id);
    e->wanted_snr = drawn(s, k, 4, &p->snr);
    e->fluence_s = NAN;
    e->index = p->index.value[0] + (most(&p->index) - p->index.value[0]) * uniform(s, k, 5);
    size_t nbeams = s->nproducts > 0 ? s->product[0].stream->nbeams : 0,
           choices = p->towards.count > 0 ? p->towards.count
                     : p->beams.count > 0 ? p->beams.count
                                          : nbeams,
           choice = (size_t)(uniform(s, k, 6) * (double)choices);
    e->beam = -1;
    if (p->towards.count > 0)
        take_source(e, (const struct br_towards *)p->towards.value + choice);
    else if (choices > 0)
        e->beam = p->beams.count > 0 ? p->beams.value[choice] : (int64_t)choice;
    double r = p->radius * sqrt(uniform(s, k, 7)), angle = 2 * M_PI * uniform(s, k, 8);
    e->x = r * cos(angle);
    e->y = r * sin(angle);
    return e;
}

bool inject_refuse(struct inject_event *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(e->why, sizeof e->why, format, args);
    va_end(args);
    e->state = INJECT_REFUSED;
    return false;
}

/* The strength that the beam next to it should see with `wanted_snr`; where the pipeline has no beams, a beam
 * of all inputs towards it. */
static bool take_strength(const struct inject *s, struct inject_event *e)
{
    struct br_beam there = {e->x, e->y};
    struct br_stream alone = *s->stream;
    alone.nbeams = 1;
    alone.beams = &there;
    struct inject_product product = s->nproducts > 0 ? s->product[0] : (struct inject_product){"", &alone};
    if (!isnan(e->wanted_snr)) {
        size_t nearest = 0, nbeams = product.stream->nbeams;
        double least = INFINITY, *steps = malloc(s->nchannels * sizeof *steps), snr = 0;
        struct br_beam *beams = inject_beams(&product, e->sample);
        for (size_t b = 0; beams != NULL && b < nbeams; b++) {
            double away = hypot(beams[b].x - e->x, beams[b].y - e->y);
            if (away < least) least = away, nearest = b;
        }
        e->fluence_s = 1;
        if (beams != NULL && steps != NULL) {
            inject_steps(s, e, &product, steps);
            snr = inject_snr(s, e, &product, steps, beams[nearest], 1, false);
        }
        free(beams);
        free(steps);
        if (!(snr > 0))
            return inject_refuse(e, "no beam of the pipeline sees it: beam %zu is the nearest", nearest);
        e->fluence_s = e->wanted_snr / snr;
    }
    double flux = 0;
    for (size_t c = 0; c < s->nchannels; c++) flux = fmax(flux, inject_flux(e, s->stream->freq_mhz[c]));
    if (!(flux <= MAX_FLUX))
        return inject_refuse(
            e,
            "it is brighter than the field can hold: at its maximum %.3g times the noise of an input; "
            "expected at most %g",
            flux, MAX_FLUX);
    return true;
}

static bool take_memory(const struct inject *s, struct inject_event *e, unsigned nworkers)
{
    size_t C = s->nchannels, lines = C * s->npol, length = burst_length(&e->burst);
    e->maker = calloc(nworkers, sizeof *e->maker);
    e->first = calloc(C, sizeof *e->first);
    e->last = calloc(C, sizeof *e->last);
    e->measured = calloc(C, sizeof *e->measured);
    e->full = calloc(lines, sizeof *e->full);
    e->seen = calloc(lines, sizeof *e->seen);
    bool good = e->maker != NULL && e->first != NULL && e->last != NULL && e->measured != NULL &&
                e->full != NULL && e->seen != NULL && inject_sums_make(s, e);
    for (unsigned i = 0; good && i < nworkers; i++, e->nworkers++)
        good = burst_maker_create(&e->maker[i], length);
    return good;
}

static bool point_at_beam(const struct inject *s, struct inject_event *e)
{
    size_t count = s->nproducts > 0 ? s->product[0].stream->nbeams : 0;
    if ((uint64_t)e->beam >= count)
        return inject_refuse(e, "there is no beam %" PRId64 ": the pipeline has %zu", e->beam, count);
    struct br_beam *beams = inject_beams(&s->product[0], e->sample);
    if (beams == NULL) return inject_refuse(e, "no memory for it");
    e->x += beams[e->beam].x;
    e->y += beams[e->beam].y;
    free(beams);
    return !isnan(e->x) || inject_refuse(e, "beam %" PRId64 " is below the horizon", e->beam);
}

/* Where the source stands when the maximum arrives. */
static bool point_at_source(const struct inject *s, struct inject_event *e)
{
    struct br_beam there = {e->source.x, e->source.y};
    struct br_error error = {0};
    double up = 1;
    if (e->source.kind != SKY_FIXED && apparent_places(s->site, br_stream_time_ns(s->stream, e->sample),
                                                       &e->source, 1, &there, &up, &error) != BR_OK)
        return inject_refuse(e, "%.200s", error.text);
    if (!(up > 0)) {
        e->x = e->y = NAN;
        return inject_refuse(e, "its direction is below the horizon then: altitude %.1f degrees",
                             asin(up) * 180 / M_PI);
    }
    e->x += there.x;
    e->y += there.y;
    return true;
}

bool inject_accept(const struct inject *s, struct inject_event *e, unsigned nworkers)
{
    if (!(e->beam >= 0 ? point_at_beam(s, e) : point_at_source(s, e))) return false;
    if (!(e->x * e->x + e->y * e->y <= 1))
        return inject_refuse(e, "direction (%g, %g) is below the horizon", e->x, e->y);
    double before, after;
    span(&e->burst, &before, &after);
    if (!((before + after) * s->sample_s <= MAX_SPAN_S))
        return inject_refuse(e, "its sweep over the band takes %.3g s; expected at most %g",
                             (before + after) * s->sample_s, MAX_SPAN_S);
    if (!take_span(e)) return inject_refuse(e, "it would begin before sample 0");
    if (!take_strength(s, e)) return false;
    if (!take_memory(s, e, nworkers)) return inject_refuse(e, "no memory for it");
    for (size_t c = 0; c < s->nchannels; c++) {
        burst_extent(&e->burst, c, &e->first[c], &e->last[c]);
        e->first[c] += (int64_t)e->sample;
        e->last[c] += (int64_t)e->sample;
    }
    return true;
}

struct inject_gains *inject_gains_make(const struct inject *s, bool *failed)
{
    size_t count = s->ngains * s->npol * s->ndishes * 2;
    struct inject_gains *g = s->gain != NULL ? malloc(sizeof *g + count * sizeof *g->value) : NULL;
    *failed = s->gain != NULL && g == NULL;
    if (g == NULL) return NULL;
    atomic_init(&g->users, 1);
    g->nfreq = s->ngains;
    memcpy(g->value, s->gain, count * sizeof *g->value);
    return g;
}

void inject_gains_leave(struct inject_gains *gains)
{
    if (gains != NULL && atomic_fetch_sub(&gains->users, 1) == 1) free(gains);
}

bool inject_gain(const struct inject *s, const struct inject_event *e, size_t c, size_t p, size_t d,
                 double inverse[2], double *power)
{
    const struct inject_gains *g = e->gains;
    inverse[0] = *power = 1;
    inverse[1] = 0;
    if (g == NULL) return true;
    const float *value = g->value + 2 * (((g->nfreq == 1 ? 0 : c) * s->npol + p) * s->ndishes + d);
    double re = (double)value[0], im = (double)value[1];
    *power = re * re + im * im;
    if (!(*power > 0)) return false;
    inverse[0] = re / *power;
    inverse[1] = -im / *power;
    return true;
}

void inject_event_free(struct inject_event *e)
{
    if (e == NULL) return;
    inject_gains_leave(e->gains);
    inject_sums_free(e);
    for (size_t i = 0; i < e->nworkers; i++) burst_maker_free(&e->maker[i]);
    free(e->maker);
    free(e->first);
    free(e->last);
    free(e->measured);
    free(e->full);
    free(e->seen);
    free(e);
}
