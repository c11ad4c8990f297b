/* pfb_u16.cuh - the filterbank for U up to 16 on any GPU: taps and transform are one band matrix, multiplied
 * by mma.sync.
 *
 * A chunk is 16 steps of input and so 16/U output steps of U/2 pairs of fine channels: 8 pairs, whose C
 * and S (gpu/convert.cuh) are the 16 rows of a product. The window of a row reaches over this chunk and
 * LAGS - 1 before it; the matrix of lag l (16 by 16) is what a chunk contributes to the rows of the l-th
 * chunk after it. A sample is unpacked once; sums of the next LAGS - 1 chunks stay in registers. Chunks
 * are counted from the start of the stream, not of the call, so that the way in which a sum is rounded
 * does not depend on the length of calls: a call that ends within a chunk leaves it to the next to be read
 * again.
 *
 * A warp has TILES * 8 samples of the row and loops along time alone, without barriers. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_MMA_PFB_U16_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_MMA_PFB_U16_CUH

#include "kernels/upchannelize/gpu/convert.cuh"

namespace
{

/* As measured: wide rows of tiles as long as their sums fit the registers. */
constexpr int u16_tiles(int lags)
{
    return lags <= 3 ? 8 : 4;
}

constexpr int u16_blocks(int lags)
{
    return lags <= 2 || lags == 4 ? 4 : lags <= 6 ? 3 : 2;
}

/* words [4][TILES/4]   simd: sample 1 0   register: time 3 2, sample 2   thread: sample 5 4 3 (of TILES * 8),
 * time 1 0 */
template <int TILES> struct u16_words {
    unsigned word[4][TILES / 4];
};

/* Chunks under way to the warps of a block. A lane reads only bytes that it has asked for itself, so that no
 * warp waits for another. */
constexpr int U16_RING = 4;
template <int TILES> struct u16_ring {
    uint8_t words[U16_RING][BR_PFB_U16_WARPS][4][32][TILES]; /* 4: time 3 2; 32: lanes */
};

/* Where a lane's four words of a chunk stand, 32 TILES bytes apart. */
template <int TILES> __device__ __forceinline__ uint8_t *place_of(u16_ring<TILES> &ring, int chunk)
{
    return &ring.words[chunk & (U16_RING - 1)][threadIdx.x / 32][0][threadIdx.x % 32][0];
}

/* Starts the copy of a chunk. column: the lane's; lane_offset: the same and the lane's time */
template <int TILES, bool ALIGNED>
__device__ __forceinline__ void begin_chunk(uint8_t *to, const tensor_work &w, int t, int column,
                                            unsigned lane_offset)
{
    if (t >= 0 && t + BR_PFB_CHUNK <= w.steps && (ALIGNED || w.wide_in)) {
        /* e: shape (T, row) -> after the chunk's and the lane's offset: shape (4, TILES), strides (4 row,
         * 1) */
        const uint8_t *rows = w.e + static_cast<size_t>(t) * w.row;
#pragma unroll
        for (int i = 0; i < 4; i++, rows += 4 * w.row)
            beamring::copy_async_line<TILES>(to + i * 32 * TILES, rows + lane_offset);
    } else {
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            /* what is after the call has coefficients of 0 in every row that is stored */
            const uint8_t *from =
                field_row(w, min(t + 4 * i + static_cast<int>(threadIdx.x) % 4, w.steps - 1)) + column;
#pragma unroll
            for (int k = 0; k < TILES; k += 4)
                *reinterpret_cast<unsigned *>(to + i * 32 * TILES + k) = load_bytes(from + k);
        }
    }
}

template <int TILES> __device__ __forceinline__ void read_chunk(u16_words<TILES> &to, const uint8_t *from)
{
#pragma unroll
    for (int i = 0; i < 4; i++, from += 32 * TILES)
        if constexpr (TILES == 8) {
            uint2 both = *reinterpret_cast<const uint2 *>(from);
            to.word[i][0] = both.x;
            to.word[i][TILES / 4 - 1] = both.y;
        } else {
            to.word[i][0] = *reinterpret_cast<const unsigned *>(from);
        }
}

template <int LAGS, int TILES> struct u16_filter {
    /* register: lag, the fragment's 4   thread: the fragment's */
    uint4 matrix[LAGS];
    /* sums of the chunk of that lag (sums[0]: this one), as far as they go.   simd: column0   register: lag,
     * tile, then C_re, S_re, C_im, S_im   thread: pair 2 1 0, column 2 1 */
    unsigned sums[LAGS > 1 ? LAGS - 1 : 1][TILES][4];
    uint4 start; /* what sums begin with */

    __device__ __forceinline__ void load(const tensor_work &w, int lane, int pair)
    {
#pragma unroll
        for (int lag = 0; lag < LAGS; lag++) matrix[lag] = __ldg(w.matrices + lag * 32 + lane);
        start = __ldg(w.starts + pair);
#pragma unroll
        for (int lag = 0; lag < (LAGS > 1 ? LAGS - 1 : 1); lag++)
#pragma unroll
            for (int j = 0; j < TILES; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) sums[lag][j][i] = 0;
    }

    /* One chunk; sum: this chunk's sums of one tile. */
    __device__ __forceinline__ void add(unsigned (&sum)[4], const u16_words<TILES> &words, int j)
    {
        unsigned re[2], im[2]; /* b: register: time 3 */
#pragma unroll
        for (int i = 0; i < 2; i++)
            unpack(re[i], im[i], words.word[2 * i][j / 4], words.word[2 * i + 1][j / 4], j % 4);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            unsigned b0 = part ? im[0] : re[0], b1 = part ? im[1] : re[1];
            unsigned c_start = part ? start.z : start.x, s_start = part ? start.w : start.y;
            bool alone = LAGS == 1;
            multiply(sum[2 * part], sum[2 * part + 1], matrix[0], b0, b1,
                     alone ? c_start : sums[0][j][2 * part], alone ? s_start : sums[0][j][2 * part + 1]);
#pragma unroll
            for (int lag = 1; lag < LAGS; lag++) {
                unsigned *to = &sums[lag - 1][j][2 * part];
                bool first = lag == LAGS - 1;
                const unsigned *from = &sums[first ? 0 : lag][j][2 * part];
                multiply(to[0], to[1], matrix[lag], b0, b1, first ? c_start : from[0],
                         first ? s_start : from[1]);
            }
        }
    }

    /* One chunk, and its output.
     * low, high [TILES/2]: words of the tiles' first samples, then of their second
     * counts: of clamped values */
    __device__ __forceinline__ void quantize(unsigned (&low)[TILES / 2], unsigned (&high)[TILES / 2],
                                             const u16_words<TILES> &words, const pair_rules &rules,
                                             float (&counts)[4])
    {
#pragma unroll
        for (int four = 0; four < TILES / 4; four++) {
            unsigned low_tile[4], high_tile[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                unsigned sum[4];
                add(sum, words, four * 4 + j);
                quantize_tile(low_tile[j], high_tile[j], sum[0], sum[1], sum[2], sum[3], rules, counts);
            }
            uint2 bytes = to_bytes(low_tile);
            low[four] = bytes.x;
            low[TILES / 4 + four] = bytes.y;
            bytes = to_bytes(high_tile);
            high[four] = bytes.x;
            high[TILES / 4 + four] = bytes.y;
        }
    }
};

/* A lane's words of a fine channel and of the one that mirrors it. wide: to is a multiple of their size. */
template <int TILES>
__device__ __forceinline__ void store_words(uint8_t *to, uint8_t *mirror, const unsigned (&low)[TILES / 2],
                                            const unsigned (&high)[TILES / 2], bool wide)
{
    if (!wide) {
#pragma unroll
        for (int i = 0; i < TILES / 2; i++) {
            store_bytes(to + 4 * i, low[i]);
            store_bytes(mirror + 4 * i, high[i]);
        }
    } else if constexpr (TILES == 8) {
        *reinterpret_cast<uint4 *>(to) = make_uint4(low[0], low[1], low[2], low[3]);
        *reinterpret_cast<uint4 *>(mirror) = make_uint4(high[0], high[1], high[2], high[3]);
    } else {
        *reinterpret_cast<uint2 *>(to) = make_uint2(low[0], low[1]);
        *reinterpret_cast<uint2 *>(mirror) = make_uint2(high[0], high[1]);
    }
}

/* Grid: pieces of the row, and pieces of the time, of which the first keeps the history instead. ALIGNED:
 * loads and stores are wide without a test. */
template <int LAGS, int TILES, bool ALIGNED>
__global__ void __launch_bounds__(BR_PFB_U16_WARPS * 32, u16_blocks(LAGS)) mma_pfb_u16(const tensor_work w)
{
    constexpr int SPAN = TILES * 8;
    int lane = static_cast<int>(threadIdx.x) % 32, pair = lane / 4, half = w.U / 2,
        per_chunk = BR_PFB_CHUNK / w.U;
    int base = (static_cast<int>(blockIdx.x) * BR_PFB_U16_WARPS + static_cast<int>(threadIdx.x) / 32) * SPAN;
    let_next_begin();
    if (blockIdx.y == 0) {
        remember(w, static_cast<int>(blockIdx.x) * BR_PFB_U16_WARPS * SPAN, BR_PFB_U16_WARPS * SPAN);
        end_after_previous();
        return;
    }
    if (base >= w.width) {
        end_after_previous();
        return;
    }
    int chunk = (w.phase + w.first) / per_chunk + static_cast<int>(blockIdx.y - 1) * w.each,
        end = min((w.phase + w.last + per_chunk - 1) / per_chunk, chunk + w.each);
    int column = base + static_cast<int>(br_pfb_sample(TILES, static_cast<unsigned>(pair), 0));
    unsigned lane_offset =
        static_cast<unsigned>(lane % 4) * static_cast<unsigned>(w.row) + static_cast<unsigned>(column);
    auto step_of = [&](int c) { return c * BR_PFB_CHUNK - w.phase * w.U; };

    u16_filter<LAGS, TILES> filter;
    filter.load(w, lane, pair);
    int u = pair % half;
    const pair_rules rules = {__ldg(w.rules + u), __ldg(w.rules + w.U - 1 - u)};
    float counts[4] = {0, 0, 0, 0};

    __shared__ __align__(16) u16_ring<TILES> ring;
    u16_words<TILES> words;
    auto begin = [&](int c) {
        if (c < end) begin_chunk<TILES, ALIGNED>(place_of(ring, c), w, step_of(c), column, lane_offset);
        beamring::copy_async_commit();
    };
    auto await = [&](int c) {
        beamring::copy_async_wait<U16_RING - 2>();
        read_chunk<TILES>(words, place_of(ring, c));
        begin(c + U16_RING - 1);
    };
#pragma unroll 1
    for (int c = 0; c < U16_RING - 1; c++) begin(chunk - (LAGS - 1) + c);
#pragma unroll 1
    for (int c = chunk - (LAGS - 1); c < chunk; c++) {
        await(c);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            unsigned sum[4];
            filter.add(sum, words, j);
        }
    }

    /* out: shape (T/U, F, U, X), contiguous
     * after the chunk's and the lane's offset: shape (2, 2 TILES), strides (from u to U-1-u, 1), for each
     * chunk */
    int block = chunk * per_chunk - w.phase + pair / half;
    size_t f = static_cast<size_t>(base) / w.X, x = base - f * w.X + br_pfb_sample(TILES, lane % 4 * 2, 0),
           channel = static_cast<size_t>(pair / half) * w.width * w.U + f * w.U * w.X + x;
    unsigned low_offset = static_cast<unsigned>(channel + u * w.X),
             high_offset = static_cast<unsigned>(channel + (w.U - 1 - u) * w.X);
    uint8_t *out = w.out + static_cast<ptrdiff_t>(step_of(chunk)) * w.width;

#pragma unroll 1
    for (; chunk < end; chunk++, block += per_chunk, out += static_cast<size_t>(w.width) * BR_PFB_CHUNK) {
        await(chunk);
        bool inside = block >= w.first && block < w.last,
             kept = inside &&
                    (w.missing == nullptr || !w.missing[static_cast<size_t>(block - w.first) * w.F + f]);
        float before[2] = {counts[0], counts[2]};
        unsigned low[TILES / 2], high[TILES / 2];
        filter.quantize(low, high, words, rules, counts);
        if (!kept) {
            counts[0] = before[0];
            counts[2] = before[1];
#pragma unroll
            for (int i = 0; i < TILES / 2; i++) low[i] = high[i] = beamring::MISSING_INT4 * 0x01010101u;
        }
        if (!inside) continue;
        store_words<TILES>(out + low_offset, out + high_offset, low, high, ALIGNED || w.wide_out);
    }
    add_counts(counts, w.clamped);
    end_after_previous();
}

} // namespace

#endif
