/* tile.cuh - packets to E through shared memory, one pass over global memory.
 *
 * A block of threads takes one stream, a few adjacent channels of its packets, all sources, and the packets
 * of one sum block, as many at a time as have 8 samples: while these packets are converted, the next ones
 * are copied (double buffer, cp.async). A thread owns V positions (V = 8 or 4 inputs that are neighbours in
 * packet and E; V = 1: four positions, gathered byte by byte) of one channel for all samples, so that sums
 * stay in registers.
 *   thread:  channel of the tile (slow), group of positions (fast), so that a warp stores whole rows of E */
#ifndef BEAMRING_KERNELS_UNPACK_GPU_TILE_TILE_CUH
#define BEAMRING_KERNELS_UNPACK_GPU_TILE_TILE_CUH

#include "kernels/common/device.cuh"
#include "kernels/unpack/gpu/tile/layout.h"
#include "kernels/unpack/unpack.h"

#include <cuda_runtime.h>

namespace beamring
{
namespace unpack
{

constexpr unsigned MOST_THREADS = 1024, BUFFERS = 2, MASK_PACKETS = 32, NO_SOURCE = 0xffffffffu;

struct work {
    const uint8_t *in;       /* [block][source][stream][packet] */
    const uint8_t *receipt;  /* [block][receipt_bytes], or null */
    uint8_t *out;            /* [block][t][F][N] */
    uint32_t *sums;          /* [sum block][F][3][N] */
    const uint2 *place;      /* [group][V, or 4 for V = 1]: {bytes in the tile without the channel, source} */
    const unsigned *channel; /* [stream][channel of the packet]: channel of E */
    size_t block_bytes, source_bytes, packet_bytes;
    unsigned F, N, nsources, nstreams, receipt_bytes, samples, nblocks, per_sum;
    unsigned packet_channels, channel_stride, outer, outer_bytes; /* see layout.h */
    unsigned channels, pitch, buffer_bytes;                       /* of a tile, for one block of packets */
    unsigned together;                                            /* blocks in a buffer: 1, 2, 4 or 8 */
    unsigned time_place; /* bytes in the tile from sample to sample */
    unsigned groups;     /* of positions in a row of E */
    unsigned flip;       /* 0x88888888: offset binary */
};

/* `count` packets of every source, buffer_bytes apart, WIDE bytes at a time. */
template <unsigned WIDE>
__device__ __forceinline__ void load_as(const work &w, uint8_t *buffer, const uint8_t *from,
                                        unsigned run_bytes, unsigned count)
{
    unsigned each = run_bytes / WIDE, all = w.nsources * w.outer * each;
    unsigned inverse = 0xffffffffu / each + 1; /* i / each for i < 2^16; each = 1: 0, seen to below */
    for (unsigned i = threadIdx.x; i < all; i += blockDim.x) {
        unsigned row = each == 1      ? i
                       : all <= 65536 ? __umulhi(i, inverse)
                                      : i / each,
                 column = i - row * each;
        unsigned source = w.outer == 1 ? row : row / w.outer, outer = row - source * w.outer;
        const uint8_t *p = from + source * w.source_bytes + outer * w.outer_bytes + column * WIDE;
        uint8_t *s = buffer + unpack_source(source, w.outer, w.pitch) + outer * w.pitch + column * WIDE;
#pragma unroll 1
        for (unsigned k = 0; k < count; k++, p += w.block_bytes, s += w.buffer_bytes)
            if (WIDE == 16)
                copy_async_16(s, p, true);
            else if (WIDE == 4)
                copy_async_4(s, p, true);
            else
                *s = *p;
    }
}

/* The next packets of every source: at most w.together, and `left`. */
__device__ __forceinline__ void load(const work &w, unsigned wide, uint8_t *buffer, const uint8_t *from,
                                     unsigned run_bytes, unsigned left)
{
    unsigned count = min(left, w.together);
    if (wide == 16)
        load_as<16>(w, buffer, from, run_bytes, count);
    else if (wide == 4)
        load_as<4>(w, buffer, from, run_bytes, count);
    else
        load_as<1>(w, buffer, from, run_bytes, count);
}

/* For each source which of the packets first to first + 31 came, a bit each. A warp a source, a lane a
 * packet. */
__device__ __forceinline__ void load_receipts(const work &w, unsigned *came, unsigned stream, unsigned first,
                                              unsigned end)
{
    unsigned lane = threadIdx.x % 32, packet = first + lane;
    for (unsigned source = threadIdx.x / 32; source < w.nsources; source += blockDim.x / 32) {
        unsigned bit = source * w.nstreams + stream;
        bool is = packet < end &&
                  (!w.receipt ||
                   (w.receipt[static_cast<size_t>(packet) * w.receipt_bytes + bit / 8] >> bit % 8 & 1));
        unsigned mask = __ballot_sync(WHOLE_WARP, is);
        if (lane == 0) came[source] = mask;
    }
}

/* Four samples: coded bytes to int4x2, and their powers added.
 *   simd: b1 b0 <-> position, the same in and out */
template <bool SWAP, bool SUMS>
__device__ __forceinline__ unsigned convert(unsigned bytes, unsigned (&s1)[4], unsigned (&s2)[4])
{
    unsigned high = bytes & 0xf0f0f0f0u, low = (bytes << 4) & 0xf0f0f0f0u; /* components times 16, as int8 */
    if (SUMS) {
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            /* (high, low, high, low) of byte k: the product with itself is 2 x 256 |E|^2. */
            int pair = static_cast<int>(__byte_perm(high, low, k | (4 + k) << 4 | k << 8 | (4 + k) << 12));
            unsigned power = static_cast<unsigned>(__dp4a(pair, pair, 0)) >> 9;
            s1[k] += power;
            s2[k] += power * power;
        }
    }
    return SWAP ? high >> 4 | low : bytes;
}

/* Positions of this thread, where they stand in a tile, and what has been added up. */
template <unsigned V> struct owned {
    static constexpr unsigned WORDS = V == 8 ? 2 : 1, PLACES = V == 1 ? 4 : 1;
    uint2 place[PLACES];
    unsigned s0[PLACES], s1[WORDS][4], s2[WORDS][4];
};

/* 0xff for each byte that came. */
template <unsigned V>
__device__ __forceinline__ unsigned keep_mask(owned<V> &o, const unsigned *came, unsigned k, unsigned samples)
{
    unsigned mask = 0;
#pragma unroll
    for (unsigned i = 0; i < owned<V>::PLACES; i++) {
        unsigned is = o.place[i].y == NO_SOURCE ? 0 : came[o.place[i].y] >> k & 1;
        o.s0[i] += is * samples;
        mask |= V == 1 ? (0u - is) & 0xffu << 8 * i : 0u - is;
    }
    return mask;
}

/* All samples of one packet. `to`: this thread's positions at the packet's first sample. */
template <unsigned V, bool SWAP, bool SUMS>
__device__ __forceinline__ void convert_packet(const work &w, owned<V> &o, const uint8_t *buffer,
                                               unsigned mask, uint8_t *to, unsigned left)
{
    size_t stride = static_cast<size_t>(w.F) * w.N;
#pragma unroll 4
    for (unsigned t = 0; t < w.samples; t++, buffer += w.time_place, to += stride) {
        if (V == 8) {
            uint2 v = *reinterpret_cast<const uint2 *>(buffer + o.place[0].x);
            v.x = convert<SWAP, SUMS>((v.x ^ w.flip) & mask, o.s1[0], o.s2[0]);
            v.y = convert<SWAP, SUMS>((v.y ^ w.flip) & mask, o.s1[owned<V>::WORDS - 1],
                                      o.s2[owned<V>::WORDS - 1]);
            *reinterpret_cast<uint2 *>(to) = v;
        } else if (V == 4) {
            unsigned v = *reinterpret_cast<const unsigned *>(buffer + o.place[0].x);
            *reinterpret_cast<unsigned *>(to) = convert<SWAP, SUMS>((v ^ w.flip) & mask, o.s1[0], o.s2[0]);
        } else {
            unsigned v = 0;
#pragma unroll
            for (unsigned i = 0; i < owned<V>::PLACES; i++)
                v |= static_cast<unsigned>(buffer[o.place[i].x]) << 8 * i;
            v = convert<SWAP, SUMS>((v ^ w.flip) & mask, o.s1[0], o.s2[0]);
            if (w.N % 4 == 0)
                *reinterpret_cast<unsigned *>(to) = v;
            else
                for (unsigned i = 0; i < 4 && i < left; i++) to[i] = static_cast<uint8_t>(v >> 8 * i);
        }
    }
}

/* sums: S0 of this thread's first position; S1 and S2 are N and 2 N further on. */
template <unsigned V>
__device__ __forceinline__ void store_sums(const work &w, const owned<V> &o, uint32_t *sums, unsigned left)
{
#pragma unroll
    for (unsigned i = 0; i < (V == 1 ? 4 : V); i++) {
        if (V == 1 && i >= left) continue;
        sums[i] = o.s0[V == 1 ? i % owned<V>::PLACES : 0];
        sums[w.N + i] = o.s1[i / 4][i % 4];
        sums[2 * w.N + i] = o.s2[i / 4][i % 4];
    }
}

/* Grid: (sum block, chunk of channels, stream), stream fastest, since channels of neighbouring streams are
 * often neighbours in E. Block: at least channels x groups threads. Shared: BUFFERS x together tiles, then
 * came[nsources]. */
template <unsigned V, bool SWAP, bool SUMS>
__global__ __launch_bounds__(MOST_THREADS) void tile(work w, unsigned wide)
{
    extern __shared__ uint4 shared[];
    uint8_t *buffer = reinterpret_cast<uint8_t *>(shared);
    unsigned *came = reinterpret_cast<unsigned *>(buffer + BUFFERS * w.together * w.buffer_bytes);
    unsigned chunks = (w.packet_channels + w.channels - 1) / w.channels;
    unsigned stream = blockIdx.x % w.nstreams, rest = blockIdx.x / w.nstreams,
             c0 = rest % chunks * w.channels;
    unsigned sum_block = rest / chunks, first = sum_block * w.per_sum;
    unsigned end = w.nblocks - first < w.per_sum ? w.nblocks : first + w.per_sum;
    unsigned channels = w.packet_channels - c0 < w.channels ? w.packet_channels - c0 : w.channels;
    unsigned run_bytes = channels * w.channel_stride;

    unsigned group = threadIdx.x % w.groups, c = threadIdx.x / w.groups;
    bool works = c < channels;
    unsigned f = works ? w.channel[stream * w.packet_channels + c0 + c] : 0;
    unsigned n = group * (V == 1 ? 4 : V), left = w.N - n;
    owned<V> o = {};
#pragma unroll
    for (unsigned i = 0; i < owned<V>::PLACES; i++) {
        o.place[i] = w.place[group * owned<V>::PLACES + i];
        o.place[i].x += (works ? c : 0) * w.channel_stride;
    }

    /* in: before [block][source][stream][packet]; after [block][source][packet from channel c0 on],
     * strides block_bytes, source_bytes, 1 */
    const uint8_t *in = w.in + stream * w.packet_bytes + static_cast<size_t>(c0) * w.channel_stride;
    /* to: before [block x samples][F][N]; after [block x samples][V positions], strides F N, 1 */
    uint8_t *to = w.out + static_cast<size_t>(f) * w.N + n;
    size_t packet_rows = static_cast<size_t>(w.samples) * w.F * w.N;

    load(w, wide, buffer, in + first * w.block_bytes, run_bytes, end - first);
    copy_async_commit();
    unsigned now = 0, other = w.together * w.buffer_bytes; /* the two buffers */
    for (unsigned p = first; p < end; p += w.together) {
        unsigned k = (p - first) % MASK_PACKETS, next = p + w.together;
        if (next < end) load(w, wide, buffer + other, in + next * w.block_bytes, run_bytes, end - next);
        copy_async_commit();
        if (k == 0)
            load_receipts(w, came, stream, p,
                          end); /* the barrier below is behind all who read the last ones */
        copy_async_wait<1>();
        __syncthreads();
        if (works)
#pragma unroll 1
            for (unsigned i = 0, count = min(w.together, end - p); i < count; i++) {
                unsigned mask = keep_mask<V>(o, came, k + i, w.samples);
                convert_packet<V, SWAP, SUMS>(w, o, buffer + now + i * w.buffer_bytes, mask,
                                              to + (p + i) * packet_rows, left);
            }
        __syncthreads(); /* the buffer is copied into next */
        unsigned done = now;
        now = other, other = done;
    }
    if (SUMS && works)
        store_sums<V>(w, o, w.sums + (static_cast<size_t>(sum_block) * w.F + f) * BR_UNPACK_SUMS * w.N + n,
                      left);
}

} // namespace unpack
} // namespace beamring

#endif
