/* warp_roles.cuh - FRB stage 1 by the 1-d autocorrelation (autocorr.cuh): what the warps of a block of
 * threads do.
 *
 * A block of threads makes the images of one channel and a run of blocks of time, and then of others, step
 * after step. Warps are specialized:
 *
 *   copy       one warp copies the bytes of steps ahead           bytes: a ring of 4 steps
 *   transform  some transform the field of a step along n         y: a ring of 4 (or 2) steps
 *   multiply   some multiply the directions of the step before;
 *              where a piece of a block ends they sum its lags    lags: a double buffer
 *   draw       some transform these to an image, and write it
 *
 * Each slot of a ring has a barrier for being full and one for being empty. Intensities of pieces are added
 * in order. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_WARP_ROLES_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_WARP_ROLES_CUH

#include "kernels/frb_grid/gpu/autocorr_1d/fft_wgmma.cuh"

#include <float.h>

namespace beamring
{

/* Two intensities as float16, those too large as the largest finite one. Rounding may have left less than
 * nothing. */
__device__ __forceinline__ unsigned sky_pair(float x, float y)
{
    unsigned pair;
    asm("cvt.rn.relu.satfinite.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}

/* Intensities c (two even parts, two odd ones) of directions p and 2M - p, and q, q + 1, to an image: to[0],
 * from[0] and `further` halves behind them; 1, if PAIRS, and places are even. */
template <bool PAIRS>
__device__ __forceinline__ void draw(__half *to, __half *opposite, const float (&c)[4], float factor,
                                     unsigned further)
{
    const float even[2] = {fmaf(c[0], factor, 0.0f), fmaf(c[1], factor, 0.0f)}; /* no -0 */
    const unsigned one = sky_pair(fmaf(c[2], factor, even[0]), fmaf(c[3], factor, even[1])),
                   other = sky_pair(fmaf(-c[2], factor, even[0]), fmaf(-c[3], factor, even[1]));
    if (PAIRS) {
        *reinterpret_cast<unsigned *>(to) = one;
        *reinterpret_cast<unsigned *>(opposite) = other;
    } else {
        to[0] = __low2half(as_half2(one)), to[further] = __high2half(as_half2(one));
        opposite[0] = __low2half(as_half2(other)), opposite[further] = __high2half(as_half2(other));
    }
}

__device__ __forceinline__ void prefetch(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(__cvta_generic_to_global(from)));
}

/* Whether all of `count` samples of channel f are there, of which the first one is `step`. By a whole warp.
 */
__device__ __forceinline__ bool all_there(const autocorr_1d_job &w, unsigned f, size_t step, int count,
                                          unsigned lane)
{
    /* valid: shape (steps, valid_row) */
    const uint8_t *valid = w.valid + (step + lane) * w.valid_row + f;
    bool missing = false;
#pragma unroll 1
    for (int i = static_cast<int>(lane); i < count; i += 32, valid += 32 * w.valid_row)
        missing |= *valid == 0;
    return __any_sync(WHOLE_WARP, missing) == 0;
}

/* Copies the bytes of all steps, by one warp. */
template <int MT, int NT>
__device__ __forceinline__ void copy_all(const autocorr_1d_work &all, unsigned barriers, unsigned lane)
{
    const autocorr_1d_grid &grid = all.grid;
    const unsigned pitch = frb_autocorr_1d_pitch(MT, NT), times = frb_autocorr_1d_times(grid.P),
                   raw = shared_address(autocorr_1d_shared()) + grid.memory.raw;
    unsigned count = 0;
    for_runs(all, [&](const autocorr_1d_job &w, const autocorr_1d_run &run) {
        autocorr_1d_pieces ahead(w, run);
        /* The run's weights, which are wanted when the steps before have been transformed. */
        const unsigned bytes = grid.P * (8 * MT * NT * 4) * sizeof(uint2);
        const uint8_t *weights = reinterpret_cast<const uint8_t *>(w.weights) +
                                 static_cast<size_t>(w.shared_weights ? 0 : run.f) * bytes;
#pragma unroll 1
        for (unsigned i = 128 * lane; i < bytes; i += 128 * 32) prefetch(weights + i);
#pragma unroll 1
        while (ahead.more()) {
            const unsigned block = ahead.block;
            unsigned at = ahead.at;
            int left = static_cast<int>(ahead.samples(w));
            /* e: shape (steps, row) */
            const size_t step = static_cast<size_t>(block) * w.T + at - w.pending;
            const uint8_t *from =
                w.e + step * w.row + static_cast<size_t>(run.f) * (grid.P * grid.D) + 16 * lane;
            const bool rows = w.width == 16 && (block > 0 || at >= w.pending) &&
                              (!w.valid || all_there(w, run.f, step, left, lane));
            ahead.take(w);
#pragma unroll 1
            do {
                const unsigned slot = which_of(count, RING), to = raw + slot * grid.memory.raw_bytes;
                wait_for(barriers + 8 * (BYTES_FREE + slot), !phase_of(count, RING));
                if (!rows)
                    copy_step(to, pitch, w, grid, run.f, block, at, left, lane);
                else if (grid.P == 2)
                    copy_step_of_rows<2>(to, pitch, from, w.row, grid.D, w.gap, left, lane);
                else
                    copy_step_of_rows<1>(to, pitch, from, w.row, grid.D, w.gap, left, lane);
                from += times * w.row;
                if (lane == 0)
                    autocorr_1d_shared()[grid.memory.ends + count % ENDS] = left <= static_cast<int>(times);
                arrive_when_copied(barriers + 8 * (BYTES + slot));
                arrive_at(barriers + 8 * (BYTES + slot)); /* for what is not copied in the background */
                at += times, left -= static_cast<int>(times);
                count++;
            } while (left > 0);
        }
    });
    copy_async_wait<0>();
}

/* The transforms along n, of ROWS rows of cells a warp. */
template <int MT, int NT, int ROWS>
__device__ __forceinline__ void transform_all(const autocorr_1d_work &all, unsigned barriers, unsigned warp,
                                              unsigned lane)
{
    /* Rows of which the weights stay in registers; of others in shared memory. */
    constexpr int KEPT = ROWS == 3 ? 1 : ROWS > 2 ? 2 : ROWS;
    const autocorr_1d_grid &grid = all.grid;
    const autocorr_1d_memory &at = grid.memory;
    const unsigned N = grid.N, M = 8 * MT; /* rows of weights: those behind the grid's are 0 */
    half_transform<NT> waves;
    waves.load(grid.waves, lane);
    /* Pair 0 is cosines for direction 0, sines for direction N. */
    const __half2 paired = lane / 4 == 0 ? as_half2(0) : as_half2(0x3c003c00u);
    const unsigned row = frb_autocorr_1d_row(ROWS, warp, 0), q = lane / 4,
                   plus = frb_autocorr_1d_y(MT, q, row, lane % 4),
                   minus = frb_autocorr_1d_y(MT, 2 * N - q, row, lane % 4),
                   minus_first = frb_autocorr_1d_y(MT, frb_autocorr_1d_direction(N, q, 1), row, lane % 4);
    const bool last_there = 8 * (NT - 1) + q < N;
    const unsigned kept_weights =
        at.weights + warp * (ROWS - KEPT) * NT * 64 + frb_autocorr_1d_kept_weight(lane);
    unsigned n = 0; /* steps */
    for_runs(all, [&](const autocorr_1d_job &w, const autocorr_1d_run &run) {
        /* weights: shape (F, P, M, NT, 4), contiguous; after: shape (M, NT, 4) */
        const unsigned pol = frb_autocorr_1d_pol(grid.P, lane / 4);
        uint2 weights[KEPT][NT];
        unsigned byte[ROWS][NT]; /* where both are in a step */
        const uint2 *mine =
            w.weights + static_cast<size_t>(w.shared_weights ? 0 : run.f) * (grid.P * M * NT * 4);
#pragma unroll
        for (int i = 0; i < ROWS * NT; i++) {
            const unsigned m = frb_autocorr_1d_row(ROWS, warp, i / NT);
            const uint2 weight = __ldg(mine + frb_autocorr_1d_weight(NT, pol, m, i % NT, M, lane));
            if (i / NT < KEPT)
                weights[i / NT % KEPT][i % NT] = weight;
            else if (lane / 16 == 0 && lane / 4 % 2 == 0)
                store_two(kept_weights + (i - KEPT * NT) * 64, weight.x, weight.y);
            byte[i / NT][i % NT] = lane / 4 * frb_autocorr_1d_pitch(MT, NT) * 0x10001u +
                                   __ldg(w.place + frb_autocorr_1d_weight(NT, 0, m, i % NT, M, lane));
        }
        __syncwarp();
#pragma unroll 1
        for (const unsigned end = n + run.steps; n < end; n++) {
            const unsigned slot = which_of(n, RING), y = which_of(n, at.y_ring),
                           from = at.raw + slot * at.raw_bytes, to = y * at.y_bytes;
            wait_for(barriers + 8 * (BYTES + slot), phase_of(n, RING));
            wait_for(barriers + 8 * (Y_FREE + y), !phase_of(n, at.y_ring));
            unsigned both[NT]; /* of the next row */
#pragma unroll
            for (int k = 0; k < NT; k++) both[k] = load_bytes(byte[0][k], from);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                __half2 re[NT], im[NT];
#pragma unroll
                for (int k = 0; k < NT; k++) {
                    uint2 weight = weights[i % KEPT][k];
                    if (i >= KEPT) weight = load_two(kept_weights + ((i - KEPT) * NT + k) * 64);
                    weigh_two(re[k], im[k], both[k], weight, grid.constants);
                }
#pragma unroll
                for (int k = 0; k < NT && i + 1 < ROWS; k++)
                    both[k] = load_bytes(byte[(i + 1) % ROWS][k], from);
                unsigned c_re[NT], s_re[NT], c_im[NT], s_im[NT];
                waves.transform(c_re, s_re, re);
                waves.transform(c_im, s_im, im);
#pragma unroll
                for (int k = 0; k < NT; k++) {
                    const __half2 cr = as_half2(c_re[k]), sr = as_half2(s_re[k]), ci = as_half2(c_im[k]),
                                  si = as_half2(s_im[k]);
                    __half2 up_re, up_im, down_re, down_im;
                    if (k == 0) {
                        up_re = __hfma2(__hneg2(paired), si, cr), up_im = __hfma2(paired, sr, ci);
                        down_re = __hfma2(paired, cr, si), down_im = __hfma2(paired, ci, __hneg2(sr));
                    } else {
                        up_re = __hsub2_rn(cr, si), up_im = __hadd2_rn(ci, sr);
                        down_re = __hadd2_rn(cr, si), down_im = __hsub2_rn(ci, sr);
                    }
                    if (k < NT - 1 || last_there) {
                        const unsigned further = 8 * k * frb_autocorr_1d_y_pitch(MT);
                        store_two(plus + to + i * 32 + further, as_bits(up_re), as_bits(up_im));
                        store_two((k == 0 ? minus_first : minus) + to + i * 32 - further, as_bits(down_re),
                                  as_bits(down_im));
                    }
                }
            }
            arrive_at(barriers + 8 * (Y + y));
            arrive_at(barriers + 8 * (BYTES_FREE + slot));
        }
    });
}

/* Products and lags, by CW warps of QW directions each. */
template <int MT, int QW, int CW>
__device__ __forceinline__ void multiply_all(const autocorr_1d_work &all, unsigned barriers, unsigned warp,
                                             unsigned lane)
{
    const autocorr_1d_grid &grid = all.grid;
    const autocorr_1d_memory &at = grid.memory;
    const unsigned first = frb_autocorr_1d_mine(CW, warp, 0);
    unsigned products = IN_GROUPS ? frb_autocorr_1d_group_load(MT, first, lane)
                                  : frb_autocorr_1d_y(MT, first, lane / 4, lane % 4),
             piece = 0;
    if (IN_GROUPS)
        asm volatile("" : "+r"(products)); /* there is a register for it: not made again each step */
    lag_products<MT, QW> sums;
    sums.clear();
    /* And for the number of steps. */
    const auto count = [&] { return *reinterpret_cast<const unsigned *>(autocorr_1d_shared() + at.steps); };
    const unsigned steps = IN_GROUPS ? count() : 0;
#pragma unroll 1
    for (unsigned n = 0; n < (IN_GROUPS ? steps : count()); n++) {
        const unsigned y = which_of(n, y_ring_of(at));
        wait_for(barriers + 8 * (Y + y), phase_of(n, y_ring_of(at)));
        const bool ends = autocorr_1d_shared()[at.ends + n % ENDS];
        sums.template add<CW>(products + y * at.y_bytes, grid.constants.zero);
        arrive_at(barriers + 8 * (Y_FREE + y));
        if (!ends) continue;
        wait_for(barriers + 8 * (LAGS_FREE + piece % 2), !phase_of(piece, 2));
        sums.template store<CW>(at.lags + piece % 2 * at.lags_bytes, warp, lane_again());
        sums.clear();
        arrive_at(barriers + 8 * (LAGS + piece % 2));
        piece++;
    }
}

/* Keeps the bytes of a piece that is not complete for the next call, by so many threads: a few words at once,
 * so that not each waits for the one before. */
template <class WORD, unsigned AT_ONCE>
__device__ __forceinline__ void keep_bytes(const autocorr_1d_job &w, const autocorr_1d_grid &grid, unsigned f,
                                           unsigned thread, unsigned threads)
{
    const unsigned start = w.last / PIECE * PIECE, row = grid.P * grid.D / sizeof(WORD),
                   words = (w.last - start) * row;
#pragma unroll 1
    for (unsigned i = thread; i < words; i += AT_ONCE * threads) {
        WORD word[AT_ONCE] = {}; /* missing samples are 0 */
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; k++) {
            const unsigned at = i + k * threads, t = at / row, byte = (at - t * row) * sizeof(WORD);
            const uint8_t *from = at < words ? bytes_of(w, grid, f, w.blocks - 1, start + t, byte) : NULL;
            if (from) word[k] = *reinterpret_cast<const WORD *>(from);
        }
        /* after: shape (F, piece, kept), contiguous */
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; k++) {
            const unsigned at = i + k * threads, t = at / row, byte = (at - t * row) * sizeof(WORD);
            uint8_t *to = w.after + (static_cast<size_t>(f) * w.piece + t) * w.kept + byte;
            if (at < words) *reinterpret_cast<WORD *>(to) = word[k];
        }
    }
}

/* The image of a piece's lags, of one tile of p, to `image` in device memory; lags: this lane's first ones.
 * ENDS: the block ends and has no other piece; otherwise intensities are added to those of the pieces before,
 * and drawn if the block `ends`. PAIRS: the image is not transposed, and aligned to 4 bytes. */
template <int MT, bool ENDS, bool PAIRS>
__device__ __forceinline__ void draw_tile(__half *image, const autocorr_1d_grid &grid, unsigned lags,
                                          const unsigned (&table)[MT][4], float4 *sum, unsigned tile,
                                          float factor, bool ends, unsigned lane)
{
    const unsigned M = grid.M, N = grid.N, p = frb_autocorr_1d_p(M, tile, lane / 4), q = 2 * (lane % 4),
                   further = !PAIRS && grid.transposed ? 2 * M : 1;
    __half *to = image + frb_autocorr_1d_place(M, N, !PAIRS && grid.transposed, p, q),
           *opposite = image + frb_autocorr_1d_place(M, N, !PAIRS && grid.transposed,
                                                     frb_autocorr_1d_direction(M, p, 1), q);
#pragma unroll 2
    for (unsigned tile_q = 0; tile_q < N / 4; tile_q++) {
        float c[4];
        transform_lags<MT>(c, lags, table);
        if (!ENDS) {
            c[0] += sum->x, c[1] += sum->y, c[2] += sum->z, c[3] += sum->w;
            *sum = ends ? make_float4(0, 0, 0, 0) : make_float4(c[0], c[1], c[2], c[3]);
        }
        if (ENDS || ends) draw<PAIRS>(to, opposite, c, factor, further);
        to += 8 * further, opposite += 8 * further;
        lags += frb_autocorr_1d_lag(MT, 8, 0), sum += MT * 32;
    }
}

/* Images of lags, by FW warps: as many as there are tiles of p, or a divisor of it. */
template <int MT, int FW>
__device__ __forceinline__ void draw_all(const autocorr_1d_work &all, unsigned barriers, unsigned warp,
                                         unsigned lane)
{
    constexpr int TILES = MT / FW; /* of p, of a warp */
    constexpr unsigned THREADS = 32 * FW, AT_ONCE = !IN_GROUPS ? 2
                                                    : MT == 3  ? 4
                                                               : 3; /* as far as registers suffice */
    static_assert(MT % FW == 0, "tiles of all warps");
    const autocorr_1d_grid &grid = all.grid;
    const autocorr_1d_memory &at = grid.memory;
    const unsigned M = grid.M, N = grid.N, units = frb_autocorr_1d_units(MT, N), thread = 32 * warp + lane;
    float4 *total = reinterpret_cast<float4 *>(autocorr_1d_shared() + at.total);
    unsigned table[TILES][MT][4]; /* a of mma.sync, see frb_autocorr_1d_lag_wave */
#pragma unroll
    for (int i = 0; i < TILES * MT; i++) {
        const uint4 a =
            __ldg(grid.lag_waves + frb_autocorr_1d_lag_wave(MT, warp + FW * (i / MT), i % MT, lane));
        table[i / MT][i % MT][0] = a.x, table[i / MT][i % MT][1] = a.y;
        table[i / MT][i % MT][2] = a.z, table[i / MT][i % MT][3] = a.w;
    }
    unsigned piece = 0;
    for_runs(all, [&](const autocorr_1d_job &w, const autocorr_1d_run &run) {
        const bool is_long = w.T > PIECE, pairs = !grid.transposed && w.wide;
        const unsigned f = run.f;
        const float level = w.level[w.shared_weights ? 0 : f];
        autocorr_1d_pieces ahead(w, run);
        /* sums, sums_after: shape (F, units, 32), contiguous; total has this warp's */
        if (is_long)
            for (unsigned u = warp; u < units; u += FW)
                total[u * 32 + lane] =
                    run.block == 0 && w.sums ? w.sums[(f * units + u) * 32 + lane] : make_float4(0, 0, 0, 0);
#pragma unroll 1
        while (ahead.more()) {
            const unsigned what = ahead.take(w), block = what & BLOCK;
            const bool ends = what & BLOCK_ENDS;
            float factor = level;
            if (ends) factor *= w.factor ? w.factor[static_cast<size_t>(block) * w.F + f] : w.unit;
            factor = fminf(factor, FLT_MAX);
            /* out: shape (F, out_stride, cells), contiguous */
            __half *image = reinterpret_cast<__half *>(w.out) + (f * w.out_stride + block) * (4 * M * N);
            wait_for(barriers + 8 * (LAGS + piece % 2), phase_of(piece, 2));
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const unsigned tile = warp + FW * i,
                               lags = at.lags + piece % 2 * at.lags_bytes +
                                      frb_autocorr_1d_lag(MT, lane / 4,
                                                          frb_autocorr_1d_k_lag(0, 2 * (lane % 4)));
                float4 *sum = total + tile * 32 + lane;
                if (is_long && pairs)
                    draw_tile<MT, false, true>(image, grid, lags, table[i], sum, tile, factor, ends, lane);
                else if (is_long)
                    draw_tile<MT, false, false>(image, grid, lags, table[i], sum, tile, factor, ends, lane);
                else if (pairs)
                    draw_tile<MT, true, true>(image, grid, lags, table[i], sum, tile, factor, ends, lane);
                else
                    draw_tile<MT, true, false>(image, grid, lags, table[i], sum, tile, factor, ends, lane);
            }
            arrive_at(barriers + 8 * (LAGS_FREE + piece % 2));
            piece++;
        }
        if (run.stop < w.blocks || w.complete) return;
        /* The last block goes on in the next call. */
        if (is_long)
            for (unsigned u = warp; u < units; u += FW)
                w.sums_after[(f * units + u) * 32 + lane] = total[u * 32 + lane];
        if (w.width == 16)
            keep_bytes<uint4, AT_ONCE>(w, grid, f, thread, THREADS);
        else if (w.width == 4)
            keep_bytes<unsigned, AT_ONCE>(w, grid, f, thread, THREADS);
        else
            keep_bytes<uint8_t, AT_ONCE>(w, grid, f, thread, THREADS);
    });
}

constexpr int resident(int warps)
{
    return warps <= 16 ? 2 : 1;
}

/* Of 24 warps each has 80 registers; those that multiply need more, the others less. */
template <bool MORE> __device__ __forceinline__ void have_registers()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (MORE)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 88;\n");
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;\n");
#endif
}

/* MT, NT: tiles of the grid; of a block's warps PW transform, ROWS rows of cells each, CW multiply, QW
 * directions each, FW draw, and one copies. */
template <int MT, int NT, int ROWS, int CW, int QW, int FW>
__global__ void __launch_bounds__(32 * (8 * MT / ROWS + CW + FW + 1), resident(8 * MT / ROWS + CW + FW + 1))
    autocorr_1d_images(const __grid_constant__ autocorr_1d_work all)
{
    constexpr unsigned PW = 8 * MT / ROWS;
    constexpr bool SHIFTS = PW == 8 && CW == 12 && FW == 3;
    const unsigned lane = threadIdx.x % 32, warp = __shfl_sync(WHOLE_WARP, threadIdx.x / 32, 0),
                   barriers = shared_address(autocorr_1d_shared()) + all.grid.memory.barriers;
    if (warp == 0) list_runs(all, lane);
    if (threadIdx.x == 32)
        for (unsigned i = 0; i < BARRIERS; i++)
            prepare(barriers + 8 * i, i < BYTES_FREE  ? 64 /* a warp's copies, and the warp */
                                      : i < Y_FREE    ? 32 * (IN_GROUPS ? 4 : PW) /* a step */
                                      : i < LAGS_FREE ? 32 * CW
                                                      : 32 * FW);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    copy_table<NT, QW * CW>(all.grid);
#endif
    __syncthreads();
    if (warp < PW) {
        if (SHIFTS) have_registers<false>();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        transform_by_warpgroups<MT, NT, QW * CW, PW / 4>(all, barriers, warp, lane);
#else
        transform_all<MT, NT, ROWS>(all, barriers, warp, lane);
#endif
    } else if (warp < PW + CW) {
        if (SHIFTS) have_registers<true>();
        multiply_all<MT, QW, CW>(all, barriers, warp - PW, lane);
    } else {
        if (SHIFTS) have_registers<false>();
        if (warp < PW + CW + FW)
            draw_all<MT, FW>(all, barriers, warp - PW - CW, lane);
        else
            copy_all<MT, NT>(all, barriers, lane);
    }
}

} // namespace beamring

#endif
