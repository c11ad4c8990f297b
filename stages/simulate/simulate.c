/* simulate - the electric field that a dish array would record: receiver noise, steady sources, dispersed
 * bursts,
 * interference; and receivers' gains.
 *
 * Every value is a function of the seed and of its place in the stream, so that a run does not depend on
 * frame sizes and can be repeated. */
#include "formats/common/hints.h"
#include "runtime/stage.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/pace.h"
#include "stages/common/stage/random.h"
#include "stages/common/stage/shape.h"
#include "stages/simulate/gains.h"
#include "stages/simulate/places.h"
#include "stages/simulate/receiver.h"
#include "stages/simulate/rfi.h"
#include "stages/simulate/sky.h"
#include "stages/simulate_description.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_BYTES = 1 << 20,
    FRAME_STEP = 128, /* the largest upchannelization factor */
    JOB_BYTES = 1 << 14
};
#define MAX_BURST_BYTES ((size_t)1 << 30)
#define MAX_SAMPLE0     (UINT64_C(1) << 61)

struct span_param {
    int64_t first, count;
};
struct source_param {
    struct place_param place;
    double flux;
};
struct burst_param {
    struct place_param place;
    double dm, arrival_s, at_mhz, width_s, flux;
};

/* The memory of one worker. */
struct scratch {
    float *signal;   /* [2][ndishes] re, im */
    float *rotation; /* [pol][ndishes][2] by the drift, of one sample */
    struct receiver receiver;
    uint64_t beyond; /* components of the frame beyond the levels */
};

struct simulate {
    int64_t samples, seed, frame_samples; /* parameters */
    double duration_s, noise, drift_rms;
    struct br_maps missing, sources, bursts, carriers, impulses;
    const char *gains_file, *drifts_file;
    bool realtime;

    struct pace pace;
    struct gains gains;
    size_t nchannels, npol, ndishes;
    uint64_t origin, end, next; /* base samples */
    double sample_s;
    bool lower; /* the channels hold the lower sideband: the conjugate of what sky and rfi make */
    struct sky_source *place; /* [sources + bursts] */
    struct br_motion motion;  /* of the sources */
    struct br_beam *there;    /* [sources] where they are now, if they move; in memory of the pipeline */
    uint64_t interval;        /* the motion's; UINT64_MAX: none yet */
    struct sky sky;
    struct rfi rfi;
    int16_t *table; /* [GAUSSIAN_ENTRIES] */
    unsigned nscratch;
    struct scratch *scratch; /* [nscratch] */
};

static const struct br_param span_params[] = {
    PARAM(INT, struct span_param, first, "start of the span, counted from the start of the simulation",
          .required = true, .min = 0, .max = 1e15, .unit = "samples"),
    PARAM(INT, struct span_param, count, "length of the span", .required = true, .min = 1, .max = 1e15,
          .unit = "samples"),
    {0},
};

static const struct br_param source_params[] = {
    PLACE_PARAMS,
    PARAM(REAL, struct source_param, flux, "power in one dish, as a multiple of the noise's",
          .required = true, .min = 0, .max = 1e12, .unit = "system noises"),
    {0},
};
static const struct br_param burst_params[] = {
    PLACE_PARAMS,
    PARAM(REAL, struct burst_param, dm,
          "dispersion measure; the delay is dm / 2.41e-4 / f^2 seconds, f in MHz", .required = true, .min = 0,
          .max = 1e5, .unit = "pc cm^-3"),
    PARAM(REAL, struct burst_param, arrival_s,
          "when its maximum arrives at the frequency at_mhz, after the start of the simulation",
          .required = true, .min = -1e6, .max = 1e9, .unit = "s"),
    PARAM(REAL, struct burst_param, at_mhz,
          "the frequency to which arrival_s refers; 0: the centre of the highest channel", .def = "0",
          .min = 0, .max = 1e6, .unit = "MHz"),
    PARAM(REAL, struct burst_param, width_s, "full width at half maximum of its Gaussian profile",
          .required = true, .min = 1e-9, .max = 1e3, .unit = "s"),
    PARAM(REAL, struct burst_param, flux, "power in one dish at its maximum, as a multiple of the noise's",
          .required = true, .min = 0, .max = 1e12, .unit = "system noises"),
    {0},
};
static const struct br_param params[] = {
    PARAM(INT, struct simulate, samples, "length of the simulation; or give duration_s", .def = "0", .min = 0,
          .max = 1e15, .unit = "samples"),
    PARAM(REAL, struct simulate, duration_s,
          "length of the simulation, rounded up to whole samples; or give samples", .min = 0, .max = 1e9,
          .unit = "s"),
    PARAM(INT, struct simulate, seed, "chooses the noise; the same seed gives the same field", .def = "0",
          .min = 0, .max = 9e15),
    PARAM(REAL, struct simulate, noise, "rms of the receiver noise in each component of each dish",
          .def = "2", .min = 1e-3, .max = 100, .unit = "levels"),
    PARAM(MAPS, struct simulate, sources,
          "list of steady sources {x_deg, y_deg, flux}; one with radec or name moves with the sky",
          .fields = source_params, .size = sizeof(struct source_param), .max_count = 1000),
    PARAM(MAPS, struct simulate, bursts,
          "list of bursts {x_deg, y_deg, dm, arrival_s, at_mhz, width_s, flux}", .fields = burst_params,
          .size = sizeof(struct burst_param), .max_count = 1000),
    PARAM(MAPS, struct simulate, missing, "list of spans {first, count} without data", .fields = span_params,
          .size = sizeof(struct span_param), .max_count = 100000),
    BR_PARAM("gains", BR_P_PATH, struct simulate, gains_file,
             "gains that the receivers have, which multiply field and noise: HDF5, /gain complex64 "
             "[freq][pol][dish]; 0: a dead input"),
    BR_PARAM("drifts", BR_P_PATH, struct simulate, drifts_file,
             "rates at which the receivers' phases drift: HDF5, /drift [pol][dish] in radians per second"),
    PARAM(BOOL, struct simulate, realtime,
          "publish frames when their last sample would have been taken, not as fast as possible",
          .def = "false"),
    PARAM(REAL, struct simulate, drift_rms,
          "instead of `drifts`: rates drawn by `seed`, normally distributed with this rms", .def = "0",
          .min = 0, .max = 1e6, .unit = "cycles per hour"),
    PARAM(MAPS, struct simulate, carriers,
          "list of carriers from the ground {freq_mhz, power_db, duty, period_s, start_s, east_m, "
          "north_m}",
          .fields = rfi_carrier_params, .size = sizeof(struct rfi_carrier), .max_count = 1000),
    PARAM(MAPS, struct simulate, impulses,
          "list of impulses in all channels {start_s, duration_s, power_db, east_m, north_m}",
          .fields = rfi_impulse_params, .size = sizeof(struct rfi_impulse), .max_count = 1000),
    PARAM(INT, struct simulate, frame_samples, "samples in a frame; 0: what makes about 1 MiB", .def = "0",
          .min = 0, .max = 1 << 30, .unit = "samples"),
    {0},
};
static const struct br_port outputs[] = {{"out", "E[time][freq][pol][dish], int4x2"}, {0}};

static int take_length(struct br_stage *stage, struct simulate *s)
{
    bool samples = br_stage_given(stage, "samples"), duration = br_stage_given(stage, "duration_s");
    if (samples == duration)
        return br_stage_fail(stage, BR_E_INVALID, "%s of samples and duration_s; expected exactly one",
                             samples ? "it has both" : "it has none");
    double count = samples ? (double)s->samples : ceil(s->duration_s / s->sample_s - 1e-9);
    if (!(count >= 1 && count <= 1e15))
        return br_stage_fail_at(stage, samples ? "samples" : "duration_s",
                                "%.15g samples; expected 1 to 1e15", count);
    s->end = s->origin + (samples ? (uint64_t)s->samples : (uint64_t)count);
    return BR_OK;
}

/* Fills in the output's description from what `stream:` and `telescope:` say. */
static int take_stream(struct br_stage *stage, struct simulate *s, struct br_stream *out)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *t = br_stage_telescope(stage);
    if (t == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "it needs the dishes' places: add `telescope:` to the pipeline");
    if (hints->nfreq == 0)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "it needs the frequencies of the channels: add `freq_mhz: {first, step, count}` to "
            "`stream:`");
    if (hints->sample_ns.num <= 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "it needs the length of a sample: add `sample_ns` to `stream:`");
    if (hints->coding != NULL && strcmp(hints->coding, "int4x2") != 0)
        return br_stage_fail(stage, BR_E_INVALID, "the coding is '%s'; expected int4x2, in which it works",
                             hints->coding);
    if (hints->have_sample0 && hints->sample0 > MAX_SAMPLE0)
        return br_stage_fail(stage, BR_E_INVALID, "sample0 is %llu; expected at most 2^61",
                             (unsigned long long)hints->sample0);
    s->nchannels = hints->nfreq;
    s->npol = hints->npol > 0 ? hints->npol : 2;
    s->ndishes = t->ndishes;
    s->origin = s->next = hints->have_sample0 ? hints->sample0 : 0;

    size_t row = s->nchannels * s->npol * s->ndishes;
    uint64_t frame = (uint64_t)s->frame_samples;
    if (frame == 0)
        for (frame = FRAME_STEP; 2 * frame * row <= FRAME_BYTES;) frame *= 2;
    size_t lengths[4] = {(size_t)frame, s->nchannels, s->npol, s->ndishes};
    int status = br_output_array(stage, out, BR_INT4X2, "time,freq,pol,dish", lengths);
    if (status != BR_OK) return status;
    out->telescope = t;
    out->frame_samples = frame;
    out->sideband = hints->sideband != BR_SIDEBAND_UNKNOWN ? hints->sideband : BR_SIDEBAND_UPPER;
    s->lower = out->sideband == BR_SIDEBAND_LOWER;
    out->epoch_ns = hints->have_epoch ? hints->epoch_ns : 0;
    out->sample_ns = hints->sample_ns;
    s->sample_s = br_stream_sample_s(out);
    out->nchannels = s->nchannels;
    double *freq = br_stage_alloc(stage, s->nchannels * sizeof *freq),
           *width = br_stage_alloc(stage, s->nchannels * sizeof *width);
    for (size_t c = 0; c < s->nchannels; c++) {
        freq[c] = hints->freq_mhz[c];
        width[c] = hints->width_mhz > 0 ? hints->width_mhz : 1e-6 / s->sample_s;
        if (!(freq[c] > 1e-6 / s->sample_s))
            return br_stage_fail(stage, BR_E_INVALID,
                                 "channel %zu is at %.9g MHz; expected more than the %.6g MHz of one channel",
                                 c, freq[c], 1e-6 / s->sample_s);
    }
    out->freq_mhz = freq;
    out->width_mhz = width;
    out->nzones = 1;
    out->zone[0] = (struct br_zone){0, s->nchannels, 1, 1, 0};
    return BR_OK;
}

static struct burst_params burst_of(const struct simulate *s, const struct br_stream *stream, size_t i)
{
    const struct burst_param *p = (const struct burst_param *)s->bursts.value + i;
    double ref = p->at_mhz;
    for (size_t c = 0; p->at_mhz == 0 && c < stream->nchannels; c++) ref = fmax(ref, stream->freq_mhz[c]);
    return (struct burst_params){.dm = p->dm,
                                 .arrival_s = p->arrival_s,
                                 .ref_mhz = ref,
                                 .width_s = p->width_s,
                                 .rms = s->noise * sqrt(p->flux),
                                 .sample_s = s->sample_s,
                                 .nchannels = stream->nchannels,
                                 .npol = s->npol,
                                 .freq_mhz = stream->freq_mhz,
                                 .seed = (uint64_t)s->seed,
                                 .number = (uint32_t)i};
}

static int take_places(struct br_stage *stage, struct simulate *s, const struct br_stream *out)
{
    size_t nsources = s->sources.count, nbursts = s->bursts.count, said = 0;
    const struct source_param *source = s->sources.value;
    const struct burst_param *burst = s->bursts.value;
    int64_t *arrival_ns = br_stage_alloc(stage, nbursts * sizeof *arrival_ns);
    int status = BR_OK;
    s->place = br_stage_alloc(stage, (nsources + nbursts) * sizeof *s->place);
    s->there = br_stage_alloc(stage, nsources * sizeof *s->there);
    s->interval = UINT64_MAX;
    for (size_t i = 0; i < nsources && status == BR_OK; i++)
        status = place_take(stage, "sources", i, &source[i].place, &s->place[i], &said);
    for (size_t i = 0; i < nbursts && status == BR_OK; i++) {
        status = place_take(stage, "bursts", i, &burst[i].place, &s->place[nsources + i], &said);
        arrival_ns[i] = br_stream_time_ns(out, s->origin) + llround(burst[i].arrival_s * 1e9);
    }
    return status != BR_OK ? status
                           : places_configure(stage, out, s->place, nsources, s->place + nsources, nbursts,
                                              arrival_ns, said, &s->motion);
}

static int configure(struct br_stage *stage, void *self)
{
    struct simulate *s = self;
    struct br_stream *out = br_stage_output(stage, 0);
    int status = take_stream(stage, s, out);
    if (status == BR_OK) status = take_length(stage, s);
    if (status != BR_OK) return status;
    struct gains_params g = {s->gains_file, s->drifts_file, s->drift_rms, (uint64_t)s->seed,
                             s->nchannels,  s->npol,        s->ndishes};
    status = gains_take(&s->gains, stage, &g);
    if (status == BR_OK) status = rfi_check(stage, out, &s->carriers, &s->impulses);
    if (status != BR_OK) return status;
    char doubt[256];
    if (hints_doubt(out, doubt, sizeof doubt) != NULL) br_stage_warn(stage, "%s", doubt);
    status = take_places(stage, s, out);
    size_t bytes = 0;
    for (size_t i = 0; i < s->bursts.count && status == BR_OK; i++) {
        struct burst_params p = burst_of(s, out, i);
        if (p.width_s < s->sample_s)
            return br_stage_fail_at(stage, "bursts",
                                    "number %zu is %.6g s wide; expected at least one sample, %.6g s", i + 1,
                                    p.width_s, s->sample_s);
        bytes += burst_bytes(&p);
        if (bytes > MAX_BURST_BYTES)
            return br_stage_fail_at(
                stage, "bursts",
                "number %zu is too long: the dispersed fields need %.3g GiB together; expected at "
                "most 1",
                i + 1, (double)bytes / (1 << 30));
    }
    return status;
}

static int make_scratch(struct br_stage *stage, struct simulate *s)
{
    unsigned workers = br_stage_threads(stage);
    s->scratch = calloc(workers, sizeof *s->scratch);
    if (s->scratch == NULL) return -1;
    s->nscratch = workers;
    for (unsigned i = 0; i < workers; i++) {
        struct scratch *w = &s->scratch[i];
        w->signal = calloc(2 * s->ndishes, sizeof *w->signal);
        w->rotation = calloc(2 * s->npol * s->ndishes, sizeof *w->rotation);
        if (w->signal == NULL || w->rotation == NULL ||
            receiver_make(&w->receiver, s->ndishes, s->noise, s->table, (uint64_t)s->seed) != 0)
            return -1;
        w->receiver.gain = s->gains.gain;
        w->receiver.gain_lines = (uint32_t)s->gains.lines;
    }
    return 0;
}

static int start(struct br_stage *stage, void *self)
{
    struct simulate *s = self;
    const struct br_stream *out = br_stage_output(stage, 0);
    struct br_error error = {0};
    size_t count = s->sources.count + s->bursts.count;
    s->table = malloc(GAUSSIAN_ENTRIES * sizeof *s->table);
    struct sky_wave *wave = calloc(count + 1, sizeof *wave);
    struct burst_params *burst = calloc(s->bursts.count + 1, sizeof *burst);
    int status = BR_OK;
    if (s->table == NULL || wave == NULL || burst == NULL || make_scratch(stage, s) != 0) {
        status = br_no_memory(stage, GAUSSIAN_ENTRIES * sizeof *s->table);
    } else {
        const struct source_param *sources = s->sources.value;
        for (size_t i = 0; i < count; i++) {
            double flux = i < s->sources.count ? sources[i].flux : 0;
            wave[i] = (struct sky_wave){s->place[i].x, s->place[i].y, s->noise * sqrt(flux)};
        }
        for (size_t i = 0; i < s->bursts.count; i++) burst[i] = burst_of(s, out, i);
        gaussian_table(s->table);
        if (sky_make(&s->sky, out->telescope, wave, s->sources.count, burst, s->bursts.count, s->nchannels,
                     s->npol, out->freq_mhz, s->table, (uint64_t)s->seed, &error) != BR_OK)
            status = br_stage_fail(stage, error.status, "%s", error.text);
        else if (!rfi_make(&s->rfi, out, &s->carriers, &s->impulses, s->noise, s->table, (uint64_t)s->seed))
            status = br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for the waves of %zu transmitters",
                                   s->carriers.count + s->impulses.count);
    }
    free(wave);
    free(burst);
    return status;
}

/* One time sample of one channel and polarisation, [dish]. Returns the number of components beyond the
 * levels. */
static unsigned fill_line(const struct simulate *s, struct scratch *w, uint64_t sample, size_t channel,
                          size_t pol, uint8_t *e)
{
    float *re = w->signal, *im = w->signal + s->ndishes;
    int64_t k = (int64_t)(sample - s->origin);
    const float *rotation = s->gains.drift != NULL ? w->rotation + 2 * pol * s->ndishes : NULL;
    sky_field(&s->sky, sample, k, channel, pol, re, im);
    rfi_add(&s->rfi, sample, k, channel, re, im);
    for (size_t d = 0; s->lower && d < s->ndishes; d++) im[d] = -im[d];
    return receiver_digitize(&w->receiver, sample, (uint32_t)(channel * s->npol + pol), re, im, rotation, e);
}

/* One frame, some samples a job. */
struct fill {
    const struct simulate *s;
    const struct br_frame *out;
    size_t first, end; /* samples of the frame */
    size_t row, each;  /* bytes of a sample, samples of a job */
};

static void fill_samples(void *arg, size_t job, unsigned worker)
{
    const struct fill *fill = arg;
    const struct simulate *s = fill->s;
    const struct br_frame *out = fill->out;
    struct scratch *w = &s->scratch[worker];
    size_t from = fill->first + job * fill->each, to = from + fill->each;
    if (to > fill->end) to = fill->end;
    for (size_t t = from; t < to; t++) {
        uint8_t *line = (uint8_t *)out->data + t * fill->row;
        if (!out->complete && out->valid[t * s->nchannels] == BR_MISSING) {
            memset(line, 0, fill->row);
            continue;
        }
        if (s->gains.drift != NULL)
            gains_rotation(s->gains.drift, s->npol * s->ndishes,
                           (double)(out->first + t - s->origin) * s->sample_s, w->rotation);
        for (size_t c = 0; c < s->nchannels; c++)
            for (size_t p = 0; p < s->npol; p++, line += s->ndishes)
                w->beyond += fill_line(s, w, out->first + t, c, p, line);
    }
}

/* Moves the sources to where they are at a sample. Returns the first one from which they are elsewhere. */
static uint64_t move_sources(struct simulate *s, uint64_t sample)
{
    uint64_t interval = br_motion_interval(&s->motion, sample);
    if (br_motion_moves(&s->motion) && interval != s->interval) {
        br_motion_at(&s->motion, interval, s->there);
        for (size_t i = 0; i < s->sources.count; i++)
            if (s->place[i].kind != SKY_FIXED) sky_move(&s->sky, i, s->there[i]);
        s->interval = interval;
    }
    return br_motion_end(&s->motion, interval);
}

/* Marks the spans without data. */
static void mark_missing(const struct simulate *s, const struct br_stream *stream, struct br_frame *out)
{
    const struct span_param *span = s->missing.value;
    for (size_t i = 0; i < s->missing.count; i++) {
        uint64_t from = s->origin + (uint64_t)span[i].first, to = from + (uint64_t)span[i].count;
        if (from < out->first) from = out->first;
        if (to > out->first + out->samples) to = out->first + out->samples;
        if (from >= to) continue;
        br_frame_open_validity(stream, out);
        memset(out->valid + (from - out->first) * s->nchannels, BR_MISSING, (to - from) * s->nchannels);
    }
    if (!out->complete) br_frame_close_validity(stream, out);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct simulate *s = self;
    const struct br_stream *stream = br_stage_output(stage, 0);
    struct br_frame *out = io->out[0];
    if (s->next == s->end || br_stage_stopping(stage)) return BR_FINISHED;
    uint64_t end = (s->next / stream->frame_samples + 1) * stream->frame_samples;
    if (end > s->end) end = s->end;
    out->first = s->next;
    out->samples = end - s->next;
    out->complete = true;
    out->missing = 0;
    mark_missing(s, stream, out);

    size_t row = s->nchannels * s->npol * s->ndishes, each = JOB_BYTES / row + (JOB_BYTES < row);
    struct fill fill = {s, out, 0, 0, row, each};
    for (; fill.end < out->samples; fill.first = fill.end) {
        uint64_t until = move_sources(s, out->first + fill.first);
        fill.end = until < end ? (size_t)(until - out->first) : (size_t)out->samples;
        int status = br_stage_parallel(stage, (fill.end - fill.first + each - 1) / each, fill_samples, &fill);
        if (status != BR_OK) return status;
    }
    for (unsigned i = 0; i < s->nscratch; i++) {
        br_stage_count_saturated(stage, s->scratch[i].beyond);
        s->scratch[i].beyond = 0;
    }
    s->next = end;
    if (s->realtime && pace_wait(&s->pace, stage, out)) return BR_FINISHED;
    return BR_PRODUCED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct simulate *s = self;
    (void)stage;
    sky_free(&s->sky);
    rfi_free(&s->rfi);
    free(s->table);
    for (unsigned i = 0; i < s->nscratch; i++) {
        free(s->scratch[i].signal);
        free(s->scratch[i].rotation);
        receiver_free(&s->scratch[i].receiver);
    }
    free(s->scratch);
    return BR_OK;
}

STAGE_EXPORT(simulate, struct simulate,
             "noise, sources, bursts and interference as the telescope's dishes would record them",
             .outputs = outputs);
