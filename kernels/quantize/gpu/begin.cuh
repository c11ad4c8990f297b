/* begin.cuh - slow statistics at the first block of a series (kernels/quantize/follow.h): medians over the
 * block's parts. A thread has a beam of a channel; it runs once in a stream, so that its speed does not
 * matter. */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_BEGIN_CUH
#define BEAMRING_KERNELS_QUANTIZE_GPU_BEGIN_CUH

#include "kernels/quantize/gpu/work.cuh"

#include <cuda_fp16.h>

namespace beamring
{

namespace quantize
{

/* gridDim.x blocks share the channels' tiles of THREADS beams. */
__global__ void __launch_bounds__(THREADS) begin(const work w)
{
    const size_t tiles = (w.B + THREADS - 1) / THREADS;
    for (size_t tile = blockIdx.x; tile < w.F * tiles; tile += gridDim.x) {
        const size_t f = tile / tiles, beam = tile % tiles * THREADS + threadIdx.x;
        if (beam >= w.B || w.slow.steps[f].first <= 0) continue;
        /* in: shape (F, stride, B), contiguous; after: shape (T), stride B. valid: shape (F, T), contiguous;
         * after: shape (T) */
        const __half *in = reinterpret_cast<const __half *>(w.in + f * w.stride * w.B + beam);
        const uint8_t *valid = w.valid ? w.valid + f * w.T : nullptr;
        const unsigned parts = br_follow_count(w.T);
        br_follow_parts found = {};
        float about = 0;
        bool any = false;
        for (unsigned part = 0; part < parts; part++) {
            const unsigned from = (part * w.T + parts - 1) / parts,
                           end = ((part + 1) * w.T + parts - 1) / parts;
            float sum = 0, squares = 0;
            unsigned count = 0;
            for (unsigned t = from; t < end; t++) {
                if (valid && !valid[t]) continue;
                const float x = __half2float(in[t * w.B]);
                if (!any) about = x, any = true;
                sum += x - about;
                squares = fmaf(x - about, x - about, squares);
                count++;
            }
            br_follow_part(&found, about, sum, squares, count);
        }
        br_follow_begin(state_at(w.slow, f, w.B, beam), &found);
    }
}

} // namespace quantize

} // namespace beamring

#endif
