/* combine.cuh - the mean over the map, beside the beams or subtracted from them. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_INCOHERENT_COMBINE_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_INCOHERENT_COMBINE_CUH

#include "kernels/frb_beams/gpu/store.cuh"

namespace beamring
{
namespace incoherent
{

enum { THREADS = 128, WARPS = THREADS / 32 };

struct work {
    const uint16_t *in;   /* [F][stride][cells] */
    const uint8_t *valid; /* [F][stride], or null */
    const uint16_t *from; /* [F][stride][B] to append to, or null: the beams are in `out` */
    uint16_t *out;        /* [F][stride][B + 1], or, to subtract, [F][stride][B] */
    unsigned steps, stride, count, cells, B;
    bool append;
};

__device__ __forceinline__ float half_of(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

__device__ __forceinline__ uint16_t clamped(float value)
{
    return static_cast<uint16_t>(pack_clamped(value, 0.0f) & 0xffffu);
}

/* From eight beams. */
__device__ __forceinline__ void subtract(uint4 &beams, float sum)
{
    unsigned word[4] = {beams.x, beams.y, beams.z, beams.w};
#pragma unroll
    for (unsigned &both : word) {
        const float2 pair = __half22float2(*reinterpret_cast<__half2 *>(&both));
        both = pack_clamped(pair.x - sum, pair.y - sum);
    }
    beams = make_uint4(word[0], word[1], word[2], word[3]);
}

/* A warp a step; the sums of 32 lanes in a fixed order. WIDE: the map is read in words of four cells.
 *   grid (F count / WARPS) */
template <bool WIDE> __global__ void __launch_bounds__(THREADS) combine(work w)
{
    unsigned lane = threadIdx.x % 32, task = blockIdx.x * WARPS + threadIdx.x / 32;
    if (task >= w.steps) return;
    size_t step = static_cast<size_t>(task / w.count) * w.stride + task % w.count;
    const uint16_t *image = w.in + step * w.cells;
    bool there = w.valid == nullptr || w.valid[step] != 0;
    float sum = 0;
    for (unsigned i = 4 * lane; there && i < w.cells; i += 128) { /* a map has a multiple of 4 cells */
        uint2 four = WIDE ? __ldg(reinterpret_cast<const uint2 *>(image + i))
                          : make_uint2(image[i] | static_cast<unsigned>(image[i + 1]) << 16,
                                       image[i + 2] | static_cast<unsigned>(image[i + 3]) << 16);
        float2 low = __half22float2(*reinterpret_cast<__half2 *>(&four.x)),
               high = __half22float2(*reinterpret_cast<__half2 *>(&four.y));
        sum += (low.x + low.y) + (high.x + high.y);
    }
#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, d);
    sum /= static_cast<float>(w.cells);
    if (w.append) {
        uint16_t *out = w.out + step * (w.B + 1);
        if (w.from != nullptr) copy_row(out, w.from + step * w.B, w.B, lane, 32);
        if (lane == 0) out[w.B] = there ? clamped(sum) : 0;
    } else {
        uint16_t *out = w.out + step * w.B;
        if (!there) return;
        if (w.B % 8 == 0 && reinterpret_cast<uintptr_t>(w.out) % 16 == 0) {
            for (unsigned b = lane; b < w.B / 8; b += 32) subtract(reinterpret_cast<uint4 *>(out)[b], sum);
        } else {
            for (unsigned b = lane; b < w.B; b += 32) out[b] = clamped(half_of(out[b]) - sum);
        }
    }
}

} // namespace incoherent
} // namespace beamring

#endif
