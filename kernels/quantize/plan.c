#include "kernels/quantize/plan.h"
#include "kernels/common/cuda.h"

#include <stdlib.h>

static int make_cuda(struct br_quantize *plan, struct br_cuda *cuda, struct br_why *why)
{
    plan->cuda = cuda;
#if BR_WITH_CUDA
    return cuda ? br_quantize_cuda_create(plan, why) : br_because(why, "BR_CUDA needs a br_cuda");
#else
    return br_because(why, "this beamring was built without CUDA");
#endif
}

/* The state of slow statistics. A GPU's state is made with its plan. */
static int make_slow(struct br_quantize *plan, double constant)
{
    size_t cells = plan->nchannels * plan->nbeams;
    plan->slow = true;
    plan->step = calloc(plan->nchannels, sizeof *plan->step);
    if (!plan->step || br_follow_clock_create(&plan->clock, plan->nchannels, plan->block, constant) != 0)
        return -1;
    if (plan->backend == BR_REFERENCE) plan->exact = calloc(cells, sizeof *plan->exact);
    if (plan->backend == BR_CPU) plan->state = calloc(cells, sizeof *plan->state);
    return plan->backend == BR_CUDA || plan->exact || plan->state ? 0 : -1;
}

int br_quantize_create(struct br_quantize **result, enum br_backend backend,
                       const struct br_quantize_params *params, struct br_why *why)
{
    *result = NULL;
    if (params->nchannels < 1 || params->nbeams < 1 || params->block < 1)
        return br_because(why, "%zu channels, %zu beams, blocks of %zu samples: each must be at least 1",
                          params->nchannels, params->nbeams, params->block);
    if (params->bits != 4 && params->bits != 8)
        return br_because(why, "%u bits; expected 4 or 8", params->bits);
    if (params->bits == 4 && params->block % 2 != 0)
        return br_because(why, "blocks of %zu samples; expected an even number for 4 bits", params->block);
    if (!(params->levels_rms >= 1e-6 && params->levels_rms <= 1e6))
        return br_because(why, "levels_rms is %g; expected 1e-6 to 1e6", params->levels_rms);
    if (params->follow != 0 && !(params->follow >= 1 && params->follow <= 1e12))
        return br_because(why, "statistics with a time constant of %g samples; expected 1 to 1e12, or 0",
                          params->follow);
    struct br_quantize *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the quantizer");
    plan->backend = backend;
    plan->nchannels = params->nchannels;
    plan->nbeams = params->nbeams;
    plan->block = params->block;
    plan->bits = params->bits;
    plan->levels_rms = params->levels_rms;
    plan->parallel = params->parallel;
    if (params->follow > 0 && make_slow(plan, params->follow) != 0) {
        br_quantize_destroy(plan);
        return br_because(why, "no memory for the quantizer's statistics");
    }
    if (backend == BR_CUDA && make_cuda(plan, params->cuda, why) != 0) {
        br_quantize_destroy(plan);
        return -1;
    }
    if (backend == BR_CPU && br_quantize_cpu_create(plan) != 0) {
        br_quantize_destroy(plan);
        return br_because(why, "no memory for the quantizer");
    }
    *result = plan;
    return 0;
}

void br_quantize_destroy(struct br_quantize *plan)
{
    if (!plan) return;
    br_quantize_cpu_destroy(plan);
#if BR_WITH_CUDA
    br_quantize_cuda_destroy(plan);
#endif
    br_follow_clock_free(&plan->clock);
    free(plan->step);
    if (plan->backend != BR_CUDA) free(plan->state);
    free(plan->exact);
    free(plan);
}

void br_quantize_restart(struct br_quantize *plan)
{
    if (plan->slow) br_follow_clock_reset(&plan->clock);
    for (size_t i = 0; plan->exact && i < plan->nchannels * plan->nbeams; i++) plan->exact[i].seen = 0;
}

static size_t count_valid(const struct br_quantize *plan, size_t f, size_t in_stride, const uint8_t *in_valid)
{
    size_t count = plan->block;
    for (size_t t = 0; in_valid && t < plan->block; t++) count -= in_valid[f * in_stride + t] == 0;
    return count;
}

void br_quantize_tick(struct br_quantize *plan, size_t in_stride, const uint8_t *in_valid)
{
    for (size_t f = 0; f < plan->nchannels; f++)
        plan->step[f] = br_follow_tick(&plan->clock, f, count_valid(plan, f, in_stride, in_valid));
}

uint64_t br_quantize_execute(struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                             const uint8_t *in_valid, uint8_t *out, float *side)
{
    if (plan->slow && plan->backend == BR_CPU) br_quantize_tick(plan, in_stride, in_valid);
    if (plan->backend == BR_REFERENCE) return br_quantize_reference(plan, in, in_stride, in_valid, out, side);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_quantize_cuda(plan, in, in_stride, in_valid, out, side);
        return 0;
    }
#endif
    return br_quantize_cpu(plan, in, in_stride, in_valid, out, side);
}
