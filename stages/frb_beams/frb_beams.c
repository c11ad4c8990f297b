/* frb_beams - FRB stage 2: intensities on the grid of the zero-padded transform resampled to any beams. */
#include "kernels/frb_beams/frb_beams.h"
#include "runtime/stage_updates.h"
#include "stages/common/sky/directions.h"
#include "stages/common/sky/horizon.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/frb_beams_description.h"

#include <math.h>
#include <string.h>

struct frb_beams {
    const struct br_beams_param *beams; /* parameters */
    const char *precision, *incoherent;
    struct br_maps steer;

    struct br_frb_beams *plan;
    struct br_cuda *cuda;      /* NULL on the CPU */
    struct br_stream formed;   /* the output without the incoherent sum */
    struct steering *steering; /* [nsteering], in order of time; the first one holds from sample 0 on */
    size_t nsteering;
    bool moves;                /* there is more than one direction for each beam */
    struct br_horizon horizon; /* where to */
    struct br_beam *steered;   /* [nbeams]: what the kernel is told; scratch */

    /* The aim of the plan's weights; NULL: not set yet. */
    const struct steering *aim;
    uint64_t interval;
    struct br_pointing *pointing; /* of an update, until it is committed: where its beams point, and later */
};

struct steer_param {
    int64_t sample;
    const struct br_beams_param *beams;
};

/* Beams from a sample on. */
struct steering {
    uint64_t sample;
    struct br_motion motion;
};

static const char *const precisions[] = {"float16", "float32", NULL};
static const char *const incoherents[] = {"none", "append", "subtract", NULL};

static const struct br_param steer_params[] = {
    PARAM(INT, struct steer_param, sample,
          "these directions apply from the first output sample that begins at or after this one",
          .required = true, .min = 0, .max = (double)(1LL << 52), .unit = "base samples"),
    BR_BEAMS_PARAM(struct steer_param, beams, true,
                   "as many beams as before; beams on a grid stay on a grid of the same shape"),
    {0},
};

static const struct br_param params[] = {
    BR_BEAMS_PARAM(struct frb_beams, beams, true, "where the beams point"),
    PARAM(MAPS, struct frb_beams, steer,
          "list of {sample, beams} in order of time: later directions of the beams", .fields = steer_params,
          .size = sizeof(struct steer_param)),
    PARAM(CHOICE, struct frb_beams, precision,
          "precision of weights and products on a GPU; float32 takes 15 to 20 times as long, and more for a "
          "grid of beams. The CPU always uses float32",
          .choices = precisions, .def = "float16"),
    PARAM(CHOICE, struct frb_beams, incoherent,
          "the sum over all inputs of |E|^2: appended as one more beam, or subtracted from all beams",
          .choices = incoherents, .def = "none"),
    {0},
};
static const struct br_port inputs[] = {{"in", "I[freq][time][gridp][gridq], f16, from frb_grid"}, {0}};
static const struct br_port outputs[] = {{"out", "J[freq][time][beam], f16"}, {0}};

static int configure_steering(struct br_stage *stage, struct frb_beams *fb, struct br_stream *out)
{
    const struct steer_param *param = fb->steer.value;
    fb->nsteering = fb->steer.count + 1;
    fb->steering = br_stage_alloc(stage, fb->nsteering * sizeof *fb->steering);
    int status = br_directions_configure(stage, fb->beams, out, &fb->steering[0].motion);
    if (status != BR_OK) return status;
    br_horizon_configure(stage, out->nbeams, &fb->horizon);
    fb->steered = br_stage_alloc(stage, out->nbeams * sizeof *fb->steered);
    fb->moves = fb->steer.count > 0 || br_motion_moves(&fb->steering[0].motion);
    for (size_t i = 0; i < fb->steer.count; i++) {
        struct br_stream later = {0};
        struct steering *s = &fb->steering[i + 1];
        status = br_directions_configure(stage, param[i].beams, &later, &s->motion);
        if (status != BR_OK) return status;
        if (later.nbeams != out->nbeams || later.beams_x != out->beams_x || later.beams_y != out->beams_y)
            return br_stage_fail_at(
                stage, "steer",
                "from sample %lld on there are %zu beams (%zu x %zu); expected %zu (%zu x %zu) as before: "
                "steering moves beams, it cannot add or remove any",
                (long long)param[i].sample, later.nbeams, later.beams_x, later.beams_y, out->nbeams,
                out->beams_x, out->beams_y);
        s->sample = (uint64_t)param[i].sample;
        if (i > 0 && s->sample <= s[-1].sample)
            return br_stage_fail_at(stage, "steer", "sample %lld follows sample %lld; expected order of time",
                                    (long long)param[i].sample, (long long)param[i - 1].sample);
    }
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct frb_beams *fb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    int status = br_expect_input(stage, 1u << BR_F16, "freq,time,gridp,gridq",
                                 "f16 [freq][time][gridp][gridq] (frb_grid makes it)");
    if (status != BR_OK) return status;
    if (in->telescope == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "beams need the spacing of the dish grid: add `telescope:` to the pipeline");
    const struct br_telescope *t = in->telescope;
    if (t->dishes == NULL)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "the dishes of telescope '%s' are not on a grid, as those of its input are: add grid, "
            "spacing_m and dishes to `telescope:`",
            t->name);
    if (in->array.axis[2].length != 2 * (size_t)t->grid_m ||
        in->array.axis[3].length != 2 * (size_t)t->grid_n)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input has a grid of %zu x %zu; expected 2M x 2N = %u x %u for telescope '%s'",
            in->array.axis[2].length, in->array.axis[3].length, 2 * t->grid_m, 2 * t->grid_n, t->name);
    status = configure_steering(stage, fb, out);
    if (status != BR_OK) return status;
    br_stage_sideband(stage); /* the user is told where it is unknown */
    fb->formed = *out;
    if (strcmp(fb->incoherent, "append") == 0) br_directions_append_incoherent(stage, out);
    size_t lengths[3] = {in->array.axis[0].length, in->array.axis[1].length, out->nbeams};
    return br_output_array(stage, out, BR_F16, "freq,time,beam", lengths);
}

/* Validity, of one step more beside a loss, and the directions that steering uploads at most. */
static size_t upload_bytes(const struct br_stage *stage, const struct br_stream *out)
{
    size_t steps = br_stage_input(stage, 0)->array.axis[1].length + 1;
    return out->nchannels * steps + 4 * out->nbeams * sizeof(float);
}

/* For every channel the weights of both axes, complex float32: 2M for each beam (in a grid of beams, for
 * each of its rows) and 2N likewise; two sets where beams are steered or move. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct frb_beams *fb = self;
    const struct br_stream *out = &fb->formed;
    bool grid = out->beams_x > 0;
    size_t weights = 2 * out->telescope->grid_m * (grid ? out->beams_x : out->nbeams) +
                     2 * out->telescope->grid_n * (grid ? out->beams_y : out->nbeams);
    br_stage_uploads_memory(stage, upload_bytes(stage, out), m);
    br_stage_buffer_memory(stage, (fb->moves ? 2 : 1) * out->nchannels * weights * 2 * sizeof(float), m);
    if (br_stage_device(stage) >= 0 && strcmp(fb->incoherent, "append") == 0)
        m->device += out->nchannels * (br_stage_input(stage, 0)->array.axis[1].length + 1) * out->nbeams *
                     sizeof(uint16_t);
    /* On the CPU each thread has the images of some steps in float32 and what it makes of them: of a grid of
     * beams 16 steps, else 120 and the weights of 256 beams. */
    size_t cells = 4 * (size_t)out->telescope->grid_m * out->telescope->grid_n, each = 2 * 16 * cells;
    if (grid) each += 16 * out->beams_x * out->beams_y;
    if (!grid) each = 120 * (cells + 256) + (384 + 2 * (size_t)out->telescope->grid_n) * 256;
    if (br_stage_device(stage) < 0) m->host += br_stage_threads(stage) * each * sizeof(float);
}

static enum br_frb_beams_incoherent incoherent_of(const struct frb_beams *fb)
{
    return strcmp(fb->incoherent, "append") == 0     ? BR_INCOHERENT_APPEND
           : strcmp(fb->incoherent, "subtract") == 0 ? BR_INCOHERENT_SUBTRACT
                                                     : BR_INCOHERENT_NONE;
}

/* Stage 1 transforms with exp(+2 pi i m theta / M), so that the field exp(2 pi i s m x spacing / lambda) of a
 * sideband of sign s peaks at theta = -s M x spacing / lambda. */
static int make_plan(struct br_stage *stage, struct frb_beams *fb, enum br_backend backend)
{
    const struct br_stream *out = &fb->formed;
    const struct br_telescope *t = out->telescope;
    int sign = br_sideband_sign(out->sideband);
    struct br_why why = {""};
    const struct br_frb_beams_params p = {
        .nchannels = out->nchannels,
        .freq_mhz = out->freq_mhz,
        .grid_m = t->grid_m,
        .grid_n = t->grid_n,
        .spacing_m_m = -sign * t->spacing_m_m,
        .spacing_n_m = -sign * t->spacing_n_m,
        .nbeams = out->nbeams,
        .beams_x = out->beams_x,
        .beams_y = out->beams_y,
        /* beams that move are steered first */
        .beam = (const double *)(fb->moves ? fb->steered : fb->steering[0].motion.beams),
        .steered = fb->moves,
        .float32 = strcmp(fb->precision, "float32") == 0,
        .incoherent = incoherent_of(fb),
        /* a frame beside a loss may touch one step more */
        .max_steps = br_stage_input(stage, 0)->array.axis[1].length + 1,
        .cuda = fb->cuda,
        .parallel = br_stage_parallel_loop(stage)};
    if (br_frb_beams_create(&fb->plan, backend, &p, &why) != 0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    fb->aim = fb->moves ? NULL : fb->steering;
    fb->interval = 0;
    return BR_OK;
}

/* Number of the output step that begins at or after a sample. */
static uint64_t step_at(uint64_t sample, unsigned downsample)
{
    return sample / downsample + (sample % downsample != 0);
}

/* The schedule, for the stages behind this one. */
static int make_pointings(struct br_stage *stage, struct frb_beams *fb)
{
    unsigned downsample = fb->formed.zone[0].downsample;
    for (size_t i = fb->nsteering; i-- > 0;) {
        uint64_t from = step_at(fb->steering[i].sample, downsample) * downsample;
        struct br_pointing *p = br_pointing_make(&fb->steering[i].motion, from);
        if (p == NULL) return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for its beams");
        p->later = fb->pointing;
        fb->pointing = p;
    }
    return BR_OK;
}

static void enter_pointings(struct br_stage *stage, struct frb_beams *fb, uint64_t sample)
{
    br_pointings_enter(br_stage_output(stage, 0)->motion, fb->pointing, sample);
    fb->pointing = NULL;
}

static int start(struct br_stage *stage, void *self)
{
    struct frb_beams *fb = self;
    enum br_backend backend;
    int status = br_stage_backend(stage, upload_bytes(stage, &fb->formed), &backend, &fb->cuda);
    if (status == BR_OK) status = make_plan(stage, fb, backend);
    if (status == BR_OK && fb->nsteering > 1) status = make_pointings(stage, fb);
    if (status == BR_OK) enter_pointings(stage, fb, 0);
    return status == BR_OK ? br_stage_gpu_holds(stage, fb->cuda) : status;
}

/* Some direction for the beams that have none, so that those of a grid stay one. */
static void only_directions(struct frb_beams *fb)
{
    const struct br_stream *out = &fb->formed;
    size_t nx = out->beams_x, ny = out->beams_y;
    memcpy(fb->steered, fb->horizon.there, out->nbeams * sizeof *fb->steered);
    for (size_t b = 0; fb->horizon.nbelow > 0 && b < out->nbeams; b++) {
        if (isfinite(fb->horizon.there[b].x)) continue;
        fb->steered[b] = (struct br_beam){0, 0};
        for (size_t k = 0; nx > 0 && k < (nx > ny ? nx : ny); k++) {
            const struct br_beam *row = &fb->horizon.there[b / ny * ny + k % ny],
                                 *column = &fb->horizon.there[k % nx * ny + b % ny];
            if (isfinite(row->x)) fb->steered[b].x = row->x;
            if (isfinite(column->y)) fb->steered[b].y = column->y;
        }
    }
}

/* Makes the plan's beams point where they shall at that step, unless they do. *until is the first step at
 * which they shall point somewhere else. Nothing but the step decides. */
static int aim(struct br_stage *stage, struct frb_beams *fb, uint64_t step, unsigned downsample,
               uint64_t *until)
{
    const struct steering *s = &fb->steering[fb->nsteering - 1];
    struct br_why why = {""};
    *until = UINT64_MAX;
    for (; s > fb->steering && step_at(s->sample, downsample) > step; s--)
        *until = step_at(s->sample, downsample);
    uint64_t interval = br_motion_interval(&s->motion, step * downsample),
             end = step_at(br_motion_end(&s->motion, interval), downsample);
    if (end < *until) *until = end;
    if (fb->aim == s && fb->interval == interval) return BR_OK;
    br_motion_at(&s->motion, interval, fb->horizon.there);
    br_horizon_look(stage, &fb->horizon, &s->motion, interval);
    only_directions(fb);
    if (br_frb_beams_steer(fb->plan, (const double *)fb->steered, 0, &why) != 0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    fb->aim = s;
    fb->interval = interval;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct frb_beams *fb = self;
    const struct br_stream *stream = br_stage_output(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    struct br_part part = br_stream_part(stream, 0, in->first, in->samples);
    uint64_t begin = in->first / part.downsample, end = begin + part.nsteps, step = begin;
    while (step < end) {
        uint64_t due = br_stage_next_update(stage, in->first + in->samples), until,
                 cut = due < in->first + in->samples ? step_at(due, part.downsample) : end;
        if (cut <= step) {
            br_stage_update(stage, step * part.downsample);
            continue;
        }
        int status = aim(stage, fb, step, part.downsample, &until);
        if (status != BR_OK) return status;
        if (until > cut) until = cut;
        if (until > end) until = end;
        br_frb_beams_execute_steps(fb->plan, in->data, in->complete ? NULL : in->valid, part.nsteps,
                                   step - begin, until - step, out->data);
        status = br_horizon_clear(stage, &fb->horizon, out->data, part.nsteps, step - begin, until - begin);
        if (status != BR_OK) return status;
        br_horizon_count(stage, &fb->horizon, (until - step) * part.downsample);
        step = until;
    }
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, part.nsteps * part.nchannels);
    int status = br_stage_gpu_check(stage, fb->cuda);
    return status != BR_OK ? status : BR_CONSUMED | BR_PRODUCED;
}

/* --- new beams --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct frb_beams *fb = fresh;
    const struct frb_beams *now = self;
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend_aside(stage, now->cuda, &backend, &fb->cuda);
    if (status == BR_OK) status = make_plan(stage, fb, backend);
    if (status == BR_OK && br_frb_beams_may_exchange(now->plan, fb->plan, &why) != 0)
        status = br_stage_fail(stage, BR_E_INVALID, "%s; restart the pipeline with them", why.text);
    return status == BR_OK ? make_pointings(stage, fb) : status;
}

/* The schedule stays where it is: it lives longer than these values hold. */
static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    struct frb_beams *fb = self, *with = fresh;
    enter_pointings(stage, with, sample);
    br_frb_beams_exchange(fb->plan, with->plan);
    fb->steering = with->steering;
    fb->nsteering = with->nsteering;
    fb->moves = with->moves;
    br_horizon_commit(&fb->horizon, &with->horizon);
    fb->steered = with->steered;
    fb->aim = with->aim;
    fb->interval = with->interval;
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct frb_beams *fb = fresh;
    br_pointing_free(fb->pointing);
    br_frb_beams_destroy(fb->plan);
    br_cuda_destroy(fb->cuda);
}

static const char *const updates[] = {"beams", "steer", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct frb_beams *fb = self;
    br_horizon_end(stage, &fb->horizon);
    br_pointings_clear(br_stage_output(stage, 0)->motion);
    br_frb_beams_destroy(fb->plan);
    br_stage_gpu_end(stage, fb->cuda);
    return BR_OK;
}

STAGE_EXPORT(frb_beams, struct frb_beams, "FRB stage 2: intensity beams in any directions, from the grid",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS,
             .memory = memory, .updates = updates, .prepare = prepare, .commit = commit, .discard = discard);
