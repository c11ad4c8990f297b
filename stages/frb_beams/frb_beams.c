/* frb_beams - FRB stage 2: intensities on the grid of the zero-padded transform resampled to any beams. */
#include "kernels/frb_beams/frb_beams.h"
#include "runtime/stage.h"
#include "stages/common/directions.h"
#include "stages/common/gpu.h"
#include "stages/common/shape.h"

#include <stdlib.h>
#include <string.h>

struct frb_beams {
    const struct br_beams_param *beams; /* parameter */
    struct br_frb_beams *plan;
    struct br_cuda *cuda; /* NULL on the CPU */
};

static const struct br_param params[] = {
    BR_BEAMS_PARAM(struct frb_beams, beams, true, "where the beams point"),
    {0},
};
static const struct br_port inputs[] = {{"in", "I[freq][time][gridp][gridq], f16, from frb_grid"}, {0}};
static const struct br_port outputs[] = {{"out", "J[freq][time][beam], f16"}, {0}};

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
    if (in->array.axis[2].length != 2 * (size_t)t->grid_m ||
        in->array.axis[3].length != 2 * (size_t)t->grid_n)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input has a grid of %zu x %zu; expected 2M x 2N = %u x %u for telescope '%s'",
            in->array.axis[2].length, in->array.axis[3].length, 2 * t->grid_m, 2 * t->grid_n, t->name);
    status = br_directions_configure(stage, fb->beams, out);
    if (status != BR_OK) return status;
    size_t lengths[3] = {in->array.axis[0].length, in->array.axis[1].length, out->nbeams};
    struct br_error error = {0};
    if (br_array_init(&out->array, BR_F16, "freq,time,beam", lengths, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    br_stage_offer(stage); /* what it makes follows from the two streams */
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct frb_beams *fb = self;
    const struct br_stream *out = br_stage_output(stage, 0);
    const struct br_telescope *t = out->telescope;
    struct br_why why = {""};
    struct br_frb_beams_params p = {.nchannels = out->nchannels,
                                    .freq_mhz = out->freq_mhz,
                                    .grid_m = t->grid_m,
                                    .grid_n = t->grid_n,
                                    .spacing_m_m = t->spacing_m_m,
                                    .spacing_n_m = t->spacing_n_m,
                                    .nbeams = out->nbeams,
                                    .beam = (const double *)out->beams,
                                    .beams_x = out->beams_x,
                                    .beams_y = out->beams_y,
                                    .max_steps = out->array.axis[1].length +
                                                 1}; /* a frame beside a loss may touch one step more */
    enum br_backend backend;
    int status = br_stage_backend(stage, out->nchannels * p.max_steps, &backend, &fb->cuda);
    if (status != BR_OK) return status;
    p.cuda = fb->cuda;
    if (br_frb_beams_create(&fb->plan, backend, &p, &why) != 0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
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
    br_frb_beams_execute(fb->plan, in->data, in->complete ? NULL : in->valid, part.nsteps, out->data);
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, part.nsteps * part.nchannels);
    int status = br_stage_gpu_check(stage, fb->cuda);
    return status != BR_OK ? status : BR_CONSUMED | BR_PRODUCED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct frb_beams *fb = self;
    br_frb_beams_destroy(fb->plan);
    br_stage_gpu_end(stage, fb->cuda);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "frb_beams",
    .summary = "FRB stage 2: intensity beams in any directions, from the grid",
    .description = "Resamples the intensities of `frb_grid` to the beams asked for, exactly: each beam is a "
                   "weighted sum over the whole "
                   "grid, the weights following from its direction and the channel's frequency. A regular "
                   "grid of beams is the product "
                   "of its two axes and is formed in two cheaper steps.\n\n"
                   "A dish grid of spacing d repeats the sky every lambda/d in direction cosine.\n",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .flags = BR_STAGE_CUDA,
    .size = sizeof(struct frb_beams),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
