/* tile.cuh - the beamformer on any GPU, the parts of its kernel (beamform.cuh): for each channel and
 * polarisation a product of matrices on the int8 tensor cores.
 *
 * A block forms a tile of 16 MT beams (MT of 1 to 4) by 128 times, each of its 4 warps 32 of the times;
 * dishes go in chunks of 128, with a double buffer: while it multiplies one chunk, the next one (of the next
 * tile after the last) is on its way to shared memory. The kernel is persistent: a block takes every
 * gridDim.x-th tile. Several blocks share a multiprocessor, so that one multiplies while another one waits or
 * writes.
 *
 * The field stays packed until it is in registers, where four dishes' bytes become 16 re and 16 im by a shift
 * and a mask, and
 *
 *   16 J_re = sum_d A_re (16 E_re) + A_im (16 (-E_im - 1)) + 16 sum_d A_im
 *   16 J_im = sum_d A_re (16 E_im) + A_im (16 E_re),
 *
 * exact in 32 bits up to 65536 dishes (65536 * 2 * 127 * 128 < 2^31). The tensor core sums over k in any
 * order: which dish is which k is chosen so that a thread reads 8 consecutive dishes of the field at once;
 * the weights are arranged to match on the host. The order of times is chosen likewise, so that a thread ends
 * up with 8 consecutive times of a beam. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_MMA_TILE_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_MMA_TILE_CUH

#include "kernels/baseband/gpu/mma/layout.h"
#include "kernels/common/device.cuh"

#include <stddef.h>
#include <stdint.h>

namespace beamring::baseband
{

/* As in layout.h. */
constexpr int TIMES = BR_TILE_TIMES, DISHES = BR_TILE_DISHES;
constexpr int ROWS = BR_TILE_ROWS, STEP = BR_TILE_STEP, FEW = BR_TILE_FEW;
constexpr int THREADS = BR_TILE_THREADS, COLUMNS = BR_TILE_COLUMNS, FRAGMENT = BR_TILE_FRAGMENT;
constexpr int LARGEST = BR_TILE_LARGEST;
constexpr int STAGES = 2;

/* Blocks of which registers are to be left for one multiprocessor. */
constexpr int resident(int mt)
{
    return mt == 1 ? 5 : mt <= 3 ? 3 : 2;
}

/* One chunk. */
template <int MT, int CHUNK> struct stage {
    uint8_t field[TIMES][CHUNK]; /* int4+4; 16-byte pieces of a row are at br_tile_field_place */
    /* [16 beams][step][re, im], each in the order of the MMA's registers */
    uint8_t weights[MT][CHUNK / STEP][2][FRAGMENT];
};

template <int MT, class STAGE = stage<MT, DISHES>> struct shared {
    STAGE stages[STAGES];
    uint8_t out[MT * ROWS * BR_TILE_OUT_ROW]; /* at br_tile_out_place */
    unsigned clamped[MT * ROWS];
};

/* The arguments of a launch. */
struct work {
    const uint8_t *e;       /* [T][F][P][D] */
    const uint8_t *valid;   /* [T][F] or NULL */
    const uint8_t *weights; /* [weight channel * P][16 beams][steps][re, im][FRAGMENT] */
    /* [weight channel * P][16 beams][ROWS]: added to J_re, added to J_im, shift, 2^-(shift + 8) as a float */
    const int4 *rounding;
    uint8_t *out;                        /* [B][F][P][T] */
    unsigned long long *clamped, *total; /* [B], [1] */
    size_t T, F, P, B, D;
    bool shared_weights;     /* one weight channel */
    bool wide_in, wide_out;  /* pieces of 16 bytes of e, of out, are aligned; of powers: sums of 16 samples */
    unsigned chunks, groups; /* of dishes; of 16 beams */
    unsigned beam_tiles, tiles;
    unsigned step_time, step_fp, step_beam; /* from a block's tile to its next one */
};

/* The persistent loop over a block's chunks: tiles blockIdx.x, blockIdx.x + gridDim.x, ..., all chunks of
 * each. Tiles are numbered [time][channel and polarisation][beams]: blocks that run together share cache
 * lines of the field, or its rows. */
struct place_in_work {
    unsigned tile, chunk;
    unsigned time_tile, beam_tile, fp, wp; /* wp: whose weights */

    __device__ __forceinline__ size_t time() const { return static_cast<size_t>(time_tile) * TIMES; }
    /* How many of the tile's times there are. */
    __device__ __forceinline__ int times(const work &w) const
    {
        return static_cast<int>(min(static_cast<size_t>(TIMES), w.T - time()));
    }
    /* How many dishes there are from the chunk's first on; at most the chunk's. */
    template <int CHUNK> __device__ __forceinline__ int dishes(const work &w) const
    {
        return static_cast<int>(min(static_cast<size_t>(CHUNK), w.D - static_cast<size_t>(chunk) * CHUNK));
    }
    __device__ __forceinline__ void start(const work &w)
    {
        unsigned rest = blockIdx.x / w.beam_tiles, pairs = static_cast<unsigned>(w.F * w.P);
        tile = blockIdx.x;
        chunk = 0;
        beam_tile = tile % w.beam_tiles;
        time_tile = rest / pairs;
        fp = rest % pairs;
        wp = w.shared_weights ? fp % static_cast<unsigned>(w.P) : fp;
    }
    __device__ __forceinline__ void advance(const work &w)
    {
        if (++chunk < w.chunks) return;
        unsigned pairs = static_cast<unsigned>(w.F * w.P);
        chunk = 0;
        tile += gridDim.x;
        time_tile += w.step_time, fp += w.step_fp, beam_tile += w.step_beam;
        if (beam_tile >= w.beam_tiles) beam_tile -= w.beam_tiles, fp++;
        if (fp >= pairs) fp -= pairs, time_tile++;
        wp = w.shared_weights ? fp % static_cast<unsigned>(w.P) : fp;
    }
};

/* Starts the copies of one chunk. All threads take part. */
template <int MT, int CHUNK>
__device__ __forceinline__ void load(stage<MT, CHUNK> &to, const work &w, const place_in_work &at)
{
    /* e: shape (T, F P, D), contiguous
     * after the tile's, the chunk's and the thread's offsets: shape (TIMES, 16), strides (F P D, 1), fewer of
     * both at the ends */
    constexpr int PASS_ROWS = THREADS / (CHUNK / 16);
    int piece = br_tile_copy_piece(CHUNK, static_cast<int>(threadIdx.x));
    int first_row = br_tile_copy_row(CHUNK, static_cast<int>(threadIdx.x), 0);
    int times = at.times(w), here = at.dishes<CHUNK>(w), dishes = here - piece * 16; /* from this piece on */
    size_t row_stride = w.F * w.P * w.D;
    const uint8_t *e =
        w.e + (at.time() * w.F * w.P + at.fp) * w.D + static_cast<size_t>(at.chunk) * CHUNK + piece * 16;

    if (w.wide_in) {
        /* 8 threads read the 128 bytes of a row, a warp 4 rows; or 4 threads 64 bytes. */
        const uint8_t *from = e + first_row * row_stride;
        if (times == TIMES && here == CHUNK) {
#pragma unroll
            for (int row = first_row; row < first_row + TIMES;
                 row += PASS_ROWS, from += PASS_ROWS * row_stride)
                copy_async_16(to.field[row] + br_tile_field_place(CHUNK, row, piece), from, true);
        } else {
#pragma unroll 1
            for (int row = first_row; row < TIMES; row += PASS_ROWS, from += PASS_ROWS * row_stride) {
                bool inside = row < times && dishes > 0;
                copy_async_16(to.field[row] + br_tile_field_place(CHUNK, row, piece), inside ? from : w.e,
                              inside);
            }
        }
    } else {
        /* Rows begin anywhere: byte by byte. Padding dishes become zero, as their weights are. */
#pragma unroll 1
        for (int row = first_row; row < TIMES; row += PASS_ROWS) {
            unsigned words[4] = {};
            if (row < times)
#pragma unroll
                for (int i = 0; i < 16; i++)
                    if (i < dishes)
                        words[i / 4] |= static_cast<unsigned>(e[row * row_stride + i]) << i % 4 * 8;
            *reinterpret_cast<uint4 *>(to.field[row] + br_tile_field_place(CHUNK, row, piece)) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }

    /* weights: shape (channels, groups, chunks, BYTES), contiguous
     * after the tile's and the chunk's offsets: shape (MT, BYTES), strides (chunks BYTES, 1)
     * All threads together copy 2 steps of 16 beams at a time, the second 2 only where there are such
     * dishes. */
    constexpr int BYTES = CHUNK / STEP * 2 * FRAGMENT, PASS = THREADS * 16;
    static_assert(PASS == 2 * 2 * FRAGMENT && BYTES <= 2 * PASS, "a pass of the block copies two steps");
    size_t group = static_cast<size_t>(at.wp) * w.groups + static_cast<size_t>(at.beam_tile) * MT;
    const uint8_t *weights = w.weights + (group * w.chunks + at.chunk) * BYTES + threadIdx.x * 16;
    bool both = CHUNK > 2 * STEP && here > 2 * STEP;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        uint8_t *target = &to.weights[i][0][0][0] + threadIdx.x * 16;
        const uint8_t *source = weights + static_cast<size_t>(i) * w.chunks * BYTES;
        copy_async_16(target, source, true);
        if (both) copy_async_16(target + PASS, source + PASS, true);
    }
}

/* Adds the first `steps` times 32 dishes of a chunk to the sums of a warp: 16 MT beams by 32 times.
 *   re, im [m][j][r]  register: m1 m0 <-> beam5 beam4, j1 j0 <-> time2 time1, r1 r0 <-> beam3 time0
 *                     thread:   t4 t3 t2 t1 t0 <-> beam2 beam1 beam0 time4 time3
 *                     warp:     w1 w0 <-> time6 time5 */
template <int MT, int CHUNK>
__device__ __forceinline__ void multiply(const stage<MT, CHUNK> &from, int steps, int (&re)[MT][COLUMNS][4],
                                         int (&im)[MT][COLUMNS][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    /* The time of the column of which this thread holds a part, in the first of the MMAs next to each other;
     * 2, 4 and 6 later in the next ones, at the same place in their rows. */
    int row = br_tile_time(warp, 0, lane / 4);

#pragma unroll 2
    for (int step = 0; step < steps; step++) {
        /* e_re, e_im, e_not_im [j][r]
         *   simd: b1 b0 <-> dish1 dish0   register: j1 j0 <-> time2 time1, r0 <-> dish2
         *   thread: t4 t3 t2 t1 t0 <-> time4 time3 time0 dish4 dish3   warp: w1 w0 <-> time6 time5 */
        unsigned e_re[COLUMNS][2], e_im[COLUMNS][2], e_not_im[COLUMNS][2];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const uint8_t *dishes = from.field[row + 2 * j] + br_tile_field_read(CHUNK, row, step, lane);
            uint2 packed = *reinterpret_cast<const uint2 *>(dishes);
            e_re[j][0] = int4x4_re16(packed.x);
            e_re[j][1] = int4x4_re16(packed.y);
            e_im[j][0] = int4x4_im16(packed.x);
            e_im[j][1] = int4x4_im16(packed.y);
            e_not_im[j][0] = int4x4_not_im16(packed.x);
            e_not_im[j][1] = int4x4_not_im16(packed.y);
        }
#pragma unroll
        for (int m = 0; m < MT; m++) {
            /* a_re, a_im  simd: b1 b0 <-> dish1 dish0   register: r1 r0 <-> dish2 beam3
             *             thread: t4 t3 t2 t1 t0 <-> beam2 beam1 beam0 dish4 dish3 */
            const uint8_t(*weights)[FRAGMENT] = from.weights[m][step];
            uint4 a_re = *reinterpret_cast<const uint4 *>(weights[0] + br_tile_weight_place(lane, 0, 0));
            uint4 a_im = *reinterpret_cast<const uint4 *>(weights[1] + br_tile_weight_place(lane, 0, 0));
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) mma_s8(re[m][j], a_re, e_re[j]);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) mma_s8(im[m][j], a_re, e_im[j]);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) mma_s8(re[m][j], a_im, e_not_im[j]);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) mma_s8(im[m][j], a_im, e_re[j]);
        }
    }
}

/* Bit i: time i of the thread's 8 exists and is not missing. */
__device__ __forceinline__ unsigned find_live(const work &w, const place_in_work &at, int first_time)
{
    if (w.valid == nullptr && first_time + 8 <= at.times(w)) return 255;
    size_t channel = at.fp / static_cast<unsigned>(w.P);
    int times = at.times(w);
    unsigned live = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int t = first_time + i;
        if (t < times && (w.valid == nullptr || w.valid[(at.time() + t) * w.F + channel])) live |= 1u << i;
    }
    return live;
}

__device__ __forceinline__ int round_and_clamp(int sum16, int added, int shift, bool counts,
                                               unsigned &clamped)
{
    int value = ((sum16 >> 4) + added) >> shift, kept = max(-7, min(7, value));
    if (counts && value != kept) clamped++;
    return kept;
}

/* The epilogue: sums to bytes in shared memory; zeroes the sums. */
template <int MT>
__device__ __forceinline__ void round_sums(shared<MT> &sh, const work &w, const place_in_work &at,
                                           int (&re)[MT][COLUMNS][4], int (&im)[MT][COLUMNS][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int first_time = br_tile_first_time(warp, lane); /* of this thread's 8 in the tile */
    unsigned live = find_live(w, at, first_time);
    /* rounding: shape (channels, groups, ROWS) -> after the tile's offset: shape (MT ROWS,), contiguous */
    const int4 *rounding =
        w.rounding + (static_cast<size_t>(at.wp) * w.groups + static_cast<size_t>(at.beam_tile) * MT) * ROWS;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            int beam = br_tile_beam(m, upper, lane);
            int4 r = rounding[beam];
            unsigned clamped = 0, bytes[2] = {};
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int &sum_re = re[m][j][upper * 2 + i], &sum_im = im[m][j][upper * 2 + i];
                    bool is_live = live >> (j * 2 + i) & 1;
                    int low = round_and_clamp(sum_re, r.x, r.z, is_live, clamped);
                    int high = round_and_clamp(sum_im, r.y, r.z, is_live, clamped);
                    bytes[j / 2] |= (is_live ? pack_int4(low, high) : MISSING_INT4) << (j % 2 * 2 + i) * 8;
                    sum_re = sum_im = 0;
                }
            /* bytes[r]  simd: b1 b0 <-> time1 time0   register: r0 <-> time2
             *           thread: t4 t3 t2 t1 t0 <-> beam2 beam1 beam0 time4 time3
             *           warp: w1 w0 <-> time6 time5 */
            *reinterpret_cast<uint2 *>(&sh.out[br_tile_out_place(beam, first_time)]) =
                make_uint2(bytes[0], bytes[1]);
            clamped += __shfl_xor_sync(WHOLE_WARP, clamped, 1);
            clamped += __shfl_xor_sync(WHOLE_WARP, clamped, 2);
            if (lane % 4 == 0 && clamped > 0) atomicAdd(&sh.clamped[beam], clamped);
        }
}

/* Counts from shared to global memory. They are integers: the order in which blocks add them does not
 * matter. */
template <int MT, class STAGE>
__device__ __forceinline__ void store_counts(shared<MT, STAGE> &sh, const work &w, size_t first_beam)
{
    constexpr int BEAMS = MT * ROWS;
    unsigned clamped = 0;
    if (threadIdx.x < BEAMS) {
        clamped = sh.clamped[threadIdx.x];
        sh.clamped[threadIdx.x] = 0;
        if (clamped > 0)
            atomicAdd(&w.clamped[first_beam + threadIdx.x], static_cast<unsigned long long>(clamped));
    }
    unsigned sum = __reduce_add_sync(WHOLE_WARP, clamped);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(w.total, static_cast<unsigned long long>(sum));
}

/* Bytes and counts from shared to global memory. */
template <int MT, class STAGE>
__device__ __forceinline__ void store(shared<MT, STAGE> &sh, const work &w, const place_in_work &at)
{
    constexpr int BEAMS = MT * ROWS;
    static_assert(BEAMS <= THREADS, "a thread for each beam's count");
    size_t first_beam = static_cast<size_t>(at.beam_tile) * BEAMS,
           beams = min(static_cast<size_t>(BEAMS), w.B - first_beam);
    /* out: shape (B, F P, T), contiguous
     * after the tile's offset: shape (BEAMS, TIMES), strides (F P T, 1), fewer of both at the ends */
    uint8_t *out = w.out + (first_beam * w.F * w.P + at.fp) * w.T + at.time();
    size_t row_stride = w.F * w.P * w.T;
    int times = at.times(w);

    if (w.wide_out) {
        /* 8 threads write the 128 bytes of a beam. */
        int piece = br_tile_copy_piece(TIMES, static_cast<int>(threadIdx.x)) * 16;
        for (int beam = br_tile_copy_row(TIMES, static_cast<int>(threadIdx.x), 0); beam < beams;
             beam += THREADS / (TIMES / 16))
            if (piece < times)
                *reinterpret_cast<uint4 *>(out + beam * row_stride + piece) =
                    *reinterpret_cast<uint4 *>(&sh.out[br_tile_out_place(beam, piece)]);
    } else {
        for (int beam = static_cast<int>(threadIdx.x) / 32; beam < beams; beam += THREADS / 32)
            for (int t = static_cast<int>(threadIdx.x) % 32; t < times; t += 32)
                out[beam * row_stride + t] = sh.out[br_tile_out_place(beam, t)];
    }

    store_counts(sh, w, first_beam);
}

} // namespace beamring::baseband

#endif
