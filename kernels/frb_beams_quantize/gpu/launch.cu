/* The launch of the kernel that forms and quantizes beams at once (quantize_beams.cuh). */
#include "kernels/frb_beams_quantize/frb_beams_quantize.h"

#include "kernels/common/cuda.h"
#include "kernels/frb_beams/plan.h"
#include "kernels/frb_beams_quantize/gpu/quantize_beams.cuh"
#include "kernels/quantize/plan.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

struct br_frb_beams_quantize {
    struct br_cuda *cuda;
    struct br_frb_beams *beams;
    struct br_quantize *levels; /* whose rule and statistics it shares */
    uint8_t *valid;             /* [F][256] on the host: what is uploaded */
    unsigned channels;
    int clusters; /* at once */
};

namespace
{

using kernel = void (*)(frb_beams_quantize::work);

kernel variant(const struct br_quantize *levels)
{
    if (levels->bits == 8)
        return levels->slow ? frb_beams_quantize::beams<8, true> : frb_beams_quantize::beams<8, false>;
    return levels->slow ? frb_beams_quantize::beams<4, true> : frb_beams_quantize::beams<4, false>;
}

/* A launch of `clusters` clusters. */
struct launch {
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config;
};

void describe(struct launch *l, unsigned clusters, void *stream)
{
    *l = {};
    l->attribute.id = cudaLaunchAttributeClusterDimension;
    l->attribute.val.clusterDim.x = frb_beams_quantize::CLUSTER;
    l->attribute.val.clusterDim.y = l->attribute.val.clusterDim.z = 1;
    l->config.gridDim = dim3(clusters * frb_beams_quantize::CLUSTER),
    l->config.blockDim = dim3(frb_beams_quantize::THREADS);
    l->config.dynamicSmemBytes = sizeof(frb_beams_quantize::shared);
    l->config.stream = static_cast<cudaStream_t>(stream);
    l->config.attrs = &l->attribute, l->config.numAttrs = 1;
}

} // namespace

extern "C" bool br_frb_beams_quantize_can(int device, unsigned grid_m, unsigned grid_n, size_t beams_x,
                                          size_t beams_y, size_t block, struct br_why *why)
{
    why->text[0] = 0;
    if (!br_cuda_is_hopper(device))
        br_because(why, "the GPU is not of compute capability 9.0");
    else if (block != BR_FRB_BEAMS_QUANTIZE_BLOCK)
        br_because(why, "blocks have %zu steps, not %d", block, BR_FRB_BEAMS_QUANTIZE_BLOCK);
    else if (beams_x == 0)
        br_because(why, "the beams are not on a grid");
    else if (beams_x * beams_y % 8 != 0)
        br_because(why, "%zu x %zu beams are not a multiple of 8", beams_x, beams_y);
    else if (grid_m % 4 != 0 || grid_n % 4 != 0 || 2 * grid_m > BR_FRB_BEAMS_QUANTIZE_CELLS ||
             2 * grid_n > BR_FRB_BEAMS_QUANTIZE_CELLS)
        br_because(why, "the field has %u x %u cells, not at most %u, both multiples of 8", 2 * grid_m,
                   2 * grid_n, BR_FRB_BEAMS_QUANTIZE_CELLS);
    return !why->text[0];
}

extern "C" int br_frb_beams_quantize_create(struct br_frb_beams_quantize **result, struct br_frb_beams *beams,
                                            struct br_quantize *levels, struct br_why *why)
{
    struct br_frb_beams_grid grid;
    *result = NULL;
    if (!br_frb_beams_cuda_grid(beams, &grid))
        return br_because(why, "the beams are not on a grid, or not on a GPU");
    if (levels->backend != BR_CUDA || levels->block != BR_FRB_BEAMS_QUANTIZE_BLOCK ||
        levels->nchannels != beams->nchannels || levels->nbeams != static_cast<size_t>(grid.bx) * grid.by)
        return br_because(why, "the quantizer is for other beams, channels or blocks, or not on a GPU");
    if (grid.middle_scale != 1 || grid.scale != 1)
        return br_because(why, "the weights of these beams do not have their scale in them");
    if (!br_frb_beams_quantize_can(br_cuda_device(beams->cuda), grid.np / 2, grid.nq / 2, grid.bx, grid.by,
                                   BR_FRB_BEAMS_QUANTIZE_BLOCK, why))
        return -1;
    struct br_frb_beams_quantize *plan = static_cast<struct br_frb_beams_quantize *>(calloc(1, sizeof *plan));
    if (plan) plan->valid = static_cast<uint8_t *>(malloc(beams->nchannels * BR_FRB_BEAMS_QUANTIZE_BLOCK));
    if (!plan || !plan->valid) {
        br_frb_beams_quantize_destroy(plan);
        return br_because(why, "no memory for the quantizer");
    }
    plan->cuda = beams->cuda;
    plan->beams = beams;
    plan->levels = levels;
    levels->state_bx = grid.bx, levels->state_by = grid.by; /* before anything is known */
    plan->channels = static_cast<unsigned>(beams->nchannels);
    cudaError_t status =
        cudaFuncSetAttribute(reinterpret_cast<const void *>(variant(levels)),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(frb_beams_quantize::shared));
    struct launch launch;
    describe(&launch, 1, br_cuda_stream(plan->cuda));
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveClusters(&plan->clusters, variant(levels), &launch.config);
    if (status == cudaSuccess && plan->clusters == 0) status = cudaErrorInvalidConfiguration;
    if (status == cudaSuccess) {
        *result = plan;
        return 0;
    }
    (void)cudaGetLastError();
    br_frb_beams_quantize_destroy(plan);
    return br_because(why, "%zu bytes of shared memory on device %d: %s", sizeof(frb_beams_quantize::shared),
                      br_cuda_device(beams->cuda), cudaGetErrorString(status));
}

extern "C" void br_frb_beams_quantize_destroy(struct br_frb_beams_quantize *plan)
{
    if (!plan) return;
    free(plan->valid);
    free(plan);
}

extern "C" void br_frb_beams_quantize_execute(struct br_frb_beams_quantize *plan, const uint16_t *in,
                                              size_t in_stride, const uint8_t *in_valid, uint8_t *out,
                                              float *side)
{
    struct br_frb_beams_grid grid;
    frb_beams_quantize::work w = {};
    br_cuda_begin(plan->cuda);
    br_frb_beams_cuda_grid(plan->beams, &grid);
    if (in_valid) {
        for (size_t f = 0; f < plan->channels; f++)
            for (size_t t = 0; t < BR_FRB_BEAMS_QUANTIZE_BLOCK; t++)
                plan->valid[f * BR_FRB_BEAMS_QUANTIZE_BLOCK + t] = in_valid[f * in_stride + t] ? 0xff : 0;
        w.valid = static_cast<const uint8_t *>(
            br_cuda_upload(plan->cuda, plan->valid, plan->channels * BR_FRB_BEAMS_QUANTIZE_BLOCK));
        if (!w.valid) return; /* the failure is kept */
    }
    if (!br_quantize_cuda_tick(plan->levels, in_stride, in_valid, &w.slow)) return; /* likewise */
    w.in = in, w.out = out, w.side = reinterpret_cast<float2 *>(side),
    w.clamped = br_cuda_counter(plan->cuda);
    w.weights_q = static_cast<const uint4 *>(grid.weights_q),
    w.weights_p = static_cast<const uint4 *>(grid.weights_p);
    w.stride = in_stride, w.F = plan->channels;
    w.np = grid.np, w.nq = grid.nq, w.bx = grid.bx, w.by = grid.by;
    w.j_tiles = grid.j_blocks, w.i_tiles = grid.i_tiles, w.q_steps = grid.q_steps, w.p_steps = grid.p_blocks;
    w.parts = (grid.bx + BR_FRB_BEAMS_QUANTIZE_BEAMS - 1) / BR_FRB_BEAMS_QUANTIZE_BEAMS,
    w.rounds = 2 * grid.j_blocks;
    w.levels_rms = static_cast<float>(plan->levels->levels_rms);

    const unsigned rounds = w.F * w.parts * w.rounds, clusters = static_cast<unsigned>(plan->clusters);
    struct launch launch;
    describe(&launch, rounds < clusters ? rounds : clusters, br_cuda_stream(plan->cuda));
    br_cuda_ok(plan->cuda, cudaLaunchKernelEx(&launch.config, variant(plan->levels), w),
               "the launch of the quantized beams");
}
