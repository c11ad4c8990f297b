/* fft_wgmma.cuh - FRB stage 1 by way of lags (autocorr.cuh), the transform along n on Hopper: by wgmma, from
 * sums and differences of mirror images in registers to all 2N directions. A warpgroup transforms a step, 8
 * rows of cells at a time; if there are two of them, they take turns. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_FFT_WGMMA_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_FFT_WGMMA_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_grid/gpu/autocorr_1d/runs.cuh"

namespace beamring
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The right factors to shared memory, by all threads, before a barrier of all. */
template <int NT, int DIRECTIONS> __device__ __forceinline__ void copy_table(const lags_grid &grid)
{
    uint4 *table = reinterpret_cast<uint4 *>(lags_shared() + grid.memory.table);
    for (unsigned i = threadIdx.x; i < frb_lags_table_bytes(NT, DIRECTIONS) / 16; i += blockDim.x)
        table[i] = __ldg(grid.table + i);
    publish_shared();
}

/* Sixteen directions from q on, or as many as there are, of a tile's real or imaginary parts, c, to shared
 * memory: matrices of 8 rows of 16 bytes, turned, of which this lane gives the address of one
 * (frb_lags_group_store). */
template <int COUNT>
__device__ __forceinline__ void store_directions(unsigned to, const unsigned (&c)[COUNT], int q)
{
    const unsigned address = shared_address(lags_shared()) + to;
    const int i = q / 4;
    if (i + 4 <= COUNT)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
            "r"(c[i]), "r"(c[i + 1]), "r"(c[(i + 2) % COUNT]), "r"(c[(i + 3) % COUNT])
            : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};\n" ::"r"(address),
                     "r"(c[i]), "r"(c[i + 1])
                     : "memory");
}

/* The transforms along n, by GROUPS warpgroups in turn. */
template <int MT, int NT, int DIRECTIONS, int GROUPS>
__device__ __forceinline__ void transform_by_warpgroups(const lags_work &all, unsigned barriers,
                                                        unsigned warp, unsigned lane)
{
    const lags_grid &grid = all.grid;
    const lags_memory &at = grid.memory;
    constexpr unsigned M = 8 * MT; /* rows of weights: those behind the grid's are 0 */
    constexpr bool KEPT = MT == 2; /* weights in registers: they suffice */
    const unsigned PITCH = frb_lags_pitch(MT, NT), group = warp / 4, sample = warp % 4,
                   m = frb_lags_group_m(lane);
    const uint64_t table = br_wgmma_descriptor(shared_address(lags_shared()) + at.table, 128, 256,
                                               BR_WGMMA_PLAIN),
                   third = table + frb_lags_table(DIRECTIONS, 1, 0, 0) / 16;
    /* kept: shape (MT, NT), stride 256: this lane's own place */
    const unsigned kept = at.weights + warp * (MT * NT * 256) + lane * 8,
                   y = frb_lags_group_store(MT, warp, lane);
    unsigned n = 0; /* steps */
    for_runs(all, [&](const lags_job &w, const lags_run &run) {
        /* weights: shape (F, P, M, NT, 4), contiguous; after: shape (M, NT, 4) */
        const uint2 *mine =
            w.weights + static_cast<size_t>(w.shared_weights ? 0 : run.f) * (grid.P * M * NT * 4);
        uint2 weights[KEPT ? MT : 1][NT]; /* [tile of m][pair] */
        unsigned byte[MT][NT];            /* where both are in the bytes of a step */
#pragma unroll
        for (int i = 0; i < MT * NT; i++) { /* all on their way at once */
            const uint2 *one =
                mine + frb_lags_weight(NT, frb_lags_pol(grid.P, sample), 8 * (i / NT) + m, i % NT, M, lane);
            if (KEPT)
                weights[i / NT % (KEPT ? MT : 1)][i % NT] = __ldg(one);
            else
                copy_async_to_8(shared_address(lags_shared()) + kept + i * 256, one);
        }
#pragma unroll
        for (int i = 0; i < MT * NT; i++)
            byte[i / NT][i % NT] = sample * PITCH * 0x10001u +
                                   __ldg(w.place + frb_lags_weight(NT, 0, 8 * (i / NT) + m, i % NT, M, lane));
        copy_async_commit();
        copy_async_wait<0>();

        /* What the next tile is weighed from comes while this one is multiplied. */
        unsigned both[NT][2];
        bool loaded = false; /* of the first tile */
        auto load = [&](int tile, unsigned from) {
#pragma unroll
            for (int k = 0; k < NT; k++)
#pragma unroll
                for (int high = 0; high < 2; high++)
                    both[k][high] = load_bytes(byte[tile][k] + from, at.raw + high * 4 * PITCH);
        };
        auto load_weights = [&](int tile) {
#pragma unroll
            for (int k = 0; k < NT && !KEPT; k++) weights[0][k] = load_two(kept + (tile * NT + k) * 256);
        };
        unsigned a[NT][4]; /* see frb_lags_group_m */
        auto weigh = [&](int tile) {
            __half2 re[NT][2], im[NT][2];
#pragma unroll
            for (int k = 0; k < NT; k++)
#pragma unroll
                for (int high = 0; high < 2; high++)
                    weigh_two(re[k][high], im[k][high], both[k][high], weights[KEPT ? tile : 0][k],
                              grid.constants);
#pragma unroll
            for (int high = 0; high < 2; high++) {
                a[0][high] = as_bits(__hadd2_rn(re[0][high], re[1][high]));
                a[0][2 + high] = as_bits(__hsub2_rn(im[1][high], im[0][high]));
                a[1][high] = as_bits(__hadd2_rn(im[0][high], im[1][high]));
                a[1][2 + high] = as_bits(__hsub2_rn(re[0][high], re[1][high]));
                if (NT < 3) continue;
                a[NT - 1][high] = sum_difference(re[NT - 1][high]);
                a[NT - 1][2 + high] = sum_difference(im[NT - 1][high]);
            }
        };

        load_weights(0);
        const unsigned end = n + run.steps;
#pragma unroll 1
        for (unsigned step = n + (GROUPS == 2 ? (n ^ group) % 2 : 0); step < end; step += GROUPS) {
            const unsigned slot = which_of(step, RING), which = which_of(step, y_ring_of(at)),
                           from = slot * (8 * PITCH * 0x10001u), to = y + which * at.y_bytes;
            if (!loaded) {
                wait_for(barriers + 8 * (BYTES + slot), phase_of(step, RING));
                load(0, from);
            }
#pragma unroll
            for (int tile = 0; tile < MT; tile++) {
                weigh(tile);
                unsigned real[DIRECTIONS / 4], imaginary[DIRECTIONS / 4]; /* of y, see frb_lags_group_y */
#pragma unroll
                for (int k = 0; k < NT; k++) wgmma_hold(a[k]);
                wgmma_fence();
                wgmma_f16_sums<DIRECTIONS>::multiply(real, a[0], table, false);
                wgmma_f16_sums<DIRECTIONS>::multiply(imaginary, a[1], table, false);
                if (NT == 3) {
                    wgmma_f16_sums<DIRECTIONS>::multiply(real, a[NT - 1], third, true);
                    wgmma_f16_sums<DIRECTIONS>::multiply(imaginary, a[NT - 1], third + DIRECTIONS * 32 / 16,
                                                         true);
                }
                wgmma_commit();
                if (tile + 1 < MT) load(tile + 1, from);
                if (tile + 2 == MT) arrive_at(barriers + 8 * (BYTES_FREE + slot));
                if (tile + 1 == MT) {
                    const unsigned next = step + GROUPS, there = which_of(next, RING);
                    loaded = next < end;
                    if (loaded) {
                        wait_for(barriers + 8 * (BYTES + there), phase_of(next, RING));
                        load(0, there * (8 * PITCH * 0x10001u));
                    }
                }
                if (tile == 0) wait_for(barriers + 8 * (Y_FREE + which), !phase_of(step, y_ring_of(at)));
                wgmma_wait<0>();
                wgmma_hold(real);
                wgmma_hold(imaginary);
                load_weights((tile + 1) % MT);
#pragma unroll
                for (int q = 0; q < DIRECTIONS; q += 16) {
                    store_directions(to + frb_lags_group_y(MT, q, tile, 0, 0), real, q);
                    store_directions(to + frb_lags_group_y(MT, q, tile, 1, 0), imaginary, q);
                }
            }
            arrive_at(barriers + 8 * (Y + which));
        }
        n = end;
    });
}

#endif

} // namespace beamring

#endif
