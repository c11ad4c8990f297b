/* twostep.cuh - the filterbank for U of 64 on Hopper: the transform in two steps, both products, with no
 * arithmetic between them.
 *
 * Time s of the window is 4 v + r, fine channel u is p + 16 n (r, n: 0 to 3; p: 0 to 15). With phases as in
 * level.cuh,
 *
 *   y_p(r) = sum_v W[4 v + r] e^{i pi 4 v (U - 1 - 2 p) / U} E[4 v + r]
 *   X[u]   = sum_r e^{i pi r (U - 1 - 2 u) / U} y_p(r)
 *
 * Step 1 is for each residue r what warpgroup.cuh does for U of 16 with all its taps; p and 15 - p have
 * conjugate phases, y_p = C + i S and y_{15-p} = C - i S. A warpgroup of the block has one residue. Step 2 is
 * a product for each pair p: from 16 numbers (C, S, re, im of four residues) to 16 (re, im of four u and of
 * the four U - 1 - u). It has the gains, and such units that its sums, rounded to float16, are the levels:
 * integers in the last bits. Between the steps all goes through shared memory; a warp's part of step 2 is two
 * pairs of 32 samples. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_TWOSTEP_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_TWOSTEP_CUH

#include "kernels/upchannelize/warpgroup.cuh"

namespace
{

struct two {
    static constexpr int U = 64, LAGS = 4, THREADS = 128 * BR_TWO_WALKS;
    static constexpr int COLUMNS = (2 * LAGS - 1) * 16;
    static constexpr int MATRIX = COLUMNS * BR_BAND * 2; /* bytes, of each (r, re or im) */
    static constexpr int STAGE = BR_BAND * BR_WALK_PIECE;
    /* bytes of shared memory */
    static constexpr int EXCHANGE = 2 * BR_TWO_WALKS * MATRIX, FIELD = 4 * 2 * 8 * BR_WALK_SPAN * 4,
                         STAGED = EXCHANGE + 2 * FIELD,
                         SECOND = STAGED + BR_TWO_WALKS * 4 * BR_WALK_STAGES * STAGE,
                         START = SECOND + 8 * 2 * 32 * 8, SHARED = START + BR_TWO_WALKS * 8 * 8;
};

/* d = a b + c, of one warp, float16: b and c as one register pair and one value. */
__device__ __forceinline__ void multiply_16(unsigned &d0, unsigned &d1, const unsigned (&a)[4], uint2 b,
                                            unsigned c)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %8};\n"
        : "=r"(d0), "=r"(d1)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(c));
}

/* 0xffff where a and b differ, else 0 */
__device__ __forceinline__ unsigned differ_mask2(unsigned a, unsigned b)
{
    unsigned c;
    asm("set.ne.u32.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

__global__ void __launch_bounds__(two::THREADS, 1) two_steps(const tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int U = two::U, LAGS = two::LAGS, STAGES = BR_WALK_STAGES;
    extern __shared__ uint4 shared[]; /* matrices, exchange [2], staged [r][warp][STAGES] */
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4,
              q = lane % 4;
    const int r = __shfl_sync(beamring::WHOLE_WARP, static_cast<int>(threadIdx.x) / 128, 0);
    let_next_begin();
    if (blockIdx.y == 0) {
        remember_walk(w, static_cast<int>(blockIdx.x) * BR_WALK_SPAN);
        end_after_previous();
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < two::EXCHANGE / 16; i += two::THREADS)
        shared[i] = __ldg(w.matrices + i);
    /* step 2 for pairs 2 r and 2 r + 1: [pair 0][re, im], b of a product */
    uint2 *second = reinterpret_cast<uint2 *>(shared + two::SECOND / 16);
    second[threadIdx.x] = __ldg(reinterpret_cast<const uint2 *>(w.taps) + threadIdx.x);
    second += 2 * r * 64 + lane;
    /* what sums begin with, re and im   simd: C, S; of pairs q and 4 + q */
    uint2 *start = reinterpret_cast<uint2 *>(shared + two::START / 16);
    if (threadIdx.x < BR_TWO_WALKS * 8)
        start[threadIdx.x] = __ldg(reinterpret_cast<const uint2 *>(w.starts) + threadIdx.x);
    start += r * 8 + q;
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();
    const unsigned shared_at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    uint64_t b =
        br_wgmma_descriptor(shared_at + static_cast<unsigned>(r * 2 * two::MATRIX), 128, 256, BR_WGMMA_PLAIN);

    int base = static_cast<int>(blockIdx.x) * BR_WALK_SPAN + warp * BR_WALK_PIECE;
    const bool present = base < w.width; /* the whole block takes part in products and exchange */
    if (!present) base = 0;
    const int first = w.first + static_cast<int>(blockIdx.y - 1) * w.each, end = min(w.last, first + w.each);
    int at = first - (LAGS - 1);
    const int column = base + lane / 4 * 4;

    /* sums [tile][re, im]   simd: C, S   register: ring, then pair 2, sample 0   thread: sample 4 3 2, pair 1
     * 0; tile is sample 1 */
    unsigned sums[2][2][LAGS * 4];
    auto begin_block = [&](unsigned block) {
#pragma unroll
        for (unsigned k = 0; k < 2; k++) {
            uint2 s = start[4 * k];
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                sums[i / 2][0][block * 4 + 2 * k + i % 2] = s.x;
                sums[i / 2][1][block * 4 + 2 * k + i % 2] = s.y;
            }
        }
    };
#pragma unroll
    for (unsigned i = 0; i < LAGS; i++) begin_block(i);

    /* Output steps whose input stands wholly in this call are staged; those in the history too. */
    const int staged_from = w.wide_in ? 0 : end;
    const unsigned staged_at =
        shared_at + static_cast<unsigned>(two::STAGED + (r * 4 + warp) * STAGES * two::STAGE);
    /* e: shape (T, row) -> after the output step's and the lane's offset: 16 bytes of the warp's time lane /
     * 2 */
    const uint8_t *from =
        w.e + static_cast<ptrdiff_t>(at) * U * static_cast<ptrdiff_t>(w.row) +
        (static_cast<size_t>(4 * (lane / 2) + r) * w.row + static_cast<size_t>(base + lane % 2 * 16));
    auto stage = [&](int which) {
        unsigned to = staged_at + br_walk_stage(lane / 2, lane % 2 * 16) +
                      static_cast<unsigned>((which & (STAGES - 1)) * two::STAGE);
        if (which >= staged_from && which < end)
            stage_times(to, from);
        else if (which < 0)
            stage_times(to, field_row(w, which * U + 4 * (lane / 2) + r) + base + lane % 2 * 16);
        beamring::copy_async_commit();
        from += U * w.row;
    };
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) stage(at + i);

    /* out: shape (T/U, F, U, X), contiguous -> after the output step's and the lane's offset: a word, u's and
     * U-1-u's; those of the warp's second pair are X and -X further */
    const size_t f = static_cast<size_t>(column) / w.X, x = column - f * w.X;
    const unsigned low_offset = static_cast<unsigned>((f * U + 2 * r + 16 * q) * w.X + x),
                   high_offset = static_cast<unsigned>((f * U + U - 1 - 2 * r - 16 * q) * w.X + x);

    /* The exchange: a lane writes (C, S) of its pairs q and 4 + q, and has a row of an operand of ldmatrix.
     */
    const unsigned exchange_at = shared_at + two::EXCHANGE,
                   write_at = exchange_at + 4 * br_two_place(r, q, warp * 32 + br_walk_sample(lane / 4, 0)),
                   read_at = exchange_at +
                             4 * br_two_row(lane / 16 * 2, 2 * r,
                                            warp * 32 + br_walk_sample(lane % 8 + lane / 8 % 2 * 8, 0));

    unsigned beyond = 0;
    auto finish = [&](int buffer) {
        unsigned masks = 0, word[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unsigned sample[4];
            uint2 b_re = second[i * 64], b_im = second[i * 64 + 32];
#pragma unroll
            for (int tile = 0; tile < 2; tile++) {
                unsigned a[4], level[2][2]; /* [re, im], register: sample 0   simd: u and U-1-u */
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                             : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                             : "r"(read_at + static_cast<unsigned>(buffer * two::FIELD) +
                                   4 * (br_two_row(0, i, br_walk_sample(0, tile)) - br_two_row(0, 0, 0)))
                             : "memory");
                multiply_16(level[0][0], level[0][1], a, b_re, 0x00070007u);
                multiply_16(level[1][0], level[1][1], a, b_im, 0x00070007u);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    unsigned re = __vimin_s16x2_relu(level[0][k], 0x000e000eu),
                             im = __vimin_s16x2_relu(level[1][k], 0x000e000eu);
                    masks += differ_mask2(level[0][k], re) + differ_mask2(level[1][k], im);
                    sample[tile * 2 + k] = im * 16 + re;
                }
            }
            join(word[i], sample);
        }
        if (present) {
            if (w.lost != nullptr && w.lost[static_cast<size_t>(at - 1 - w.first) * w.F + column / w.X]) {
                masks = 0;
                word[0][0] = word[0][1] = word[1][0] = word[1][1] = beamring::MISSING_INT4 * 0x01010101u;
            }
            beyond += masks;
            uint8_t *out = w.out + static_cast<size_t>(at - 1) * (static_cast<size_t>(w.width) * U);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                store_word(w, out + low_offset + i * w.X, word[i][0]);
                store_word(w, out + high_offset - i * w.X, word[i][1]);
            }
        }
    };
    auto hold_sums = [&]() {
#pragma unroll
        for (int i = 0; i < 4; i++) beamring::wgmma_hold(sums[i / 2][i % 2]);
    };

    auto one = [&](auto ring) {
        constexpr unsigned RING = decltype(ring)::value;
        constexpr int BUFFER = RING % 2;
        unsigned a[2][2][4], words[4];
        beamring::copy_async_wait<STAGES - 2>();
        __syncwarp();
        if (at >= staged_from || at < 0)
            read_staged(words, staged_at + br_walk_stage(q, br_walk_sample(lane / 4, 0)) +
                                   static_cast<unsigned>((at & (STAGES - 1)) * two::STAGE));
        else
            load_slowly(words, w, at * U + 4 * q + r, 16, column);
        stage(at + STAGES - 1);
        unpack_operands(a, words);
#pragma unroll
        for (int i = 0; i < 4; i++) beamring::wgmma_hold(a[i / 2][i % 2]);
        hold_sums();
        beamring::wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++)
            product<LAGS * 16>::multiply(
                sums[i / 2][i % 2], a[i / 2][i % 2],
                b + (i % 2 * two::MATRIX / 16 + br_walk_block(LAGS, RING) * (16 * 2 * BR_BAND / 16)));
        beamring::wgmma_commit();
        if (at > first) {
            __syncthreads(); /* all residues of the output step before are there */
            finish(BUFFER ^ 1);
        }
        beamring::wgmma_wait<0>();
        hold_sums();
        if (at >= first) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(
                                     write_at + static_cast<unsigned>(BUFFER * two::FIELD) +
                                     4 * (br_two_row(0, 4 * i, br_walk_sample(k % 2 * 8, k / 2)) -
                                          br_two_row(0, 0, 0))),
                                 "r"(sums[k / 2][0][RING * 4 + 2 * i + k % 2]),
                                 "r"(sums[k / 2][1][RING * 4 + 2 * i + k % 2])
                                 : "memory");
        }
        begin_block(RING);
        at++;
    };
    int buffer = 0; /* of the last output step */
    while (at < end) {
        one(constant<0>());
        buffer = 0;
        if (at >= end) break;
        one(constant<1>());
        buffer = 1;
        if (at >= end) break;
        one(constant<2>());
        buffer = 0;
        if (at >= end) break;
        one(constant<3>());
        buffer = 1;
        if ((at & 1023) < LAGS) add_masks(w, beyond);
    }
    __syncthreads();
    finish(buffer);
    add_masks(w, beyond);
    end_after_previous();
#endif
}

} // namespace

#endif
