/* pfb_u32up.cuh - the filterbank for U of 32 and more and up to 4 taps: taps in registers, the transform on
 * tensor cores.
 *
 * With j the time within a block, z[j] = sum_m (-1)^m W[m U + j] E[(t - M + 1 + m) U + j] and psi_j the phase
 * of fine channel u at j, wanted are C = sum_j cos(psi_j) z[j] and S = sum_j sin(psi_j) z[j]
 * (gpu/convert.cuh). As psi(U - j) = pi (U - 1 - 2u) - psi(j), an odd multiple of pi less psi(j), half the
 * products are enough:
 *
 *   C = z[0]                   + sum_{j=1}^{U/2-1} cos(psi_j) (z[j] - z[U-j])
 *   S = sin(psi_{U/2}) z[U/2]  + sum_{j=1}^{U/2-1} sin(psi_j) (z[j] + z[U-j])
 *
 * A block of threads has SPAN samples of the row and loops along time, STEPS output steps between barriers.
 * Filter: a thread has two pairs of times (j, j + 1 and their partners U - j, U - j - 1) of four samples;
 * each sample is unpacked once and added to running sums, whose differences and sums go to shared shared_
 * Transform: a warp has 16 pairs of fine channels of half the samples. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_MMA_PFB_U32UP_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_MMA_PFB_U32UP_CUH

#include "kernels/upchannelize/gpu/convert.cuh"

namespace
{

template <int U> struct u32up_shape {
    static constexpr int THREADS = 4 * U, BLOCKS = U == 32 ? 3 : U == 64 ? 2 : 1;
    static constexpr int STEPS = U / 32; /* products of 16 times and their partners */
    static constexpr bool SHARED_MATRICES = U >= 64;
    static constexpr size_t FIELD = sizeof(unsigned) * 4 * (U / 4) * BR_PFB_U32UP_SPAN; /* one output step */
    static constexpr size_t MATRICES = SHARED_MATRICES ? sizeof(uint4) * 32 * 2 * STEPS * STEPS : 0;
    static constexpr size_t SHARED =
        2 * BR_PFB_U32UP_STEPS * FIELD + MATRICES + (U / 4) * 3 * sizeof(uint4) + U * sizeof(uint2);
};

/* words [4]   simd: sample 1 0   register: time (j, j + 1, partners of both)
 *             thread: sample 5 4 3 2, then j / 2 */
template <int U> struct u32up_words {
    unsigned word[4];
};

struct u32up_position {
    int column;
    unsigned time[4];   /* j, j + 1, the partners of both */
    unsigned offset[4]; /* of these times and the column, from a block's first row on */
};

/* ALIGNED: loads are wide and block >= 0, without a test. */
template <int U, bool ALIGNED>
__device__ __forceinline__ void load_u32up(u32up_words<U> &to, const tensor_work &w, const u32up_position &p,
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

/* A pair of times' tables, in shared memory   simd: time 0
 * taps    [j and j + 1, then their partners][tap]
 * starts  what sums begin with: re and im of j and j + 1, then of their partners */
struct u32up_taps {
    unsigned taps[2][BR_PFB_U32UP_TAPS], starts[4];
};

template <int U> struct u32up_filter {
    /* of the next outputs   simd: time 0   register: output, sample 1 0, then re, im of j, re, im of
     * partners */
    unsigned sums[BR_PFB_U32UP_TAPS - 1][4][4];

    __device__ __forceinline__ void start(const u32up_taps &t)
    {
#pragma unroll
        for (int m = 0; m < BR_PFB_U32UP_TAPS - 1; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) sums[m][i][k] = t.starts[k];
    }

    /* z of sample i: re, im of j and j + 1, re, im of their partners */
    __device__ __forceinline__ void add(unsigned (&z)[4], const u32up_words<U> &input, int i,
                                        const u32up_taps &t)
    {
        unsigned field[4];
        unpack(field[0], field[1], input.word[0], input.word[1], i);
        unpack(field[2], field[3], input.word[2], input.word[3], i);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const unsigned(&tap)[BR_PFB_U32UP_TAPS] = t.taps[k / 2];
            z[k] = fma2(tap[3], field[k], sums[0][i][k]);
            sums[0][i][k] = fma2(tap[2], field[k], sums[1][i][k]);
            sums[1][i][k] = fma2(tap[1], field[k], sums[2][i][k]);
            sums[2][i][k] = fma2(tap[0], field[k], t.starts[k]);
        }
    }
};

/* One output step to shared memory: differences and sums of the times and their partners. both: 1 for times
 * that have a partner other than themselves, else 0. */
template <int U>
__device__ __forceinline__ void filter_to_shared(unsigned *field, u32up_filter<U> &filter,
                                                 const u32up_words<U> &input, const u32up_taps &taps,
                                                 int pair, int quad, unsigned both)
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
        *reinterpret_cast<uint4 *>(field + br_pfb_u32up_place(U, plane, static_cast<unsigned>(pair),
                                                              static_cast<unsigned>(quad))) = planes[plane];
}

/* Sums of a warp   simd: column 0   register: tile, then C_re, S_re, C_im, S_im, then row3
 *                  thread: row 2 1 0, column 2 1 */
template <int U> using u32up_sums = unsigned[BR_PFB_U32UP_TILES][4][2];

template <int U, class MATRIX>
__device__ __forceinline__ void transform_u32up(u32up_sums<U> &sums, const unsigned *field, int half,
                                                MATRIX matrix)
{
    using s = u32up_shape<U>;
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
                    b[i] = *reinterpret_cast<const uint4 *>(
                        field + br_pfb_u32up_place(U, 2 * is_sin + part, step * 8 + i * 4 + lane % 4,
                                                   half * 8 + lane / 4));
                auto tile_of = [&](int i, int j) {
                    return j == 0 ? b[i].x : j == 1 ? b[i].y : j == 2 ? b[i].z : b[i].w;
                };
#pragma unroll
                for (int j = 0; j < BR_PFB_U32UP_TILES; j++) {
                    unsigned(&sum)[2] = sums[j][2 * part + is_sin];
                    multiply_8(sum[0], sum[1], a.x, a.y, tile_of(0, j), step > 0 ? sum[0] : 0,
                               step > 0 ? sum[1] : 0);
                    multiply_8(sum[0], sum[1], a.z, a.w, tile_of(1, j), sum[0], sum[1]);
                }
            }
        }
}

/* The epilogue of one output step: sums of a warp to bytes in global shared_ kept: they are not missing;
 * counts: of clamped values. out: shape (T/U, F, U, X), contiguous -> after the step's, the block's and the
 * lane's offset (low_offset; high_offset for U-1-u): shape (2, 8), strides
 *    (8 X, 1); the 2 of row3 run towards each other for U-1-u */
template <int U, bool ALIGNED>
__device__ __forceinline__ void store_u32up(const tensor_work &w, const u32up_sums<U> &sums, uint8_t *out,
                                            int u, unsigned low_offset, unsigned high_offset,
                                            const uint2 *rules_of, bool kept, float (&counts)[4])
{
    float before[2] = {counts[0], counts[2]};
#pragma unroll
    for (int upper = 0; upper < 2; upper++) {
        const pair_rules rules = {rules_of[u + 8 * upper], rules_of[U - 1 - u - 8 * upper]};
        unsigned low_tile[4], high_tile[4];
#pragma unroll
        for (int j = 0; j < BR_PFB_U32UP_TILES; j++)
            quantize_tile(low_tile[j], high_tile[j], sums[j][0][upper], sums[j][1][upper], sums[j][2][upper],
                          sums[j][3][upper], rules, counts);
        uint2 low = to_bytes(low_tile), high = to_bytes(high_tile);
        if (!kept) {
            counts[0] = before[0];
            counts[2] = before[1];
            low.x = low.y = high.x = high.y = beamring::MISSING_INT4 * 0x01010101u;
        }
        uint8_t *to = out + (low_offset + static_cast<unsigned>(8 * upper) * static_cast<unsigned>(w.X)),
                *other = out + (high_offset - static_cast<unsigned>(8 * upper) * static_cast<unsigned>(w.X));
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

/* A pair of times' tables, read again in each iteration, because registers are full.
 * shared: shape (U/4, 3), u32up_taps */
__device__ __forceinline__ void read_taps(u32up_taps &to, const uint4 *shared, int pair)
{
    uint4 a = shared[pair * 3], b = shared[pair * 3 + 1], c = shared[pair * 3 + 2];
    to = {{{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}}, {c.x, c.y, c.z, c.w}};
}

__device__ __forceinline__ u32up_position u32up_position_of(const tensor_work &w, unsigned factor, int pair,
                                                            int column)
{
    u32up_position p;
    p.column = column;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned j = 2 * static_cast<unsigned>(pair) + i % 2;
        p.time[i] = i < 2 ? j : br_pfb_u32up_partner(factor, j);
        p.offset[i] = p.time[i] * static_cast<unsigned>(w.row) + static_cast<unsigned>(p.column);
    }
    return p;
}

/* Grid: pieces of SPAN samples of the row, and pieces of the time, of which the first keeps the history
 * instead. ALIGNED: loads and stores are wide without a test. */
template <int U, bool ALIGNED>
__global__ void __launch_bounds__(u32up_shape<U>::THREADS, u32up_shape<U>::BLOCKS)
    mma_pfb_u32up(const tensor_work w)
{
    using s = u32up_shape<U>;
    extern __shared__ uint4 shared[]; /* fields [2][STEPS][4 planes][U/4][SPAN], matrices, taps, rules */
    unsigned *fields = reinterpret_cast<unsigned *>(shared);
    uint4 *shared_matrices = shared + 2 * BR_PFB_U32UP_STEPS * s::FIELD / sizeof(uint4),
          *shared_taps = shared_matrices + s::MATRICES / sizeof(uint4); /* [U/4][3]: u32up_taps */
    uint2 *shared_rules = reinterpret_cast<uint2 *>(shared_taps + U / 4 * 3);
    int lane = static_cast<int>(threadIdx.x) % 32, quad = static_cast<int>(threadIdx.x) % 16,
        pair = static_cast<int>(threadIdx.x) / 16, base = static_cast<int>(blockIdx.x) * BR_PFB_U32UP_SPAN;
    let_next_begin();
    if (blockIdx.y == 0) {
        remember(w, base, BR_PFB_U32UP_SPAN);
        end_after_previous();
        return;
    }
    int block = w.first + static_cast<int>(blockIdx.y - 1) * w.each, end = min(w.last, block + w.each);
    const u32up_position p = u32up_position_of(w, U, pair, base + quad * 4);
    unsigned both = pair == 0 ? 0x3c000000u : 0x3c003c00u;

    const struct br_pfb_u32up_share share = br_pfb_u32up_share(threadIdx.x / 32);
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
    u32up_filter<U> filter;
    u32up_taps taps;
    read_taps(taps, shared_taps, pair);
    filter.start(taps);
    u32up_words<U> words[BR_PFB_U32UP_STEPS];
    for (int before = min(w.M, BR_PFB_U32UP_TAPS) - 1; before > 0; before--) {
        load_u32up<U, false>(words[0], w, p, block - before);
        unsigned z[4];
#pragma unroll
        for (int i = 0; i < 4; i++) filter.add(z, words[0], i, taps);
    }
#pragma unroll
    for (int t = 0; t < BR_PFB_U32UP_STEPS; t++)
        load_u32up<U, ALIGNED>(words[t], w, p, min(block + t, end - 1));

    int u = static_cast<int>(share.rows) * 16 + lane / 4;
    size_t f = static_cast<size_t>(base) / w.X, x = base - f * w.X + share.half * (BR_PFB_U32UP_SPAN / 2) +
                                                    br_pfb_sample(BR_PFB_U32UP_TILES, lane % 4 * 2, 0);
    unsigned low_offset = static_cast<unsigned>((f * U + u) * w.X + x),
             high_offset = static_cast<unsigned>((f * U + U - 1 - u) * w.X + x);
    float counts[4] = {0, 0, 0, 0};
    int buffer = 0;
#pragma unroll 1
    for (; block < end; block += BR_PFB_U32UP_STEPS, buffer ^= 1) {
        unsigned *field = fields + buffer * (BR_PFB_U32UP_STEPS * s::FIELD / sizeof(unsigned));
        asm volatile("" ::: "memory");
        read_taps(taps, shared_taps, pair);
#pragma unroll
        for (int t = 0; t < BR_PFB_U32UP_STEPS; t++) {
            filter_to_shared<U>(field + t * (s::FIELD / sizeof(unsigned)), filter, words[t], taps, pair, quad,
                                both);
            if (block + BR_PFB_U32UP_STEPS < end)
                load_u32up<U, ALIGNED>(words[t], w, p, min(block + BR_PFB_U32UP_STEPS + t, end - 1));
        }
        __syncthreads();
        int mine = block + static_cast<int>(share.step);
        if (mine >= end) continue;
        u32up_sums<U> sums;
        transform_u32up<U>(sums, field + share.step * (s::FIELD / sizeof(unsigned)),
                           static_cast<int>(share.half), matrix);
        bool kept = w.missing == nullptr || !w.missing[static_cast<size_t>(mine - w.first) * w.F + f];
        uint8_t *out = w.out + static_cast<size_t>(mine) * (static_cast<size_t>(w.width) * U);
        store_u32up<U, ALIGNED>(w, sums, out, u, low_offset, high_offset, shared_rules, kept, counts);
    }
    add_counts(counts, w.clamped);
    end_after_previous();
}

} // namespace

#endif
