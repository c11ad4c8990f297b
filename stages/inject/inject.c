/* inject - adds dispersed bursts of known direction and strength to the field, and keeps a ledger of them. */
#include "stages/inject/inject.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gains.h"
#include "stages/common/stage/random.h"
#include "stages/common/stage/shape.h"
#include "stages/inject_description.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BURST(KEY, ...) PARAM(REAL, struct inject_burst, KEY, __VA_ARGS__)
static const struct br_param burst_fields[] = {
    BR_TOWARDS_PARAMS,
    PARAM(STRING, struct inject_burst, id, "name of the event in the ledger", .required = true),
    PARAM(INT, struct inject_burst, sample,
          "when its maximum (before scattering) arrives at at_mhz; it must lie in the future at all "
          "frequencies",
          .required = true, .min = 0, .max = (double)(1LL << 52), .unit = "base samples"),
    PARAM(INT, struct inject_burst, beam, "instead of a direction: towards this beam of the pipeline",
          .def = "-1", .min = -1, .max = 1 << 20),
    BURST(dm, "dispersion measure; the delay is dm / 2.41e-4 / f^2 seconds, f in MHz", .required = true,
          .min = 0, .max = 1e5, .unit = "pc cm^-3"),
    BURST(width_s, "full width at half maximum of its Gaussian profile", .required = true, .min = 1e-9,
          .max = 10, .unit = "s"),
    BURST(scattering_s, "time of the exponential behind it, at at_mhz; grows as f^-4", .def = "0", .min = 0,
          .max = 10, .unit = "s"),
    BURST(fluence_s, "fluence at at_mhz: power in one input over the mean noise of the inputs, integrated",
          .min = 1e-12, .max = 1e3, .unit = "s"),
    BURST(snr, "instead: S/N in the beam nearest to it if no input is missing", .min = 1e-3, .max = 1e6),
    BURST(index, "spectral index of the fluence", .def = "0", .min = -20, .max = 20),
    BURST(at_mhz,
          "the frequency to which sample, fluence and scattering refer; 0: the centre of the highest channel",
          .def = "0", .min = 0, .max = 1e6, .unit = "MHz"),
    {0},
};

#define RANGE(KEY, ...) PARAM(REALS, struct inject_schedule, KEY, __VA_ARGS__, .min_count = 1, .max_count = 2)
static const struct br_param towards_fields[] = {BR_TOWARDS_PARAMS, {0}};
static const struct br_param schedule_fields[] = {
    PARAM(REAL, struct inject_schedule, per_hour,
          "bursts in an hour: one at a random time in each 1 / per_hour of it", .required = true, .min = 1e-3,
          .max = 1e7),
    PARAM(INT, struct inject_schedule, seed, "chooses the events: the same on every node that has it",
          .def = "0", .min = 0, .max = 9e15),
    PARAM(INTS, struct inject_schedule, beams, "beams of the pipeline to aim at; default all", .min = 0,
          .max = 1 << 20),
    PARAM(MAPS, struct inject_schedule, towards, "instead of beams: directions to choose from",
          .fields = towards_fields, .size = sizeof(struct br_towards), .max_count = 10000),
    PARAM(REAL, struct inject_schedule, radius,
          "largest distance from these directions, or from the zenith if there are neither beams nor "
          "directions",
          .def = "0", .min = 0, .max = 1, .unit = "direction cosine"),
    RANGE(snr, "[least, most] of the S/N, as in bursts", .def = "[10, 50]", .min = 1e-3, .max = 1e6),
    RANGE(dm, "[least, most]", .required = true, .min = 0, .max = 1e5, .unit = "pc cm^-3"),
    RANGE(width_s, "[least, most]", .required = true, .min = 1e-9, .max = 10, .unit = "s"),
    RANGE(scattering_s, "[least, most] at the highest channel", .def = "0", .min = 0, .max = 10, .unit = "s"),
    RANGE(index, "[least, most]", .def = "0", .min = -20, .max = 20),
    {0},
};
static const struct br_param params[] = {
    PARAM(PATH, struct inject, ledger,
          "file with a line of JSON for every event; an earlier ledger is continued", .required = true),
    PARAM(
        MAPS, struct inject, bursts,
        "list of {id, sample, one of xy, azel, radec, name and beam, dm, width_s, scattering_s, fluence_s or "
        "snr, index, at_mhz}; an id that the ledger has is not injected again",
        .fields = burst_fields, .size = sizeof(struct inject_burst), .max_count = 10000),
    PARAM(MAP, struct inject, schedule,
          "random bursts; values of a positive range are uniform in their logarithm",
          .fields = schedule_fields, .size = sizeof(struct inject_schedule)),
    BR_PARAM("gains", BR_P_PATH, struct inject, gains_file,
             "the file that later stages have as `gains`: HDF5, /gain complex64 [freq][pol][dish]; bursts "
             "are divided by them, as if they came from the sky; 0: input not used. Default: all are 1"),
    PARAM(INT, struct inject, seed, "chooses the noise of the bursts and of the rounding", .def = "0",
          .min = 0, .max = 9e15),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not upchannelized"}, {0}};
static const struct br_port outputs[] = {{"out", "the same, with bursts"}, {0}};

static int take_gains(struct br_stage *stage, struct inject *s, const struct br_stream *in)
{
    struct br_gains gains;
    const struct br_gains_shape shape = {in, s->nchannels, s->nchannels, s->npol, s->ndishes};
    int status = br_stage_gains(stage, s->gains_file, &shape, &gains);
    s->ngains = gains.nfreq;
    s->gain = gains.value;
    return status;
}

static int configure(struct br_stage *stage, void *self)
{
    struct inject *s = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status == BR_OK) status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    if (in->telescope == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "it needs the dishes' places: add `telescope:` to the pipeline");
    if (in->zone[0].factor != 1 || in->zone[0].downsample != 1)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input is upchannelized; bursts go in before: place it ahead of `upchannelize`");
    s->stream = in;
    s->nchannels = in->nchannels;
    s->npol = in->array.axis[2].length;
    s->ndishes = in->array.axis[3].length;
    s->sample_s = br_stream_sample_s(in);
    s->low_mhz = INFINITY;
    for (size_t c = 0; c < s->nchannels; c++) {
        s->top_mhz = fmax(s->top_mhz, in->freq_mhz[c]);
        s->low_mhz = fmin(s->low_mhz, in->freq_mhz[c] - in->width_mhz[c] / 2);
        s->high_mhz = fmax(s->high_mhz, in->freq_mhz[c] + in->width_mhz[c] / 2);
        if (!(in->freq_mhz[c] > 1e-6 / s->sample_s))
            return br_stage_fail(stage, BR_E_INVALID,
                                 "channel %zu is at %.9g MHz; expected more than the %.6g MHz of one channel",
                                 c, in->freq_mhz[c], 1e-6 / s->sample_s);
    }
    br_stage_sideband(stage); /* the user is told where it is unknown */
    status = take_gains(stage, s, in);
    return status == BR_OK ? inject_check(stage, s) : status;
}

static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    inject_adder_memory(stage, self, m);
}

static void find_products(struct br_stage *stage, struct inject *s)
{
    const char *name;
    const struct br_stream *stream;
    for (size_t i = 0; (stream = br_stage_downstream(stage, i, &name)) != NULL; i++)
        if (stream->nbeams > 0 && stream->beams != NULL && stream->array.dtype == BR_F16 &&
            s->nproducts < INJECT_PRODUCTS)
            s->product[s->nproducts++] = (struct inject_product){name, stream};
}

static int start(struct br_stage *stage, void *self)
{
    struct inject *s = self;
    int status = inject_adder_start(stage, s);
    if (status != BR_OK) return status;
    s->normal = malloc(GAUSSIAN_ENTRIES * sizeof *s->normal);
    if (s->normal == NULL) return br_no_memory(stage, GAUSSIAN_ENTRIES * sizeof *s->normal);
    gaussian_table(s->normal);
    find_products(stage, s);
    if (s->nproducts == 0)
        br_stage_note(stage, "no stage behind it forms beams of intensities: the ledger has no S/N of beams");
    return inject_planner_start(stage, s);
}

/* Hands back the events that end at `end` or before. */
static void give_back(struct inject *s, uint64_t end)
{
    for (struct inject_event **at = &s->active; *at != NULL;) {
        struct inject_event *e = *at;
        if (e->end > end) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        e->next = NULL;
        inject_planner_give(s, e);
    }
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct inject *s = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) {
        give_back(s, UINT64_MAX);
        return BR_FINISHED;
    }
    uint64_t end = in->first + in->samples;
    struct inject_event **last = &s->active;
    while (*last != NULL) last = &(*last)->next;
    *last = inject_planner_take(stage, s, in->first, end);
    int status = br_stage_pass(stage, in, out);
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, br_frame_cells(br_stage_input(stage, 0), in));
    if (status == BR_OK && s->active != NULL) status = inject_add(stage, s, in, out);
    if (status != BR_OK) return status;
    give_back(s, end);
    return BR_CONSUMED | BR_PRODUCED;
}

/* --- more events --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    (void)self;
    struct inject *s = fresh;
    bool failed, without;
    s->fresh = inject_events(s, &failed);
    s->gains = inject_gains_make(s, &without);
    return failed || without ? br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for the events") : BR_OK;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage;
    struct inject *with = fresh;
    inject_planner_exchange(self, &with->gains);
    inject_planner_add(self, with->fresh, sample);
    with->fresh = NULL;
}

static void free_events(struct inject_event *e)
{
    while (e != NULL) {
        struct inject_event *next = e->next;
        inject_event_free(e);
        e = next;
    }
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    inject_gains_leave(((struct inject *)fresh)->gains);
    free_events(((struct inject *)fresh)->fresh);
}

static const char *const updates[] = {"bursts", "gains", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct inject *s = self;
    inject_planner_stop(stage, s);
    free_events(s->active);
    inject_adder_stop(stage, s);
    free(s->normal);
    return BR_OK;
}

STAGE_EXPORT(inject, struct inject, "adds bursts of known direction and S/N to the field, with a ledger",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_CUDA, .memory = memory,
             .request = inject_request, .updates = updates, .prepare = prepare, .commit = commit,
             .discard = discard);
