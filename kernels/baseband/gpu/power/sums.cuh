/* sums.cuh - what a plan that integrates makes of the beamformer's powers on a GPU: sums of blocks, in the
 * order of power.h; and the powers of the incoherent sum. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_POWER_SUMS_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_POWER_SUMS_CUH

#include "kernels/baseband/gpu/ending.cuh"
#include "kernels/common/device.cuh"

#include <cuda_fp16.h>
#include <stddef.h>
#include <stdint.h>

namespace beamring::baseband::power
{

constexpr int THREADS = 128;

/* A slab: see struct power_slab and struct power_state in plan.h. Columns are the B beams, and the incoherent
 * sum where there is one. */
struct slab {
    const float *powers;         /* [F P][T][B], or of groups of samples [F P][T / GROUP][B] */
    const float *inputs;         /* [F P][T], or [F P][T / GROUP]: the incoherent sum's; or NULL */
    const float *running, *rest; /* [F][columns], [F][P][GROUP][columns]: as they were before */
    float *running_after, *rest_after;
    const float *factor; /* [F][nblocks], or NULL: `same` for all */
    float same;
    uint16_t *out; /* [F][out_stride][width] */
    size_t out_stride;
    size_t T, position, integrate, nblocks, spans;
    unsigned F, P, B, columns, width;
    bool groups, subtract;
};

/* Span k as power_span() in plan.h says. */
struct span {
    size_t at, begin, end;
    bool ends;

    __device__ __forceinline__ span(const slab &s, size_t k)
    {
        begin = k == 0 ? s.position : 0;
        at = k == 0 ? 0 : k * s.integrate - s.position;
        end = begin + min(s.T - at, s.integrate - begin);
        ends = k < s.nblocks;
    }
};

/* Row `row` of [F P][rows] of what came for a column. */
__device__ __forceinline__ float value_at(const slab &s, size_t row, unsigned column)
{
    return column < s.B ? s.powers[row * s.B + column] : s.inputs[row];
}

/* The sum of a span's samples, in a channel and polarisation, of the group that begins at the block's sample
 * `first`; keeps them where the slab does not complete the group. */
__device__ __forceinline__ float sum_group(const slab &s, const span &part, size_t fp, size_t first,
                                           unsigned column)
{
    const bool open = !part.ends && first + GROUP > part.end;
    float sum[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        size_t t = first + i, rest = (fp * GROUP + i) * s.columns + column;
        sum[i] = t >= part.end     ? 0
                 : t >= part.begin ? value_at(s, fp * s.T + part.at + t - part.begin, column)
                                   : s.rest[rest];
        if (open && t < part.end) s.rest_after[rest] = sum[i];
    }
    const float all = add_tree<GROUP>(sum);
    return open ? 0 : all;
}

/* The sum of a span and of what came before it in its block. */
__device__ __forceinline__ float sum_span(const slab &s, const span &part, size_t f, unsigned column)
{
    float running = part.begin > 0 ? s.running[f * s.columns + column] : 0;
    if (s.groups) {
        const size_t rows = s.T / GROUP, first = part.at / GROUP, count = (part.end - part.begin) / GROUP;
#pragma unroll 8
        for (size_t g = 0; g < count; g++) {
            float both = 0;
            for (unsigned p = 0; p < s.P; p++)
                both = __fadd_rn(both, value_at(s, (f * s.P + p) * rows + first + g, column));
            running = __fadd_rn(running, both);
        }
        return running;
    }
    for (size_t first = part.begin - part.begin % GROUP; first < part.end; first += GROUP) {
        float both = 0;
        for (unsigned p = 0; p < s.P; p++)
            both = __fadd_rn(both, sum_group(s, part, f * s.P + p, first, column));
        running = __fadd_rn(running, both);
    }
    return running;
}

/* A thread for every channel, span and column; columns are fastest. */
__global__ void __launch_bounds__(THREADS) add_blocks(const slab s)
{
    size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    const unsigned column = static_cast<unsigned>(i % s.columns);
    i /= s.columns;
    const size_t k = i % s.spans, f = i / s.spans;
    if (f >= s.F) return;
    const span part(s, k);
    float sum = sum_span(s, part, f, column);
    if (!part.ends) {
        s.running_after[f * s.columns + column] = sum;
        return;
    }
    if (column >= s.width) return;
    const float factor = s.factor != nullptr ? s.factor[f * s.nblocks + k] : s.same;
    if (s.subtract) sum = __fsub_rn(sum, sum_span(s, part, f, s.B));
    const float value = factor == 0 ? 0 : fminf(__fmul_rn(sum, factor), 65504.0f);
    s.out[(f * s.out_stride + k) * s.width + column] = __half_as_ushort(__float2half_rn(value));
}

/* The incoherent sum of 16 samples of one channel and polarisation, a warp each.
 *   e [T][F P][D]   counts [rows][D], row fp, or fp % P where channels share them   valid [T][F] or NULL
 *   inputs as in struct slab */
__global__ void __launch_bounds__(32 * GROUP)
    add_inputs(const uint8_t *e, const uint8_t *valid, const int *counts, bool shared, float *inputs,
               size_t T, size_t F, unsigned P, size_t D, bool groups)
{
    __shared__ float powers[GROUP];
    const size_t tiles = (T + GROUP - 1) / GROUP, fp = blockIdx.x / tiles, tile = blockIdx.x % tiles,
                 t = tile * GROUP + threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const int *c = counts + (shared ? fp % P : fp) * D;
    long long sum = 0;
    if (t < T && (valid == nullptr || valid[t * F + fp / P]))
        for (size_t d = lane; d < D; d += 32) {
            const int byte = e[(t * F * P + fp) * D + d], x = (byte & 15 ^ 8) - 8, y = (byte >> 4 ^ 8) - 8;
            sum += static_cast<long long>(c[d]) * (x * x + y * y);
        }
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, bit);
    if (!groups) {
        if (lane == 0 && t < T) inputs[fp * T + t] = __ll2float_rn(sum);
        return;
    }
    if (lane == 0) powers[threadIdx.x / 32] = __ll2float_rn(sum);
    __syncthreads();
    if (threadIdx.x > 0) return;
    inputs[fp * (T / GROUP) + tile] = add_tree<GROUP>(powers);
}

} // namespace beamring::baseband::power

#endif
