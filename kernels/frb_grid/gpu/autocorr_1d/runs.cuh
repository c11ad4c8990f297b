/* runs.cuh - FRB stage 1 by the 1-d autocorrelation (autocorr.cuh): what all warps of a block of threads
 * know, the runs that they work on and the barriers between them. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_RUNS_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_RUNS_CUH

#include "kernels/frb_grid/gpu/autocorr_1d/work.cuh"

namespace beamring
{

/* A ring of `size` slots, a power of two. The `count`th use takes slot which_of(); it is full when the
 * barrier's phase of parity phase_of() is over, and free of the use before when that of the other parity
 * is. */
__device__ __forceinline__ unsigned which_of(unsigned count, unsigned size)
{
    return count & (size - 1);
}

__device__ __forceinline__ unsigned phase_of(unsigned count, unsigned size)
{
    return (count & size) != 0;
}

__device__ __forceinline__ unsigned sum_over_warp(unsigned v)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2) v += __shfl_xor_sync(WHOLE_WARP, v, other);
    return v;
}

/* Blocks [block, stop) of channel f of a job, of which the steps are done one after the other. */
struct alignas(16) autocorr_1d_run {
    unsigned f, block, stop, job, steps;
};

/* The pieces of a run, one after the other: where the next one begins, and how many of its samples count. */
struct autocorr_1d_pieces {
    unsigned block, at; /* samples from the block's start */
    unsigned end;       /* block */

    __device__ __forceinline__ autocorr_1d_pieces(const autocorr_1d_job &w, const autocorr_1d_run &run)
    {
        block = run.block;
        at = run.block == 0 ? w.pending - w.pending % PIECE : 0;
        /* A block that goes on may have nothing to work on. */
        end = run.stop;
        if (run.stop == w.blocks && !w.complete &&
            worked_on(w, run.stop - 1) <= (run.stop - 1 == block ? at : 0))
            end--;
    }

    __device__ __forceinline__ bool more() const { return block < end; }

    /* Samples of it that are worked on: none, if all of them are missing in a block that ends. */
    __device__ __forceinline__ unsigned samples(const autocorr_1d_job &w) const
    {
        const unsigned to = worked_on(w, block);
        return to > at ? min(to - at, PIECE) : 0;
    }

    /* Describes the last step; goes to the next one. */
    __device__ __forceinline__ unsigned take(const autocorr_1d_job &w)
    {
        unsigned what = block;
        at += PIECE;
        if (at >= worked_on(w, block)) {
            if (block + 1 < w.blocks || w.complete) what |= BLOCK_ENDS;
            block++, at = 0;
        }
        return what;
    }
};

/* Steps of a piece, or of a block: at least one. */
__device__ __forceinline__ unsigned steps_of(unsigned samples, unsigned times)
{
    return max((samples + times - 1) / times, 1u);
}

__device__ __forceinline__ unsigned count_steps(const autocorr_1d_job &w, const autocorr_1d_run &run,
                                                unsigned times)
{
    const autocorr_1d_pieces first(w, run);
    if (!first.more()) return 0;
    const unsigned worked = worked_on(w, first.block), begin = worked > first.at ? worked - first.at : 0;
    const unsigned steps = steps_of(begin, times);
    if (first.end - first.block == 1) return steps;
    return steps + (first.end - first.block - 2) * steps_of(w.T, times) +
           steps_of(worked_on(w, first.end - 1), times);
}

/* The first block of a job (counted over its channels, and 0 to their number) that a block of threads that
 * begins at `cost` has to do. */
__device__ __forceinline__ unsigned first_block(const autocorr_1d_job &w, unsigned cost)
{
    const unsigned all = w.F * w.blocks;
    return cost <= w.first_cost ? 0 : min((cost - w.first_cost + w.cost - 1) / w.cost, all);
}

/* Lists the runs of this block of threads in shared memory: its share of what all blocks of time cost. By one
 * warp, a lane a channel: the others wait for it. */
__device__ __forceinline__ void list_runs(const autocorr_1d_work &all, unsigned lane)
{
    const unsigned from = min(all.share * blockIdx.x, all.cost), to = min(from + all.share, all.cost);
    autocorr_1d_run *runs = reinterpret_cast<autocorr_1d_run *>(autocorr_1d_shared() + all.grid.memory.runs);
    unsigned count = 0, steps = 0;
#pragma unroll 1
    for (unsigned number = 0; number < all.njobs && to > all.job[number].first_cost; number++) {
        const autocorr_1d_job &w = all.job[number];
        const unsigned first = first_block(w, from), end = first_block(w, to);
        if (first >= end) continue;
        const unsigned first_f = first / w.blocks, last_f = (end - 1) / w.blocks;
#pragma unroll 1
        for (unsigned f = first_f + lane, i = count + lane; f <= last_f && i < MOST_RUNS; f += 32, i += 32) {
            autocorr_1d_run run = {f, f == first_f ? first - f * w.blocks : 0,
                                   f == last_f ? end - f * w.blocks : w.blocks, number, 0};
            run.steps = count_steps(w, run, frb_autocorr_1d_times(all.grid.P));
            steps += run.steps;
            runs[i] = run;
        }
        count += last_f - first_f + 1;
    }
    steps = sum_over_warp(steps);
    if (lane > 0) return;
    if (count < MOST_RUNS) runs[count].stop = 0;
    *reinterpret_cast<unsigned *>(autocorr_1d_shared() + all.grid.memory.steps) = steps;
}

/* Calls `make` for each of them. */
template <class MAKE> __device__ __forceinline__ void for_runs(const autocorr_1d_work &all, const MAKE &make)
{
    const autocorr_1d_run *runs =
        reinterpret_cast<const autocorr_1d_run *>(autocorr_1d_shared() + all.grid.memory.runs);
#pragma unroll 1
    for (unsigned i = 0; i < MOST_RUNS; i++) {
        const autocorr_1d_run &run = runs[i];
        if (run.stop == 0) break;
        make(all.job[run.job], run);
    }
}

} // namespace beamring

#endif
