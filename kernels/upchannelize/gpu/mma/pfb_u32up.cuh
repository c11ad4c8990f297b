/* pfb_u32up.cuh - the filterbank for U of 32 and more and up to 4 taps: taps in registers, the transform
 * on tensor cores.
 *
 * With j the time within a block, z[j] = sum_m (-1)^m W[m U + j] E[(t - M + 1 + m) U + j] and the phase
 * psi of fine channel u at j, C = sum_j cos(psi) z[j] and S = sum_j sin(psi) z[j] (gpu/convert.cuh). As
 * psi(U - j) = pi (U - 1 - 2u) - psi(j), an odd multiple of pi less psi(j), the sums need only half the
 * products:
 *
 *   C = z[0] + sum_{j=1}^{U/2-1} cos(psi_j) (z[j] - z[U-j])      S = sin(psi_{U/2}) z[U/2] +
 * sum_{j=1}^{U/2-1} sin(psi_j) (z[j] + z[U-j])
 *
 * A block of threads has FOLD_SPAN samples of the row and walks along time, FOLD_TURN output steps between
 * barriers. Filter: a thread has two such pairs of times (j, j + 1 and their partners) of four samples;
 * each sample is unpacked once, added to running sums, folded, and written to shared memory. Transform: a
 * warp has 16 pairs of fine channels of half the samples. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_MMA_PFB_U32UP_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_MMA_PFB_U32UP_CUH

#include "kernels/upchannelize/gpu/convert.cuh"

namespace
{

template <int U> struct folding {
    static constexpr int THREADS = 4 * U, BLOCKS = U == 32 ? 3 : U == 64 ? 2 : 1;
    static constexpr int STEPS = U / 32; /* products of 16 rows of the folded field */
    static constexpr bool SHARED_MATRICES = U >= 64;
    static constexpr size_t FIELD = sizeof(unsigned) * 4 * (U / 4) * BR_FOLD_SPAN; /* one output step */
    static constexpr size_t MATRICES = SHARED_MATRICES ? sizeof(uint4) * 32 * 2 * STEPS * STEPS : 0;
    static constexpr size_t SHARED =
        2 * BR_FOLD_TURN * FIELD + MATRICES + (U / 4) * 3 * sizeof(uint4) + U * sizeof(uint2);
};

/* words [4]   simd: sample 1 0   register: time (j, j + 1, partners of both)   thread: sample 5 4 3 2, then j
 * / 2 */
template <int U> struct fold_input {
    unsigned word[4];
};

struct fold_position {
    int column;
    unsigned time[4], offset[4]; /* j, j + 1, the partners of both; where in e they and the column are from a
                                    block's first row on */
};

/* ALIGNED: wide loads and stores, block >= 0, without a look */
template <int U, bool ALIGNED>
__device__ __forceinline__ void load_fold(fold_input<U> &to, const tensor_work &w, const fold_position &p,
                                          int block)
{
    if (ALIGNED || (block >= 0 && w.wide_in)) {
        /* e: shape (T, row) -> after the block's and the thread's offset: four times' words of 4 samples */
        const uint8_t *rows = w.e + static_cast<size_t>(block) * (U * w.row);
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.word[i] = __ldg(reinterpret_cast<const unsigned *>(rows + p.offset[i]));
    } else {
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            unsigned time = i == 0   ? p.time[0]
                            : i == 1 ? p.time[1]
                            : i == 2 ? p.time[2]
                                     : p.time[3],
                     word = load_bytes(field_row(w, block * U + static_cast<int>(time)) + p.column);
#pragma unroll
            for (int to_i = 0; to_i < 4; to_i++)
                if (to_i == i) to.word[to_i] = word;
        }
    }
}

/* A pair of times' tables, in shared memory. simd: time 0   taps: [RING], j and j + 1, then of their
 * partners; starts: what sums begin with, re and im of j and j + 1, then of their partners. */
struct fold_taps {
    unsigned taps[2][BR_FOLD_RING], starts[4];
};

template <int U> struct fold_filter {
    /* of the next outputs   simd: time 0   register: output, sample 1 0, then re, im of j, re, im of partners
     */
    unsigned sums[BR_FOLD_RING - 1][4][4];

    __device__ __forceinline__ void start(const fold_taps &t)
    {
#pragma unroll
        for (int m = 0; m < BR_FOLD_RING - 1; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) sums[m][i][k] = t.starts[k];
    }

    /* z of sample i: re, im of j and j + 1, re, im of their partners */
    __device__ __forceinline__ void add(unsigned (&z)[4], const fold_input<U> &input, int i,
                                        const fold_taps &t)
    {
        unsigned field[4];
        unpack(field[0], field[1], input.word[0], input.word[1], i);
        unpack(field[2], field[3], input.word[2], input.word[3], i);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const unsigned(&tap)[BR_FOLD_RING] = t.taps[k / 2];
            z[k] = fma2(tap[3], field[k], sums[0][i][k]);
            sums[0][i][k] = fma2(tap[2], field[k], sums[1][i][k]);
            sums[1][i][k] = fma2(tap[1], field[k], sums[2][i][k]);
            sums[2][i][k] = fma2(tap[0], field[k], t.starts[k]);
        }
    }
};

/* One output step's folded field to shared memory. both: 1 for times that have a partner other than
 * themselves, else 0. */
template <int U>
__device__ __forceinline__ void fold(unsigned *field, fold_filter<U> &filter, const fold_input<U> &input,
                                     const fold_taps &taps, int pair, int quad, unsigned both)
{
    uint4 planes[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        unsigned z[4];
        filter.add(z, input, i, taps);
        unsigned minus = both ^ 0x80008000u;
        reinterpret_cast<unsigned *>(&planes[0])[i] = fma2(minus, z[2], z[0]);
        reinterpret_cast<unsigned *>(&planes[1])[i] = fma2(minus, z[3], z[1]);
        reinterpret_cast<unsigned *>(&planes[2])[i] = fma2(both, z[0], z[2]);
        reinterpret_cast<unsigned *>(&planes[3])[i] = fma2(both, z[1], z[3]);
    }
#pragma unroll
    for (unsigned plane = 0; plane < 4; plane++)
        *reinterpret_cast<uint4 *>(field + br_fold_place(U, plane, static_cast<unsigned>(pair),
                                                         static_cast<unsigned>(quad))) = planes[plane];
}

/* Sums of a warp: simd: column 0   register: tile, then C_re, S_re, C_im, S_im, then row3   thread: row 2 1
 * 0, column 2 1 */
template <int U> using fold_sums = unsigned[BR_FOLD_TILES][4][2];

template <int U, class MATRIX>
__device__ __forceinline__ void transform_fold(fold_sums<U> &sums, const unsigned *field, int half,
                                               MATRIX matrix)
{
    using s = folding<U>;
    unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < s::STEPS; step++)
#pragma unroll
        for (int is_sin = 0; is_sin < 2; is_sin++) {
            uint4 a = matrix(is_sin, step);
#pragma unroll
            for (int part = 0; part < 2; part++) {
                /* b: register: row3 (of k), tile   thread: column, k 2 1 */
                uint4 b[2];
#pragma unroll
                for (unsigned i = 0; i < 2; i++)
                    b[i] = *reinterpret_cast<const uint4 *>(field + br_fold_place(U, 2 * is_sin + part,
                                                                                  step * 8 + i * 4 + lane % 4,
                                                                                  half * 8 + lane / 4));
                auto tile_of = [&](int i, int j) {
                    return j == 0 ? b[i].x : j == 1 ? b[i].y : j == 2 ? b[i].z : b[i].w;
                };
#pragma unroll
                for (int j = 0; j < BR_FOLD_TILES; j++) {
                    unsigned(&sum)[2] = sums[j][2 * part + is_sin];
                    multiply_8(sum[0], sum[1], a.x, a.y, tile_of(0, j), step > 0 ? sum[0] : 0,
                               step > 0 ? sum[1] : 0);
                    multiply_8(sum[0], sum[1], a.z, a.w, tile_of(1, j), sum[0], sum[1]);
                }
            }
        }
}

/* ALIGNED: wide loads and stores without a look; else it looks. */
template <int U, bool ALIGNED>
__global__ void __launch_bounds__(folding<U>::THREADS, folding<U>::BLOCKS) folded(const tensor_work w)
{
    using s = folding<U>;
    extern __shared__ uint4 shared[]; /* fields [2][TURN][4 planes][U/4][SPAN], matrices */
    unsigned *fields = reinterpret_cast<unsigned *>(shared);
    uint4 *shared_matrices = shared + 2 * BR_FOLD_TURN * s::FIELD / sizeof(uint4),
          *shared_taps = shared_matrices + s::MATRICES / sizeof(uint4); /* [U/4][3]: fold_taps */
    uint2 *shared_rules = reinterpret_cast<uint2 *>(shared_taps + U / 4 * 3);
    int lane = static_cast<int>(threadIdx.x) % 32, quad = static_cast<int>(threadIdx.x) % 16,
        pair = static_cast<int>(threadIdx.x) / 16, base = static_cast<int>(blockIdx.x) * BR_FOLD_SPAN;
    let_next_begin();
    if (blockIdx.y == 0) {
        remember(w, base, BR_FOLD_SPAN);
        end_after_previous();
        return;
    }
    int block = w.first + static_cast<int>(blockIdx.y - 1) * w.each, end = min(w.last, block + w.each);
    fold_position p;
    p.column = base + quad * 4;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned j = 2 * static_cast<unsigned>(pair) + i % 2;
        p.time[i] = i < 2 ? j : br_fold_partner(U, j);
        p.offset[i] = p.time[i] * static_cast<unsigned>(w.row) + static_cast<unsigned>(p.column);
    }
    unsigned both = pair == 0 ? 0x3c000000u : 0x3c003c00u;

    const struct br_fold_share share = br_fold_share(threadIdx.x / 32);
    const uint4 *matrices = w.matrices + share.rows * (2 * s::STEPS * 32); /* [cos, sin][STEPS][32] */
    uint4 kept_matrices[s::SHARED_MATRICES ? 1 : 2 * s::STEPS];
    if constexpr (s::SHARED_MATRICES) {
        for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(s::MATRICES / sizeof(uint4));
             i += s::THREADS)
            shared_matrices[i] = __ldg(w.matrices + i);
        shared_matrices += share.rows * (2 * s::STEPS * 32) + lane;
    } else {
#pragma unroll
        for (int i = 0; i < 2 * s::STEPS; i++) kept_matrices[i] = __ldg(matrices + i * 32 + lane);
    }
    auto matrix = [&](int is_sin, int step) {
        if constexpr (s::SHARED_MATRICES)
            return shared_matrices[(is_sin * s::STEPS + step) * 32];
        else
            return kept_matrices[is_sin * s::STEPS + step];
    };

    for (int i = static_cast<int>(threadIdx.x); i < U / 4 * 3; i += s::THREADS)
        shared_taps[i] = __ldg(w.taps + i);
    for (int i = static_cast<int>(threadIdx.x); i < U; i += s::THREADS) shared_rules[i] = __ldg(w.rules + i);
    __syncthreads();
    /* read again for each turn: there are no registers to keep them */
    auto read_taps = [&](fold_taps &taps) {
        uint4 a = shared_taps[pair * 3], b = shared_taps[pair * 3 + 1], c = shared_taps[pair * 3 + 2];
        taps = {{{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}}, {c.x, c.y, c.z, c.w}};
    };
    fold_filter<U> filter;
    fold_taps taps;
    read_taps(taps);
    filter.start(taps);
    fold_input<U> words[BR_FOLD_TURN];
    for (int before = min(w.M, BR_FOLD_RING) - 1; before > 0; before--) {
        load_fold<U, false>(words[0], w, p, block - before);
        unsigned z[4];
#pragma unroll
        for (int i = 0; i < 4; i++) filter.add(z, words[0], i, taps);
    }
#pragma unroll
    for (int t = 0; t < BR_FOLD_TURN; t++) load_fold<U, ALIGNED>(words[t], w, p, min(block + t, end - 1));

    /* out: shape (T/U, F, U, X), contiguous
     * after the block's and the lane's offset: shape (2, 2, 8), strides (8 X, `apart`, 1), for each output
     * step; the 2 of row3 run towards each other for U-1-u */
    int u = static_cast<int>(share.rows) * 16 + lane / 4;
    size_t f = static_cast<size_t>(base) / w.X, x = base - f * w.X + share.half * (BR_FOLD_SPAN / 2) +
                                                    br_upch_sample(BR_FOLD_TILES, lane % 4 * 2, 0);
    unsigned low_offset = static_cast<unsigned>((f * U + u) * w.X + x),
             high_offset = static_cast<unsigned>((f * U + U - 1 - u) * w.X + x);
    float counts[4] = {0, 0, 0, 0};
    int buffer = 0;

#pragma unroll 1
    for (; block < end; block += BR_FOLD_TURN, buffer ^= 1) {
        unsigned *field = fields + buffer * (BR_FOLD_TURN * s::FIELD / sizeof(unsigned));
        asm volatile("" ::: "memory");
        read_taps(taps);
#pragma unroll
        for (int t = 0; t < BR_FOLD_TURN; t++) {
            fold<U>(field + t * (s::FIELD / sizeof(unsigned)), filter, words[t], taps, pair, quad, both);
            if (block + BR_FOLD_TURN < end)
                load_fold<U, ALIGNED>(words[t], w, p, min(block + BR_FOLD_TURN + t, end - 1));
        }
        __syncthreads();
        int mine = block + static_cast<int>(share.step);
        if (mine >= end) continue;
        fold_sums<U> sums;
        transform_fold<U>(sums, field + share.step * (s::FIELD / sizeof(unsigned)),
                          static_cast<int>(share.half), matrix);
        bool kept = w.lost == nullptr || !w.lost[static_cast<size_t>(mine - w.first) * w.F + f];
        float before[2] = {counts[0], counts[2]};
        uint8_t *out = w.out + static_cast<size_t>(mine) * (static_cast<size_t>(w.width) * U);
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const pair_rules rules = {shared_rules[u + 8 * upper], shared_rules[U - 1 - u - 8 * upper]};
            unsigned low_tile[4], high_tile[4];
#pragma unroll
            for (int j = 0; j < BR_FOLD_TILES; j++)
                to_levels(low_tile[j], high_tile[j], sums[j][0][upper], sums[j][1][upper], sums[j][2][upper],
                          sums[j][3][upper], rules, counts);
            uint2 low = to_bytes(low_tile), high = to_bytes(high_tile);
            if (!kept) {
                counts[0] = before[0];
                counts[2] = before[1];
                low.x = low.y = high.x = high.y = beamring::MISSING_INT4 * 0x01010101u;
            }
            uint8_t *to = out + (low_offset + static_cast<unsigned>(8 * upper) * static_cast<unsigned>(w.X)),
                    *other =
                        out + (high_offset - static_cast<unsigned>(8 * upper) * static_cast<unsigned>(w.X));
            if (ALIGNED || w.wide_out) {
                *reinterpret_cast<uint2 *>(to) = low;
                *reinterpret_cast<uint2 *>(other) = high;
            } else {
                store_bytes(to, low.x);
                store_bytes(to + 4, low.y);
                store_bytes(other, high.x);
                store_bytes(other + 4, high.y);
            }
        }
    }
    add_counts(counts, w.clamped);
    end_after_previous();
}

} // namespace

#endif
