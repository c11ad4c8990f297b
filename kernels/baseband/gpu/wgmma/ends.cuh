/* ends.cuh - the beamformer on Hopper, other ends than round.cuh's: what becomes of a piece's sums goes from
 * registers to global memory, where four lanes with the same times write 32 bytes that lie together. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_ENDS_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_ENDS_CUH

#include "kernels/baseband/gpu/ending.cuh"
#include "kernels/baseband/gpu/wgmma/round.cuh"

namespace beamring::baseband::hopper
{

/* Where the thread's sums of a piece are: `sums` as round_sums() says; `time` in the output. */
template <class V> struct piece_of_sums {
    const int (&sums)[V::MT][V::BEAMS];
    const float *scale; /* [BEAMS]: 2^-(s + 8) */
    unsigned live;      /* as find_live() says */
    size_t fp, time;    /* time: the thread's first one */
    unsigned first_beam;

    /* The sums of the thread's time i and its beam j * 8 + quad * 2 + e. */
    __device__ __forceinline__ int re(int j, int e, int i) const
    {
        return sums[i / 2][j * 4 + 2 * (i % 2) + e];
    }
    __device__ __forceinline__ int im(int j, int e, int i) const
    {
        return sums[i / 2][V::BEAMS / 2 + j * 4 + 2 * (i % 2) + e];
    }
    __device__ __forceinline__ bool there(int i) const { return (live >> 8 * i & 1) != 0; }
};

/* floor(sum / 2^s + 1/2) in [-127, 127], sum = sum16 / 16; clears `whole` if it was clamped. */
__device__ __forceinline__ int rounded8(int sum16, float scale, bool &whole)
{
    int value = __float2int_rd(__fmaf_rd(__int2float_rn(sum16), scale * 16, 0.5f)),
        kept = max(-127, min(127, value));
    whole = value == kept;
    return kept;
}

template <class V> __device__ __forceinline__ void store_int8(rounding<V> &r, const piece_of_sums<V> &p)
{
    constexpr int TIMES_EACH = 2 * V::MT;
    const work &w = r.w;
    /* out: shape (B, F P, T) of 16 bits, contiguous */
    const size_t beam_stride = static_cast<size_t>(w.F) * w.P * w.T;
    unsigned beam = p.first_beam + r.quad * 2;
    uint16_t *to = reinterpret_cast<uint16_t *>(w.out) + beam * beam_stride + p.fp * w.T + p.time;
    const float *scale = p.scale + r.quad * 2;
#pragma unroll
    for (int j = 0; j < V::BEAMS / 8; j++, beam += 8, to += 8 * beam_stride)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            unsigned word[V::MT] = {};
#pragma unroll
            for (int i = 0; i < TIMES_EACH; i++) {
                bool re_whole, im_whole;
                int re = rounded8(p.re(j, e, i), scale[j * 8 + e], re_whole),
                    im = rounded8(p.im(j, e, i), scale[j * 8 + e], im_whole);
                unsigned both = (re & 255u) | (im & 255u) << 8;
                if (p.there(i)) r.whole[2 * j + e] += 16 * (re_whole + im_whole);
                word[i / 2] |= (p.there(i) ? both : 0x8080u) << i % 2 * 16;
            }
            if (beam + e >= w.B || p.time >= w.T) continue;
            uint16_t *row = to + e * beam_stride;
            if (w.store_tensor) { /* T is a multiple of 16 */
                if (V::MT == 2)
                    *reinterpret_cast<uint2 *>(row) = make_uint2(word[0], word[V::MT - 1]);
                else
                    *reinterpret_cast<unsigned *>(row) = word[0];
            } else {
#pragma unroll
                for (int i = 0; i < TIMES_EACH; i++)
                    if (p.time + i < w.T) row[i] = static_cast<uint16_t>(word[i / 2] >> i % 2 * 16);
            }
        }
}

/* Lanes whose numbers differ in `bit` add what they have of LEFT beams: each goes on with half of these. */
template <int LEFT, int N>
__device__ __forceinline__ void add_halves(float (&sum)[N], unsigned lane, unsigned bit)
{
    const bool upper = (lane & bit) != 0;
    constexpr int HALF = LEFT / 2;
    static_assert(LEFT % 2 == 0, "halves");
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float give = upper ? sum[i] : sum[HALF + i], keep = upper ? sum[HALF + i] : sum[i];
        sum[i] = __fadd_rn(keep, __shfl_xor_sync(WHOLE_WARP, give, bit));
    }
}

/* The tree of power.h over 16 samples: those of a thread, then lanes, in the order of br_hopper_time's
 * bits. */
template <class V>
__device__ __forceinline__ void store_groups(const rounding<V> &r, const piece_of_sums<V> &p)
{
    constexpr int N = V::BEAMS / 4, LEFT = N / (V::MT == 1 ? 8 : 4);
    const work &w = r.w;
    float sum[N]; /* of br_hopper_beam(i) */
#pragma unroll
    for (int i = 0; i < N; i++) {
        float pair[V::MT];
#pragma unroll
        for (int m = 0; m < V::MT; m++) {
            float a = power_of(p.re(i / 2, i % 2, 2 * m), p.im(i / 2, i % 2, 2 * m)),
                  b = power_of(p.re(i / 2, i % 2, 2 * m + 1), p.im(i / 2, i % 2, 2 * m + 1));
            pair[m] = __fadd_rn(p.there(2 * m) ? a : 0, p.there(2 * m + 1) ? b : 0);
        }
        sum[i] = V::MT == 1 ? pair[0] : __fadd_rn(pair[0], pair[V::MT - 1]);
    }
    add_halves<N>(sum, r.lane, br_hopper_group_bit(V::MT, 0));
    add_halves<N / 2>(sum, r.lane, br_hopper_group_bit(V::MT, 1));
    if constexpr (V::MT == 1) add_halves<N / 4>(sum, r.lane, br_hopper_group_bit(V::MT, 2));
    if (p.time >= w.T) return;
    /* out: shape (F P, T / 16, B) of float32, contiguous */
    float *to =
        reinterpret_cast<float *>(w.out) + (p.fp * (w.T / GROUP) + p.time / GROUP) * w.B + p.first_beam;
    const unsigned first = br_hopper_group_first(V::MT, N, r.lane);
#pragma unroll
    for (int i = 0; i < LEFT; i++) {
        unsigned beam = br_hopper_beam(first + i, r.lane);
        float scale = p.scale[beam] * 16;
        if (p.first_beam + beam < w.B) to[beam] = sum[i] * scale * scale;
    }
}

template <class V>
__device__ __forceinline__ void store_samples(const rounding<V> &r, const piece_of_sums<V> &p)
{
    const work &w = r.w;
    const bool even = w.B % 2 == 0;
#pragma unroll
    for (int i = 0; i < 2 * V::MT; i++) {
        if (p.time + i >= w.T) continue;
        /* out: shape (F P, T, B) of float32, contiguous */
        float *to = reinterpret_cast<float *>(w.out) + (p.fp * w.T + p.time + i) * w.B + p.first_beam;
#pragma unroll
        for (int j = 0; j < V::BEAMS / 8; j++) {
            const unsigned beam = j * 8 + r.quad * 2;
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float scale = p.scale[beam + e] * 16;
                value[e] = p.there(i) ? power_of(p.re(j, e, i), p.im(j, e, i)) * scale * scale : 0;
            }
            if (even && p.first_beam + beam < w.B) {
                *reinterpret_cast<float2 *>(to + beam) = make_float2(value[0], value[1]);
            } else {
                if (p.first_beam + beam < w.B) to[beam] = value[0];
                if (p.first_beam + beam + 1 < w.B) to[beam + 1] = value[1];
            }
        }
    }
}

template <ending END, class V>
__device__ __forceinline__ void store_end(rounding<V> &r, const piece_of_sums<V> &p)
{
    if constexpr (END == ending::BYTES) {
        store_int8(r, p);
    } else if (r.w.store_tensor) {
        store_groups(r, p);
    } else {
        store_samples(r, p);
    }
}

} // namespace beamring::baseband::hopper

#endif
