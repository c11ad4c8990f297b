/* quantize_beams.cuh - FRB stage 2 on a grid of beams (i, j) and the quantizer in one kernel: J is never
 * written.
 *
 *   Y[p][j] = sum_q I[p][q] U_q[j],   J[i][j] = sum_p U_p[i] Y[p][j]
 *
 * in the same k-steps of 16, in the same order and with the same roundings as
 * kernels/frb_beams/gpu/mma/grid.cuh, so that J has the same bits.
 *
 * A cluster of 8 blocks takes 16 j's of a channel at a time (a round). Each block keeps the field of 32 of
 * the 256 steps for all rounds of a channel. Four of its warps form Y of these steps and send it to the
 * blocks that own its j's, two each (form_y.cuh). The other twelve, three warpgroups, form J of their two
 * j's, 96 i's and all steps, and quantize it: a warp has 16 i's of one j.
 *
 * Y is sent in two halves of 128 steps. The next round's half is sent as soon as this round's products have
 * read the one before it, so that it arrives while levels are made. The second product has i in its rows and
 * steps in its columns: its sums are beams, with their steps in the registers that the quantizer wants
 * (kernels/quantize/gpu/layout.h).
 *
 * Nothing may spill: shared memory leaves hardly any first-level cache, so a spilled register would come from
 * the second level, hundreds of cycles later, in every round. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_GPU_QUANTIZE_BEAMS_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_GPU_QUANTIZE_BEAMS_CUH

#include "kernels/common/fragments.h"
#include "kernels/frb_beams_quantize/gpu/form_y.cuh"
#include "kernels/quantize/gpu/rows.cuh"

namespace beamring
{

namespace frb_beams_quantize
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Of 96 i's of two j's each warp has 16 of one j: the first two warpgroups 64 of a j each, the third one the
 * others of both. x[TILES][REGISTERS]: of i = g and g + 8, as in layout.h. */
constexpr unsigned TILES = 2, REGISTERS = STEPS / 8, HALF = REGISTERS / 2;

/* U_p as operand a of the second product, of the first and of the second j. Of a warpgroup that has both each
 * has zeros where a warp has the other one, and their products are added up: Y is finite (its scale is in
 * U_q), so that zeros leave the sums alone.
 *   [j][K_STEPS][4]  simd: p0  register: k-step, r1 r0 <-> p3 i3  thread: t4..t0 <-> i2 i1 i0 p2 p1 */
using rows = unsigned[SLOTS][K_STEPS][4];

/* Adds to c the products of j `slot`, or begins with them. */
__device__ __forceinline__ void multiply(float (&c)[REGISTERS * TILES], const unsigned (&a)[K_STEPS][4],
                                         const uint8_t *y, unsigned slot, bool adds)
{
    /* y: shape (16 pieces of 8 columns), stride BR_FRB_BEAMS_QUANTIZE_PIECE */
    const unsigned at = shared_address(y);
    const uint64_t wide = br_wgmma_descriptor(at + br_frb_beams_quantize_wide(slot, 0, 0), 16,
                                              BR_FRB_BEAMS_QUANTIZE_PIECE, BR_WGMMA_64),
                   narrow = br_wgmma_descriptor(at + br_frb_beams_quantize_narrow(slot, 0, 0), 16,
                                                BR_FRB_BEAMS_QUANTIZE_PIECE, BR_WGMMA_32);
    wgmma_f16<STEPS / 2>::multiply(c, a[0], wide, adds);
    wgmma_f16<STEPS / 2>::multiply(c, a[1], wide + 32 / 16, true); /* descriptors count in 16 bytes */
    wgmma_f16<STEPS / 2>::multiply(c, a[2], narrow, true);
}

/* J of half the steps, in registers HALF half to HALF half + HALF - 1 of x. `both`: the warpgroup has both
 * j's, otherwise `slot`, in a[0]. */
__device__ __forceinline__ void form_half(unsigned (&x)[TILES][REGISTERS], unsigned half, const rows &a,
                                          const uint8_t *y, unsigned slot, bool both)
{
    /* c[64]  register: r5 r4 r3 r2 r1 r0 <-> column6 column5 column4 column3 i3 column0
     *        thread: t4..t0 <-> i2 i1 i0 column2 column1 */
    float c[REGISTERS * TILES];
    if (both) { /* written out twice: the compiler does not chain products across a branch */
        wgmma_fence();
        multiply(c, a[0], y, 0, false);
        multiply(c, a[1], y, 1, true);
        wgmma_commit();
        wgmma_wait<0>();
    } else {
        wgmma_fence();
        multiply(c, a[0], y, slot, false);
        wgmma_commit();
        wgmma_wait<0>();
    }
    wgmma_hold(c);
#pragma unroll
    for (unsigned h = 0; h < TILES; h++)
#pragma unroll
        for (unsigned r = 0; r < HALF; r++)
            x[h][half * HALF + r] = pack_clamped(c[4 * r + 2 * h], c[4 * r + 2 * h + 1]);
}

/* What quantize::add_up makes of 8 beams, for two times 8 of them at once, whose products are independent of
 * each other: in the same order, so with the same bits, but that the squares are this lane's own ones. */
__device__ __forceinline__ void add_up_both(quantize::sums (&to)[TILES],
                                            const unsigned (&x)[TILES][REGISTERS],
                                            const float (&start)[TILES][4], unsigned unit)
{
    float sum[TILES][2] = {}, squares[TILES][4] = {};
    using means = quantize::means<REGISTERS>;
#pragma unroll
    for (unsigned r = 0; r < REGISTERS; r += 4) {
        float c[TILES][2][4];
#pragma unroll
        for (unsigned h = 0; h < TILES; h++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++)
                quantize::product(c[h][i], x[h][r + 2 * i], x[h][r + 2 * i + 1], unit, start[h]);
        float d[TILES][4];
#pragma unroll
        for (unsigned h = 0; h < TILES; h++)
            if (r % (means::STEPS / 4) == 0) means::find(d[h], x[h] + r, start[h]);

#pragma unroll
        for (unsigned h = 0; h < TILES; h++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                squares[h][i % 4] = fmaf(c[h][i / 4][i % 4], c[h][i / 4][i % 4], squares[h][i % 4]);
#pragma unroll
        for (unsigned h = 0; h < TILES; h++)
            if (r % (means::STEPS / 4) == 0) {
                sum[h][0] = r == 0 ? d[h][0] : sum[h][0] + d[h][0];
                sum[h][1] = r == 0 ? d[h][2] : sum[h][1] + d[h][2];
            }
    }
#pragma unroll
    for (unsigned h = 0; h < TILES; h++)
        to[h] = quantize::sums{-start[h][0], means::STEPS * (sum[h][0] + sum[h][1]),
                               (squares[h][0] + squares[h][1]) + (squares[h][2] + squares[h][3])};
}

/* Where a warp's beams are: 16 i's from i on. */
struct place {
    unsigned f, i, j;
};

/* Where slow statistics have beam at.i + `more`: [F][by][bx]. */
__device__ __forceinline__ br_follow *state_of(const work &w, const place &at, unsigned more)
{
    return w.slow.state + (static_cast<size_t>(at.f) * w.by + at.j) * w.bx + at.i + more;
}

/* What is known of the beams at `at` comes nearer while they are formed: there are no registers to hold
 * it. */
__device__ __forceinline__ void prefetch_states(const work &w, const place &at)
{
    const unsigned lane = lane_again();
    if (lane < 16 && at.i + lane < w.bx && at.j < w.by)
        asm volatile("prefetch.global.L1 [%0];\n" ::"l"(__cvta_generic_to_global(state_of(w, at, lane))));
}

/* The statistics of i + 8 h: lanes q = 0 and 1 have found those of i, the others those of i + 8. */
template <bool NEAR>
__device__ __forceinline__ quantize::statistics statistics_of(const quantize::statistics &found, unsigned h,
                                                              unsigned lane)
{
    const int from = static_cast<int>(lane / 4 * 4 + 2 * h);
    quantize::statistics of = found;
    of.slope = __shfl_sync(WHOLE_WARP, found.slope, from);
    of.shift = __shfl_sync(WHOLE_WARP, found.shift, from);
    if (NEAR) of.near = __shfl_sync(WHOLE_WARP, found.near, from);
    return of;
}

/* Writes the levels of i and i + 8, `stride` bytes apart, where they are less than `most`. Returns how many
 * levels were clamped. */
template <int BITS, bool MISSING, bool NEAR>
__device__ __forceinline__ unsigned
write_beams(uint8_t *out, size_t stride, const unsigned (&x)[TILES][REGISTERS],
            const quantize::statistics &found, const uint8_t *valid, unsigned i, unsigned most, unsigned lane)
{
    /* Shuffled before the first levels are stored: shuffles wait behind stores. 8 bits have no registers for
     * that. */
    constexpr bool EARLY = BITS == 4;
    quantize::statistics early[TILES];
#pragma unroll
    for (unsigned h = 0; h < TILES && EARLY; h++) early[h] = statistics_of<NEAR>(found, h, lane);
    unsigned clamped = 0;
#pragma unroll
    for (unsigned h = 0; h < TILES; h++) {
        const quantize::statistics of = EARLY ? early[h] : statistics_of<NEAR>(found, h, lane);
        const bool here = i + 8 * h < most;
        unsigned fields = 0;
        quantize::write_levels<BITS, STEPS, MISSING, NEAR>(out, x[h], of, valid, lane, here, fields);
        clamped += here ? quantize::sum_fields<BITS>(fields) : 0;
        out += stride;
    }
    return clamped;
}

/* Quantizes 16 beams, i to i + 15: levels, scale and offset. Lanes 4 g + q find the statistics, those of i
 * + g with q = 0 and 1, those of i + g + 8 with q = 2 and 3. x is 0 where a value is missing; valid:
 * [STEPS], 0xff or 0. Returns how many levels were clamped. */
template <int BITS, bool MISSING, bool SLOW>
__device__ __forceinline__ unsigned quantize_beams(unsigned (&x)[TILES][REGISTERS], const work &w,
                                                   const place &at, unsigned valid_steps,
                                                   const uint8_t *valid, unsigned lane)
{
    const unsigned g = lane / 4, q = lane % 4, unit = quantize::unit_matrix(lane);
    const quantize::rule rule = quantize::make_rule(w.levels_rms, valid_steps);
    quantize::sums sums[TILES];
    float start[TILES][4];
    const float times = MISSING ? quantize::valid_factor<BITS, STEPS>(valid, q) : 1;
#pragma unroll
    for (unsigned h = 0; h < TILES; h++) quantize::minus_pivot(start[h], x[h][0], x[h][1], times);
    if (MISSING)
        quantize::fill_missing<BITS, STEPS, TILES>({x[0], x[1]}, {start[0][0], start[1][0]}, valid, q);
    add_up_both(sums, x, start, unit);
    quantize::sums mine = q < 2 ? sums[0] : sums[1];
    /* quantize::over_lanes for both at once */
    mine.squares += __shfl_xor_sync(WHOLE_WARP, q < 2 ? sums[1].squares : sums[0].squares, 2);
    mine.squares += __shfl_xor_sync(WHOLE_WARP, mine.squares, 1);
    quantize::moments m = quantize::find_moments(mine, rule);
    if (__any_sync(WHOLE_WARP, m.far)) {
        const float about = quantize::about_mean(m);
        const unsigned nothing = w.F >> 31; /* keeps the compiler from unpacking x before the branch */
#pragma unroll
        for (unsigned h = 0; h < TILES; h++) {
            const float of_row = __shfl_sync(WHOLE_WARP, about, static_cast<int>(4 * g + 2 * h));
            unsigned again_x[REGISTERS]; /* as x[h] */
#pragma unroll
            for (unsigned r = 0; r < REGISTERS; r++) again_x[r] = x[h][r] ^ nothing;
            const float2 again = quantize::add_up_again<REGISTERS>(again_x, of_row, [&](int r) {
                return MISSING ? quantize::kept<BITS, STEPS>(valid, static_cast<unsigned>(r), q)
                               : 0xffffffffu;
            });
            if (m.far && q / 2 == h) m = quantize::correct(m, about, again, rule);
        }
    }
    quantize::statistics found;
    if (SLOW) {
        float most = 0;
        if (BITS == 4) {
            const float both[TILES] = {quantize::most_of<REGISTERS>(x[0]),
                                       quantize::most_of<REGISTERS>(x[1])};
            most =
                fmaxf(q < 2 ? both[0] : both[1], __shfl_xor_sync(WHOLE_WARP, q < 2 ? both[1] : both[0], 2));
            most = fmaxf(most, __shfl_xor_sync(WHOLE_WARP, most, 1));
        }
        br_follow *state = state_of(w, at, g + q / 2 * 8);
        const bool here = at.i + g + q / 2 * 8 < w.bx;
        br_follow known = {};
        if (here) known = *state;
        /* A copy: by reference the kernel takes 8 % longer, it seems because each number is loaded late. */
        const br_follow_step step = w.slow.steps[at.f];
        found = quantize::slow_statistics<BITS>(m, most, rule, known, step);
        if (here) { /* each of the two lanes that have a beam writes a part */
            float *to = reinterpret_cast<float *>(state) + q % 2 * 2;
            to[0] = q % 2 == 0 ? known.expected : known.trend;
            to[1] = q % 2 == 0 ? known.mean : known.variance;
            if (q % 2 == 0) to[4] = known.away;
        }
    } else {
        found = quantize::find_statistics<BITS>(m, rule);
    }

    /* out: shape (bx, by, F, row), contiguous; after: shape (row), of i + g. side: shape (bx, by, F),
     * contiguous */
    constexpr unsigned BYTES = STEPS * BITS / 8;
    const size_t first = (static_cast<size_t>(at.i + g) * w.by + at.j) * w.F + at.f,
                 eight = static_cast<size_t>(w.by) * w.F * 8;
    if (q % 2 == 0 && at.i + g + 4 * q < w.bx)
        w.side[first + q / 2 * eight] = make_float2(found.scale, found.offset);
    uint8_t *out = w.out + first * BYTES;
    if (__any_sync(WHOLE_WARP, found.near != 0))
        return write_beams<BITS, MISSING, true>(out, eight * BYTES, x, found, valid, at.i + g, w.bx, lane);
    return write_beams<BITS, MISSING, false>(out, eight * BYTES, x, found, valid, at.i + g, w.bx, lane);
}

/* Adds without waiting for what was there. */
__device__ __forceinline__ void add_shared(unsigned *to, unsigned n)
{
    asm volatile("red.shared.add.u32 [%0], %1;\n" ::"r"(shared_address(to)), "r"(n) : "memory");
}

template <int BITS, bool SLOW>
__device__ __forceinline__ void quantize_all(shared &s, const work &w, unsigned begin, unsigned end)
{
    /* From a shuffle: the same in the whole warp, as the compiler sees too. The third group's first two warps
     * have the first j. */
    const unsigned warp = __shfl_sync(WHOLE_WARP, threadIdx.x / 32 - FORMERS, 0), lane = threadIdx.x % 32,
                   group = warp / 4, rank = cluster_rank();
    const unsigned tile = group < 2 ? warp % 4 : 4 + warp % 2, slot = group < 2 ? group : warp / 2 % 2;
    position at(w, begin);
    unsigned parity = 0, part = 1;
    unsigned *clamped = s.clamped + threadIdx.x - FORMERS * 32;
    *clamped = 0;
    bool fresh = true; /* this round begins a part */
    for (unsigned number = begin; number < end; number++, parity ^= 1) {
        if (fresh) barrier_wait(&s.weighted, part ^= 1);
        if (SLOW) prefetch_states(w, {at.f, (at.part * I_TILES + tile) * 16, find_j(at.round, rank, slot)});
        unsigned x[TILES][REGISTERS];
        rows a;
        const unsigned mine = tile * (K_STEPS * 32), none = I_TILES * K_STEPS * 32;
#pragma unroll
        for (unsigned j = 0; j < SLOTS; j++) {
            const uint4 *from = s.weights + (group < 2 || slot == j ? mine : none) + lane_again();
#pragma unroll
            for (unsigned k = 0; k < K_STEPS; k++) {
                const uint4 v = from[k * 32];
                a[j][k][0] = v.x, a[j][k][1] = v.y, a[j][k][2] = v.z, a[j][k][3] = v.w;
            }
        }
        if (at.round + 1 == w.rounds) barrier_arrive(&s.used); /* for the last time */
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
            barrier_wait(&s.full[half], parity);
            if (warp == 0 && lane_again() == 0) barrier_expect(&s.full[half], HALF_BYTES);
            publish_shared(); /* what the other blocks sent, to wgmma */
            form_half(x, half, a, s.y[half * 2 * CLUSTER], slot, group == 2);
            const unsigned block = lane_again();
            if (block < CLUSTER) arrive_there(in_block(shared_address(&s.empty[half]), block));
        }
        const place here = {at.f, (at.part * I_TILES + tile) * 16, find_j(at.round, rank, slot)};
        if (here.i < w.bx && here.j < w.by) { /* the same in the whole warp */
            unsigned valid_steps = STEPS;
            const uint8_t *valid = reinterpret_cast<const uint8_t *>(s.valid[part]);
            if (w.valid) {
                const uint2 v = reinterpret_cast<const uint2 *>(valid)[lane];
                valid_steps = __reduce_add_sync(WHOLE_WARP, __popc(v.x) + __popc(v.y)) / 8;
            }
            const unsigned more = valid_steps < STEPS
                                      ? quantize_beams<BITS, true, SLOW>(x, w, here, valid_steps, valid, lane)
                                      : quantize_beams<BITS, false, SLOW>(x, w, here, STEPS, nullptr, lane);
            add_shared(clamped, more);
        }
        fresh = at.advance(w);
    }
    const unsigned all = __reduce_add_sync(WHOLE_WARP, *clamped);
    if (lane == 0 && all > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(all));
}

#endif

template <int BITS, bool SLOW> __global__ void __launch_bounds__(THREADS, 1) beams(const work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint4 memory[];
    shared &s = *reinterpret_cast<shared *>(memory);
    const unsigned rank = cluster_rank(), cluster = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
    const unsigned all = w.F * w.parts * w.rounds;
    /* Equal shares of all rounds, in the order of channels. */
    const unsigned begin = static_cast<unsigned>(static_cast<unsigned long long>(all) * cluster / clusters),
                   end =
                       static_cast<unsigned>(static_cast<unsigned long long>(all) * (cluster + 1) / clusters);

    if (threadIdx.x < K_STEPS * 32) s.weights[I_TILES * K_STEPS * 32 + threadIdx.x] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) {
        for (unsigned half = 0; half < 2; half++) {
            barrier_start(&s.full[half], 1);
            barrier_start(&s.empty[half], CLUSTER * QUANTIZERS);
        }
        barrier_start(&s.weighted, FORMERS * 32);
        barrier_start(&s.used, QUANTIZERS * 32);
        barrier_publish();
        for (unsigned half = 0; half < 2; half++) barrier_expect(&s.full[half], HALF_BYTES);
    }
    __syncthreads();
    meet_cluster();
    if (threadIdx.x / 32 < FORMERS) {
        registers_fewer<FORMER_REGISTERS>();
        if (w.valid)
            form<BITS, true>(s, w, begin, end, rank);
        else
            form<BITS, false>(s, w, begin, end, rank);
    } else {
        registers_more<QUANTIZER_REGISTERS>();
        quantize_all<BITS, SLOW>(s, w, begin, end);
    }
    meet_cluster(); /* no block leaves while others send to it */
#endif
}

} // namespace frb_beams_quantize

} // namespace beamring

#endif
