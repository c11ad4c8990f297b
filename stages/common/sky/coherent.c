/* coherent.c - see coherent.h. */
#include "stages/common/sky/coherent.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"

const char *const br_coherent_updates[] = {"weights", "beams", "gains", "shift", NULL};

int br_coherent_configure(struct br_stage *stage, struct br_coherent *c, struct br_stream *out)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status == BR_OK) status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    if ((c->weights_file != NULL) == (c->beams != NULL))
        return br_stage_fail(stage, BR_E_INVALID, "%s of weights and beams; expected exactly one",
                             c->beams != NULL ? "it has both" : "it has none");
    if (c->gains_file != NULL && c->beams == NULL)
        return br_stage_fail_at(stage, "gains",
                                "gains go with beams; a file of weights already contains them");
    if (c->beams != NULL) {
        status = br_directions_configure(stage, c->beams, out, &c->rule.motion);
        if (status == BR_OK) br_horizon_configure(stage, out->nbeams, &c->horizon);
        if (status == BR_OK)
            status = br_beam_weights_make(stage, c->gains_file, c->shift, &c->rule, &c->weights);
    } else {
        status = br_beam_weights_read(stage, c->weights_file, c->shift, &c->weights);
        out->nbeams = c->weights.nbeams;
        out->beams = NULL;
        out->beams_x = out->beams_y = 0;
    }
    c->params.nchannels = in->nchannels;
    c->params.npol = c->weights.npol;
    c->params.nbeams = c->weights.nbeams;
    c->params.ndishes = c->weights.ndishes;
    c->params.weights = c->weights.weight;
    c->params.shift = c->weights.shift;
    c->params.weight_channels = c->weights.nfreq;
    return status;
}

/* The weights, int8+8 with their sums, as they were given and as the plan holds them. */
void br_coherent_memory(struct br_stage *stage, const struct br_coherent *c, struct br_memory *m)
{
    const struct br_weights *w = &c->weights;
    size_t rows = w->nfreq * w->npol * w->nbeams;
    br_stage_uploads_memory(stage, br_stream_max_validity(br_stage_input(stage, 0)) + c->uploads, m);
    /* For moving beams also the weights of the next interval. */
    size_t sets = br_motion_moves(&c->rule.motion) ? 2 : 1;
    br_stage_buffer_memory(stage, sets * rows * (2 * w->ndishes + 16), m);
    m->host += sets * rows * (2 * w->ndishes + sizeof *w->shift);
}

static int make_plan(struct br_stage *stage, struct br_coherent *c, enum br_backend backend)
{
    struct br_why why = {""};
    c->params.cuda = c->cuda;
    c->params.parallel = br_stage_parallel_loop(stage);
    if (br_baseband_create(&c->plan, backend, &c->params, &why) == 0) return BR_OK;
    return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
}

/* Starts the thread that computes the weights of moving beams; does nothing for beams that do not move.
 * `cuda` is what the stage runs with; NULL on the CPU. */
static int start_moving(struct br_stage *stage, struct br_coherent *c, const struct br_cuda *cuda)
{
    struct br_why why = {""};
    c->interval = UINT64_MAX;
    if (!br_motion_moves(&c->rule.motion)) return BR_OK;
    c->moving = br_moving_create(&c->rule, &c->params, cuda, &why);
    return c->moving != NULL ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "%s", why.text);
}

int br_coherent_start(struct br_stage *stage, struct br_coherent *c)
{
    enum br_backend backend;
    size_t uploads = br_stream_max_validity(br_stage_input(stage, 0)) + c->uploads;
    int status = br_stage_backend(stage, uploads, &backend, &c->cuda);
    if (status == BR_OK) status = make_plan(stage, c, backend);
    return status == BR_OK ? start_moving(stage, c, c->cuda) : status;
}

void br_coherent_stop(struct br_stage *stage, struct br_coherent *c)
{
    br_horizon_end(stage, &c->horizon);
    br_pointings_clear(br_stage_output(stage, 0)->motion);
    br_moving_destroy(c->moving);
    br_baseband_destroy(c->plan);
    br_stage_gpu_end(stage, c->cuda);
}

int br_coherent_weights(struct br_stage *stage, struct br_coherent *c, uint64_t sample, uint64_t end,
                        uint64_t *until)
{
    struct br_why why = {""};
    int status = 0;
    while (br_stage_next_update(stage, sample + 1) <= sample) br_stage_update(stage, sample);
    *until = br_stage_next_update(stage, end);
    if (c->moving == NULL) return BR_OK;
    uint64_t interval = br_motion_interval(&c->rule.motion, sample),
             next = br_motion_end(&c->rule.motion, interval);
    if (next < *until) *until = next;
    if (interval != c->interval) {
        br_stage_waits_for(stage, "the weights of beams that move");
        status = br_moving_take(c->moving, c->plan, interval, c->horizon.there, &why);
        br_stage_waits_for(stage, NULL);
        c->interval = interval;
        br_horizon_look(stage, &c->horizon, &c->rule.motion, interval);
    }
    return status == 0 ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "%s", why.text);
}

int br_coherent_prepare(struct br_stage *stage, void *with, const void *self)
{
    struct br_coherent *fresh = with;
    const struct br_coherent *now = self;
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend_aside(stage, now->cuda, &backend, &fresh->cuda);
    if (status == BR_OK) status = make_plan(stage, fresh, backend);
    if (status == BR_OK && br_baseband_may_exchange(now->plan, fresh->plan, &why) != 0)
        status = br_stage_fail(stage, BR_E_INVALID, "%s; restart the pipeline with them", why.text);
    if (status == BR_OK) status = start_moving(stage, fresh, now->cuda);
    if (status != BR_OK || fresh->beams == NULL) return status;
    fresh->pointing = br_pointing_make(&fresh->rule.motion, 0);
    return fresh->pointing != NULL ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for its beams");
}

void br_coherent_commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    struct br_coherent *now = self, *with = fresh;
    br_pointings_enter(br_stage_output(stage, 0)->motion, with->pointing, sample);
    with->pointing = NULL;
    br_baseband_exchange(now->plan, with->plan);
    BR_EXCHANGE(struct br_moving *, now, with, moving);
    now->rule = with->rule;
    br_horizon_commit(&now->horizon, &with->horizon);
    now->interval = UINT64_MAX;
}

void br_coherent_discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct br_coherent *c = fresh;
    br_pointing_free(c->pointing);
    br_moving_destroy(c->moving);
    br_baseband_destroy(c->plan);
    br_cuda_destroy(c->cuda);
}
