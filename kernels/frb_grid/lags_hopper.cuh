/* lags_hopper.cuh - FRB stage 1 by way of lags (lags.cuh), the transform along n on Hopper: by wgmma,
 * directly from the weighed field in registers to all 2N directions, without mirror images. A warpgroup
 * transforms a step, 8 rows of cells at a time; if there are two of them, they take turns. */
#ifndef BEAMRING_KERNELS_FRB_GRID_LAGS_HOPPER_CUH
#define BEAMRING_KERNELS_FRB_GRID_LAGS_HOPPER_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_grid/lags_runs.cuh"

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

/* The transforms along n, by GROUPS warpgroups in turn. */
template <int MT, int NT, int DIRECTIONS, int GROUPS>
__device__ __forceinline__ void transform_by_warpgroups(const lags_work &all, unsigned barriers,
                                                        unsigned warp, unsigned lane)
{
    const lags_grid &grid = all.grid;
    const lags_memory &at = grid.memory;
    constexpr unsigned M = 8 * MT; /* rows of weights: those behind the grid's are 0 */
    /* As far as registers suffice: tiles of which the weights stay in them; the next tile is weighed beside
     * the products of this one. */
    constexpr int KEPT = MT == 2 ? 2 : 1;
    constexpr bool EARLY = MT == 2;
    constexpr unsigned NOWHERE = ~0u;
    const unsigned PITCH = frb_lags_pitch(MT, NT, IN_GROUPS), group = warp / 4, first = warp % 4 * 2,
                   m = first + frb_lags_group_m(lane), sample = frb_lags_group_sample(lane);
    const uint64_t table =
        br_wgmma_descriptor(shared_address(lags_shared()) + at.table, 128, 256, BR_WGMMA_PLAIN);
    const unsigned weights = at.weights + warp * frb_lags_group_weight(NT, MT, 0, 0, 0, 0),
                   weight = weights + frb_lags_group_weight(NT, 0, frb_lags_pol(grid.P, sample),
                                                            frb_lags_group_m(lane), 0, lane);
    const unsigned y = frb_lags_y(MT, frb_lags_group_direction(0, lane), m, sample);
    unsigned n = 0; /* steps */
    for_runs(all, [&](const lags_job &w, const lags_run &run) {
        /* weights: shape (F, P, M, NT, 4), contiguous; after: shape (P, M, NT, 4) */
        const uint2 *mine =
            w.weights + static_cast<size_t>(w.shared_weights ? 0 : run.f) * (grid.P * M * NT * 4);
        constexpr unsigned EACH = (MT * 2 * 2 * NT * 4 + 31) / 32; /* of a lane, all on their way at once */
        uint2 one[EACH];
        unsigned place[EACH]; /* where they go; NOWHERE: there is none */
        const unsigned again = this_lane();
#pragma unroll
        for (unsigned k = 0; k < EACH; k++) {
            const unsigned i = 32 * k + again, row = i / (NT * 4) % 2, pol = i / (2 * NT * 4) % 2,
                           tile = i / (2 * NT * 4) / 2;
            place[k] = tile < MT && pol < grid.P
                           ? weights + frb_lags_group_weight(NT, tile, pol, row, 0, 0) + i % (NT * 4) * 8
                           : NOWHERE;
            one[k] = make_uint2(0, 0);
            if (place[k] != NOWHERE)
                one[k] =
                    __ldg(mine + frb_lags_weight(NT, pol, 8 * tile + first + row, 0, M, 0) + i % (NT * 4));
        }
        unsigned byte[MT][NT]; /* where both are in the bytes of a step */
#pragma unroll
        for (int i = 0; i < MT * NT; i++)
            byte[i / NT][i % NT] = sample * PITCH * 0x10001u +
                                   __ldg(w.dish + frb_lags_weight(NT, 0, 8 * (i / NT) + m, i % NT, M, lane));
        __syncwarp();
#pragma unroll
        for (unsigned k = 0; k < EACH; k++)
            if (place[k] != NOWHERE) store_two(place[k], one[k].x, one[k].y);
        __syncwarp();
        uint2 kept[KEPT > 0 ? KEPT * NT : 1]; /* [tile of m][pair] */
#pragma unroll
        for (int i = 0; i < KEPT * NT; i++)
            kept[i] = load_two(weight + frb_lags_group_weight(NT, i / NT, 0, 0, i % NT, 0));
        const unsigned end = n + run.steps;
#pragma unroll 1
        for (unsigned step = n + (GROUPS == 2 ? (n ^ group) % 2 : 0); step < end; step += GROUPS) {
            const unsigned slot = which_of(step, RING), which = which_of(step, at.y_ring),
                           from = slot * (8 * PITCH * 0x10001u), to = y + which * at.y_bytes;
            wait_for(barriers + 8 * (BYTES + slot), phase_of(step, RING));
            unsigned a[2][NT][4]; /* see frb_lags_group_m */
            auto weigh = [&](int tile) {
#pragma unroll
                for (int k = 0; k < NT; k++) {
                    const uint2 one = tile < KEPT
                                          ? kept[KEPT > 0 ? tile * NT + k : 0]
                                          : load_two(weight + frb_lags_group_weight(NT, tile, 0, 0, k, 0));
#pragma unroll
                    for (int high = 0; high < 2; high++) {
                        const unsigned both = load_bytes(byte[tile][k] + from, at.raw + high * 4 * PITCH);
                        __half2 re, im;
                        weigh_two(re, im, both, one, grid.constants);
                        a[tile % 2][k][high] = as_bits(re), a[tile % 2][k][2 + high] = as_bits(im);
                    }
                }
            };
            weigh(0);
#pragma unroll
            for (int tile = 0; tile < MT; tile++) {
                unsigned c[DIRECTIONS / 2]; /* see frb_lags_group_direction */
#pragma unroll
                for (int k = 0; k < NT; k++) wgmma_hold(a[tile % 2][k]);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < NT; k++)
                    wgmma_f16_sums<2 * DIRECTIONS>::multiply(c, a[tile % 2][k],
                                                             table + k * (DIRECTIONS * 64 / 16), k > 0);
                wgmma_commit();
                if (EARLY && tile + 1 < MT) weigh(tile + 1);
                if (tile + 1 == MT) arrive_at(barriers + 8 * (BYTES_FREE + slot));
                if (tile == 0) wait_for(barriers + 8 * (Y_FREE + which), !phase_of(step, at.y_ring));
                wgmma_wait<0>();
                wgmma_hold(c);
#pragma unroll
                for (int k = 0; k < DIRECTIONS / 4; k++)
                    store_two(to + tile * 256 + k * 4 * frb_lags_y_pitch(MT),
                              __byte_perm(c[2 * k], c[2 * k + 1], 0x5410),
                              __byte_perm(c[2 * k], c[2 * k + 1], 0x7632));
                if (!EARLY && tile + 1 < MT) weigh(tile + 1);
            }
            arrive_at(barriers + 8 * (Y + which));
        }
        n = end;
    });
}

#endif

} // namespace beamring

#endif
