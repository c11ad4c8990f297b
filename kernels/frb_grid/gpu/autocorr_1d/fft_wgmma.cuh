/* fft_wgmma.cuh - FRB stage 1 by the 1-d autocorrelation (autocorr.cuh), the transform along n on Hopper: by
 * wgmma, from sums and differences of mirror images in registers to all 2N directions. A warpgroup transforms
 * a step, 8 rows of cells at a time; two warpgroups alternate. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_FFT_WGMMA_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_FFT_WGMMA_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_grid/gpu/autocorr_1d/runs.cuh"

namespace beamring
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The right factors to shared memory, by all threads, before a barrier of all. */
template <int NT, int DIRECTIONS> __device__ __forceinline__ void copy_table(const autocorr_1d_grid &grid)
{
    uint4 *table = reinterpret_cast<uint4 *>(autocorr_1d_shared() + grid.memory.table);
    for (unsigned i = threadIdx.x; i < frb_autocorr_1d_table_bytes(NT, DIRECTIONS) / 16; i += blockDim.x)
        table[i] = __ldg(grid.table + i);
    publish_shared();
}

/* Sixteen directions from q on, or as many as there are, of a tile's real or imaginary parts, c, to shared
 * memory: matrices of 8 rows of 16 bytes, transposed, of which this lane gives the address of one
 * (frb_autocorr_1d_group_store). */
template <int COUNT>
__device__ __forceinline__ void store_directions(unsigned to, const unsigned (&c)[COUNT], int q)
{
    const unsigned address = shared_address(autocorr_1d_shared()) + to;
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

/* The places of this lane's cells in the bytes of a step, and their weights, of channel f: to registers where
 * those suffice for the weights (KEPT), else by copies to shared memory from `kept` on.
 *   byte[tile of m][pair]  half-words: the two cells of a pair */
template <int MT, int NT, bool KEPT>
__device__ __forceinline__ void load_cells(uint2 (&weights)[KEPT ? MT : 1][NT], unsigned (&byte)[MT][NT],
                                           const autocorr_1d_job &w, const autocorr_1d_grid &grid, unsigned f,
                                           unsigned kept, unsigned sample, unsigned lane)
{
    constexpr unsigned M = 8 * MT; /* rows of weights: those behind the grid's are 0 */
    const unsigned PITCH = frb_autocorr_1d_pitch(MT, NT), m = frb_autocorr_1d_group_m(lane),
                   pol = frb_autocorr_1d_pol(grid.P, sample);
    /* weights: shape (F, P, M, NT, 4), contiguous; after: shape (M, NT, 4) */
    const uint2 *mine = w.weights + static_cast<size_t>(w.shared_weights ? 0 : f) * (grid.P * M * NT * 4);
#pragma unroll
    for (int i = 0; i < MT * NT; i++) { /* all on their way at once */
        const uint2 *one = mine + frb_autocorr_1d_weight(NT, pol, 8 * (i / NT) + m, i % NT, M, lane);
        if (KEPT)
            weights[i / NT % (KEPT ? MT : 1)][i % NT] = __ldg(one);
        else
            copy_async_to_8(shared_address(autocorr_1d_shared()) + kept + i * 256, one);
    }
#pragma unroll
    for (int i = 0; i < MT * NT; i++)
        byte[i / NT][i % NT] =
            sample * PITCH * 0x10001u +
            __ldg(w.place + frb_autocorr_1d_weight(NT, 0, 8 * (i / NT) + m, i % NT, M, lane));
    copy_async_commit();
    copy_async_wait<0>();
}

/* The bytes of a tile's cells: both[pair][high]  high: samples w and w + 4, 4 PITCH further. */
template <int NT>
__device__ __forceinline__ void load_tile_bytes(unsigned (&both)[NT][2], const unsigned (&byte)[NT],
                                                unsigned from, unsigned raw, unsigned pitch)
{
#pragma unroll
    for (int k = 0; k < NT; k++)
#pragma unroll
        for (int high = 0; high < 2; high++)
            both[k][high] = load_bytes(byte[k] + from, raw + high * 4 * pitch);
}

/* The left factors of a tile: sums and differences of mirror images of the weighted cells.
 *   a[NT][4]: see frb_autocorr_1d_group_m */
template <int NT>
__device__ __forceinline__ void make_left_factors(unsigned (&a)[NT][4], const unsigned (&both)[NT][2],
                                                  const uint2 (&weights)[NT],
                                                  const autocorr_1d_constants &constants)
{
    __half2 re[NT][2], im[NT][2];
#pragma unroll
    for (int k = 0; k < NT; k++)
#pragma unroll
        for (int high = 0; high < 2; high++)
            weigh_two(re[k][high], im[k][high], both[k][high], weights[k], constants);
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
}

/* Starts the products of a tile: y in all directions, real and imaginary parts (frb_autocorr_1d_group_y).
 * table, third: descriptors of the right factors. */
template <int NT, int DIRECTIONS>
__device__ __forceinline__ void start_products(unsigned (&real)[DIRECTIONS / 4],
                                               unsigned (&imaginary)[DIRECTIONS / 4], unsigned (&a)[NT][4],
                                               uint64_t table, uint64_t third)
{
#pragma unroll
    for (int k = 0; k < NT; k++) wgmma_hold(a[k]);
    wgmma_fence();
    wgmma_f16_sums<DIRECTIONS>::multiply(real, a[0], table, false);
    wgmma_f16_sums<DIRECTIONS>::multiply(imaginary, a[1], table, false);
    if (NT == 3) {
        wgmma_f16_sums<DIRECTIONS>::multiply(real, a[NT - 1], third, true);
        wgmma_f16_sums<DIRECTIONS>::multiply(imaginary, a[NT - 1], third + DIRECTIONS * 32 / 16, true);
    }
    wgmma_commit();
}

/* The transforms along n, by GROUPS warpgroups that alternate. While a tile is multiplied, the bytes of the
 * next one are loaded. */
template <int MT, int NT, int DIRECTIONS, int GROUPS>
__device__ __forceinline__ void transform_by_warpgroups(const autocorr_1d_work &all, unsigned barriers,
                                                        unsigned warp, unsigned lane)
{
    const autocorr_1d_grid &grid = all.grid;
    const autocorr_1d_memory &at = grid.memory;
    constexpr bool KEPT = MT == 2; /* weights in registers: they suffice */
    const unsigned PITCH = frb_autocorr_1d_pitch(MT, NT), group = warp / 4, sample = warp % 4;
    const uint64_t table = br_wgmma_descriptor(shared_address(autocorr_1d_shared()) + at.table, 128, 256,
                                               BR_WGMMA_PLAIN),
                   third = table + frb_autocorr_1d_table(DIRECTIONS, 1, 0, 0) / 16;
    /* kept: shape (MT, NT), stride 256: this lane's own place */
    const unsigned kept = at.weights + warp * (MT * NT * 256) + lane * 8,
                   y = frb_autocorr_1d_group_store(MT, warp, lane);
    unsigned n = 0; /* steps */
    for_runs(all, [&](const autocorr_1d_job &w, const autocorr_1d_run &run) {
        uint2 weights[KEPT ? MT : 1][NT]; /* [tile of m][pair] */
        unsigned byte[MT][NT];
        load_cells<MT, NT, KEPT>(weights, byte, w, grid, run.f, kept, sample, lane);

        unsigned both[NT][2]; /* of the next tile */
        bool loaded = false;  /* of the first tile */
        auto load_weights = [&](int tile) {
#pragma unroll
            for (int k = 0; k < NT && !KEPT; k++) weights[0][k] = load_two(kept + (tile * NT + k) * 256);
        };
        unsigned a[NT][4];

        load_weights(0);
        const unsigned end = n + run.steps;
#pragma unroll 1
        for (unsigned step = n + (GROUPS == 2 ? (n ^ group) % 2 : 0); step < end; step += GROUPS) {
            const unsigned slot = which_of(step, RING), which = which_of(step, y_ring_of(at)),
                           from = slot * (8 * PITCH * 0x10001u), to = y + which * at.y_bytes;
            if (!loaded) {
                wait_for(barriers + 8 * (BYTES + slot), phase_of(step, RING));
                load_tile_bytes<NT>(both, byte[0], from, at.raw, PITCH);
            }
#pragma unroll
            for (int tile = 0; tile < MT; tile++) {
                unsigned real[DIRECTIONS / 4], imaginary[DIRECTIONS / 4];
                make_left_factors<NT>(a, both, weights[KEPT ? tile : 0], grid.constants);
                start_products<NT, DIRECTIONS>(real, imaginary, a, table, third);
                if (tile + 1 < MT) load_tile_bytes<NT>(both, byte[(tile + 1) % MT], from, at.raw, PITCH);
                if (tile + 2 == MT) arrive_at(barriers + 8 * (BYTES_FREE + slot));
                if (tile + 1 == MT) {
                    const unsigned next = step + GROUPS, there = which_of(next, RING);
                    loaded = next < end;
                    if (loaded) {
                        wait_for(barriers + 8 * (BYTES + there), phase_of(next, RING));
                        load_tile_bytes<NT>(both, byte[0], there * (8 * PITCH * 0x10001u), at.raw, PITCH);
                    }
                }
                if (tile == 0) wait_for(barriers + 8 * (Y_FREE + which), !phase_of(step, y_ring_of(at)));
                wgmma_wait<0>();
                wgmma_hold(real);
                wgmma_hold(imaginary);
                load_weights((tile + 1) % MT);
#pragma unroll
                for (int q = 0; q < DIRECTIONS; q += 16) {
                    store_directions(to + frb_autocorr_1d_group_y(MT, q, tile, 0, 0), real, q);
                    store_directions(to + frb_autocorr_1d_group_y(MT, q, tile, 1, 0), imaginary, q);
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
