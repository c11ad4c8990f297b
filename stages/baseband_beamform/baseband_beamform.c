/* baseband_beamform - coherent beams, Eq. (1) of the baseband kernel, with weights from a file or from
 * directions, which may move. */
#include "stages/baseband_beamform/baseband_beamform.h"
#include "kernels/common/exchange.h"
#include "runtime/stage_updates.h"
#include "stages/baseband_beamform/moving.h"
#include "stages/baseband_beamform_description.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1024 };

static const struct br_param params[] = {
    BR_PARAM("weights", BR_P_PATH, struct baseband_beamform, weights_file,
             "HDF5 file with /weights int8 [freq or 1][pol][beam][dish][2] and /shift int32 [freq or "
             "1][pol][beam]"),
    BR_BEAMS_PARAM(struct baseband_beamform, beams, false, "where the beams point; the weights are computed"),
    BR_PARAM("gains", BR_P_PATH, struct baseband_beamform, gains_file,
             "HDF5 file with /gain complex64 [freq or 1][pol][dish], multiplied into weights computed from "
             "beams"),
    PARAM(INT, struct baseband_beamform, shift,
          "bits by which sums are shifted down, for all beams; -1: the file's, or what keeps the rms of "
          "white input",
          .def = "-1", .min = -1, .max = 30),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not zoned"}, {0}};
static const struct br_port outputs[] = {{"out", "J[beam][freq][pol][time], int4x2; -8 means missing"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status == BR_OK) status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    if ((bb->weights_file != NULL) == (bb->beams != NULL))
        return br_stage_fail(stage, BR_E_INVALID, "%s of weights and beams; expected exactly one",
                             bb->beams != NULL ? "it has both" : "it has none");
    if (bb->gains_file != NULL && bb->beams == NULL)
        return br_stage_fail_at(stage, "gains",
                                "gains go with beams; a file of weights already contains them");
    if (bb->beams != NULL) {
        status = br_directions_configure(stage, bb->beams, out, &bb->rule.motion);
        if (status == BR_OK) status = baseband_take_beams(stage, bb, in);
    } else {
        status = baseband_take_file(stage, bb, in);
        out->nbeams = bb->weights.nbeams;
        out->beams = NULL;
        out->beams_x = out->beams_y = 0;
    }
    if (status != BR_OK) return status;

    size_t lengths[4] = {out->nbeams, in->nchannels, bb->weights.npol, in->array.axis[0].length};
    struct br_error error = {0};
    if (br_array_init(&out->array, BR_INT4X2, "beam,freq,pol,time", lengths, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

static size_t piece_bytes(const struct baseband_beamform *bb, const struct br_stream *in)
{
    size_t steps = in->array.axis[0].length + 1; /* a frame beside a loss may touch one step more */
    return bb->weights.nbeams * in->nchannels * bb->weights.npol * (steps < PIECE ? steps : PIECE);
}

/* The weights, int8+8 with their sums, as they were given and as the plan holds them. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct baseband_beamform *bb = self;
    const struct br_weights *w = &bb->weights;
    size_t rows = w->nfreq * w->npol * w->nbeams;
    br_stage_uploads_memory(stage, br_stream_max_validity(br_stage_input(stage, 0)), m);
    /* For moving beams also the weights of the next interval. */
    bool moves = br_motion_moves(&bb->rule.motion);
    br_stage_buffer_memory(stage, (moves ? 2 : 1) * rows * (2 * w->ndishes + 16), m);
    br_stage_buffer_memory(stage, piece_bytes(bb, br_stage_input(stage, 0)), m);
    m->host += (moves ? 2 : 1) * rows * (2 * w->ndishes + sizeof *w->shift);
    m->host += br_stream_max_validity(br_stage_input(stage, 0)) + br_stage_input(stage, 0)->nchannels * PIECE;
}

static int make_plan(struct br_stage *stage, struct baseband_beamform *bb, enum br_backend backend)
{
    struct br_why why = {""};
    struct br_baseband_params p = {.nchannels = br_stage_input(stage, 0)->nchannels,
                                   .npol = bb->weights.npol,
                                   .nbeams = bb->weights.nbeams,
                                   .ndishes = bb->weights.ndishes,
                                   .weights = bb->weights.weight,
                                   .shift = bb->weights.shift,
                                   .weight_channels = bb->weights.nfreq,
                                   .cuda = bb->cuda,
                                   .parallel = br_stage_parallel_loop(stage)};
    if (br_baseband_create(&bb->plan, backend, &p, &why) == 0) return BR_OK;
    return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
}

/* Starts the thread that computes the weights of moving beams; does nothing for beams that do not move.
 * `cuda` is what the stage runs with; NULL on the CPU. */
static int start_moving(struct br_stage *stage, struct baseband_beamform *bb, const struct br_cuda *cuda)
{
    struct br_why why = {""};
    bb->interval = UINT64_MAX;
    if (!br_motion_moves(&bb->rule.motion)) return BR_OK;
    bb->moving = moving_create(&bb->rule, cuda, &why);
    return bb->moving != NULL ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "%s", why.text);
}

static int start(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    bb->saturated = calloc(bb->weights.nbeams, sizeof *bb->saturated);
    if (bb->saturated == NULL) return br_no_memory(stage, bb->weights.nbeams * sizeof *bb->saturated);
    bb->piece_valid = malloc(in->nchannels * PIECE);
    bb->before = malloc(br_stream_max_validity(in));
    if (bb->piece_valid == NULL || bb->before == NULL) return br_no_memory(stage, br_stream_max_validity(in));
    enum br_backend backend;
    int status = br_stage_backend(stage, br_stream_max_validity(in), &backend, &bb->cuda);
    if (status != BR_OK) return status;
    bb->piece = br_stage_scratch(stage, bb->cuda, piece_bytes(bb, in));
    if (bb->piece == NULL) return BR_E_NO_MEMORY;
    status = make_plan(stage, bb, backend);
    if (status == BR_OK) status = start_moving(stage, bb, bb->cuda);
    return status == BR_OK ? br_stage_gpu_holds(stage, bb->cuda) : status;
}

/* --- frames within which new weights begin to hold --- */

/* A frame on its way through the beamformer. */
struct cut_frame {
    const struct br_frame *in;
    struct br_frame *out;
    size_t nsteps, nchannels, row; /* row: bytes of the input's step */
    unsigned step;                 /* base samples */
    uint64_t clamped;
};

/* Steps before `end`, with room for the others: to the kernel those are missing. */
static void beamform_before(struct baseband_beamform *bb, struct cut_frame *c, size_t end)
{
    size_t F = c->nchannels;
    if (end == 0) return;
    if (c->in->complete)
        memset(bb->before, BR_VALID, end * F);
    else
        memcpy(bb->before, c->in->valid, end * F);
    memset(bb->before + end * F, BR_MISSING, (c->nsteps - end) * F);
    const uint8_t *valid = end == c->nsteps && c->in->complete ? NULL : bb->before;
    c->clamped += br_baseband_execute(bb->plan, c->in->data, valid, c->nsteps, c->out->data,
                                      c->in->complete ? NULL : c->out->valid, bb->saturated);
}

/* Steps [begin, end), into their places. */
static int beamform_piece(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c,
                          size_t begin, size_t end)
{
    size_t F = c->nchannels, rows = bb->weights.nbeams * F * bb->weights.npol;
    int status = BR_OK;
    for (size_t at = begin, n; at < end && status == BR_OK; at += n) {
        n = end - at < PIECE ? end - at : PIECE;
        const uint8_t *valid = c->in->complete ? NULL : c->in->valid + at * F;
        c->clamped += br_baseband_execute(bb->plan, (const uint8_t *)c->in->data + at * c->row, valid, n,
                                          bb->piece, valid != NULL ? bb->piece_valid : NULL, bb->saturated);
        status = br_stage_copy_rows(stage, (uint8_t *)c->out->data + at, c->nsteps, bb->piece, n, n, rows);
        for (size_t f = 0; valid != NULL && f < F; f++)
            memcpy(c->out->valid + f * c->nsteps + at, bb->piece_valid + f * n, n);
    }
    return status;
}

/* Gives the plan the weights that hold at a step, which begins at that base sample. *until is the first
 * sample from which others hold, at most `end`. */
static int set_weights(struct br_stage *stage, struct baseband_beamform *bb, uint64_t sample, uint64_t end,
                       uint64_t *until)
{
    struct br_why why = {""};
    while (br_stage_next_update(stage, sample + 1) <= sample) br_stage_update(stage, sample);
    *until = br_stage_next_update(stage, end);
    if (bb->moving == NULL) return BR_OK;
    uint64_t interval = br_motion_interval(&bb->rule.motion, sample),
             next = br_motion_end(&bb->rule.motion, interval);
    if (next < *until) *until = next;
    if (interval == bb->interval) return BR_OK;
    br_stage_waits_for(stage, "the weights of beams that move");
    int status = moving_take(bb->moving, bb->plan, interval, &why);
    br_stage_waits_for(stage, NULL);
    bb->interval = interval;
    return status == 0 ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "%s", why.text);
}

/* The whole frame, which is nearly always so, or up to where other weights hold, and on from there. */
static int beamform(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c)
{
    const struct br_frame *in = c->in;
    uint64_t first = in->first / c->step, end = in->first + in->samples, until;
    for (size_t at = 0, to; at < c->nsteps; at = to) {
        int status = set_weights(stage, bb, (first + at) * c->step, end, &until);
        uint64_t step = until / c->step + (until % c->step != 0) - first;
        to = until >= end || step > c->nsteps ? c->nsteps : (size_t)step;
        if (status == BR_OK && at > 0)
            status = beamform_piece(stage, bb, c, at, to);
        else if (status == BR_OK && to < c->nsteps)
            beamform_before(bb, c, to);
        else if (status == BR_OK)
            c->clamped +=
                br_baseband_execute(bb->plan, in->data, in->complete ? NULL : in->valid, c->nsteps,
                                    c->out->data, in->complete ? NULL : c->out->valid, bb->saturated);
        if (status != BR_OK) return status;
    }
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *from = br_stage_input(stage, 0), *stream = br_stage_output(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    size_t nsteps = br_stream_part(from, 0, in->first, in->samples).nsteps;
    struct cut_frame c = {in, out, nsteps, from->nchannels, 0, from->zone[0].downsample, 0};
    c.row = c.nchannels * bb->weights.npol * bb->weights.ndishes;
    int status = beamform(stage, bb, &c);
    bb->components += 2 * nsteps * from->nchannels * bb->weights.npol;
    if (in->complete) {
        out->complete = true;
        out->missing = 0;
    } else {
        out->complete = false;
        br_frame_close_validity(stream, out);
    }
    br_stage_count_saturated(stage, c.clamped);
    if (status == BR_OK) status = br_stage_gpu_check(stage, bb->cuda);
    return status != BR_OK ? status : BR_CONSUMED | BR_PRODUCED;
}

/* --- new weights --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct baseband_beamform *bb = fresh;
    const struct baseband_beamform *now = self;
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend_aside(stage, now->cuda, &backend, &bb->cuda);
    if (status == BR_OK) status = make_plan(stage, bb, backend);
    if (status == BR_OK && br_baseband_may_exchange(now->plan, bb->plan, &why) != 0)
        status = br_stage_fail(stage, BR_E_INVALID, "%s; restart the pipeline with them", why.text);
    return status == BR_OK ? start_moving(stage, bb, now->cuda) : status;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage, (void)sample;
    struct baseband_beamform *bb = self, *with = fresh;
    br_baseband_exchange(bb->plan, with->plan);
    BR_EXCHANGE(struct moving *, bb, with, moving);
    bb->rule = with->rule;
    bb->interval = UINT64_MAX;
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct baseband_beamform *bb = fresh;
    moving_destroy(bb->moving);
    br_baseband_destroy(bb->plan);
    br_cuda_destroy(bb->cuda);
}

static const char *const updates[] = {"weights", "beams", "gains", "shift", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    if (bb->cuda != NULL && bb->plan != NULL) br_baseband_saturated(bb->plan, bb->saturated);
    if (bb->components > 0) {
        double per = 100 / (double)bb->components;
        size_t worst = 0;
        uint64_t all = 0;
        for (size_t b = 0; b < bb->weights.nbeams; b++) {
            all += bb->saturated[b];
            if (bb->saturated[b] > bb->saturated[worst]) worst = b;
        }
        if (all > 0)
            br_stage_note(stage, "%.2g %% of all components were clamped, most in beam %zu: %.2g %%",
                          per * (double)all / (double)bb->weights.nbeams, worst,
                          per * (double)bb->saturated[worst]);
    }
    moving_destroy(bb->moving);
    br_baseband_destroy(bb->plan);
    br_stage_scratch_free(bb->cuda, bb->piece);
    br_stage_gpu_end(stage, bb->cuda);
    free(bb->saturated);
    free(bb->piece_valid);
    free(bb->before);
    return BR_OK;
}

STAGE_EXPORT(baseband_beamform, struct baseband_beamform,
             "coherent beams of the electric field, exact in integers", .inputs = inputs, .outputs = outputs,
             .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS, .memory = memory, .updates = updates,
             .prepare = prepare, .commit = commit, .discard = discard);
