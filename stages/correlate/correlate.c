/* correlate - visibilities of all pairs of inputs, summed up over a stated number of base samples. */
#include "kernels/correlate/correlate.h"
#include "runtime/ranks.h"
#include "runtime/stage.h"
#include "stages/common/stage/blocks.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/correlate_description.h"

#include <string.h>

struct correlate {
    int64_t integrate; /* parameters */
    const char *autocorrelations;

    size_t ninputs; /* polarisations x dishes */
    struct br_correlate *plan;
    struct br_cuda *cuda; /* NULL on the CPU */
    struct blocks blocks; /* integrations */
    uint64_t *share;      /* [freq] validity of the integration's samples, added up */
};

static const char *const which[] = {"all", "only", NULL};
static const struct br_param params[] = {
    PARAM(INT, struct correlate, integrate,
          "samples in one visibility; integrations begin at multiples of it, counted from sample 0",
          .unit = "base samples", .min = 1, .max = INT64_C(1) << 40, .required = true),
    PARAM(CHOICE, struct correlate, autocorrelations,
          "`all`: every pair of inputs; `only`: each input with itself (the powers)", .def = "all",
          .choices = which),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not zoned"}, {0}};
static const struct br_port outputs[] = {{"out", "V[time][freq][baseline], int32x2"}, {0}};

static struct br_correlate_params plan_params(struct br_stage *stage, const struct correlate *c,
                                              const struct br_stream *in)
{
    return (struct br_correlate_params){in->nchannels, c->ninputs, strcmp(c->autocorrelations, "only") == 0,
                                        c->cuda, br_stage_parallel_loop(stage)};
}

static int check_integration(struct br_stage *stage, const struct correlate *c, const struct br_stream *in)
{
    unsigned step = in->zone[0].downsample;
    if (c->integrate % step != 0)
        return br_stage_fail_at(stage, "integrate",
                                "%lld base samples are not a whole number of the input's samples; expected a "
                                "multiple of %u",
                                (long long)c->integrate, step);
    if (c->integrate / step > BR_CORRELATE_MAX_SAMPLES || c->integrate > UINT32_MAX)
        return br_stage_fail_at(stage, "integrate",
                                "sums of %lld samples might not fit into 32 bits; expected at most %lld base "
                                "samples (%.3g s); sum longer integrations up behind it",
                                (long long)(c->integrate / step), (long long)BR_CORRELATE_MAX_SAMPLES * step,
                                (double)BR_CORRELATE_MAX_SAMPLES * step * br_stream_sample_s(in));
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct correlate *c = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    struct br_why why = {""};
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status == BR_OK) status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    if ((status = check_integration(stage, c, in)) != BR_OK) return status;
    c->ninputs = in->array.axis[2].length * in->array.axis[3].length;
    struct br_correlate_params p = plan_params(stage, c, in);
    if (br_stage_device(stage) >= 0 && !br_correlate_has_products(&p, &why)) {
        status = br_stage_decline_gpu(stage, "on a GPU it needs a library: %s", why.text);
        if (status != BR_OK) return status;
    }
    for (unsigned z = 0; z < out->nzones; z++) out->zone[z].downsample = (unsigned)c->integrate;
    out->frame_samples = (uint64_t)c->integrate;
    return br_output_array(stage, out, BR_INT32X2, "time,freq,baseline",
                           (size_t[]){1, in->nchannels, br_correlate_baselines(&p)});
}

static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct correlate *c = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_correlate_params p = plan_params(stage, c, in);
    br_stage_uploads_memory(stage, br_stream_max_validity(in), m);
    if (br_stage_device(stage) >= 0)
        m->device += br_correlate_device_bytes(&p);
    else
        m->host += br_correlate_host_bytes(&p);
}

static int start(struct br_stage *stage, void *self)
{
    struct correlate *c = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend(stage, br_stream_max_validity(in), &backend, &c->cuda);
    if (status != BR_OK) return status;
    struct br_correlate_params p = plan_params(stage, c, in);
    unsigned step = in->zone[0].downsample;
    c->blocks = (struct blocks){.step = step, .length = (size_t)c->integrate / step, .bridges = true};
    c->share = br_stage_alloc(stage, in->nchannels * sizeof *c->share);
    if (br_correlate_create(&c->plan, backend, &p, &why) != 0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    return br_stage_gpu_holds(stage, c->cuda);
}

/* The open integration, as far as it has come. */
static int emit(struct br_stage *stage, struct correlate *c, struct br_frame *out)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    br_correlate_read(c->plan, out->data);
    out->first = c->blocks.start;
    out->samples = c->blocks.cursor - c->blocks.start;
    out->complete = false;
    for (size_t f = 0; f < stream->nchannels; f++) {
        out->valid[f] = br_validity(c->share[f], (uint64_t)c->blocks.length * BR_VALID);
        c->share[f] = 0;
    }
    br_frame_close_validity(stream, out);
    c->blocks.open = false;
    int status = br_stage_gpu_check(stage, c->cuda);
    return status != BR_OK ? status : BR_PRODUCED;
}

static void add_shares(struct correlate *c, size_t nchannels, const uint8_t *valid, size_t nsteps)
{
    for (size_t t = 0; t < nsteps; t++)
        for (size_t f = 0; f < nchannels; f++) c->share[f] += valid ? valid[t * nchannels + f] : BR_VALID;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct correlate *c = self;
    const struct br_stream *from = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_why why = {""};
    int result = 0;
    if (in == NULL) {
        result = c->blocks.open ? emit(stage, c, io->out[0]) : 0;
        return result < 0 ? result : result | BR_FINISHED;
    }
    if (blocks_gap(&c->blocks, in)) return emit(stage, c, io->out[0]); /* the same frame comes again */

    if (c->blocks.open && c->blocks.taken == 0 &&
        in->first > c->blocks.cursor) /* a hole in the integration */
        br_stage_count_gained(stage, in->first - c->blocks.cursor);
    struct blocks_piece piece = blocks_take(&c->blocks, in);
    size_t cell = piece.from * from->nchannels;
    const uint8_t *valid = in->complete ? NULL : in->valid + cell;
    if (br_correlate_add(c->plan, piece.count, (const uint8_t *)in->data + cell * c->ninputs, valid, &why) !=
        0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    add_shares(c, from->nchannels, valid, piece.count);
    if (piece.ends) result = emit(stage, c, io->out[0]);
    if (result >= 0 && blocks_used(&c->blocks, in)) result |= BR_CONSUMED;
    int status = br_stage_gpu_check(stage, c->cuda);
    return status != BR_OK ? status : result;
}

static int stop(struct br_stage *stage, void *self)
{
    struct correlate *c = self;
    br_correlate_destroy(c->plan);
    br_stage_gpu_end(stage, c->cuda);
    return BR_OK;
}

STAGE_EXPORT(correlate, struct correlate, "visibilities: every input with every other one, exact in integers",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_CUDA, .memory = memory);
