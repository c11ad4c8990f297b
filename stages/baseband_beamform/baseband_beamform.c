/* baseband_beamform - coherent beams, Eq. (1) of the baseband kernel, with weights from a file or from
 * directions, which may move. */
#include "runtime/stage_updates.h"
#include "stages/baseband_beamform_description.h"
#include "stages/common/sky/coherent.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/shape.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1024 };

struct baseband_beamform {
    struct br_coherent coherent; /* first: see br_coherent_prepare */
    int64_t bits;                /* parameter */
    size_t sample;               /* bytes of one of the output */
    uint64_t *saturated;         /* [beam] components clamped */
    uint64_t components;         /* computed per beam */

    /* For frames within which new weights begin to hold: pieces of them, up to PIECE steps */
    uint8_t *piece;                /* [B][F][P][PIECE], where the frames are */
    uint8_t *piece_valid, *before; /* [F][PIECE]; [T][F]: the frame's validity up to there */
};

static const struct br_param params[] = {
    BR_COHERENT_PARAMS(struct baseband_beamform),
    BR_SHIFT_PARAM(struct baseband_beamform),
    PARAM(INT, struct baseband_beamform, bits,
          "bits of a component of the output: 4 (int4x2, clamped at 7) or 8 (int8x2, clamped at 127)",
          .def = "4", .min = 4, .max = 8),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not zoned"}, {0}};
static const struct br_port outputs[] = {
    {"out", "J[beam][freq][pol][time], int4x2, -8 means missing; or int8x2, -128 means missing"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    if (bb->bits != 4 && bb->bits != 8)
        return br_stage_fail_at(stage, "bits", "%lld bits of a component; expected 4 or 8",
                                (long long)bb->bits);
    bb->sample = (size_t)bb->bits / 4;
    bb->coherent.params.bits = (unsigned)bb->bits;
    bb->coherent.rule.fine = bb->bits == 8 ? 2 : 0; /* the rest is room for bright sources */
    int status = br_coherent_configure(stage, &bb->coherent, out);
    if (status != BR_OK) return status;

    size_t lengths[4] = {out->nbeams, in->nchannels, bb->coherent.params.npol, in->array.axis[0].length};
    return br_output_array(stage, out, bb->bits == 8 ? BR_INT8X2 : BR_INT4X2, "beam,freq,pol,time", lengths);
}

static size_t piece_bytes(const struct baseband_beamform *bb, const struct br_stream *in)
{
    size_t steps = in->array.axis[0].length + 1; /* a frame beside a loss may touch one step more */
    return bb->sample * bb->coherent.params.nbeams * in->nchannels * bb->coherent.params.npol *
           (steps < PIECE ? steps : PIECE);
}

static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    br_coherent_memory(stage, &bb->coherent, m);
    br_stage_buffer_memory(stage, piece_bytes(bb, in), m);
    m->host += br_stream_max_validity(in) + in->nchannels * PIECE;
}

static int start(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    size_t nbeams = bb->coherent.params.nbeams;
    bb->saturated = calloc(nbeams, sizeof *bb->saturated);
    if (bb->saturated == NULL) return br_no_memory(stage, nbeams * sizeof *bb->saturated);
    bb->piece_valid = malloc(in->nchannels * PIECE);
    bb->before = malloc(br_stream_max_validity(in));
    if (bb->piece_valid == NULL || bb->before == NULL) return br_no_memory(stage, br_stream_max_validity(in));
    int status = br_coherent_start(stage, &bb->coherent);
    if (status != BR_OK) return status;
    bb->piece = br_stage_scratch(stage, bb->coherent.cuda, piece_bytes(bb, in));
    return bb->piece != NULL ? br_stage_gpu_holds(stage, bb->coherent.cuda) : BR_E_NO_MEMORY;
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
    c->clamped += br_baseband_execute(bb->coherent.plan, c->in->data, valid, c->nsteps, c->out->data,
                                      c->in->complete ? NULL : c->out->valid, bb->saturated);
}

/* Steps [begin, end), into their places. */
static int beamform_piece(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c,
                          size_t begin, size_t end)
{
    size_t F = c->nchannels, rows = bb->coherent.params.nbeams * F * bb->coherent.params.npol;
    int status = BR_OK;
    for (size_t at = begin, n; at < end && status == BR_OK; at += n) {
        n = end - at < PIECE ? end - at : PIECE;
        const uint8_t *valid = c->in->complete ? NULL : c->in->valid + at * F;
        c->clamped +=
            br_baseband_execute(bb->coherent.plan, (const uint8_t *)c->in->data + at * c->row, valid, n,
                                bb->piece, valid != NULL ? bb->piece_valid : NULL, bb->saturated);
        status = br_stage_copy_rows(stage, (uint8_t *)c->out->data + at * bb->sample, c->nsteps * bb->sample,
                                    bb->piece, n * bb->sample, n * bb->sample, rows);
        for (size_t f = 0; valid != NULL && f < F; f++)
            memcpy(c->out->valid + f * c->nsteps + at, bb->piece_valid + f * n, n);
    }
    return status;
}

/* Marks steps [begin, end) of beams below the horizon as missing: -8 in two nibbles, -128 in two bytes. */
static int mark_below(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c, size_t begin,
                      size_t end)
{
    size_t rows = c->nchannels * bb->coherent.params.npol, pitch = c->nsteps * bb->sample;
    int status = BR_OK, missing = bb->bits == 8 ? 0x80 : 0x88;
    for (size_t b = 0, n; status == BR_OK && br_horizon_below(&bb->coherent.horizon, &b, &n); b += n)
        status = br_stage_set_rows(stage, (uint8_t *)c->out->data + b * rows * pitch + begin * bb->sample,
                                   pitch, missing, (end - begin) * bb->sample, n * rows);
    return status;
}

/* The whole frame, which is nearly always so, or up to where other weights hold, and on from there. */
static int beamform(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c)
{
    const struct br_frame *in = c->in;
    uint64_t first = in->first / c->step, end = in->first + in->samples, until;
    for (size_t at = 0, to; at < c->nsteps; at = to) {
        int status = br_coherent_weights(stage, &bb->coherent, (first + at) * c->step, end, &until);
        br_horizon_count(stage, &bb->coherent.horizon, (until < end ? until : end) - (first + at) * c->step);
        uint64_t step = until / c->step + (until % c->step != 0) - first;
        to = until >= end || step > c->nsteps ? c->nsteps : (size_t)step;
        if (status == BR_OK && at > 0)
            status = beamform_piece(stage, bb, c, at, to);
        else if (status == BR_OK && to < c->nsteps)
            beamform_before(bb, c, to);
        else if (status == BR_OK)
            c->clamped +=
                br_baseband_execute(bb->coherent.plan, in->data, in->complete ? NULL : in->valid, c->nsteps,
                                    c->out->data, in->complete ? NULL : c->out->valid, bb->saturated);
        if (status == BR_OK) status = mark_below(stage, bb, c, at, to);
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
    c.row = c.nchannels * bb->coherent.params.npol * bb->coherent.params.ndishes;
    int status = beamform(stage, bb, &c);
    bb->components += 2 * nsteps * from->nchannels * bb->coherent.params.npol;
    out->complete = in->complete;
    out->missing = 0;
    if (!in->complete) br_frame_close_validity(stream, out);
    br_stage_count_saturated(stage, c.clamped);
    if (status == BR_OK) status = br_stage_gpu_check(stage, bb->coherent.cuda);
    return status != BR_OK ? status : BR_CONSUMED | BR_PRODUCED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    if (bb->coherent.cuda != NULL && bb->coherent.plan != NULL)
        br_baseband_saturated(bb->coherent.plan, bb->saturated);
    if (bb->components > 0) {
        double per = 100 / (double)bb->components;
        size_t worst = 0;
        uint64_t all = 0;
        for (size_t b = 0; b < bb->coherent.params.nbeams; b++) {
            all += bb->saturated[b];
            if (bb->saturated[b] > bb->saturated[worst]) worst = b;
        }
        if (all > 0)
            br_stage_note(stage, "%.2g %% of all components were clamped, most in beam %zu: %.2g %%",
                          per * (double)all / (double)bb->coherent.params.nbeams, worst,
                          per * (double)bb->saturated[worst]);
    }
    br_stage_scratch_free(bb->coherent.cuda, bb->piece);
    br_coherent_stop(stage, &bb->coherent);
    free(bb->saturated);
    free(bb->piece_valid);
    free(bb->before);
    return BR_OK;
}

STAGE_EXPORT(baseband_beamform, struct baseband_beamform,
             "coherent beams of the electric field, exact in integers", .inputs = inputs, .outputs = outputs,
             .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS, .memory = memory, .updates = br_coherent_updates,
             .prepare = br_coherent_prepare, .commit = br_coherent_commit, .discard = br_coherent_discard);
