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
    int8_t *xy;           /* [F][2 Np][pitch], from where this call's tiles begin in each row */
    size_t pitch;         /* bytes of a row */
    unsigned count;       /* samples; the rest of the last tile becomes 0 */
    unsigned F, N, Np;
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
 *   grid   (tiles of samples, tiles of inputs, channels)
 *   loads  warp w: samples w, w + 8, ...; lane l: inputs 4 l .. 4 l + 3
 *   stores warp w: words 4 w .. 4 w + 3 of inputs; lane l: samples l, l + 32, l + 64, l + 96 */
template <bool WORDS> __global__ void __launch_bounds__(SPREAD_THREADS) spread(spread_work w)
{
    __shared__ unsigned tile[SPREAD_TILE * SPREAD_PITCH];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned t0 = blockIdx.x * SPREAD_TILE, n0 = blockIdx.y * SPREAD_TILE, f = blockIdx.z;

#pragma unroll 4
    for (unsigned t = warp; t < SPREAD_TILE; t += SPREAD_THREADS / 32) {
        size_t cell = static_cast<size_t>(t0 + t) * w.F + f;
        bool there = t0 + t < w.count && (w.valid == nullptr || w.valid[cell] != 0);
        tile[spread_word(t, lane)] = there ? load_inputs<WORDS>(w.e + cell * w.N, n0 + 4 * lane, w.N) : 0;
    }
    __syncthreads();

    int8_t *to = w.xy + f * 2 * w.Np * w.pitch + 2 * t0 + 4 * lane;
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
            unsigned *x = reinterpret_cast<unsigned *>(to + row * w.pitch);
            unsigned *y = reinterpret_cast<unsigned *>(to + (row + block) * w.pitch);
            x[0] = less_eight(real), x[SPREAD_WORDS] = less_eight(imag);
            y[0] = less_eight(imag), y[SPREAD_WORDS] = from_eight(real);
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

enum { AUTOS_SAMPLES = 64, AUTOS_THREADS = 128 };

/* Sums of |E|^2 over AUTOS_SAMPLES samples of four inputs a thread.
 *   grid (inputs / 4 AUTOS_THREADS, F, samples / AUTOS_SAMPLES) */
template <bool WORDS> __global__ void __launch_bounds__(AUTOS_THREADS) autos(autos_work w)
{
    unsigned n = (blockIdx.x * AUTOS_THREADS + threadIdx.x) * 4, f = blockIdx.y,
             t0 = blockIdx.z * AUTOS_SAMPLES;
    unsigned end = min(t0 + AUTOS_SAMPLES, w.count);
    int sum[4] = {0, 0, 0, 0}; /* register: input k */
    if (n >= w.N) return;
#pragma unroll 8
    for (unsigned t = t0; t < end; t++) {
        size_t cell = static_cast<size_t>(t) * w.F + f;
        if (w.valid != nullptr && w.valid[cell] == 0) continue;
        unsigned word = load_inputs<WORDS>(w.e + cell * w.N, n, w.N);
        unsigned real = less_eight((word & 0x0f0f0f0fu) ^ 0x08080808u),
                 imag = less_eight((word >> 4 & 0x0f0f0f0fu) ^ 0x08080808u);
        for (unsigned k = 0; k < 4; k++) { /* a product of four bytes of which one is not 0, each */
            unsigned one = 0xffu << 8 * k;
            sum[k] = __dp4a(static_cast<int>(imag & one), static_cast<int>(imag),
                            __dp4a(static_cast<int>(real & one), static_cast<int>(real), sum[k]));
        }
    }
    for (unsigned k = 0; k < 4; k++)
        if (n + k < w.N && sum[k] != 0)
            atomicAdd(&w.sums[2 * (static_cast<size_t>(f) * w.N + n + k)], sum[k]);
}

} // namespace correlate
} // namespace beamring

#endif
