/* round.cuh - the beamformer on Hopper, the epilogue: sums are rounded, clamped, counted, and stored as bytes
 * in shared memory. float32 holds sums of up to 8192 dishes: 16 sum has at most 24 significant bits. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_ROUND_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_ROUND_CUH

#include "kernels/baseband/gpu/ending.cuh"
#include "kernels/baseband/gpu/wgmma/loads.cuh"

namespace beamring::baseband::hopper
{

/* Four sums to four values, see to_nibbles. */
__device__ __forceinline__ unsigned quantize(const int (&sum16)[4], float scale01, float scale23,
                                             unsigned &whole)
{
    const float sums[4] = {__int2float_rn(sum16[0]), __int2float_rn(sum16[1]), __int2float_rn(sum16[2]),
                           __int2float_rn(sum16[3])};
    return to_nibbles(round_four(sums, scale01, scale23, 8.5f / 16), whole);
}

/* A warpgroup's sums of a piece: 64 MT times of a tile, BEAMS beams. */
template <class V> struct rounding {
    const work &w;
    unsigned thread, lane, warp, quad, first_time; /* first_time: of its times, in a tile */

    /* whole: 16 for each component that was not clamped, of beams
     *   register: i <-> beam: i / 2 * 8 + i % 2  thread: t1 t0 <-> beam2 beam1 */
    unsigned whole[V::COUNTERS], times; /* times: that this thread has formed and that are not missing */

    /* Which of the thread's times are not missing, a byte of 1 or 0 each; with mt = 1 two times, twice. */
    __device__ __forceinline__ unsigned find_live(unsigned first_time, unsigned channel)
    {
        unsigned live = ONES;
        if (w.valid != nullptr) {
            live = 0;
#pragma unroll
            for (unsigned i = 0; i < 2 * V::MT; i++) {
                /* valid: shape (T, F), contiguous */
                size_t t = static_cast<size_t>(first_time) + i;
                if (t < w.T && w.valid[t * w.F + channel]) live |= 1u << 8 * i;
            }
            if (V::MT == 1) live |= live << 16;
        }
        times += __popc(live) / (V::MT == 1 ? 2 : 1) * V::FPS;
        return live;
    }

    /* The sums of a piece to bytes in shared memory.
     *   sums [MT][BEAMS], of 16 beams  register: r3 r2 r1 r0 <-> im beam3 upper beam0
     *     thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 beam2 beam1
     * (of more beams: beam bits 4, 5, 6 between im and beam3) */
    __device__ __forceinline__ void round_sums(const int (&sums)[V::MT][V::BEAMS], const float *scale,
                                               unsigned live, uint8_t *to)
    {
        unsigned keep = live * 255;
        /* Addresses of the lane's first beam in each eight, and of the next one. Eight beams further they
         * are 8 rows of 128 bytes on. */
        unsigned time = first_time + br_hopper_time(V::MT, 0, 0, lane, warp);
        uint8_t *place[2] = {to + br_hopper_out(quad * 2, time), to + br_hopper_out(quad * 2 + 1, time)};
#pragma unroll
        for (int j = 0; j < V::BEAMS / 8; j++) {
            /* scale: shape (BEAMS,); 64-bit reads, the same for all rows */
            float2 s = *reinterpret_cast<const float2 *>(scale + j * 8 + quad * 2);
            unsigned not_clamped;
            if (V::MT == 2) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float one = e == 0 ? s.x : s.y;
                    constexpr int M = V::MT - 1;
                    const int re4[4] = {sums[0][j * 4 + e], sums[0][j * 4 + 2 + e], sums[M][j * 4 + e],
                                        sums[M][j * 4 + 2 + e]};
                    constexpr int IM = V::BEAMS / 2;
                    const int im4[4] = {sums[0][IM + j * 4 + e], sums[0][IM + j * 4 + 2 + e],
                                        sums[M][IM + j * 4 + e], sums[M][IM + j * 4 + 2 + e]};
                    unsigned re = quantize(re4, one, one, not_clamped);
                    whole[2 * j + e] = __dp4a(not_clamped, live, whole[2 * j + e]);
                    unsigned im = quantize(im4, one, one, not_clamped);
                    whole[2 * j + e] = __dp4a(not_clamped, live, whole[2 * j + e]);
                    *reinterpret_cast<unsigned *>(place[e] + j * 8 * TIMES) = to_int4(re, im, keep);
                }
            } else {
                constexpr int IM = V::BEAMS / 2;
                const int re4[4] = {sums[0][j * 4], sums[0][j * 4 + 2], sums[0][j * 4 + 1],
                                    sums[0][j * 4 + 3]};
                const int im4[4] = {sums[0][IM + j * 4], sums[0][IM + j * 4 + 2], sums[0][IM + j * 4 + 1],
                                    sums[0][IM + j * 4 + 3]};
                unsigned re = quantize(re4, s.x, s.y, not_clamped);
                whole[2 * j] = __dp4a(not_clamped, live & 0xffff, whole[2 * j]);
                whole[2 * j + 1] = __dp4a(not_clamped, live & 0xffff0000, whole[2 * j + 1]);
                unsigned im = quantize(im4, s.x, s.y, not_clamped);
                whole[2 * j] = __dp4a(not_clamped, live & 0xffff, whole[2 * j]);
                whole[2 * j + 1] = __dp4a(not_clamped, live & 0xffff0000, whole[2 * j + 1]);
                unsigned bytes = to_int4(re, im, keep);
                *reinterpret_cast<uint16_t *>(place[0] + j * 8 * TIMES) = static_cast<uint16_t>(bytes);
                *reinterpret_cast<uint16_t *>(place[1] + j * 8 * TIMES) = static_cast<uint16_t>(bytes >> 16);
            }
        }
    }

    /* Times `begin` to `end` of a tile, byte by byte. */
    __device__ __forceinline__ void store_bytes(const uint8_t *from, unsigned tile, unsigned first_fp,
                                                unsigned first_beam, unsigned begin, unsigned end) const
    {
        /* out: shape (B, F P, T), contiguous; from the tile's offset: shape (BEAMS, FPS, TIMES), strides (F P
         * T, T, 1), fewer of beams and times at the ends. from: [FPS][BEAMS][TIMES], swizzled */
        size_t fp_stride = w.T, beam_stride = static_cast<size_t>(w.F) * w.P * w.T;
        uint8_t *to = w.out + static_cast<size_t>(first_beam) * beam_stride +
                      static_cast<size_t>(first_fp) * fp_stride + static_cast<size_t>(tile) * TIMES;
        unsigned there = min(end, w.T - tile * TIMES), beams = min(V::BEAMS + 0u, w.B - first_beam);
#pragma unroll 1
        for (unsigned row = warp; row < V::FPS * beams; row += 4) {
            unsigned beam = row / V::FPS, fp = row % V::FPS;
#pragma unroll 1
            for (unsigned t = begin + lane; t < there; t += 32)
                to[beam * beam_stride + fp * fp_stride + t] =
                    from[fp * (V::OUT / V::FPS) + br_hopper_out(beam, t)];
        }
    }
};

} // namespace beamring::baseband::hopper

#endif
