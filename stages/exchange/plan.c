/* plan.c - see plan.h: the ranks' descriptions, and what follows from them. */
#include "stages/exchange/plan.h"
#include "formats/tables/beam_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The ranks tell each other this about their inputs; channels and beams follow it. */
struct description {
    struct br_array array;
    uint64_t frame_samples;
    int64_t epoch_ns;
    struct br_rational sample_ns;
    double scale;
    uint64_t nchannels, nbeams, beams_x, beams_y;
    uint32_t nzones, has_beams, side, gpu, sideband;
    struct br_zone zone[BR_MAX_ZONES];
};

static int describe(struct br_stage *stage, const struct br_stream *in, bool gpu, void **text, size_t *bytes)
{
    /* where beams that move look is not told: the others then know that they do not know it */
    bool beams = in->beams != NULL && !beams_move(in);
    size_t freq = in->nchannels * sizeof(double), beam = beams ? in->nbeams * sizeof(struct br_beam) : 0;
    struct description d = {.array = in->array,
                            .frame_samples = in->frame_samples,
                            .epoch_ns = in->epoch_ns,
                            .sample_ns = in->sample_ns,
                            .scale = in->scale,
                            .nchannels = in->nchannels,
                            .nbeams = in->nbeams,
                            .beams_x = in->beams_x,
                            .beams_y = in->beams_y,
                            .nzones = in->nzones,
                            .has_beams = beams,
                            .side = in->side.naxes,
                            .sideband = in->sideband,
                            .gpu = gpu};
    memcpy(d.zone, in->zone, sizeof d.zone);
    *bytes = sizeof d + 2 * freq + beam;
    unsigned char *at = *text = br_stage_alloc(stage, *bytes);
    memcpy(at, &d, sizeof d);
    memcpy(at + sizeof d, in->freq_mhz, freq);
    memcpy(at + sizeof d + freq, in->width_mhz, freq);
    if (beams) memcpy(at + sizeof d + 2 * freq, in->beams, beam);
    return BR_OK;
}

static struct br_stream understand(const struct br_stream *mine, const void *text)
{
    const struct description *d = text;
    const unsigned char *freq = (const unsigned char *)text + sizeof *d;
    struct br_stream s = *mine;
    s.array = d->array;
    s.frame_samples = d->frame_samples;
    s.epoch_ns = d->epoch_ns;
    s.sample_ns = d->sample_ns;
    s.scale = d->scale;
    s.nchannels = d->nchannels;
    s.nbeams = d->nbeams;
    s.beams_x = d->beams_x;
    s.beams_y = d->beams_y;
    s.nzones = d->nzones;
    s.sideband = (enum br_sideband)d->sideband;
    memcpy(s.zone, d->zone, sizeof s.zone);
    s.freq_mhz = (const double *)(const void *)freq;
    s.width_mhz = s.freq_mhz + s.nchannels;
    s.beams = d->has_beams ? (const struct br_beam *)(const void *)(s.width_mhz + s.nchannels) : NULL;
    return s;
}

/* The lengths of all axes but the one along which ranks differ. */
static bool same_shape(const struct br_stream *a, const struct br_stream *b, const char *differs)
{
    if (a->array.dtype != b->array.dtype || a->array.naxes != b->array.naxes) return false;
    for (unsigned i = 0; i < a->array.naxes; i++) {
        const struct br_axis *x = &a->array.axis[i], *y = &b->array.axis[i];
        if (strcmp(x->name, y->name) != 0) return false;
        bool free = strcmp(x->name, differs) == 0 || strcmp(x->name, "time") == 0;
        if (!free && x->length != y->length) return false;
    }
    return true;
}

static int check_against(struct br_stage *stage, const struct plan *plan, unsigned r)
{
    const struct br_stream *a = &plan->from[0], *b = &plan->from[r];
    char x[200], y[200];
    if (!same_shape(a, b, plan->to_beams ? "freq" : "beam"))
        return br_stage_fail(stage, BR_E_INVALID,
                             "rank 0 has %s and rank %u has %s; expected arrays that differ in their %s only",
                             br_array_format(&a->array, x, sizeof x), r,
                             br_array_format(&b->array, y, sizeof y), plan->to_beams ? "channels" : "beams");
    if (a->frame_samples != b->frame_samples)
        return br_stage_fail(stage, BR_E_INVALID,
                             "frames of rank 0 span %llu base samples, those of rank %u %llu; expected the "
                             "same frames on all ranks",
                             (unsigned long long)a->frame_samples, r, (unsigned long long)b->frame_samples);
    if (a->epoch_ns != b->epoch_ns || a->sample_ns.num != b->sample_ns.num ||
        a->sample_ns.den != b->sample_ns.den)
        return br_stage_fail(stage, BR_E_INVALID,
                             "rank 0 counts samples of %lld/%lld ns from %lld ns on, rank %u samples of "
                             "%lld/%lld ns from %lld ns on; expected the same clock",
                             (long long)a->sample_ns.num, (long long)a->sample_ns.den, (long long)a->epoch_ns,
                             r, (long long)b->sample_ns.num, (long long)b->sample_ns.den,
                             (long long)b->epoch_ns);
    if (a->sideband != b->sideband)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "channels of rank 0 hold the sideband '%s', those of rank %u '%s'; expected one on all "
            "ranks: `stream: {sideband: ...}`",
            br_sideband_name(a->sideband), r, br_sideband_name(b->sideband));
    if (a->zone[0].downsample != b->zone[0].downsample)
        return br_stage_fail(stage, BR_E_INVALID,
                             "a time step of rank 0 is %u base samples, one of rank %u %u; expected the same",
                             a->zone[0].downsample, r, b->zone[0].downsample);
    if (a->scale != b->scale)
        return br_stage_fail(stage, BR_E_INVALID, "values of rank 0 have the scale %g, those of rank %u %g",
                             a->scale, r, b->scale);
    if (!plan->to_beams &&
        (a->nchannels != b->nchannels ||
         memcmp(a->freq_mhz, b->freq_mhz, a->nchannels * sizeof *a->freq_mhz) != 0 || a->nzones != b->nzones))
        return br_stage_fail(stage, BR_E_INVALID,
                             "rank 0 and rank %u have different channels; expected all of them on each rank",
                             r);
    if (plan->to_beams && a->beams != NULL &&
        (b->beams == NULL || memcmp(a->beams, b->beams, a->nbeams * sizeof *a->beams) != 0))
        return br_stage_fail(stage, BR_E_INVALID,
                             "rank 0 and rank %u point their beams elsewhere; expected the same on each rank",
                             r);
    return BR_OK;
}

/* Lowest edge of a rank's band, for putting the ranks in order. */
static double low_edge(const struct br_stream *s)
{
    double low = INFINITY;
    for (size_t c = 0; c < s->nchannels; c++) low = fmin(low, s->freq_mhz[c] - s->width_mhz[c] / 2);
    return low;
}

static double high_edge(const struct br_stream *s)
{
    double high = -INFINITY;
    for (size_t c = 0; c < s->nchannels; c++) high = fmax(high, s->freq_mhz[c] + s->width_mhz[c] / 2);
    return high;
}

/* Puts the ranks' bands into the order of the channels (rising or falling, as they do within a rank), and
 * finds overlaps and holes. */
static int order_bands(struct br_stage *stage, struct plan *plan, unsigned *order, bool holes)
{
    bool falling = false;
    for (unsigned r = 0; r < plan->ranks; r++) {
        order[r] = r;
        const struct br_stream *s = &plan->from[r];
        if (s->nchannels > 1 && s->freq_mhz[0] > s->freq_mhz[s->nchannels - 1]) falling = true;
    }
    for (unsigned i = 1; i < plan->ranks; i++) /* by insertion */
        for (unsigned k = i; k > 0 && low_edge(&plan->from[order[k]]) < low_edge(&plan->from[order[k - 1]]);
             k--) {
            unsigned swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
        }
    for (unsigned i = 1; i < plan->ranks; i++) {
        const struct br_stream *a = &plan->from[order[i - 1]], *b = &plan->from[order[i]];
        double gap = low_edge(b) - high_edge(a), width = fmin(a->width_mhz[0], b->width_mhz[0]);
        if (gap < -0.01 * width)
            return br_stage_fail(
                stage, BR_E_INVALID,
                "ranks %u and %u both have %.6g to %.6g MHz; expected bands that do not overlap",
                order[i - 1], order[i], low_edge(b), fmin(high_edge(a), high_edge(b)));
        if (gap > 0.5 * width && !holes)
            return br_stage_fail(
                stage, BR_E_INVALID,
                "no rank has %.6g to %.6g MHz, between ranks %u and %u; expected bands side by "
                "side, or `holes: true`",
                high_edge(a), low_edge(b), order[i - 1], order[i]);
    }
    for (unsigned i = 0; falling && i < plan->ranks / 2; i++) {
        unsigned swap = order[i];
        order[i] = order[plan->ranks - 1 - i];
        order[plan->ranks - 1 - i] = swap;
    }
    return BR_OK;
}

/* Appends the channels and zones of `s`. */
static int append(struct br_stage *stage, struct br_stream *all, const struct br_stream *s, double *freq,
                  double *width)
{
    memcpy(freq + all->nchannels, s->freq_mhz, s->nchannels * sizeof *freq);
    memcpy(width + all->nchannels, s->width_mhz, s->nchannels * sizeof *width);
    for (unsigned z = 0; z < s->nzones; z++) {
        const struct br_zone *fresh = &s->zone[z];
        struct br_zone *last = all->nzones > 0 ? &all->zone[all->nzones - 1] : NULL;
        if (last != NULL && last->factor == fresh->factor && last->downsample == fresh->downsample &&
            last->delay == fresh->delay) {
            last->nchannels += fresh->nchannels;
            continue;
        }
        if (all->nzones == BR_MAX_ZONES)
            return br_stage_fail(stage, BR_E_INVALID, "all ranks together have more than %d zones",
                                 BR_MAX_ZONES);
        all->zone[all->nzones] = *fresh;
        all->zone[all->nzones++].first_channel = all->nchannels + fresh->first_channel;
    }
    all->nchannels += s->nchannels;
    return BR_OK;
}

/* Sets the array's lengths to what the stream now says. */
static void set_lengths(struct br_stream *s)
{
    size_t coarse = 0;
    for (unsigned z = 0; z < s->nzones; z++) coarse += s->zone[z].nchannels / s->zone[z].factor;
    bool zoned = br_stream_is_zoned(s);
    for (unsigned i = 0; i < s->array.naxes; i++) {
        struct br_axis *axis = &s->array.axis[i];
        if (strcmp(axis->name, "freq") == 0) axis->length = zoned ? coarse : s->nchannels;
        if (strcmp(axis->name, "beam") == 0) axis->length = s->nbeams;
        if (strcmp(axis->name, "time") == 0)
            axis->length = zoned ? s->frame_samples : s->frame_samples / s->zone[0].downsample;
    }
}

static int make_plane(struct br_stage *stage, struct plan *plan, bool holes)
{
    unsigned *order = br_stage_alloc(stage, plan->ranks * sizeof *order);
    size_t nchannels = 0, nbeams = 0;
    plan->all = plan->from[0];
    if (!plan->to_beams) {
        struct br_beam *beams = NULL;
        for (unsigned r = 0; r < plan->ranks; r++) {
            plan->before[r] = (struct rect){0, plan->all.nchannels, nbeams, plan->from[r].nbeams};
            nbeams += plan->from[r].nbeams;
        }
        if (plan->all.beams != NULL) beams = br_stage_alloc(stage, nbeams * sizeof *beams);
        for (unsigned r = 0; r < plan->ranks; r++) {
            if (beams != NULL && plan->from[r].beams == NULL)
                return br_stage_fail(stage, BR_E_INVALID,
                                     "the directions of beams are known on rank 0 and not on rank %u", r);
            if (beams != NULL)
                memcpy(beams + plan->before[r].beam, plan->from[r].beams,
                       plan->from[r].nbeams * sizeof *beams);
        }
        plan->all.nbeams = nbeams;
        plan->all.beams = beams;
        if (plan->ranks > 1) plan->all.beams_x = plan->all.beams_y = 0;
        set_lengths(&plan->all);
        return BR_OK;
    }
    int status = order_bands(stage, plan, order, holes);
    if (status != BR_OK) return status;
    for (unsigned r = 0; r < plan->ranks; r++) nchannels += plan->from[r].nchannels;
    double *freq = br_stage_alloc(stage, nchannels * sizeof *freq);
    double *width = br_stage_alloc(stage, nchannels * sizeof *width);
    plan->all.nchannels = 0;
    plan->all.nzones = 0;
    for (unsigned i = 0; i < plan->ranks && status == BR_OK; i++) {
        unsigned r = order[i];
        plan->before[r] = (struct rect){plan->all.nchannels, plan->from[r].nchannels, 0, plan->all.nbeams};
        status = append(stage, &plan->all, &plan->from[r], freq, width);
    }
    plan->all.freq_mhz = freq;
    plan->all.width_mhz = width;
    set_lengths(&plan->all);
    return status;
}

/* The stream of one rectangle of the plane. */
static struct br_stream slice(const struct br_stream *all, const struct rect *r)
{
    struct br_stream s = *all;
    s.freq_mhz += r->freq;
    s.width_mhz += r->freq;
    s.nchannels = r->nfreq;
    s.nzones = 0;
    for (unsigned z = 0; z < all->nzones; z++) {
        struct br_zone zone = all->zone[z];
        size_t begin = zone.first_channel > r->freq ? zone.first_channel : r->freq;
        size_t end = zone.first_channel + zone.nchannels, stop = r->freq + r->nfreq;
        if (end > stop) end = stop;
        if (begin >= end) continue;
        zone.first_channel = begin - r->freq;
        zone.nchannels = end - begin;
        s.zone[s.nzones++] = zone;
    }
    if (s.beams != NULL) s.beams += r->beam;
    s.nbeams = r->nbeam;
    if (r->nbeam != all->nbeams) {
        bool rows = all->beams_y > 0 && r->beam % all->beams_y == 0 && r->nbeam % all->beams_y == 0;
        s.beams_x = rows ? r->nbeam / all->beams_y : 0;
        s.beams_y = rows ? all->beams_y : 0;
    }
    set_lengths(&s);
    return s;
}

/* Channel behind `coarse` coarse channels of the plane. */
static size_t channel_of(const struct br_stream *all, size_t coarse)
{
    size_t channel = 0;
    for (unsigned z = 0; z < all->nzones; z++) {
        size_t n = all->zone[z].nchannels / all->zone[z].factor;
        size_t take = coarse < n ? coarse : n;
        channel += take * all->zone[z].factor;
        coarse -= take;
    }
    return channel;
}

static int divide(struct br_stage *stage, struct plan *plan, const int64_t *share, size_t nshare)
{
    size_t coarse = 0, at = 0;
    for (unsigned z = 0; z < plan->all.nzones; z++)
        coarse += plan->all.zone[z].nchannels / plan->all.zone[z].factor;
    size_t total = plan->to_beams ? plan->all.nbeams : coarse;
    const char *what = plan->to_beams ? "beams" : "coarse channels";
    if (nshare == 0 && plan->ranks > total)
        return br_stage_fail(stage, BR_E_INVALID,
                             "%u ranks share %zu %s; expected at most as many ranks as there are",
                             plan->ranks, total, what);
    if (nshare != 0 && nshare != plan->ranks)
        return br_stage_fail_at(stage, "shares", "%zu numbers for %u ranks; expected one for each rank",
                                nshare, plan->ranks);
    for (unsigned r = 0; r < plan->ranks; r++) {
        size_t n = nshare != 0 ? (size_t)share[r] : total / plan->ranks + (r < total % plan->ranks);
        if (at + n <= total && plan->to_beams) plan->after[r] = (struct rect){0, plan->all.nchannels, at, n};
        if (at + n <= total && !plan->to_beams)
            plan->after[r] = (struct rect){channel_of(&plan->all, at),
                                           channel_of(&plan->all, at + n) - channel_of(&plan->all, at), 0,
                                           plan->all.nbeams};
        at += n;
    }
    if (at != total)
        return br_stage_fail_at(stage, "shares", "they are %zu %s together; expected %zu", at, what, total);
    return BR_OK;
}

static struct crossing cross(const struct plan *plan, const struct rect *from, const struct rect *to)
{
    struct crossing c = {0};
    size_t begin = from->freq > to->freq ? from->freq : to->freq;
    size_t end =
        from->freq + from->nfreq < to->freq + to->nfreq ? from->freq + from->nfreq : to->freq + to->nfreq;
    size_t beam = from->beam > to->beam ? from->beam : to->beam;
    size_t stop =
        from->beam + from->nbeam < to->beam + to->nbeam ? from->beam + from->nbeam : to->beam + to->nbeam;
    if (begin >= end || beam >= stop) return c;
    c.beam_from = beam - from->beam;
    c.beam_to = beam - to->beam;
    c.nbeam = stop - beam;
    bool zoned = br_stream_is_zoned(&plan->all);
    for (unsigned z = 0; z < plan->all.nzones; z++) {
        const struct br_zone *zone = &plan->all.zone[z];
        size_t first = zoned && zone->first_channel > begin ? zone->first_channel : begin;
        size_t last = zoned && zone->first_channel + zone->nchannels < end
                          ? zone->first_channel + zone->nchannels
                          : end;
        if (first >= last) continue;
        c.strip[c.nstrips++] =
            (struct strip){first - from->freq, first - to->freq, last - first, zone->downsample};
        if (!zoned) break;
    }
    return c;
}

int plan_make(struct br_stage *stage, struct plan *plan, bool to_beams, const int64_t *share, size_t nshare,
              bool holes)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    const void **part;
    const size_t *length;
    void *text;
    size_t bytes;
    unsigned n = plan->ranks = br_stage_ranks(stage);
    plan->rank = br_stage_rank(stage);
    plan->to_beams = to_beams;
    describe(stage, in, plan->gpu, &text, &bytes);
    int status = br_stage_gather(stage, text, bytes, &part, &length);
    if (status != BR_OK) return status;
    plan->from = br_stage_alloc(stage, n * sizeof *plan->from);
    plan->to = br_stage_alloc(stage, n * sizeof *plan->to);
    plan->before = br_stage_alloc(stage, n * sizeof *plan->before);
    plan->after = br_stage_alloc(stage, n * sizeof *plan->after);
    plan->out = br_stage_alloc(stage, n * sizeof *plan->out);
    plan->in = br_stage_alloc(stage, n * sizeof *plan->in);
    for (unsigned r = 0; r < n; r++) {
        plan->from[r] = understand(in, part[r]);
        plan->gpu &= ((const struct description *)part[r])->gpu != 0;
    }
    for (unsigned r = 0; r < n && status == BR_OK; r++) status = check_against(stage, plan, r);
    if (status == BR_OK) status = make_plane(stage, plan, holes);
    if (status == BR_OK) status = divide(stage, plan, share, nshare);
    if (status != BR_OK) return status;
    for (unsigned r = 0; r < n; r++) {
        plan->to[r] = slice(&plan->all, &plan->after[r]);
        plan->out[r] = cross(plan, &plan->before[plan->rank], &plan->after[r]);
        plan->in[r] = cross(plan, &plan->before[r], &plan->after[plan->rank]);
    }
    return BR_OK;
}
