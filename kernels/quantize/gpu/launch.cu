/* The quantizer on a GPU: which kernel takes a launch. Blocks of 64, 128 or 256 steps with beams by the 8 and
 * aligned memory go to tile.cuh, everything else to any.cuh. */
#include "kernels/quantize/gpu/any.cuh"
#include "kernels/quantize/gpu/begin.cuh"
#include "kernels/quantize/gpu/tile.cuh"
#include "kernels/quantize/plan.h"

#include "kernels/common/cuda.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;
using namespace beamring::quantize;

struct br_quantize_gpu {
    uint8_t *valid; /* [F][T] on the host: what is uploaded */
    bool kept;      /* any: the input fits into shared memory */
    size_t shared_bytes;
    unsigned most_blocks; /* rows: as many as are there together */
    /* slow statistics: what this block of each channel weighs, there, and as it was last sent there */
    struct br_follow_step *steps, *sent;
};

namespace
{

using kernel = void (*)(work);

template <bool SLOW> kernel any_variant(unsigned bits, bool kept)
{
    if (bits == 8) return kept ? any<8, true, SLOW> : any<8, false, SLOW>;
    return kept ? any<4, true, SLOW> : any<4, false, SLOW>;
}

kernel any_variant(const struct br_quantize *plan, bool kept)
{
    return plan->slow ? any_variant<true>(plan->bits, kept) : any_variant<false>(plan->bits, kept);
}

template <int BITS, bool SLOW> kernel rows_of(size_t steps)
{
    return steps == 64    ? rows<BITS, 64, SLOW>
           : steps == 128 ? rows<BITS, 128, SLOW>
           : steps == 256 ? rows<BITS, 256, SLOW>
                          : nullptr;
}

/* NULL: there is none for such blocks. */
kernel rows_variant(const struct br_quantize *plan, size_t *shared_bytes)
{
    const size_t steps = plan->block;
    *shared_bytes = steps == 64 ? sizeof(tile<64>) : steps == 128 ? sizeof(tile<128>) : sizeof(tile<256>);
    if (plan->bits == 8) return plan->slow ? rows_of<8, true>(steps) : rows_of<8, false>(steps);
    return plan->slow ? rows_of<4, true>(steps) : rows_of<4, false>(steps);
}

int allow_shared(struct br_quantize *plan, kernel of, size_t bytes, struct br_why *why)
{
    cudaError_t status =
        cudaFuncSetAttribute(reinterpret_cast<const void *>(of), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes));
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "%zu bytes of shared memory on device %d: %s", bytes, br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

/* The state of slow statistics. */
int make_slow(struct br_quantize *plan, struct br_why *why)
{
    struct br_quantize_gpu *g = plan->gpu;
    plan->state = static_cast<struct br_follow *>(
        br_cuda_alloc(plan->cuda, plan->nchannels * plan->nbeams * sizeof *plan->state, why));
    g->steps = static_cast<struct br_follow_step *>(
        br_cuda_alloc(plan->cuda, plan->nchannels * sizeof *g->steps, why));
    g->sent = static_cast<struct br_follow_step *>(calloc(plan->nchannels, sizeof *g->sent));
    if (!plan->state || !g->steps) return -1;
    return g->sent ? 0 : br_because(why, "no memory for the quantizer's statistics");
}

/* Counts the block and enqueues those of its weights that the device does not have. Once a stream runs
 * without losses blocks weigh the same, and nothing is sent. False after a failure, which is kept. */
bool tick(struct br_quantize *plan, size_t in_stride, const uint8_t *in_valid, slow_state *slow)
{
    struct br_quantize_gpu *g = plan->gpu;
    const size_t bytes = plan->nchannels * sizeof *g->steps;
    *slow = {};
    if (!plan->slow) return true;
    br_quantize_tick(plan, in_stride, in_valid);
    slow->state = plan->state, slow->steps = g->steps;
    if (memcmp(plan->step, g->sent, bytes) == 0) return true;
    memcpy(g->sent, plan->step, bytes);
    const void *uploaded = br_cuda_upload(plan->cuda, plan->step, bytes);
    return uploaded && br_cuda_ok(plan->cuda,
                                  cudaMemcpyAsync(g->steps, uploaded, bytes, cudaMemcpyDeviceToDevice,
                                                  static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))),
                                  "the copy of the quantizer's weights");
}

} // namespace

extern "C" void br_quantize_cuda_destroy(struct br_quantize *plan)
{
    if (!plan->gpu) return;
    br_cuda_free(plan->cuda, plan->state);
    br_cuda_free(plan->cuda, plan->gpu->steps);
    free(plan->gpu->sent);
    free(plan->gpu->valid);
    free(plan->gpu);
    plan->gpu = NULL;
}

extern "C" int br_quantize_cuda_create(struct br_quantize *plan, struct br_why *why)
{
    double blocks =
        static_cast<double>(plan->nchannels) * static_cast<double>(plan->nbeams / BLOCK_BEAMS + 1);
    if (blocks > 2e9 || plan->block > 1u << 28)
        return br_because(why, "%zu channels, %zu beams, blocks of %zu samples are too many for one launch",
                          plan->nchannels, plan->nbeams, plan->block);
    plan->gpu = static_cast<struct br_quantize_gpu *>(calloc(1, sizeof *plan->gpu));
    if (plan->gpu) plan->gpu->valid = static_cast<uint8_t *>(malloc(plan->nchannels * plan->block));
    if (!plan->gpu || !plan->gpu->valid) return br_because(why, "no memory for the quantizer");
    if (plan->slow && make_slow(plan, why) != 0) return -1;
    /* Two blocks of threads at least must find room on a multiprocessor, else it waits while one of them
     * loads. */
    int per_block = 0, per_processor = 0, reserved = 0, device = br_cuda_device(plan->cuda);
    cudaDeviceGetAttribute(&per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&per_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device);
    int most = per_processor / 2 - reserved < per_block ? per_processor / 2 - reserved : per_block;
    size_t bytes = sizeof(shared) + plan->block * BLOCK_BEAMS * sizeof(uint16_t);
    plan->gpu->kept = most > 0 && bytes <= static_cast<size_t>(most);
    plan->gpu->shared_bytes = plan->gpu->kept ? bytes : sizeof(shared);
    if (most > 0 && allow_shared(plan, any_variant(plan, true), static_cast<size_t>(most), why) != 0)
        return -1;
    size_t tile_bytes;
    kernel fast = rows_variant(plan, &tile_bytes);
    int together = 1, processors = 1;
    if (fast && allow_shared(plan, fast, tile_bytes, why) != 0) return -1;
    if (fast) cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, fast, THREADS, tile_bytes);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    plan->gpu->most_blocks = static_cast<unsigned>((together > 0 ? together : 1) * processors);
    return 0;
}

extern "C" void br_quantize_cuda(struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                                 const uint8_t *in_valid, uint8_t *out, float *side)
{
    size_t F = plan->nchannels, T = plan->block, B = plan->nbeams;
    work w = {};
    br_cuda_begin(plan->cuda);
    if (in_valid) {
        for (size_t f = 0; f < F; f++) memcpy(plan->gpu->valid + f * T, in_valid + f * in_stride, T);
        w.valid = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, plan->gpu->valid, F * T));
        if (!w.valid) return; /* the failure is kept */
    }
    if (!tick(plan, in_stride, in_valid, &w.slow)) return; /* likewise */
    w.in = in, w.out = out, w.side = reinterpret_cast<float2 *>(side),
    w.clamped = br_cuda_counter(plan->cuda);
    w.stride = in_stride, w.F = F, w.B = B, w.T = static_cast<unsigned>(T),
    w.row = static_cast<unsigned>(T * plan->bits / 8);
    w.beam_tiles = static_cast<unsigned>((B + BLOCK_BEAMS - 1) / BLOCK_BEAMS);
    w.levels_rms = static_cast<float>(plan->levels_rms);
    w.pairs = B % 2 == 0 && reinterpret_cast<uintptr_t>(in) % 4 == 0;
    w.wide_in = B % 8 == 0 && reinterpret_cast<uintptr_t>(in) % 16 == 0;
    w.wide_out = w.row % 16 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
    size_t shared_bytes;
    kernel launched = rows_variant(plan, &shared_bytes);
    w.tiles = static_cast<unsigned>(F * w.beam_tiles);
    unsigned blocks = w.tiles < plan->gpu->most_blocks ? w.tiles : plan->gpu->most_blocks;
    if (!launched || !w.wide_in || !w.wide_out) {
        blocks = w.tiles;
        launched = any_variant(plan, plan->gpu->kept);
        shared_bytes = plan->gpu->shared_bytes;
    }
    bool begins = false;
    for (size_t f = 0; plan->slow && f < F; f++) begins = begins || plan->step[f].first > 0;
    if (begins) {
        begin<<<plan->gpu->most_blocks, THREADS, 0, static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(
            w);
        br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the quantizer's first block");
    }
    launched<<<blocks, THREADS, shared_bytes, static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the quantizer");
}
