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
    struct br_quantize *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the quantizer");
    plan->backend = backend;
    plan->nchannels = params->nchannels;
    plan->nbeams = params->nbeams;
    plan->block = params->block;
    plan->bits = params->bits;
    plan->levels_rms = params->levels_rms;
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
    free(plan);
}

uint64_t br_quantize_execute(struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                             const uint8_t *in_valid, uint8_t *out, float *side)
{
    if (plan->backend == BR_REFERENCE) return br_quantize_reference(plan, in, in_stride, in_valid, out, side);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_quantize_cuda(plan, in, in_stride, in_valid, out, side);
        return 0;
    }
#endif
    return br_quantize_cpu(plan, in, in_stride, in_valid, out, side);
}
