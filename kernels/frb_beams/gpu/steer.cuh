/* steer.cuh - the kernels that make the weights of FRB stage 2: the phase parameters of weights.cuh from
 * where the beams point, and, for the kernels that do not make weights of these themselves, weights in the
 * order of their registers. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_STEER_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_STEER_CUH

#include "kernels/frb_beams/gpu/weights.cuh"

namespace beamring
{

/* weights() times `scale`, without a table, and 0 for beams and q beyond the last. phases of a channel,
 * shape (beams). */
__device__ __forceinline__ unsigned weights(const phase_params *phases, unsigned beams, unsigned beam,
                                            unsigned q, unsigned period, float scale = 1)
{
    float u[2] = {0, 0};
    for (unsigned i = 0; i < 2; i++)
        if (beam < beams && q + i < period) {
            int m = twiddle_index(phases[beam], static_cast<int>(q + i), static_cast<int>(period));
            float angle = static_cast<float>(m) / static_cast<float>(period);
            u[i] = scale * weight(phases[beam], m, make_float2(cospif(angle), sinpif(angle)));
        }
    __half2 both = __floats2half2_rn(u[0], u[1]);
    return *reinterpret_cast<unsigned *>(&both);
}

/* Input of the phase parameters. */
struct pointing {
    const two_floats *theta2_m, *theta2_n; /* [nm], [nn]: at 1 MHz */
    const two_floats *mhz;                 /* [F] */
    phase_params *phases_m, *phases_n;     /* [F][nm], [F][nn] */
    unsigned nm, nn, m, n, channels;       /* beams along the axes, or all of them twice; M, N */
};

/* Points the beams. A thread makes the phase parameters of one position along each axis; y: channels. */
__global__ void __launch_bounds__(256) point(const pointing w)
{
    unsigned b = blockIdx.x * 256 + threadIdx.x;
    /* phases: shape (F, nm) and (F, nn), contiguous. */
    for (unsigned f = blockIdx.y; f < w.channels; f += gridDim.y) {
        two_floats mhz = w.mhz[f];
        if (b < w.nm) w.phases_m[static_cast<size_t>(f) * w.nm + b] = find_phase(w.theta2_m[b], mhz, w.m);
        if (b < w.nn) w.phases_n[static_cast<size_t>(f) * w.nn + b] = find_phase(w.theta2_n[b], mhz, w.n);
    }
}

/* ---- weights in the order of the registers of mma_f16, for the kernels that do not make them from
 * phase parameters themselves. One thread makes 16 bytes; y: channels. ---- */

/* Which of 32 beams is column (or row) g of operation n. */
__device__ __forceinline__ unsigned column(unsigned n, unsigned g)
{
    return g / 2 * 8 + 2 * n + g % 2;
}

/* mma_arbitrary::work's of all beams, q's [F][blocks][octets][32 lanes] and p's [F][blocks][pairs][8]. A warp
 * has a block of 32 beams, whose phase parameters it makes first. x: 8 blocks; y: channels; z: q's, p's.
 * Shared memory: cosine and sine of pi m / 2N, of the larger 2N. */
__global__ void __launch_bounds__(256)
    fill_arbitrary(const pointing w, uint4 *q, uint4 *p, unsigned blocks, unsigned octets)
{
    extern __shared__ float2 twiddle[]; /* [2N] */
    __shared__ phase_params phases[256];
    bool is_q = blockIdx.z == 0;
    unsigned n = is_q ? w.n : w.m, period = 2 * n, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
             block = blockIdx.x * 8 + warp, beam = block * 32 + lane;
    for (unsigned m = threadIdx.x; m < period; m += 256) {
        float angle = static_cast<float>(m) / static_cast<float>(period);
        twiddle[m] = make_float2(cospif(angle), sinpif(angle));
    }
    __syncthreads();
    if (block >= blocks) return;
    /* to: shape (F, blocks, each), contiguous; one value is that of column g of four operations for the
     * indices from `first` on, of which the warp makes 8 at a time. */
    unsigned each = is_q ? octets * 32 : w.m * 8, g = is_q ? lane / 4 : lane % 8,
             first = (is_q ? lane % 4 : lane / 8) * 2;
    uint4 *to = (is_q ? q : p) + static_cast<size_t>(block) * each;
    for (unsigned f = blockIdx.y; f < w.channels; f += gridDim.y) {
        if (beam < w.nm)
            phases[threadIdx.x] = find_phase((is_q ? w.theta2_n : w.theta2_m)[beam], w.mhz[f], n);
        __syncwarp();
        phase_params of[4];
#pragma unroll
        for (unsigned i = 0; i < 4; i++) of[i] = phases[warp * 32 + column(i, g)];
        uint4 *to_f = to + static_cast<size_t>(f) * blocks * each;
        for (unsigned i = lane, k = first; i < each; i += 32, k += 8) {
            unsigned words[4];
#pragma unroll
            for (unsigned n4 = 0; n4 < 4; n4++)
                words[n4] = k < period && block * 32 + column(n4, g) < w.nm
                                ? weights(of[n4], twiddle, static_cast<int>(k), static_cast<int>(period))
                                : 0;
            to_f[i] = make_uint4(words[0], words[1], words[2], words[3]);
        }
        __syncwarp();
    }
}

/* mma_grid::work's and mma_grid_whole::work's, 2^7 scale U:
 *   q   to [F][j_blocks][q_steps][2][32 lanes]
 *   p   to [F][p_blocks][i_tiles][32 lanes] */
__global__ void __launch_bounds__(256)
    fill_grid_q(uint4 *to, const phase_params *phases, unsigned by, unsigned nq, unsigned j_blocks,
                unsigned q_steps, float scale, unsigned F)
{
    unsigned i = blockIdx.x * 256 + threadIdx.x, count = j_blocks * q_steps * 64;
    if (i >= count) return;
    unsigned lane = i % 32, m = i / 32 % 2, step = i / 64 % q_steps, first = i / 64 / q_steps * 32;
    unsigned q = 16 * step + lane % 4 * 2, j = first + column(2 * m, lane / 4),
             k = first + column(2 * m + 1, lane / 4);
    /* phases: shape (F, beams), contiguous; to: shape (F, count), contiguous */
    for (unsigned f = blockIdx.y; f < F; f += gridDim.y) {
        const phase_params *of_f = phases + static_cast<size_t>(f) * by;
        to[static_cast<size_t>(f) * count + i] =
            make_uint4(weights(of_f, by, j, q, nq, scale), weights(of_f, by, k, q, nq, scale),
                       weights(of_f, by, j, q + 8, nq, scale), weights(of_f, by, k, q + 8, nq, scale));
    }
}

__global__ void __launch_bounds__(256)
    fill_grid_p(uint4 *to, const phase_params *phases, unsigned bx, unsigned np, unsigned p_blocks,
                unsigned i_tiles, float scale, unsigned F)
{
    unsigned number = blockIdx.x * 256 + threadIdx.x, count = p_blocks * i_tiles * 32;
    if (number >= count) return;
    unsigned lane = number % 32, i = number / 32 % i_tiles * 16 + lane / 4,
             p = number / 32 / i_tiles * 16 + lane % 4 * 2;
    /* phases: shape (F, beams), contiguous; to: shape (F, count), contiguous */
    for (unsigned f = blockIdx.y; f < F; f += gridDim.y) {
        const phase_params *of_f = phases + static_cast<size_t>(f) * bx;
        to[static_cast<size_t>(f) * count + number] =
            make_uint4(weights(of_f, bx, i, p, np, scale), weights(of_f, bx, i + 8, p, np, scale),
                       weights(of_f, bx, i, p + 8, np, scale), weights(of_f, bx, i + 8, p + 8, np, scale));
    }
}

} // namespace beamring

#endif
