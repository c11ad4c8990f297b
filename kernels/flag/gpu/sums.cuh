/* sums.cuh - one pass over E: a copy without the bad inputs, and the sums of the powers of all of them.
 *
 * A thread owns 16 inputs of one channel, which it loads as 16 bytes, for the samples of one block; threads
 * that are neighbours have neighbouring bytes of a time step, whatever the channel. Four samples at a time:
 * |E|^2 of a byte is at most 128 and a byte itself, and once four samples of an input stand in one register,
 * one product of four bytes adds their powers and another one the squares of these. */
#ifndef BEAMRING_KERNELS_FLAG_GPU_SUMS_CUH
#define BEAMRING_KERNELS_FLAG_GPU_SUMS_CUH

#include "kernels/common/transpose.cuh"
#include "kernels/flag/plan.h"

#include <stddef.h>

namespace beamring
{
namespace flag
{

enum { SUMS_THREADS = 128, SUMS_BLOCKS = 6 };

struct sums_work {
    const uint8_t *e;              /* int4x2 [count][F][N], from the first sample of the call on */
    const uint8_t *cells;          /* [count][F] of enum flag_cell, or null: all count */
    const uint8_t *keep;           /* [N rounded up to 16]: 0xff or 0 */
    uint8_t *out;                  /* as e */
    uint32_t *sums;                /* [nblocks][F][2][N] */
    uint16_t *lost;                /* [nblocks][F][N] */
    unsigned at, count;            /* samples of the long block: [at, at + count) */
    unsigned F, N, block, vectors; /* vectors: groups of 16 inputs in a channel */
    bool goes_on;                  /* the block that `at` lies in has sums already */
};

/* 16 inputs of a row, 0 where there are none. WHOLE: they are, and aligned. */
template <bool WHOLE> __device__ __forceinline__ uint4 load_inputs(const uint8_t *row, unsigned n, unsigned N)
{
    if (WHOLE) return __ldcs(reinterpret_cast<const uint4 *>(row + n));
    unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
    for (unsigned k = 0; k < 16; k++)
        if (n + k < N) word[k / 4] |= static_cast<unsigned>(row[n + k]) << k % 4 * 8;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <bool WHOLE>
__device__ __forceinline__ void store_inputs(uint8_t *row, unsigned n, unsigned N, uint4 x)
{
    if (WHOLE) {
        __stcs(reinterpret_cast<uint4 *>(row + n), x);
        return;
    }
    unsigned word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (unsigned k = 0; k < 16; k++)
        if (n + k < N) row[n + k] = static_cast<uint8_t>(word[k / 4] >> k % 4 * 8);
}

__device__ __forceinline__ uint4 operator&(uint4 a, uint4 b)
{
    return make_uint4(a.x & b.x, a.y & b.y, a.z & b.z, a.w & b.w);
}

__device__ __forceinline__ uint4 operator|(uint4 a, uint4 b)
{
    return make_uint4(a.x | b.x, a.y | b.y, a.z | b.z, a.w | b.w);
}

/* Four bytes of a table of eight, by the low four nibbles; 0 for those of 8 and more: they choose the sign of
 * a byte, and that of all bytes here is 0. */
__device__ __forceinline__ unsigned look_up(unsigned first, unsigned second, unsigned nibbles)
{
    unsigned bytes;
    asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(bytes) : "r"(first), "r"(second), "r"(nibbles));
    return bytes;
}

/* |E|^2 of four bytes: the squares of 0 to 7 from one table (0 1 4 9, 16 25 36 49), those of -8 to -1 from
 * another one (64 49 36 25, 16 9 4 1), with the top bits inverted.
 *   simd: b1 b0 <-> input 1 0 */
__device__ __forceinline__ unsigned powers(unsigned bytes)
{
    constexpr unsigned P0 = 0x09040100u, P1 = 0x31241910u, M0 = 0x19243140u, M1 = 0x01040910u;
    unsigned other = bytes ^ 0x88888888u;
    unsigned low = look_up(P0, P1, bytes) | look_up(M0, M1, other);
    unsigned high = look_up(P0, P1, bytes >> 16) | look_up(M0, M1, other >> 16);
    return __byte_perm(low, high, 0x6420) + __byte_perm(low, high, 0x7531); /* low: im1 re1 im0 re0 */
}

/* Four samples of four inputs.
 *   power[4]  simd: b1 b0 <-> input 1 0   register: sample 1 0;   then the other way round */
__device__ __forceinline__ void add_powers(unsigned (&power)[4], unsigned *s1, unsigned *s2)
{
    transpose_bytes<0>(power[0], power[1]);
    transpose_bytes<0>(power[2], power[3]);
    transpose_bytes<1>(power[0], power[2]);
    transpose_bytes<1>(power[1], power[3]);
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
        s1[k] = __dp4a(power[k], 0x01010101u, s1[k]);
        s2[k] = __dp4a(power[k], power[k], s2[k]);
    }
}

template <bool WHOLE>
__device__ __forceinline__ void store_sums(uint32_t *to, unsigned n, unsigned N, const unsigned (&s)[16],
                                           bool add)
{
#pragma unroll
    for (unsigned k = 0; k < 16; k += 4) {
        if (WHOLE) {
            uint4 *at = reinterpret_cast<uint4 *>(to + n + k);
            uint4 was = add ? *at : make_uint4(0, 0, 0, 0);
            *at = make_uint4(was.x + s[k], was.y + s[k + 1], was.z + s[k + 2], was.w + s[k + 3]);
        } else {
#pragma unroll
            for (unsigned i = k; i < k + 4; i++)
                if (n + i < N) to[n + i] = (add ? to[n + i] : 0) + s[i];
        }
    }
}

/* Where bytes are not 0.
 *   x       simd: input 3 2 1 0   register: input / 4
 *   result  bit 8 i + 7 - k <-> input 4 k + i */
__device__ __forceinline__ unsigned not_zero(uint4 x)
{
    constexpr unsigned TOPS = 0x80808080u, OTHERS = 0x7f7f7f7fu;
    unsigned a = ((x.x & OTHERS) + OTHERS) | x.x, b = ((x.y & OTHERS) + OTHERS) | x.y;
    unsigned c = ((x.z & OTHERS) + OTHERS) | x.z, d = ((x.w & OTHERS) + OTHERS) | x.w;
    return (a & TOPS) | (b & TOPS) >> 1 | (c & TOPS) >> 2 | (d & TOPS) >> 3;
}

/* Counts FLAG_RUN samples as lost for each of 16 inputs that is not in `there`, the mask of the inputs with a
 * sample that is not 0. */
__device__ __forceinline__ void add_lost(uint16_t *lost, unsigned there, unsigned inputs)
{
    for (unsigned gone = ~there & 0xf0f0f0f0u; gone != 0; gone &= gone - 1) { /* nearly never */
        unsigned bit = __ffs(gone) - 1, k = 4 * (7 - bit % 8) + bit / 8;
        if (k < inputs) lost[k] += FLAG_RUN;
    }
}

/* grid (F vectors / SUMS_THREADS, blocks that the call touches)
 *   x[4]          simd, register: input   one for each of four samples
 *   s1[16] s2[16] register: input */
template <bool WHOLE, bool CELLS>
__global__ void __launch_bounds__(SUMS_THREADS, SUMS_BLOCKS) sums(sums_work w)
{
    unsigned group = blockIdx.x * SUMS_THREADS + threadIdx.x;
    if (group >= w.F * w.vectors) return;
    unsigned f = group / w.vectors, n = (group - f * w.vectors) * 16, b = w.at / w.block + blockIdx.y;
    /* Samples of the block, by fours; with CELLS from its begin on, so that runs are whole fours. */
    unsigned from = max(b * w.block, w.at) - b * w.block;
    unsigned to = min((b + 1) * w.block, w.at + w.count) - b * w.block, first = CELLS ? from / 4 * 4 : from;
    const uint4 keep = *reinterpret_cast<const uint4 *>(w.keep + n);
    size_t step = static_cast<size_t>(w.F) * w.N;
    ptrdiff_t cell = (static_cast<ptrdiff_t>(b) * w.block + first - w.at) * w.F + f;
    const uint8_t *e = w.e + cell * w.N, *cells = w.cells + cell;
    uint8_t *out = w.out + cell * w.N;
    unsigned s1[16], s2[16], run = 0; /* run: inputs that were not 0 since it began */
#pragma unroll
    for (unsigned k = 0; k < 16; k++) s1[k] = s2[k] = 0;

    for (unsigned t = first; t < to; t += 4) {
        unsigned what = FLAG_COUNTS;
        uint4 x[4];
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            bool is = t + i < to && (!CELLS || t + i >= from);
            x[i] = is ? load_inputs<WHOLE>(e + i * step, n, w.N) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (unsigned i = 0; i < 4; i++)
            if (t + i < to && (!CELLS || t + i >= from))
                store_inputs<WHOLE>(out + i * step, n, w.N, x[i] & keep);
#pragma unroll
        for (unsigned i = 0; CELLS && i < 4; i++) {
            if (t + i < to && t + i >= from) what = cells[static_cast<size_t>(i) * w.F];
            if (what == FLAG_OUT) x[i] = make_uint4(0, 0, 0, 0);
        }
        if (CELLS && what == FLAG_GAPS) {
            run |= not_zero(x[0] | x[1] | x[2] | x[3]);
            if (t % FLAG_RUN == FLAG_RUN - 4) {
                add_lost(w.lost + (static_cast<size_t>(b) * w.F + f) * w.N + n, run, w.N - n);
                run = 0;
            }
        }
        unsigned p[4]; /* simd: input 1 0   register: sample 1 0 */
        p[0] = powers(x[0].x), p[1] = powers(x[1].x), p[2] = powers(x[2].x), p[3] = powers(x[3].x);
        add_powers(p, s1, s2);
        p[0] = powers(x[0].y), p[1] = powers(x[1].y), p[2] = powers(x[2].y), p[3] = powers(x[3].y);
        add_powers(p, s1 + 4, s2 + 4);
        p[0] = powers(x[0].z), p[1] = powers(x[1].z), p[2] = powers(x[2].z), p[3] = powers(x[3].z);
        add_powers(p, s1 + 8, s2 + 8);
        p[0] = powers(x[0].w), p[1] = powers(x[1].w), p[2] = powers(x[2].w), p[3] = powers(x[3].w);
        add_powers(p, s1 + 12, s2 + 12);
        e += 4 * step, out += 4 * step, cells += 4 * static_cast<size_t>(w.F);
    }
    bool add = w.goes_on && blockIdx.y == 0;
    uint32_t *sum = w.sums + (static_cast<size_t>(b) * w.F + f) * 2 * w.N;
    store_sums<WHOLE>(sum, n, w.N, s1, add);
    store_sums<WHOLE>(sum + w.N, n, w.N, s2, add);
}

} // namespace flag
} // namespace beamring

#endif
