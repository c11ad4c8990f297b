/* spread.cuh - E's nibbles to the bytes that are multiplied, and the products to visibilities. */
#ifndef BEAMRING_KERNELS_CORRELATE_GPU_SPREAD_CUH
#define BEAMRING_KERNELS_CORRELATE_GPU_SPREAD_CUH

#include "kernels/common/transpose.cuh"
#include "kernels/correlate/gpu/layout.h"
#include "kernels/correlate/gpu/products/products.h"

namespace beamring
{
namespace correlate
{

struct spread_work {
    const uint8_t *e;     /* int4x2 [count][F][N], from the first sample of the call on */
    const uint8_t *valid; /* [count][F], or NULL */
    int8_t *xy;           /* [channel of the group][2 Np][2 samples] */
    unsigned count;       /* samples that there are; the rest of `samples` is 0 */
    unsigned samples;     /* half a row of XY: a multiple of 128 */
    unsigned F, N, Np;
    unsigned first_channel; /* of the group */
};

/* Four inputs of a sample; 0 where there is none. WORDS: they are aligned. */
template <bool WORDS>
__device__ __forceinline__ unsigned load_inputs(const uint8_t *row, unsigned n, unsigned N)
{
    if (WORDS) return n < N ? __ldcs(reinterpret_cast<const unsigned *>(row + n)) : 0;
    unsigned word = 0;
    for (unsigned k = 0; k < 4; k++)
        if (n + k < N) word |= static_cast<unsigned>(row[n + k]) << 8 * k;
    return word;
}

/* Bytes that are a value + 8, 0 to 15, to the value; to 8 minus it. No borrow leaves a byte. */
__device__ __forceinline__ unsigned less_eight(unsigned bytes)
{
    return ((bytes | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
}

__device__ __forceinline__ unsigned from_eight(unsigned bytes)
{
    return (0x88888888u - bytes) ^ 0x80808080u;
}

/* One tile: SPREAD_TILE samples of as many inputs of one channel.
 *   grid   (tiles of samples, tiles of inputs, channels of the group)
 *   loads  warp w: samples w, w + 8, ...; lane l: inputs 4 l .. 4 l + 3
 *   stores warp w: words 4 w .. 4 w + 3 of inputs; lane l: samples l, l + 32, l + 64, l + 96 */
template <bool WORDS> __global__ void __launch_bounds__(SPREAD_THREADS) spread(spread_work w)
{
    __shared__ unsigned tile[SPREAD_TILE * SPREAD_PITCH];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned t0 = blockIdx.x * SPREAD_TILE, n0 = blockIdx.y * SPREAD_TILE, f = w.first_channel + blockIdx.z;

#pragma unroll 4
    for (unsigned t = warp; t < SPREAD_TILE; t += SPREAD_THREADS / 32) {
        size_t cell = static_cast<size_t>(t0 + t) * w.F + f;
        bool there = t0 + t < w.count && (w.valid == nullptr || w.valid[cell] != 0);
        tile[spread_word(t, lane)] = there ? load_inputs<WORDS>(w.e + cell * w.N, n0 + 4 * lane, w.N) : 0;
    }
    __syncthreads();

    size_t K = 2 * static_cast<size_t>(w.samples);
    int8_t *to = w.xy + blockIdx.z * 2 * w.Np * K + t0 + 4 * lane;
    for (unsigned word = warp * 4; word < warp * 4 + 4; word++) {
        unsigned n = n0 + 4 * word, a[4]; /* register: sample q, byte: input k */
        if (n >= w.Np) break;
        for (unsigned q = 0; q < 4; q++) a[q] = tile[spread_word(spread_sample(lane, q), word)];
        transpose_bytes<0>(a[0], a[1]);
        transpose_bytes<0>(a[2], a[3]);
        transpose_bytes<1>(a[0], a[2]);
        transpose_bytes<1>(a[1], a[3]); /* register: input k, byte: sample q */
        for (unsigned k = 0; k < 4; k++) {
            unsigned real = (a[k] & 0x0f0f0f0fu) ^ 0x08080808u,
                     imag = (a[k] >> 4 & 0x0f0f0f0fu) ^ 0x08080808u;
            unsigned block, row = spread_row(n + k, w.Np, PRODUCTS_BLOCK, &block);
            unsigned *x = reinterpret_cast<unsigned *>(to + row * K);
            unsigned *y = reinterpret_cast<unsigned *>(to + (row + block) * K);
            x[0] = less_eight(real), x[w.samples / 4] = less_eight(imag);
            y[0] = less_eight(imag), y[w.samples / 4] = from_eight(real);
        }
    }
}

struct gather_work {
    const int32_t *sums; /* [F] of products_offset(Np, blocks) */
    int2 *v;             /* [F][baseline] */
    size_t channel_sums; /* elements of a channel's sums */
    size_t nbaselines;
    unsigned N, Np;
};

/* V[i][j] = x[i] . x[j] + i y[i] . x[j]; the products have y of the later input, whose sign is the other one.
 *   grid (inputs i, F), threads: inputs j from i on */
__global__ void __launch_bounds__(256) gather(gather_work w)
{
    unsigned i = blockIdx.x, begin = i / PRODUCTS_BLOCK * PRODUCTS_BLOCK;
    const int32_t *column = w.sums + blockIdx.y * w.channel_sums;
    for (unsigned b = 0; b < begin; b += PRODUCTS_BLOCK)
        column += 2 * static_cast<size_t>(w.Np - b) * PRODUCTS_BLOCK; /* blocks before the last are whole */
    column += static_cast<size_t>(i - begin) * 2 * (w.Np - begin);
    int2 *v =
        w.v + blockIdx.y * w.nbaselines + static_cast<size_t>(i) * w.N - static_cast<size_t>(i) * (i + 1) / 2;
    for (unsigned j = i + threadIdx.x; j < w.N; j += blockDim.x) {
        unsigned block, row = spread_row(j, w.Np, PRODUCTS_BLOCK, &block) - 2 * begin;
        v[j] = make_int2(column[row], -column[row + block]);
    }
}

struct autos_work {
    const uint8_t *e, *valid;
    int32_t *sums; /* [F][N][2] */
    unsigned count, F, N;
};

enum { AUTOS_SAMPLES = 64 };

/* Sums of |E|^2 over AUTOS_SAMPLES samples.  grid (inputs / 256, F, samples / AUTOS_SAMPLES) */
__global__ void __launch_bounds__(256) autos(autos_work w)
{
    unsigned n = blockIdx.x * 256 + threadIdx.x, f = blockIdx.y, t0 = blockIdx.z * AUTOS_SAMPLES;
    unsigned end = min(t0 + AUTOS_SAMPLES, w.count);
    int sum = 0;
    if (n >= w.N) return;
    for (unsigned t = t0; t < end; t++) {
        size_t cell = static_cast<size_t>(t) * w.F + f;
        if (w.valid != nullptr && w.valid[cell] == 0) continue;
        int byte = w.e[cell * w.N + n], real = ((byte & 15) ^ 8) - 8, imag = (byte >> 4 ^ 8) - 8;
        sum += real * real + imag * imag;
    }
    if (sum != 0) atomicAdd(&w.sums[2 * (static_cast<size_t>(f) * w.N + n)], sum);
}

} // namespace correlate
} // namespace beamring

#endif
