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

constexpr int THREADS = 128; /* at most */
constexpr int AHEAD = 16;    /* groups that are read together */

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
    unsigned T, position, integrate, nblocks, spans;
    unsigned P, B, columns, width;
    bool groups, subtract;
};

/* Span k as power_span() in plan.h says. */
struct span {
    unsigned at, begin, end;
    bool ends;

    __device__ __forceinline__ span(const slab &s, unsigned k)
    {
        begin = k == 0 ? s.position : 0;
        at = k == 0 ? 0 : k * s.integrate - s.position;
        end = begin + min(s.T - at, s.integrate - begin);
        ends = k < s.nblocks;
    }
};

/* A column of what came, rows [F P][rows]. */
struct column_of {
    const float *from;
    size_t stride;
    unsigned number;

    __device__ __forceinline__ column_of(const slab &s, unsigned column) : number(column)
    {
        from = column < s.B ? s.powers + column : s.inputs;
        stride = column < s.B ? s.B : 1;
    }
    __device__ __forceinline__ const float *row(size_t i) const { return from + i * stride; }
};

/* The sum of a span's samples, in a channel and polarisation, of the group that begins at the block's sample
 * `first`; keeps them where the slab does not complete the group. */
__device__ __forceinline__ float sum_group(const slab &s, const span &part, size_t fp, unsigned first,
                                           const column_of &column)
{
    const bool open = !part.ends && first + GROUP > part.end;
    const float *from = column.row(fp * s.T + part.at);
    const size_t rest = fp * GROUP * s.columns + column.number;
    float sum[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        const unsigned t = first + i;
        sum[i] = 0;
        if (t >= part.end) continue;
        sum[i] = t >= part.begin ? from[(t - part.begin) * column.stride] : s.rest[rest + i * s.columns];
        if (open) s.rest_after[rest + i * s.columns] = sum[i];
    }
    const float all = add_tree<GROUP>(sum);
    return open ? 0 : all;
}

/* Adds N groups, each of all polarisations. All are read first: the memory is far. */
template <int N>
__device__ __forceinline__ float add_groups(float running, const float *from, size_t stride,
                                            size_t polarisation, unsigned P)
{
    float both[N] = {};
    for (unsigned p = 0; p < P; p++, from += polarisation)
#pragma unroll
        for (int i = 0; i < N; i++) both[i] = __fadd_rn(both[i], from[i * stride]);
#pragma unroll
    for (int i = 0; i < N; i++) running = __fadd_rn(running, both[i]);
    return running;
}

/* The sum of a span and of what came before it in its block. */
__device__ __forceinline__ float sum_span(const slab &s, const span &part, size_t f, const column_of &column)
{
    float running = part.begin > 0 ? s.running[f * s.columns + column.number] : 0;
    if (s.groups) {
        const size_t rows = s.T / GROUP;
        const unsigned count = (part.end - part.begin) / GROUP;
        const float *from = column.row(f * s.P * rows + part.at / GROUP);
        unsigned g = 0;
        for (; g + AHEAD <= count; g += AHEAD, from += AHEAD * column.stride)
            running = add_groups<AHEAD>(running, from, column.stride, rows * column.stride, s.P);
        for (; g < count; g++, from += column.stride)
            running = add_groups<1>(running, from, column.stride, rows * column.stride, s.P);
        return running;
    }
    for (unsigned first = part.begin - part.begin % GROUP; first < part.end; first += GROUP) {
        float both = 0;
        for (unsigned p = 0; p < s.P; p++)
            both = __fadd_rn(both, sum_group(s, part, f * s.P + p, first, column));
        running = __fadd_rn(running, both);
    }
    return running;
}

/* A thread for every channel, span and column: grid (F spans, columns / threads). */
__global__ void __launch_bounds__(THREADS) add_blocks(const slab s)
{
    const unsigned number = blockIdx.y * blockDim.x + threadIdx.x, k = blockIdx.x % s.spans;
    const size_t f = blockIdx.x / s.spans;
    if (number >= s.columns) return;
    const span part(s, k);
    float sum = sum_span(s, part, f, column_of(s, number));
    if (!part.ends) {
        s.running_after[f * s.columns + number] = sum;
        return;
    }
    if (number >= s.width) return;
    const float factor = s.factor != nullptr ? s.factor[f * s.nblocks + k] : s.same;
    if (s.subtract) sum = __fsub_rn(sum, sum_span(s, part, f, column_of(s, s.B)));
    const float value = factor == 0 ? 0 : fminf(__fmul_rn(sum, factor), 65504.0f);
    s.out[(f * s.out_stride + k) * s.width + number] = __half_as_ushort(__float2half_rn(value));
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
