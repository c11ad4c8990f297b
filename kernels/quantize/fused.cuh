/* fused.cuh - FRB stage 2 on a grid of beams (i, j) and the quantizer in one kernel: J is never written.
 *
 *   Y[p][j] = sum_q I[p][q] U_q[j],   J[i][j] = sum_p U_p[i] Y[p][j]
 *
 * in the same k-steps of 16, in the same order and with the same roundings as kernels/frb_beams/grid.cuh, so
 * that J has the same bits. A cluster of 8 blocks goes through the 16 j's of a channel at a time (a round).
 * Each block keeps the field of 32 of the 256 steps for all rounds of a channel. Four of its warps form Y of
 * these steps and send it to the blocks that own its j's, two each; the other twelve form J of their two j's,
 * 96 i's and all steps, and quantize it. Y goes from the ones to the others in four chunks of 64 steps, each
 * of which is sent anew as soon as the products of the round before have read it, so that it arrives while
 * levels are made. With i in the second product's rows and steps in its columns, what a warp ends up with are
 * 16 beams with their steps in registers in the order in which the quantizer wants them
 * (kernels/quantize/layout.h). */
#ifndef BEAMRING_KERNELS_QUANTIZE_FUSED_CUH
#define BEAMRING_KERNELS_QUANTIZE_FUSED_CUH

#include "kernels/quantize/fused_middle.cuh"
#include "kernels/quantize/rows.cuh"

namespace beamring
{

namespace fused
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Two of J as float16, what is too large as the largest finite value. */
__device__ __forceinline__ unsigned pack_finite(float low, float high)
{
    unsigned both;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* The halves of a descriptor: of those of one operand only the lower one, with the address, differs. */
struct operand {
    unsigned low, high;

    __device__ __forceinline__ operand(unsigned address, unsigned leading, unsigned stride,
                                       enum br_wgmma_swizzle swizzle)
    {
        const uint64_t both = br_wgmma_descriptor(address, leading, stride, swizzle);
        low = static_cast<unsigned>(both), high = static_cast<unsigned>(both >> 32);
    }
    /* `bytes` further on */
    __device__ __forceinline__ uint64_t at(unsigned bytes) const
    {
        return static_cast<uint64_t>(high) << 32 | (low + bytes / 16);
    }
};

/* A j's Y. */
struct columns {
    operand wide, narrow;

    __device__ __forceinline__ columns(const shared &s, unsigned slot)
        : wide(shared_address(s.y) + br_fused_wide(slot, 0, 0), 16, BR_FUSED_PIECE, BR_WGMMA_64),
          narrow(shared_address(s.y) + br_fused_narrow(slot, 0, 0), 16, BR_FUSED_PIECE, BR_WGMMA_32)
    {
    }
};

/* sum (+)= J of 64 rows of U_p and 64 steps. */
__device__ __forceinline__ void add_products(float (&sum)[32], const operand &a, const columns &b,
                                             unsigned chunk, bool adds)
{
    constexpr unsigned A_STEP = 2 * BR_FUSED_OCTET_BYTES, B_CHUNK = CLUSTER * BR_FUSED_PIECE;
    wgmma_fence();
    wgmma_f16<64>::multiply(sum, a.at(0), b.wide.at(chunk * B_CHUNK), adds);
    wgmma_f16<64>::multiply(sum, a.at(A_STEP), b.wide.at(chunk * B_CHUNK + 32), true);
    wgmma_f16<64>::multiply(sum, a.at(2 * A_STEP), b.narrow.at(chunk * B_CHUNK), true);
}

/* What quantize::add_up makes of half a block of 8 beams, for twice 8 beams at once, whose products are
 * independent of each other: in the same order, so with the same bits, but that the squares are this lane's
 * own ones. */
template <bool MISSING>
__device__ __forceinline__ void add_up_both(quantize::sums (&to)[2], const unsigned *const (&x)[2],
                                            unsigned unit)
{
    constexpr int REGISTERS = STEPS / 16;
    const float zero[4] = {0, 0, 0, 0};
    float start[2][4] = {}, sum[2][2] = {}, squares[2][4] = {};
#pragma unroll
    for (int h = 0; h < 2 && !MISSING; h++) {
        float c[4];
        quantize::product(c, x[h][0], x[h][1], quantize::SIXTEENTHS, zero);
        const float2 pivot = quantize::minus_pivot(c[0] + c[2]), again = quantize::minus_pivot(c[1] + c[3]);
        start[h][0] = pivot.x, start[h][1] = pivot.y, start[h][2] = again.x, start[h][3] = again.y;
    }
#pragma unroll
    for (int r = 0; r < REGISTERS; r += 4) {
        float c[2][2][4], d[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                quantize::product(c[h][i], x[h][r + 2 * i], x[h][r + 2 * i + 1], unit, start[h]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            quantize::product(d[h], x[h][r], x[h][r + 1], quantize::SIXTEENTHS, start[h]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            quantize::product(d[h], x[h][r + 2], x[h][r + 3], quantize::SIXTEENTHS, d[h]);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                squares[h][i % 4] = fmaf(c[h][i / 4][i % 4], c[h][i / 4][i % 4], squares[h][i % 4]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h][0] = r == 0 ? d[h][0] : sum[h][0] + d[h][0];
            sum[h][1] = r == 0 ? d[h][2] : sum[h][1] + d[h][2];
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        to[h] = quantize::sums{-start[h][0], 16 * (sum[h][0] + sum[h][1]),
                               (squares[h][0] + squares[h][1]) + (squares[h][2] + squares[h][3])};
}

/* Levels of 16 beams, and what they mean: lane 4 g + q has rows g and g + 8, and finds the numbers of row g +
 * 8 (q % 2). x is 0 where a value is missing. Returns how many levels were clamped. */
template <int BITS, bool MISSING>
__device__ __forceinline__ unsigned quantize_beams(unsigned (&x)[2][STEPS / 8], const shared &s,
                                                   const work &w, unsigned warp, unsigned slot, unsigned tile,
                                                   unsigned valid_steps)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, unit = quantize::unit_matrix(lane);
    const bool second = q % 2;
    constexpr unsigned HALF = STEPS / 16; /* registers */
    const quantize::rule rule = quantize::make_rule(w.levels_rms, valid_steps);
    quantize::sums half[2]; /* this lane's row's */
#pragma unroll
    for (unsigned n = 0; n < 2; n++) {
        quantize::sums rows[2];
        add_up_both<MISSING>(rows, {x[0] + n * HALF, x[1] + n * HALF}, unit);
        half[n] = second ? rows[1] : rows[0];
        half[n].squares += __shfl_xor_sync(WHOLE_WARP, second ? rows[0].squares : rows[1].squares, 1);
        half[n].squares += __shfl_xor_sync(WHOLE_WARP, half[n].squares, 2);
    }

    const volatile auto &at = s.progress[warp];
    const uint8_t *valid = MISSING ? w.valid + at.f * STEPS : nullptr;
    quantize::moments m = quantize::merge(half[0], half[1], rule, STEPS / 2);
    if (__any_sync(WHOLE_WARP, m.far)) {
        const float about = quantize::about_mean(m);
        float2 again[2];
#pragma unroll
        for (unsigned h = 0; h < 2; h++) {
            const float of_row = __shfl_sync(WHOLE_WARP, about, static_cast<int>(4 * g + h));
#pragma unroll
            for (unsigned n = 0; n < 2; n++) {
                const float2 sum = quantize::add_up_again<HALF>(x[h] + n * HALF, of_row, [&](int r) {
                    return MISSING
                               ? quantize::kept<BITS, STEPS>(valid, n * HALF + static_cast<unsigned>(r), q)
                               : 0xffffffffu;
                });
                if (second == (h == 1)) again[n] = sum;
            }
        }
        if (m.far) m = quantize::correct(m, about, again[0], again[1], rule);
    }
    const quantize::statistics found = quantize::find_statistics<BITS>(m, rule);

    /* Found where it is needed, instead of kept. out: shape (bx, by, F, row), contiguous; after:
     * shape (row). side: shape (bx, by, F), contiguous */
    auto row_of = [&](unsigned h) {
        const unsigned i = (at.part * 6 + tile) * 16 + 8 * h + threadIdx.x % 32 / 4,
                       j = at.round * ROUND + cluster_rank() * SLOTS + slot;
        return (static_cast<size_t>(i) * w.by + j) * w.F + at.f;
    };
    auto inside = [&](unsigned h) { return (at.part * 6 + tile) * 16 + 8 * h + threadIdx.x % 32 / 4 < w.bx; };
    if (q < 2 && inside(q)) w.side[row_of(q)] = make_float2(found.scale, found.offset);

    quantize::statistics of[2];
    const float slope = __shfl_xor_sync(WHOLE_WARP, found.slope, 1),
                shift = __shfl_xor_sync(WHOLE_WARP, found.shift, 1);
    of[0].slope = second ? slope : found.slope, of[0].shift = second ? shift : found.shift;
    of[1].slope = second ? found.slope : slope, of[1].shift = second ? found.shift : shift;
    of[0].near = of[1].near = 0;
    unsigned clamped = 0;
    const bool near = __any_sync(WHOLE_WARP, found.near != 0);
    if (!MISSING && !near) {
#pragma unroll
        for (unsigned h = 0; h < 2; h++) {
            const bool here = inside(h);
            unsigned fields = 0;
            quantize::write_levels<BITS, STEPS, false, false>(w.out + row_of(h) * (STEPS * BITS / 8), x[h],
                                                              of[h], nullptr, lane, here, fields);
            clamped += here ? quantize::sum_fields<BITS>(fields) : 0;
        }
    } else {
        const float near_other = __shfl_xor_sync(WHOLE_WARP, found.near, 1);
        of[0].near = second ? near_other : found.near, of[1].near = second ? found.near : near_other;
#pragma unroll 1
        for (unsigned h = 0; h < 2; h++) {
            const bool here = inside(h);
            unsigned fields = 0;
            quantize::write_levels<BITS, STEPS, MISSING, true>(w.out + row_of(h) * (STEPS * BITS / 8), x[0],
                                                               of[0], valid, lane, here, fields);
            clamped += here ? quantize::sum_fields<BITS>(fields) : 0;
            of[0] = of[1];
#pragma unroll
            for (unsigned r = 0; r < STEPS / 8; r++) x[0][r] = x[1][r];
        }
    }
    return clamped;
}

template <int BITS>
__device__ __forceinline__ void quantize_all(shared &s, const work &w, unsigned begin, unsigned end)
{
    /* From a shuffle: the same in the whole warp, as the compiler sees too. */
    const unsigned warp = __shfl_sync(WHOLE_WARP, threadIdx.x / 32, 0), group = warp / 4,
                   lane = threadIdx.x % 32;
    const bool mixed = group == 1;
    const unsigned slot = mixed ? warp % 4 / 2 : group / 2, tile = mixed ? 4 + warp % 2 : warp % 4;
    const columns y(s, group / 2), other_y(s, 1);
    const unsigned weights = shared_address(s.weights);
    const operand u(weights + (mixed ? 6 : 0) * 256, BR_FUSED_OCTET_BYTES, 128, BR_WGMMA_PLAIN),
        other_u(weights + 4 * 256, BR_FUSED_OCTET_BYTES, 128, BR_WGMMA_PLAIN);
    volatile auto &at = s.progress[warp];
    volatile unsigned &clamped = s.clamped[threadIdx.x];
    if (lane == 0) {
        const position first(w, begin);
        at.f = first.f, at.part = first.part, at.round = first.round, at.left = end - begin;
        at.fresh = true, at.turn = at.again = false;
    }
    clamped = 0;
    __syncwarp();
    while (at.left > 0) {
        if (at.fresh) barrier_wait(&s.weighted, at.again);
        /* sum[32]: see br_wgmma_c; rows are beams, columns steps of a chunk
         * x[h][STEPS / 8]: see kernels/quantize/layout.h; of i = g + 8 h */
        float sum[32];
        unsigned x[2][STEPS / 8];
        const unsigned turn = at.turn;
#pragma unroll
        for (unsigned chunk = 0; chunk < CHUNKS; chunk++) {
            barrier_wait(&s.full[chunk], turn);
            if (threadIdx.x == 0) barrier_expect(&s.full[chunk], CHUNK_BYTES);
            publish_shared(); /* what came by ordinary stores, to wgmma */
            wgmma_hold(sum);
            add_products(sum, u, y, chunk, false);
            if (mixed) add_products(sum, other_u, other_y, chunk, true);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_hold(sum);
            if (lane < CLUSTER) arrive_there(in_block(shared_address(&s.empty[chunk]), lane));
#pragma unroll
            for (unsigned r = 0; r < 8; r++)
#pragma unroll
                for (unsigned h = 0; h < 2; h++)
                    x[h][8 * chunk + r] = pack_finite(sum[4 * r + 2 * h], sum[4 * r + 2 * h + 1]);
        }
        /* the same in the whole warp */
        if ((at.part * 6 + tile) * 16 < w.bx && at.round * ROUND + cluster_rank() * SLOTS + slot < w.by) {
            unsigned valid_steps = STEPS;
            if (w.valid) {
                const uint2 v = __ldg(reinterpret_cast<const uint2 *>(w.valid + at.f * STEPS) + lane);
                valid_steps = __reduce_add_sync(WHOLE_WARP, __popc(v.x) + __popc(v.y)) / 8;
            }
            const unsigned more = valid_steps < STEPS
                                      ? quantize_beams<BITS, true>(x, s, w, warp, slot, tile, valid_steps)
                                      : quantize_beams<BITS, false>(x, s, w, warp, slot, tile, STEPS);
            clamped = clamped + more;
        }
        __syncwarp();
        if (lane == 0) {
            position next;
            next.f = at.f, next.part = at.part, next.round = at.round;
            const bool fresh = next.advance(w);
            at.f = next.f, at.part = next.part, at.round = next.round;
            at.fresh = fresh, at.turn = !at.turn, at.again = at.again != fresh;
            at.left = at.left - 1;
        }
        __syncwarp();
    }
    const unsigned all = __reduce_add_sync(WHOLE_WARP, clamped);
    if (lane == 0 && all > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(all));
}

#endif

template <int BITS> __global__ void __launch_bounds__(THREADS, 1) beams(const work w)
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

    /* Empty tiles of U_p; and cells beyond a smaller field, which meet weights of 0, must be finite. */
    for (unsigned n = threadIdx.x; n < sizeof s.weights / 16; n += THREADS)
        s.weights[n] = make_uint4(0, 0, 0, 0);
    for (unsigned n = threadIdx.x; n < sizeof s.field / 16; n += THREADS)
        s.field[0][0][n] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) {
        for (unsigned c = 0; c < CHUNKS; c++) {
            barrier_start(&s.full[c], 1);
            barrier_start(&s.empty[c], CLUSTER * QUANTIZERS);
            for (unsigned warp = 0; warp < FORMERS; warp++) barrier_start(&s.loaded[warp][c], 1);
        }
        barrier_start(&s.weighted, FORMERS);
        barrier_publish();
        for (unsigned c = 0; c < CHUNKS; c++) barrier_expect(&s.full[c], CHUNK_BYTES);
    }
    publish_shared();
    __syncthreads();
    meet_cluster();
    if (threadIdx.x / 32 >= QUANTIZERS) {
        form<BITS>(s, w, begin, end, rank);
    } else {
        quantize_all<BITS>(s, w, begin, end);
    }
    meet_cluster(); /* no block leaves while others send to it */
#endif
}

} // namespace fused

} // namespace beamring

#endif
