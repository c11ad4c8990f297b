/* beamform.cuh - the beamformer on any GPU, the kernel, and its other ends than int4x2: those go from
 * registers to global memory. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_MMA_BEAMFORM_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_MMA_BEAMFORM_CUH

#include "kernels/baseband/gpu/ending.cuh"
#include "kernels/baseband/gpu/mma/tile.cuh"

namespace beamring::baseband
{

/* A beam's 8 times as 16 bits each; `first`: those of the tile before this thread's. */
__device__ __forceinline__ void store_words(const work &w, const place_in_work &at, size_t beam, int first,
                                            const unsigned (&words)[4])
{
    /* out: shape (B, F P, T) of 16 bits, contiguous */
    uint16_t *to = reinterpret_cast<uint16_t *>(w.out) + (beam * w.F * w.P + at.fp) * w.T + at.time() + first;
    int times = at.times(w) - first;
    if (w.wide_out) { /* T is a multiple of 16 */
        if (times > 0) *reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < times) to[i] = static_cast<uint16_t>(words[i / 2] >> i % 2 * 16);
    }
}

/* int8x2 and counts; in units of 16 as multiply() has the sums. */
template <int MT>
__device__ __forceinline__ void store_int8(shared<MT> &sh, const work &w, const place_in_work &at,
                                           const int4 *rounding, const int (&re)[MT][COLUMNS][4],
                                           const int (&im)[MT][COLUMNS][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int first = br_tile_first_time(warp, lane);
    unsigned live = find_live(w, at, first);
    size_t first_beam = static_cast<size_t>(at.beam_tile) * MT * ROWS;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            int beam = br_tile_beam(m, upper, lane);
            int4 r = rounding[beam];
            unsigned clamped = 0, words[4] = {};
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int low = ((re[m][i / 2][upper * 2 + i % 2] >> 4) + r.x) >> r.z,
                    high = ((im[m][i / 2][upper * 2 + i % 2] >> 4) + r.y) >> r.z;
                int low_kept = max(-127, min(127, low)), high_kept = max(-127, min(127, high));
                bool is_live = live >> i & 1;
                if (is_live) clamped += (low != low_kept) + (high != high_kept);
                unsigned both = (low_kept & 255u) | (high_kept & 255u) << 8;
                words[i / 2] |= (is_live ? both : 0x8080u) << i % 2 * 16;
            }
            if (first_beam + beam < w.B) store_words(w, at, first_beam + beam, first, words);
            clamped += __shfl_xor_sync(WHOLE_WARP, clamped, 1);
            clamped += __shfl_xor_sync(WHOLE_WARP, clamped, 2);
            if (lane % 4 == 0 && clamped > 0) atomicAdd(&sh.clamped[beam], clamped);
        }
    __syncthreads();
    store_counts(sh, w, first_beam);
}

/* Powers, 4^-s times, of samples, or the tree of power.h over 16 of them: a thread's 8, and those of the lane
 * beside it. */
template <int MT>
__device__ __forceinline__ void store_powers(const work &w, const place_in_work &at, const int4 *rounding,
                                             const int (&re)[MT][COLUMNS][4], const int (&im)[MT][COLUMNS][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int first = br_tile_first_time(warp, lane), times = at.times(w) - first;
    unsigned live = find_live(w, at, first);
    size_t first_beam = static_cast<size_t>(at.beam_tile) * MT * ROWS;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            size_t beam = first_beam + br_tile_beam(m, upper, lane);
            int4 r = rounding[br_tile_beam(m, upper, lane)];
            float scale = __int_as_float((127 - 2 * r.z) << 23), sum[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float power = power_of((re[m][i / 2][upper * 2 + i % 2] >> 4) + r.x - r.y,
                                       im[m][i / 2][upper * 2 + i % 2] >> 4);
                sum[i] = live >> i & 1 ? power * scale : 0;
            }
            if (w.wide_out) {
                /* out: shape (F P, T / GROUP, B) of float32, contiguous */
                float all = add_tree<8>(sum);
                all = __fadd_rn(all, __shfl_xor_sync(WHOLE_WARP, all, 1));
                size_t group = at.fp * (w.T / GROUP) + (at.time() + first) / GROUP;
                if (lane % 2 == 0 && times > 0 && beam < w.B)
                    reinterpret_cast<float *>(w.out)[group * w.B + beam] = all;
            } else if (beam < w.B) {
                /* out: shape (F P, T, B) of float32, contiguous */
                float *to = reinterpret_cast<float *>(w.out) + (at.fp * w.T + at.time() + first) * w.B + beam;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    if (i < times) to[i * w.B] = sum[i];
            }
        }
}

template <ending END, int MT>
__device__ __forceinline__ void store_end(shared<MT> &sh, const work &w, const place_in_work &at,
                                          int (&re)[MT][COLUMNS][4], int (&im)[MT][COLUMNS][4])
{
    /* rounding: shape (channels, groups, ROWS) -> after the tile's offset: shape (MT ROWS,), contiguous */
    const int4 *rounding =
        w.rounding + (static_cast<size_t>(at.wp) * w.groups + static_cast<size_t>(at.beam_tile) * MT) * ROWS;
    if constexpr (END == ending::BYTES)
        store_int8(sh, w, at, rounding, re, im);
    else
        store_powers(w, at, rounding, re, im);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) re[m][j][r] = im[m][j][r] = 0;
}

template <int MT, ending END> __global__ void __launch_bounds__(THREADS, resident(MT)) beamform(work w)
{
    extern __shared__ __align__(128) uint8_t memory[];
    shared<MT> &sh = *reinterpret_cast<shared<MT> *>(memory);
    int re[MT][COLUMNS][4] = {}, im[MT][COLUMNS][4] = {}; /* assigned as multiply() says */
    place_in_work ahead;
    ahead.start(w);
    if (threadIdx.x < MT * ROWS) sh.clamped[threadIdx.x] = 0;

    load(sh.stages[0], w, ahead);
    copy_async_commit();
    for (unsigned now = 0; ahead.tile < w.tiles; now ^= 1) {
        const place_in_work here = ahead;
        ahead.advance(w);
        copy_async_wait<0>();
        /* This iteration's chunk is here; the other stage, `out` and `clamped` have been read by all. */
        __syncthreads();
        if (ahead.tile < w.tiles) load(sh.stages[now ^ 1], w, ahead);
        copy_async_commit();

        multiply(sh.stages[now], (here.dishes<DISHES>(w) + STEP - 1) / STEP, re, im);
        if (here.chunk + 1 == w.chunks) {
            if constexpr (END == ending::NIBBLES) {
                round_sums(sh, w, here, re, im);
                __syncthreads();
                store(sh, w, here);
            } else {
                store_end<END>(sh, w, here, re, im);
            }
        }
    }
}

} // namespace beamring::baseband

#endif
