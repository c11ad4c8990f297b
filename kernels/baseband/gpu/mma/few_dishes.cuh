/* few_dishes.cuh - the beamformer on any GPU for at most FEW dishes and int4x2: a tile is one chunk, so that
 * the end of the sums weighs as much as the products. A sum begins with the bits of the float 1.5 x 2^23,
 * whose last bits count ones. So it is a float as it stands, and is rounded as on Hopper (ending.cuh). */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_MMA_FEW_DISHES_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_MMA_FEW_DISHES_CUH

#include "kernels/baseband/gpu/ending.cuh"
#include "kernels/baseband/gpu/mma/tile.cuh"

namespace beamring::baseband
{

/* 1.5 x 2^23. The float's last bits hold 16 J, which 128 dishes keep below 2^22: 16 * 128 * 2032 < 2^22. */
constexpr int SUM_START = 0x4b400000;
static_assert(FEW <= 128, "the last bits hold 16 J");

/* One tile. */
template <int MT> struct few_stage : stage<MT, FEW> {
    int4 rounding[MT * ROWS]; /* of the tile, as in struct work */
};

template <int MT> using few_shared = shared<MT, few_stage<MT>>;

/* Starts the copies of a tile. */
template <int MT>
__device__ __forceinline__ void load_few(few_stage<MT> &to, const work &w, const place_in_work &at)
{
    load(to, w, at);
    size_t first = (static_cast<size_t>(at.wp) * w.groups + static_cast<size_t>(at.beam_tile) * MT) * ROWS;
    if (threadIdx.x < MT * ROWS)
        copy_async_16(&to.rounding[threadIdx.x], w.rounding + first + threadIdx.x, true);
}

/* The sum over the four threads that share a beam. */
__device__ __forceinline__ unsigned add_four(unsigned value)
{
    value += __shfl_xor_sync(WHOLE_WARP, value, 1);
    return value + __shfl_xor_sync(WHOLE_WARP, value, 2);
}

/* The epilogue: sums to bytes in shared memory. */
template <int MT>
__device__ __forceinline__ void round_few(few_shared<MT> &sh, const int4 *rounding, const work &w,
                                          const place_in_work &at, const int (&re)[MT][COLUMNS][4],
                                          const int (&im)[MT][COLUMNS][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int first_time = br_tile_first_time(warp, lane);
    unsigned bits = find_live(w, at, first_time);
    const unsigned live[2] = {(bits & 15) * 0x204081u & ONES,
                              (bits >> 4) * 0x204081u & ONES}; /* a byte each */
    unsigned all = add_four(32 * __popc(bits));                /* components of a beam, in units of 16 */
#pragma unroll
    for (int m = 0; m < MT; m++) {
        unsigned kept = 0; /* of them not clamped: the upper beam's in the upper half */
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            int beam = br_tile_beam(m, upper, lane);
            float scale = __int_as_float(rounding[beam].w), half = fmaf(-0x1.8p23f, scale, 8.5f / 16);
            unsigned of_beam = 0, bytes[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float re4[4], im4[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    re4[k] = __int_as_float(re[m][2 * i + k / 2][upper * 2 + k % 2]);
                    im4[k] = __int_as_float(im[m][2 * i + k / 2][upper * 2 + k % 2]);
                }
                unsigned whole_re, whole_im, v_re = to_nibbles(round_four(re4, scale, scale, half), whole_re),
                                             v_im = to_nibbles(round_four(im4, scale, scale, half), whole_im);
                bytes[i] = to_int4(v_re, v_im, live[i] * 255);
                of_beam = __dp4a(whole_re, live[i], of_beam);
                of_beam = __dp4a(whole_im, live[i], of_beam);
            }
            kept += of_beam << 16 * upper;
            *reinterpret_cast<uint2 *>(&sh.out[br_tile_out_place(beam, first_time)]) =
                make_uint2(bytes[0], bytes[1]);
        }
        kept = add_four(kept);
        if (lane % 4 < 2)
            atomicAdd(&sh.clamped[br_tile_beam(m, lane % 4, lane)],
                      (all - (kept >> lane % 4 * 16 & 0xffff)) / 16);
    }
}

template <int MT> __global__ void __launch_bounds__(THREADS, resident(MT)) beamform_few(work w)
{
    extern __shared__ __align__(128) uint8_t memory[];
    few_shared<MT> &sh = *reinterpret_cast<few_shared<MT> *>(memory);
    const int lane = static_cast<int>(threadIdx.x) % 32, steps = (static_cast<int>(w.D) + STEP - 1) / STEP;
    place_in_work ahead;
    ahead.start(w);
    if (threadIdx.x < MT * ROWS) sh.clamped[threadIdx.x] = 0;

    load_few(sh.stages[0], w, ahead);
    copy_async_commit();
    for (unsigned now = 0; ahead.tile < w.tiles; now ^= 1) {
        const place_in_work here = ahead;
        const few_stage<MT> &from = sh.stages[now];
        ahead.advance(w);
        copy_async_wait<0>();
        /* This tile is here; the other stage, `out` and `clamped` have been read by all. */
        __syncthreads();
        if (ahead.tile < w.tiles) load_few(sh.stages[now ^ 1], w, ahead);
        copy_async_commit();

        int re[MT][COLUMNS][4], im[MT][COLUMNS][4]; /* assigned as multiply() says */
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4 * COLUMNS; i++) {
                const int4 &r = from.rounding[br_tile_beam(m, i / 2 % 2, lane)];
                re[m][i / 4][i % 4] = SUM_START + 16 * (r.x - r.y);
                im[m][i / 4][i % 4] = SUM_START;
            }
        multiply(from, steps, re, im);
        round_few(sh, from.rounding, w, here, re, im);
        __syncthreads();
        store(sh, w, here);
    }
}

} // namespace beamring::baseband

#endif
