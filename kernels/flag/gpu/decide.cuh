/* decide.cuh - flags from sums, and what they do to E. The arithmetic is decide.h's. */
#ifndef BEAMRING_KERNELS_FLAG_GPU_DECIDE_CUH
#define BEAMRING_KERNELS_FLAG_GPU_DECIDE_CUH

#include "kernels/common/device.cuh"
#include "kernels/flag/decide.h"
#include "kernels/flag/gpu/sums.cuh"

namespace beamring
{
namespace flag
{

typedef const float (*table_rows)[FLAG_POWERS][4];

struct decide_work {
    const uint32_t *s0;   /* [nblocks][F] */
    const uint32_t *sums; /* [nblocks][F][2][N] */
    const uint16_t *lost; /* [nblocks][F][N], or null: nothing */
    const uint8_t *bad;   /* [N] */
    table_rows table;
    struct br_flag_rules rules; /* without bad */
    uint8_t *reason;            /* [nblocks][F] */
    uint32_t *used, *input;     /* [F]; [2][N] */
    uint8_t *keep;              /* [F][vectors][16]: 0xff, or 0 where an input has weight 0 */
    float *sk;                  /* [blocks of the long block, from first_block on][F][N], or null */
    unsigned F, N, block, vectors, expected, begin, end;
    unsigned first_block, nblocks; /* blocks that have samples: [first_block, first_block + nblocks) */
};

enum { DECIDE_THREADS = 128, DECIDE_WARPS = DECIDE_THREADS / 32, MASK_STEPS = 64 };

__device__ __forceinline__ long long warp_sum(long long x)
{
#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2) x += __shfl_down_sync(WHOLE_WARP, x, d);
    return x;
}

/* All inputs of a block: one warp.   grid (nblocks F / DECIDE_WARPS) */
__global__ void __launch_bounds__(DECIDE_THREADS) decide_blocks(decide_work w)
{
    unsigned lane = threadIdx.x % 32, unit = blockIdx.x * DECIDE_WARPS + threadIdx.x / 32;
    if (unit >= w.nblocks * w.F) return;
    unsigned row = unit / w.F, f = unit - row * w.F, b = w.first_block + row;
    size_t cell = static_cast<size_t>(b) * w.F + f;
    const uint32_t *s1 = w.sums + cell * 2 * w.N, *s2 = s1 + w.N;
    float *sk = w.sk ? w.sk + static_cast<size_t>(unit) * w.N : nullptr;
    uint32_t s0 = w.s0[cell], part = 0;
    uint32_t steps = min((b + 1) * w.block, w.end) - max(b * w.block, w.begin);
    struct flag_sums all = {0, 0, 0, 0};
    struct flag_row at = flag_find_row(static_cast<float>(s0));
    for (unsigned n = lane; n < w.N; n += 32) {
        uint32_t mine = w.lost ? s0 - w.lost[cell * w.N + n] : s0;
        float kurtosis;
        part +=
            flag_block_input(&all, w.table, at, s0, mine, steps, s1[n], s2[n], &w.rules, w.bad[n], &kurtosis);
        if (sk) sk[n] = kurtosis;
    }
    all.r = warp_sum(all.r);
    all.k2 = warp_sum(all.k2);
    all.k3 = warp_sum(all.k3);
    all.k4 = warp_sum(all.k4);
    part = static_cast<uint32_t>(warp_sum(part));
    if (lane == 0)
        w.reason[cell] = static_cast<uint8_t>(
            flag_enough(s0, steps) ? flag_block(&all, s0, part, w.expected, w.rules.block_sigma)
                                   : BR_FLAG_FEW);
}

/* One input of a channel: one thread.   grid (inputs / DECIDE_THREADS, F) */
__global__ void __launch_bounds__(DECIDE_THREADS) decide_inputs(decide_work w)
{
    unsigned n = blockIdx.x * DECIDE_THREADS + threadIdx.x, f = blockIdx.y;
    bool is = n < w.N, good = false;
    if (is) {
        unsigned long long s1 = 0, s2 = 0;
        uint32_t s0 = 0;
#pragma unroll 4
        for (unsigned b = w.first_block; b < w.first_block + w.nblocks; b++) {
            size_t cell = static_cast<size_t>(b) * w.F + f;
            const uint32_t *sums = w.sums + cell * 2 * w.N + n;
            if (w.reason[cell] != BR_FLAG_KEPT) continue;
            s0 += w.lost ? w.s0[cell] - w.lost[cell * w.N + n] : w.s0[cell];
            s1 += sums[0];
            s2 += sums[w.N];
        }
        enum br_flag_reason reason = flag_input(w.table, s0, s1, s2, w.end - w.begin, &w.rules);
        good = reason == BR_FLAG_KEPT && !w.bad[n];
        if (reason != BR_FLAG_KEPT) atomicAdd(&w.input[(reason == BR_FLAG_KURTOSIS ? 0 : w.N) + n], 1u);
        w.keep[static_cast<size_t>(f) * w.vectors * 16 + n] = reason == BR_FLAG_KEPT ? 0xff : 0;
    }
    unsigned count = __popc(__ballot_sync(WHOLE_WARP, good));
    if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(&w.used[f], count);
}

/* Zeros where an input has weight 0: 16 inputs of a channel, MASK_STEPS samples a thread. Where all inputs
 * keep theirs, which is nearly always so, nothing is read.
 *   grid (F vectors / DECIDE_THREADS, samples / MASK_STEPS) */
template <bool WHOLE> __global__ void __launch_bounds__(DECIDE_THREADS) mask(decide_work w, uint8_t *out)
{
    unsigned group = blockIdx.x * DECIDE_THREADS + threadIdx.x, steps = w.end - w.begin;
    if (group >= w.F * w.vectors) return;
    unsigned f = group / w.vectors, n = (group - f * w.vectors) * 16;
    uint4 keep = *reinterpret_cast<const uint4 *>(w.keep + static_cast<size_t>(group) * 16);
    if ((keep.x & keep.y & keep.z & keep.w) == 0xffffffffu) return;
    unsigned first = blockIdx.y * MASK_STEPS, last = min(first + MASK_STEPS, steps);
    for (unsigned t = first; t < last; t++) {
        uint8_t *row = out + (static_cast<size_t>(t) * w.F + f) * w.N;
        store_inputs<WHOLE>(row, n, w.N, load_inputs<WHOLE>(row, n, w.N) & keep);
    }
}

} // namespace flag
} // namespace beamring

#endif
