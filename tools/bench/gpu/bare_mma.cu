/* bare_mma.cu - a loop of mma.sync and nothing else: the bound of what kernels for any GPU multiply. */
#include "kernels/common/device.cuh"
#include "tools/bench/gpu/bare_mma.h"

#include <cuda_runtime.h>

namespace
{

constexpr int SUMS = 12, WARPS = 8,
              BLOCKS = 2; /* sums of a warp, warps of a block, blocks of a multiprocessor */

/* What is multiplied matters for the power that it takes: any bits of the lane's, no infinities. */
__device__ unsigned some_bits(unsigned i, unsigned mask)
{
    return ((threadIdx.x + 256 * i + 1) * 2654435761u & mask) | (~mask & 0x38003800u);
}

template <bool INT8> __global__ void __launch_bounds__(32 * WARPS, BLOCKS) multiply(unsigned rounds, int *out)
{
    constexpr unsigned MASK = INT8 ? 0xffffffffu : 0x87ff87ffu;
    unsigned a[4], b[2] = {some_bits(4, MASK), some_bits(5, MASK)};
    int ints[SUMS][4] = {}, all = 0;
    float floats[SUMS][4] = {};
#pragma unroll
    for (unsigned i = 0; i < 4; i++) a[i] = some_bits(i, MASK);
#pragma unroll 1
    for (unsigned round = 0; round < rounds; round++)
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            if constexpr (INT8)
                beamring::mma_s8(ints[i], make_uint4(a[0], a[1], a[2], a[3]), b);
            else
                beamring::mma_f16(floats[i], a, b);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) all ^= INT8 ? ints[i][r] : __float_as_int(floats[i][r]);
    if (all == 0x2b2b2b2b) out[0] = all; /* else the compiler leaves all of it out */
}

} // namespace

extern "C" double gpu_bare_mma(bool int8, unsigned rounds, unsigned waves, void *out, void *stream)
{
    int device = 0, processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const unsigned blocks = BLOCKS * waves * static_cast<unsigned>(processors);
    const auto kernel = int8 ? multiply<true> : multiply<false>;
    kernel<<<blocks, 32 * WARPS, 0, static_cast<cudaStream_t>(stream)>>>(rounds, static_cast<int *>(out));
    return 2.0 * 16 * 8 * (int8 ? 32 : 16) * SUMS * WARPS * blocks * rounds;
}
