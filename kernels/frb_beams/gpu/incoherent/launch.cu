/* The incoherent sum on a GPU: a pass over the map behind whichever kernel has formed the beams, so that
 * these are the same bits with it and without it. */
#include "kernels/frb_beams/gpu/incoherent/combine.cuh"

#include "kernels/common/cuda.h"
#include "kernels/frb_beams/plan.h"

#include <cuda_runtime.h>

using namespace beamring;

extern "C" int br_frb_beams_cuda_make_room(struct br_frb_beams *plan, struct br_why *why)
{
    size_t values = plan->nchannels * plan->max_steps * plan->nbeams;
    if (plan->incoherent != BR_INCOHERENT_APPEND || plan->pitch > plan->nbeams) return 0;
    plan->apart = static_cast<uint16_t *>(br_cuda_alloc(plan->cuda, values * sizeof(uint16_t), why));
    return plan->apart ? 0 : -1;
}

extern "C" void br_frb_beams_cuda_incoherent(struct br_frb_beams *plan, const struct span *span,
                                             uint16_t *out)
{
    size_t steps = plan->nchannels * span->count;
    const incoherent::work w = {span->in,
                                span->valid,
                                span->out == out ? nullptr : span->out,
                                out,
                                static_cast<unsigned>(steps),
                                static_cast<unsigned>(span->stride),
                                static_cast<unsigned>(span->count),
                                static_cast<unsigned>(plan->cells),
                                static_cast<unsigned>(plan->nbeams),
                                plan->incoherent == BR_INCOHERENT_APPEND};
    unsigned blocks = static_cast<unsigned>((steps + incoherent::WARPS - 1) / incoherent::WARPS);
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    if (reinterpret_cast<uintptr_t>(span->in) % 8 == 0)
        incoherent::combine<true><<<blocks, incoherent::THREADS, 0, stream>>>(w);
    else
        incoherent::combine<false><<<blocks, incoherent::THREADS, 0, stream>>>(w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the incoherent sum");
}
