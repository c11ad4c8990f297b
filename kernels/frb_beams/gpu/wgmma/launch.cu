/* FRB stage 2 on Hopper, its plan: the variant, how shared memory is divided, the launch. */
#include "kernels/common/cuda.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/frb_beams/gpu/wgmma/arbitrary.cuh"
#include "kernels/frb_beams/gpu/wgmma/wgmma.h"

#include <cuda_runtime.h>
#include <stdlib.h>

using namespace beamring;
using namespace beamring::wgmma_arbitrary;

namespace
{

using kernel = void (*)(const CUtensorMap, const CUtensorMap, const work);

constexpr int NT = 64;

/* The host's description of a variant. */
struct kind {
    kernel run;
    unsigned nq, mb, boxes, ps;
};

template <int NQ, int MB> kind kind_of()
{
    return {form<NQ, MB, NT>, NQ, MB, iteration_of<NQ>::BOXES, iteration_of<NQ>::PS};
}

unsigned up(unsigned count, unsigned unit)
{
    return (count + unit - 1) / unit;
}

} // namespace

struct br_frb_beams_wgmma {
    struct br_cuda *cuda;
    kind k;
    work w; /* all but what changes from call to call */
    unsigned processors, shared;
    tensor_map_encoder encode;
};

/* The variant whose tiles have the least room without beams; of equal ones the larger. */
static bool choose(struct br_frb_beams_wgmma *h, unsigned nq, unsigned B)
{
    const kind kinds[] = {kind_of<48, 3>(), kind_of<48, 2>(), kind_of<32, 3>(),
                          kind_of<32, 2>(), kind_of<24, 3>(), kind_of<24, 2>()};
    unsigned least = ~0u;
    for (const kind &k : kinds) {
        unsigned tile = 64 * k.mb * GROUPS, beams = up(B, tile) * tile;
        if (k.nq != nq || beams >= least) continue;
        least = beams;
        h->k = k;
        h->w.beam_tiles = beams / tile;
    }
    return least != ~0u;
}

/* Divides shared memory; false if an iteration's boxes do not fit into the ring. */
static bool divide(struct br_frb_beams_wgmma *h, unsigned room)
{
    constexpr unsigned BOX_BYTES = NT * 128, BARRIERS = 2 * sizeof(barrier);
    work &w = h->w;
    unsigned fixed = out_bytes(static_cast<int>(h->k.mb), NT) +
                     p_bytes(w.iterations, h->k.ps, static_cast<int>(h->k.mb)) +
                     (h->k.nq + w.np) * static_cast<unsigned>(sizeof(float2));
    if (fixed + (h->k.boxes + 1) * (BOX_BYTES + BARRIERS) > room) return false;
    w.ring = (room - fixed) / (BOX_BYTES + BARRIERS);
    w.lead = (w.ring - 1) / h->k.boxes - 1;
    if (w.lead >= w.iterations) w.lead = w.iterations - 1;
    h->shared = fixed + w.ring * (BOX_BYTES + BARRIERS);
    return true;
}

extern "C" int br_frb_beams_wgmma_create(struct br_frb_beams_wgmma **result, const struct br_frb_beams *plan,
                                         struct br_why *why)
{
    int device = br_cuda_device(plan->cuda), processors = 0, room = 0;
    *result = NULL;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (!br_cuda_is_hopper(device) || plan->nbeams % 8 != 0) return 0;
    struct br_frb_beams_wgmma *h = static_cast<struct br_frb_beams_wgmma *>(calloc(1, sizeof *h));
    if (!h) return br_because(why, "no memory for the FRB beams");
    h->cuda = plan->cuda;
    h->encode = find_tensor_map_encoder();
    h->processors = static_cast<unsigned>(processors);
    h->w.B = static_cast<unsigned>(plan->nbeams), h->w.F = static_cast<unsigned>(plan->nchannels);
    h->w.np = 2 * plan->m.n;
    bool does = h->encode && choose(h, 2 * plan->n.n, h->w.B);
    if (does) {
        h->w.iterations = up(h->w.np, h->k.ps);
        does = divide(h, static_cast<unsigned>(room));
    }
    if (!does) {
        free(h);
        return 0;
    }
    /* The limit belongs to the kernel, not to a plan, so it is the largest that any plan needs. */
    cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void *>(h->k.run),
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, room);
    if (status != cudaSuccess) {
        (void)cudaGetLastError();
        free(h);
        return br_because(why, "%d bytes of shared memory on device %d: %s", room, device,
                          cudaGetErrorString(status));
    }
    *result = h;
    return 0;
}

extern "C" void br_frb_beams_wgmma_destroy(struct br_frb_beams_wgmma *wgmma)
{
    free(wgmma);
}

/* A tensor [F][steps][row] of halves, of which boxes of 64 by NT by 1 are copied; steps of a channel are
 * `stride` in memory. */
static bool describe(struct br_frb_beams_wgmma *h, CUtensorMap *map, const void *memory, size_t row,
                     const struct span *span)
{
    const cuuint64_t size[3] = {row, span->count, h->w.F}, strides[2] = {row * 2, row * span->stride * 2};
    const cuuint32_t box[3] = {64, NT, 1}, every[3] = {1, 1, 1};
    return h->encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void *>(memory), size, strides, box,
                     every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

extern "C" void br_frb_beams_wgmma(struct br_frb_beams_wgmma *wgmma, const void *phases_m,
                                   const void *phases_n, const struct span *span)
{
    CUtensorMap in, out;
    work w = wgmma->w;
    if (!describe(wgmma, &in, span->in, static_cast<size_t>(w.np) * wgmma->k.nq, span) ||
        !describe(wgmma, &out, span->out, w.B, span)) {
        br_cuda_ok(wgmma->cuda, cudaErrorMisalignedAddress,
                   "the FRB beams (their memory must be aligned to 16 bytes)");
        return;
    }
    w.valid = span->valid;
    w.phases_m = static_cast<const phase_params *>(phases_m),
    w.phases_n = static_cast<const phase_params *>(phases_n);
    w.T = static_cast<unsigned>(span->count), w.stride = static_cast<unsigned>(span->stride);
    w.step_tiles = up(w.T, NT);
    unsigned tiles = w.F * w.beam_tiles * w.step_tiles;
    unsigned blocks = tiles < wgmma->processors ? tiles : wgmma->processors;
    wgmma->k.run<<<blocks, THREADS, wgmma->shared, static_cast<cudaStream_t>(br_cuda_stream(wgmma->cuda))>>>(
        in, out, w);
    br_cuda_ok(wgmma->cuda, cudaGetLastError(), "the launch of the FRB beams");
}
