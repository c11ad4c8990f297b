/* fused.cuh - FRB stage 2 on a grid of beams (i, j) and the quantizer in one kernel: J is never written.
 *
 *   Y[p][j] = sum_q I[p][q] U_q[j],   J[i][j] = sum_p U_p[i] Y[p][j]
 *
 * in the same k-steps of 16, in the same order and with the same roundings as kernels/frb_beams/grid.cuh, so
 * that J has the same bits. A cluster of 8 blocks goes through the 16 j's of a channel at a time (a round).
 * Each block keeps the field of 32 of the 256 steps for all rounds of a channel. Four of its warps form Y of
 * these steps and send it to the blocks that own its j's, two each; the other twelve form J of their two j's,
 * 96 i's and all steps, and quantize it: a warp 32 beams and half of the steps, in pairs that tell each other
 * their sums. Y goes from the ones to the others in four chunks of 64 steps, each of which is sent anew as
 * soon as the products of the round before have read it, so that it arrives while levels are made. With i in
 * the second product's rows and steps in its columns, what a warp ends up with are beams with their steps in
 * registers in the order in which the quantizer wants them (kernels/quantize/layout.h). */
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

/* Of 32 beams: what a warp quantizes half a block of. */
constexpr unsigned GROUPS = BR_FUSED_BEAMS / 32, ROWS_EACH = 4, HALF = STEPS / 2, REGISTERS = HALF / 8;

/* J of a chunk, in registers `first` to first + 7 of x (see quantize_all).
 *   a[2][K_STEPS]  simd: p0  register: tile, k-step, p of br_fused_p, g3  thread: t4..t0 <-> g2 g1 g0, q */
__device__ __forceinline__ void form_chunk(unsigned (&x)[ROWS_EACH][REGISTERS], unsigned first,
                                           const uint4 (&a)[2][K_STEPS], const uint8_t *wide,
                                           const uint8_t *narrow)
{
#pragma unroll
    for (unsigned r = 0; r < CLUSTER; r += 2) {
        /* y[2][6]  simd: p0  register: column block, k-step, p of br_fused_p  thread: t4..t0 <-> column, q
         * sum[2][2][4]  register: column block, tile, g3, t0  thread: t4..t0 <-> g2 g1 g0, q */
        unsigned y[2][2 * K_STEPS];
        float sum[2][2][4] = {};
#pragma unroll
        for (unsigned e = 0; e < 2; e++) {
            /* wide, narrow: shape (8 pieces), stride BR_FUSED_PIECE */
            const uint4 two = *reinterpret_cast<const uint4 *>(wide + (r + e) * BR_FUSED_PIECE);
            const uint2 third = *reinterpret_cast<const uint2 *>(narrow + (r + e) * BR_FUSED_PIECE);
            y[e][0] = two.x, y[e][1] = two.y, y[e][2] = two.z, y[e][3] = two.w;
            y[e][4] = third.x, y[e][5] = third.y;
        }
#pragma unroll
        for (unsigned k = 0; k < K_STEPS; k++)
#pragma unroll
            for (unsigned e = 0; e < 2; e++)
#pragma unroll
                for (unsigned m = 0; m < 2; m++) {
                    const unsigned u[4] = {a[m][k].x, a[m][k].y, a[m][k].z, a[m][k].w},
                                   of_k[2] = {y[e][2 * k], y[e][2 * k + 1]};
                    mma_f16(sum[e][m], u, of_k);
                }
#pragma unroll
        for (unsigned e = 0; e < 2; e++)
#pragma unroll
            for (unsigned h = 0; h < ROWS_EACH; h++)
                x[h][first + r + e] = pack_finite(sum[e][h / 2][h % 2 * 2], sum[e][h / 2][h % 2 * 2 + 1]);
    }
}

/* What quantize::add_up makes of half a block of 8 beams, for twice 8 beams at once, whose products are
 * independent of each other: in the same order, so with the same bits, but that the squares are this lane's
 * own ones. */
template <bool MISSING>
__device__ __forceinline__ void add_up_both(quantize::sums (&to)[2], const unsigned *const (&x)[2],
                                            unsigned unit)
{
    const float zero[4] = {0, 0, 0, 0};
    float start[2][4] = {}, sum[2][2] = {}, squares[2][4] = {};
#pragma unroll
    for (int h = 0; h < 2 && !MISSING; h++) {
        float c[4];
        quantize::product(c, x[h][0], x[h][1], quantize::SIXTEENTHS, zero);
        const float2 pivot = quantize::minus_pivot(c[0] + c[2]), again = quantize::minus_pivot(c[1] + c[3]);
        start[h][0] = pivot.x, start[h][1] = pivot.y, start[h][2] = again.x, start[h][3] = again.y;
    }
    using means = quantize::means<REGISTERS>;
#pragma unroll
    for (unsigned r = 0; r < REGISTERS; r += 4) {
        float c[2][2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++)
                quantize::product(c[h][i], x[h][r + 2 * i], x[h][r + 2 * i + 1], unit, start[h]);
        float d[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (r % (means::STEPS / 4) == 0) means::find(d[h], x[h] + r, start[h]);

#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                squares[h][i % 4] = fmaf(c[h][i / 4][i % 4], c[h][i / 4][i % 4], squares[h][i % 4]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (r % (means::STEPS / 4) == 0) {
                sum[h][0] = r == 0 ? d[h][0] : sum[h][0] + d[h][0];
                sum[h][1] = r == 0 ? d[h][2] : sum[h][1] + d[h][2];
            }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        to[h] = quantize::sums{-start[h][0], means::STEPS * (sum[h][0] + sum[h][1]),
                               (squares[h][0] + squares[h][1]) + (squares[h][2] + squares[h][3])};
}

/* Waits for the warp that has the other half of this one's beams. */
__device__ __forceinline__ void meet_other_half(unsigned warp)
{
    asm volatile("bar.sync %0, 64;\n" ::"r"(1 + warp / 2) : "memory");
}

/* Of v[row] of all four lanes 4 g + q the sum for row q. */
__device__ __forceinline__ float sum_of_row(const float (&v)[ROWS_EACH], unsigned q)
{
    float a = q & 1 ? v[1] : v[0], b = q & 1 ? v[3] : v[2];
    a += __shfl_xor_sync(WHOLE_WARP, q & 1 ? v[0] : v[1], 1);
    b += __shfl_xor_sync(WHOLE_WARP, q & 1 ? v[2] : v[3], 1);
    const float other = __shfl_xor_sync(WHOLE_WARP, q & 2 ? a : b, 2);
    return (q & 2 ? b : a) + other;
}

/* v[q] */
__device__ __forceinline__ float row_of_lane(const float (&v)[ROWS_EACH], unsigned q)
{
    const float a = q & 1 ? v[1] : v[0], b = q & 1 ? v[3] : v[2];
    return q & 2 ? b : a;
}

/* Where a warp's beams are, and which half of the block it has. */
struct place {
    unsigned f, i, j, warp, half, turn;
};

/* Levels of i, i + 8, i + 16 and i + 24, `stride` bytes apart, of which there are those less than `most`.
 * found: of i + 8 q. Returns how many levels were clamped. */
template <int BITS, bool MISSING, bool NEAR>
__device__ __forceinline__ unsigned
write_beams(uint8_t *out, size_t stride, const unsigned (&x)[ROWS_EACH][REGISTERS],
            const quantize::statistics &found, const uint8_t *valid, unsigned i, unsigned most)
{
    const unsigned lane = threadIdx.x % 32;
    unsigned clamped = 0;
#pragma unroll
    for (unsigned h = 0; h < ROWS_EACH; h++) {
        quantize::statistics of = found;
        const int from = static_cast<int>(lane / 4 * 4 + h);
        of.slope = __shfl_sync(WHOLE_WARP, found.slope, from);
        of.shift = __shfl_sync(WHOLE_WARP, found.shift, from);
        if (NEAR) of.near = __shfl_sync(WHOLE_WARP, found.near, from);
        const bool here = i + 8 * h < most;
        unsigned fields = 0;
        quantize::write_levels<BITS, HALF, MISSING, NEAR>(out, x[h], of, valid, lane, here, fields);
        clamped += here ? quantize::sum_fields<BITS>(fields) : 0;
        out += stride;
    }
    return clamped;
}

/* Levels of half a block of 32 beams, and what they mean: lane 4 g + q has rows i + g + 8 h, and finds the
 * numbers of that with h = q. x is 0 where a value is missing. Returns how many levels were clamped. */
template <int BITS, bool MISSING>
__device__ __forceinline__ unsigned quantize_beams(const unsigned (&x)[ROWS_EACH][REGISTERS], shared &s,
                                                   const work &w, const place &at, unsigned valid_steps)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, unit = quantize::unit_matrix(lane);
    const quantize::rule rule = quantize::make_rule(w.levels_rms, valid_steps);
    quantize::sums mine; /* this lane's row's */
    {
        float pivot[ROWS_EACH], sum[ROWS_EACH], squares[ROWS_EACH];
#pragma unroll
        for (unsigned h = 0; h < ROWS_EACH; h += 2) {
            quantize::sums rows[2];
            add_up_both<MISSING>(rows, {x[h], x[h + 1]}, unit);
#pragma unroll
            for (unsigned e = 0; e < 2; e++)
                pivot[h + e] = rows[e].pivot, sum[h + e] = rows[e].sum, squares[h + e] = rows[e].squares;
        }
        mine = quantize::sums{row_of_lane(pivot, q), row_of_lane(sum, q), sum_of_row(squares, q)};
    }
    /* to, from: shape (3, 32), contiguous */
    float *to = s.halves[at.turn][at.warp][0] + lane;
    const volatile float *from = s.halves[at.turn][at.warp ^ 1][0] + lane;
    to[0] = mine.pivot, to[32] = mine.sum, to[64] = mine.squares;
    meet_other_half(at.warp);
    const quantize::sums other = {from[0], from[32], from[64]};

    const uint8_t *valid = MISSING ? w.valid + at.f * STEPS + at.half * HALF : nullptr;
    quantize::moments m =
        at.half == 0 ? quantize::merge(mine, other, rule, HALF) : quantize::merge(other, mine, rule, HALF);
    if (__any_sync(WHOLE_WARP, m.far)) { /* in both halves' warps */
        const float about = quantize::about_mean(m);
        float2 again = make_float2(0, 0);
        const unsigned nothing = w.F >> 31; /* keeps the compiler from unpacking x before the branch */
#pragma unroll
        for (unsigned h = 0; h < ROWS_EACH; h++) {
            const float of_row = __shfl_sync(WHOLE_WARP, about, static_cast<int>(4 * g + h));
            unsigned again_x[REGISTERS]; /* as x[h] */
#pragma unroll
            for (unsigned r = 0; r < REGISTERS; r++) again_x[r] = x[h][r] ^ nothing;
            const float2 sum = quantize::add_up_again<REGISTERS>(again_x, of_row, [&](int r) {
                return MISSING ? quantize::kept<BITS, HALF>(valid, static_cast<unsigned>(r), q) : 0xffffffffu;
            });
            if (q == h) again = sum;
        }
        meet_other_half(at.warp); /* what was there has been read */
        to[0] = again.x, to[32] = again.y;
        meet_other_half(at.warp);
        const float2 there = make_float2(from[0], from[32]);
        if (m.far)
            m = at.half == 0 ? quantize::correct(m, about, again, there, rule)
                             : quantize::correct(m, about, there, again, rule);
    }
    const quantize::statistics found = quantize::find_statistics<BITS>(m, rule);

    /* out: shape (bx, by, F, row), contiguous; after: shape (half row), of row i + g. side: shape (bx, by,
     * F), contiguous */
    constexpr unsigned BYTES = HALF * BITS / 8;
    const size_t first = (static_cast<size_t>(at.i + g) * w.by + at.j) * w.F + at.f,
                 eight = static_cast<size_t>(w.by) * w.F * 8;
    if (at.half == 0 && at.i + g + 8 * q < w.bx)
        w.side[first + q * eight] = make_float2(found.scale, found.offset);
    uint8_t *out = w.out + (first * 2 + at.half) * BYTES;
    if (MISSING || __any_sync(WHOLE_WARP, found.near != 0))
        return write_beams<BITS, MISSING, true>(out, eight * 2 * BYTES, x, found, valid, at.i + g, w.bx);
    return write_beams<BITS, MISSING, false>(out, eight * 2 * BYTES, x, found, valid, at.i + g, w.bx);
}

template <int BITS>
__device__ __forceinline__ void quantize_all(shared &s, const work &w, unsigned begin, unsigned end)
{
    /* From a shuffle: the same in the whole warp, as the compiler sees too. */
    const unsigned warp = __shfl_sync(WHOLE_WARP, threadIdx.x / 32 - FORMERS, 0), lane = threadIdx.x % 32,
                   half = warp % 2, slot = warp / 2 % 2, group = warp / 4, rank = cluster_rank();
    const uint8_t *wide = s.y[half * CLUSTER] + br_fused_wide(slot, lane / 4, lane % 4),
                  *narrow = s.y[half * CLUSTER] + br_fused_narrow(slot, lane / 4, lane % 4);
    const uint4 *weights = s.weights + group * (2 * K_STEPS * 32) + lane;
    position at(w, begin);
    unsigned turn = 0, part = 0;
    volatile unsigned &clamped = s.clamped[threadIdx.x - FORMERS * 32];
    clamped = 0;
    bool fresh = true; /* this round begins a part */
    for (unsigned number = begin; number < end; number++, turn ^= 1) {
        if (fresh) barrier_wait(&s.weighted, part++ % 2);
        /* x[h][REGISTERS]: half a block as in kernels/quantize/layout.h; of i = g + 8 h */
        unsigned x[ROWS_EACH][REGISTERS];
        uint4 a[2][K_STEPS];
#pragma unroll
        for (unsigned m = 0; m < 2; m++)
#pragma unroll
            for (unsigned k = 0; k < K_STEPS; k++) a[m][k] = weights[(m * K_STEPS + k) * 32];
        if (at.round + 1 == w.rounds) barrier_arrive(&s.used); /* for the last time */
#pragma unroll
        for (unsigned n = 0; n < 2; n++) {
            const unsigned chunk = 2 * n + half;
            barrier_wait(&s.full[chunk], turn);
            if (group == 0 && slot == 0 && lane == 0) barrier_expect(&s.full[chunk], CHUNK_BYTES);
            form_chunk(x, n * CLUSTER, a, wide + n * (2 * CHUNK_BYTES), narrow + n * (2 * CHUNK_BYTES));
            __syncwarp();
            if (lane < CLUSTER) arrive_there(in_block(shared_address(&s.empty[chunk]), lane));
        }
        const place here = {
            at.f, (at.part * GROUPS + group) * 32, at.round * ROUND + rank * SLOTS + slot, warp, half, turn};
        if (here.i < w.bx && here.j < w.by) { /* the same in the whole warp, and in both halves' */
            unsigned valid_steps = STEPS;
            if (w.valid) {
                const uint2 v = __ldg(reinterpret_cast<const uint2 *>(w.valid + at.f * STEPS) + lane);
                valid_steps = __reduce_add_sync(WHOLE_WARP, __popc(v.x) + __popc(v.y)) / 8;
            }
            const unsigned more = valid_steps < STEPS ? quantize_beams<BITS, true>(x, s, w, here, valid_steps)
                                                      : quantize_beams<BITS, false>(x, s, w, here, STEPS);
            clamped = clamped + more;
        }
        fresh = at.advance(w);
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

    /* Cells beyond a smaller field, which meet weights of 0, must be finite. */
    for (unsigned n = threadIdx.x; n < sizeof s.field / 16; n += THREADS)
        s.field[0][0][n] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) {
        for (unsigned c = 0; c < CHUNKS; c++) {
            barrier_start(&s.full[c], 1);
            barrier_start(&s.empty[c], CLUSTER * QUANTIZERS / 2);
            for (unsigned warp = 0; warp < FORMERS; warp++) barrier_start(&s.loaded[warp][c], 1);
        }
        barrier_start(&s.weighted, FORMERS * 32);
        barrier_start(&s.used, QUANTIZERS * 32);
        barrier_publish();
        for (unsigned c = 0; c < CHUNKS; c++) barrier_expect(&s.full[c], CHUNK_BYTES);
    }
    publish_shared();
    __syncthreads();
    meet_cluster();
    if (threadIdx.x / 32 < FORMERS) {
        if (w.valid)
            form<BITS, true>(s, w, begin, end, rank);
        else
            form<BITS, false>(s, w, begin, end, rank);
    } else {
        quantize_all<BITS>(s, w, begin, end);
    }
    meet_cluster(); /* no block leaves while others send to it */
#endif
}

} // namespace fused

} // namespace beamring

#endif
