/* tile.cuh - packets to E through shared memory, one pass over global memory.
 *
 * A block of threads takes one stream (or several whose channels alternate in E), a few adjacent channels of
 * its packets, all sources, and the packets of one sum block, as many at a time as have 8 samples: while they
 * are converted, the next ones are copied (cp.async, two or three buffers). A thread owns 8 or 4 positions
 * (see convert.cuh) of one channel for all samples, so that sums stay in registers.
 *   thread:  channel of E (slow), group of positions (fast), so that a warp stores adjacent rows of E */
#ifndef BEAMRING_KERNELS_UNPACK_GPU_TILE_TILE_CUH
#define BEAMRING_KERNELS_UNPACK_GPU_TILE_TILE_CUH

#include "kernels/common/device.cuh"
#include "kernels/unpack/gpu/tile/convert.cuh"
#include "kernels/unpack/gpu/tile/layout.h"
#include "kernels/unpack/unpack.h"

#include <cuda_runtime.h>

namespace beamring
{
namespace unpack
{

constexpr unsigned MOST_THREADS = 1024, MOST_BUFFERS = 3, MASK_PACKETS = 32, SECTOR = 32, MOST_BESIDE = 8,
                   NO_SOURCE = 0xffffffffu;

struct work {
    const uint8_t *in;      /* [block][source][stream][packet] */
    const uint8_t *receipt; /* [block][receipt_bytes], or null */
    uint8_t *out;           /* [block][t][F][N] */
    uint32_t *sums;         /* [sum block][F][3][N] */
    const uint2 *place;     /* [group][4, or 1 for V > 2]: {bytes in the tile without the channel and stream,
                               source x beside; NO_SOURCE} */
    const uint2 *channel;   /* [stream / beside][channel of the packet][stream % beside]: {channel of E,
                               stream % beside << 16 | channel of the packet} */
    size_t block_bytes, source_bytes, packet_bytes;
    unsigned F, N, nsources, nstreams, receipt_bytes, samples, nblocks, per_sum;
    unsigned packet_channels, channel_stride, outer, outer_bytes; /* see layout.h */
    unsigned channels, pitch, buffer_bytes;                       /* of a tile, for one block of packets */
    unsigned row_bytes;  /* of a packet from row to row of its source */
    unsigned beside;     /* streams of a tile, which are neighbours in E */
    unsigned together;   /* blocks in a buffer: 1, 2, 4 or 8 */
    unsigned buffers;    /* 2 or 3 */
    unsigned time_place; /* bytes in the tile from sample to sample */
    struct quad quad;
    unsigned groups; /* of positions in a row of E */
    unsigned flip;   /* 0x88888888: offset binary */
};

/* Where a row of a tile begins. */
struct __align__(16) row
{
    size_t from; /* bytes in a block of packets */
    unsigned to; /* bytes in a buffer */
};

__device__ __forceinline__ void list_rows(const work &w, row *rows)
{
    unsigned all = w.beside * w.outer;
    for (unsigned i = threadIdx.x; i < w.nsources * all; i += blockDim.x) {
        unsigned source = i / all, k = i - source * all;
        rows[i] = {source * w.source_bytes + k * w.row_bytes,
                   unpack_source(source, all, w.pitch) + k * w.pitch};
    }
}

/* How a tile is copied: rows of `each` pieces. i / each is i x inverse / 2^32, exactly for all pieces: a tile
 * has less than 2^17 bytes, and a row at most 2^16. */
struct copies {
    const row *rows;
    unsigned each, all, inverse;
};

__device__ __forceinline__ copies plan_copies(const work &w, const row *rows, unsigned each)
{
    return {rows, each, w.nsources * w.beside * w.outer * each, each == 1 ? 0 : 0xffffffffu / each + 1};
}

/* `count` packets of every source, buffer_bytes apart, WIDE bytes at a time. */
template <unsigned WIDE>
__device__ __forceinline__ void load_as(const work &w, const copies &c, uint8_t *buffer, const uint8_t *from,
                                        unsigned count)
{
    for (unsigned i = threadIdx.x; i < c.all; i += blockDim.x) {
        unsigned line = c.inverse == 0 ? i : __umulhi(i, c.inverse), column = (i - line * c.each) * WIDE;
        const row at = c.rows[line];
        const uint8_t *p = from + at.from + column;
        uint8_t *s = buffer + at.to + column;
        unsigned k = 0;
#pragma unroll 1
        do {
            if (WIDE == 16)
                copy_async_16(s, p, true);
            else if (WIDE == 4)
                copy_async_4(s, p, true);
            else
                *s = *p;
            p += w.block_bytes, s += w.buffer_bytes;
        } while (++k < count);
    }
}

/* The next packets of every source: at most w.together, and `left`. */
__device__ __forceinline__ void load(const work &w, unsigned wide, const copies &c, uint8_t *buffer,
                                     const uint8_t *from, unsigned left)
{
    unsigned count = min(left, w.together);
    if (wide == 16)
        load_as<16>(w, c, buffer, from, count);
    else if (wide == 4)
        load_as<4>(w, c, buffer, from, count);
    else
        load_as<1>(w, c, buffer, from, count);
}

/* For each source and stream which of the packets first to first + 31 came, a bit each. A warp takes a source
 * and stream, a lane a packet. */
__device__ __forceinline__ void load_receipts(const work &w, unsigned *came, unsigned stream, unsigned first,
                                              unsigned end)
{
    unsigned lane = threadIdx.x % 32, packet = first + lane;
    for (unsigned i = threadIdx.x / 32; i < w.nsources * w.beside; i += blockDim.x / 32) {
        unsigned source = w.beside == 1 ? i : i / w.beside,
                 bit = source * w.nstreams + stream + i - source * w.beside;
        bool is = packet < end &&
                  (!w.receipt ||
                   (w.receipt[static_cast<size_t>(packet) * w.receipt_bytes + bit / 8] >> bit % 8 & 1));
        unsigned mask = __ballot_sync(WHOLE_WARP, is);
        if (lane == 0) came[i] = mask;
    }
}

/* Positions of this thread, where they stand in a tile, and what has been added up. */
template <unsigned V> struct owned {
    static constexpr unsigned WORDS = V == 8 ? 2 : 1, PLACES = V <= 2 ? 4 : 1;
    uint2 place[PLACES]; /* see `work`; the source's bits are at came[y] */
    unsigned came[PLACES], s0[PLACES], s1[WORDS][4], s2[WORDS][4];
};

/* The packets of a buffer: of each place which came, the first one in bit 0. */
template <unsigned V>
__device__ __forceinline__ void look_up(const work &w, owned<V> &o, const unsigned *came, unsigned first,
                                        unsigned count)
{
#pragma unroll
    for (unsigned i = 0; i < owned<V>::PLACES; i++) {
        o.came[i] = o.place[i].y == NO_SOURCE ? 0 : came[o.place[i].y] >> first & ((1u << count) - 1);
        o.s0[i] += __popc(o.came[i]) * w.samples;
    }
}

/* V = 2: four samples of four positions; mask [position]: all came, or none. */
template <bool SUMS>
__device__ __forceinline__ void read_pairs(const work &w, owned<2> &o, const uint8_t *at,
                                           const unsigned (&mask)[4], unsigned (&x)[4])
{
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned place = o.place[i].x;
        uint2 v = *reinterpret_cast<const uint2 *>(at + (place & ~1u));
        x[i] = (__byte_perm(v.x, v.y, place & 1 ? 0x7531 : 0x6420) ^ w.flip) & mask[i];
    }
    if (SUMS) add_by_time(x, o.s1[0], o.s2[0]);
    transpose(x);
}

/* V = 8, 4, 1: the samples of a quad; mask [time]: bytes that came. */
template <unsigned V, bool SUMS>
__device__ __forceinline__ void read(const work &w, owned<V> &o, const uint8_t *at,
                                     const unsigned (&mask)[TIMES], unsigned (&x)[owned<V>::WORDS][TIMES])
{
#pragma unroll
    for (unsigned k = 0; k < TIMES; k++) {
        const uint8_t *from = at + w.quad.at[k];
        uint2 v = make_uint2(0, 0);
        if (V == 8)
            v = *reinterpret_cast<const uint2 *>(from + o.place[0].x);
        else if (V == 4)
            v.x = *reinterpret_cast<const unsigned *>(from + o.place[0].x);
        else
#pragma unroll
            for (unsigned i = 0; i < owned<V>::PLACES; i++)
                v.x |= static_cast<unsigned>(from[o.place[i].x]) << 8 * i;
        x[0][k] = (v.x ^ w.flip) & mask[k];
        if (V == 8) x[owned<V>::WORDS - 1][k] = (v.y ^ w.flip) & mask[k];
    }
    if (SUMS)
#pragma unroll
        for (unsigned i = 0; i < owned<V>::WORDS; i++) add_by_position(x[i], o.s1[i], o.s2[i]);
}

/* All samples of the packets of a buffer, a quad after the other. `to`: this thread's positions at the first
 * sample. */
template <unsigned V, bool SWAP, bool SUMS>
__device__ __forceinline__ void convert(const work &w, owned<V> &o, const uint8_t *buffer, unsigned packets,
                                        uint8_t *to, unsigned left)
{
    size_t stride = static_cast<size_t>(w.F) * w.N;
    const unsigned each = V == 2 ? TIMES : w.quad.samples;
#pragma unroll 1
    for (unsigned p = 0; p < packets; p += w.quad.packets) {
        unsigned samples = min(w.quad.packets, packets - p) * w.samples;
        const uint8_t *at = buffer + p * w.buffer_bytes;
        unsigned mask[TIMES] = {0};
#pragma unroll
        for (unsigned k = 0; k < TIMES; k++)
#pragma unroll
            for (unsigned i = 0; i < owned<V>::PLACES; i++)
                if (V != 2)
                    mask[k] |= all_or_none(o.came[i], w.quad.left[k]) & (V == 1 ? 0xffu << 8 * i : ~0u);
                else if (i == k)
                    mask[k] = all_or_none(o.came[k], 31);
#pragma unroll 1
        for (unsigned t = 0; t < samples; t += each, at += each * w.time_place) {
            unsigned valid = min(each, samples - t);
            unsigned x[owned<V>::WORDS][TIMES];
            if constexpr (V == 2)
                read_pairs<SUMS>(w, o, at, mask, x[0]);
            else
                read<V, SUMS>(w, o, at, mask, x);
#pragma unroll
            for (unsigned k = 0; k < TIMES; k++)
                if (V == 2 || k < valid) {
                    unsigned v = SWAP ? swap_nibbles(x[0][k]) : x[0][k];
                    if (V == 8) {
                        unsigned high = x[owned<V>::WORDS - 1][k];
                        *reinterpret_cast<uint2 *>(to) = make_uint2(v, SWAP ? swap_nibbles(high) : high);
                    } else if (V > 1 || w.N % 4 == 0)
                        *reinterpret_cast<unsigned *>(to) = v;
                    else
                        for (unsigned i = 0; i < 4 && i < left; i++) to[i] = static_cast<uint8_t>(v >> 8 * i);
                    to += stride;
                }
        }
#pragma unroll
        for (unsigned i = 0; i < owned<V>::PLACES; i++) o.came[i] >>= w.quad.packets;
    }
}

/* sums: S0 of this thread's first position; S1 and S2 are N and 2 N further on. */
template <unsigned V>
__device__ __forceinline__ void store_sums(const work &w, const owned<V> &o, uint32_t *sums, unsigned left)
{
#pragma unroll
    for (unsigned i = 0; i < (V <= 2 ? 4 : V); i++) {
        if (V == 1 && i >= left) continue;
        sums[i] = o.s0[i % owned<V>::PLACES];
        sums[w.N + i] = o.s1[i / 4][i % 4];
        sums[2 * w.N + i] = o.s2[i / 4][i % 4];
    }
}

/* Grid: (sum block, chunk of channels, streams), streams fastest, since channels of neighbouring streams are
 * often neighbours in E. Block: at least beside x channels x groups threads. Shared: buffers x together
 * tiles, then rows[nsources][beside][outer], then came[2][nsources][beside]. */
template <unsigned V, bool SWAP, bool SUMS>
__global__ __launch_bounds__(MOST_THREADS, 1) void tile(work w, unsigned wide)
{
    extern __shared__ uint4 shared[];
    uint8_t *buffer = reinterpret_cast<uint8_t *>(shared);
    row *rows = reinterpret_cast<row *>(buffer + w.buffers * w.together * w.buffer_bytes);
    unsigned *const came_at = reinterpret_cast<unsigned *>(rows + w.nsources * w.beside * w.outer);
    unsigned *came = came_at;
    unsigned chunks = (w.packet_channels + w.channels - 1) / w.channels, streams = w.nstreams / w.beside;
    unsigned stream = blockIdx.x % streams * w.beside, rest = blockIdx.x / streams,
             c0 = rest % chunks * w.channels;
    unsigned sum_block = rest / chunks, first = sum_block * w.per_sum;
    unsigned end = w.nblocks - first < w.per_sum ? w.nblocks : first + w.per_sum;
    unsigned channels = w.packet_channels - c0 < w.channels ? w.packet_channels - c0 : w.channels;
    unsigned run_bytes = channels * w.channel_stride;

    unsigned group = threadIdx.x % w.groups, mine = threadIdx.x / w.groups;
    bool works = mine < channels * w.beside;
    uint2 channel = w.channel[stream * w.packet_channels + c0 * w.beside + (works ? mine : 0)];
    unsigned beside = channel.y >> 16, f = channel.x;
    unsigned n = group * (V <= 2 ? 4 : V), left = w.N - n;
    owned<V> o = {};
#pragma unroll
    for (unsigned i = 0; i < owned<V>::PLACES; i++) {
        o.place[i] = w.place[group * owned<V>::PLACES + i];
        o.place[i].x += beside * w.outer * w.pitch + ((channel.y & 0xffff) - c0) * w.channel_stride;
        if (o.place[i].y != NO_SOURCE) o.place[i].y += beside;
    }

    /* in: before [block][source][stream][packet]; after [block][source][stream][packet from channel c0 on],
     * strides block_bytes, source_bytes, packet_bytes, 1 */
    const uint8_t *in = w.in + stream * w.packet_bytes + static_cast<size_t>(c0) * w.channel_stride;
    /* to: before [block x samples][F][N]; after [block x samples][V positions], strides F N, 1 */
    uint8_t *to = w.out + static_cast<size_t>(f) * w.N + n;
    size_t packet_rows = static_cast<size_t>(w.samples) * w.F * w.N;

    list_rows(w, rows);
    __syncthreads();
    const copies c = plan_copies(w, rows, run_bytes / wide);
    unsigned bytes = w.together * w.buffer_bytes, all = w.buffers * bytes;
    unsigned ahead = first, now = 0, later = 0; /* a packet; in the buffers */
    for (; later < all - bytes; ahead += w.together, later += bytes) {
        if (ahead < end) load(w, wide, c, buffer + later, in + ahead * w.block_bytes, end - ahead);
        copy_async_commit();
    }
    for (unsigned p = first; p < end; p += w.together, ahead += w.together) {
        unsigned k = (p - first) % MASK_PACKETS, count = min(w.together, end - p);
        if (k == 0) {
            came = came == came_at ? came_at + w.nsources * w.beside : came_at; /* some read the last ones */
            load_receipts(w, came, stream, p, end);
        }
        if (w.buffers == 2)
            copy_async_wait<0>();
        else
            copy_async_wait<1>();
        __syncthreads(); /* behind all who read the buffer that is filled next */
        if (ahead < end) load(w, wide, c, buffer + later, in + ahead * w.block_bytes, end - ahead);
        copy_async_commit();
        if (works) {
            look_up(w, o, came, k, count);
            convert<V, SWAP, SUMS>(w, o, buffer + now, count, to + p * packet_rows, left);
        }
        now = now + bytes < all ? now + bytes : 0;
        later = later + bytes < all ? later + bytes : 0;
    }
    if (SUMS && works)
        store_sums<V>(w, o, w.sums + (static_cast<size_t>(sum_block) * w.F + f) * BR_UNPACK_SUMS * w.N + n,
                      left);
}

} // namespace unpack
} // namespace beamring

#endif
