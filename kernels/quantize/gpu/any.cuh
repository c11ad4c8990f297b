/* any.cuh - the quantizer for any shape and alignment. A block of threads takes 64 beams of a channel, a lane
 * 2 of them; its 8 warps share the time steps.
 *
 * Sums of differences from the first valid sample, and of their squares, give mean and variance. Where that
 * sample lies far from the mean, a second pass sums differences from the mean, as on the CPU. The order of
 * the sums is fixed: 32 steps of a warp, the warp's sums of those, the warps. A last pass makes the levels
 * and transposes them through shared memory into rows of time. Blocks of time that fit are kept in shared
 * memory, so that the input is read once. */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_ANY_CUH
#define BEAMRING_KERNELS_QUANTIZE_GPU_ANY_CUH

#include "kernels/common/device.cuh"
#include "kernels/quantize/gpu/rows.cuh"
#include "kernels/quantize/gpu/work.cuh"

#include <cuda_fp16.h>

namespace beamring
{

namespace quantize
{

constexpr unsigned LANE_BEAMS = 2, BLOCK_BEAMS = 32 * LANE_BEAMS;
constexpr unsigned CLOSED = 32;        /* steps of a warp that are summed up before their sum is added */
constexpr unsigned LINE = 128;         /* bytes of a row of the output that are written together */
constexpr unsigned PIECES = LINE / 16; /* a warp makes one */

struct shared {
    union {
        float sums[2][WARPS][BLOCK_BEAMS];
        uint4 lines[BLOCK_BEAMS][PIECES]; /* piece i of beam b stands at place(b, i) */
    };
    unsigned first, count;
    alignas(16) uint16_t kept[]; /* [T][BLOCK_BEAMS] */
};

/* So placed, the pieces that 8 lanes write (of every other beam) or read (of one beam) at once use all banks.
 */
__device__ __forceinline__ unsigned place(unsigned beam, unsigned piece)
{
    return piece ^ (beam / 2 & (PIECES - 1));
}

/* A block's share of the input. */
template <bool KEPT> struct series {
    const uint16_t *in; /* shape (T, beams), strides (B, 1) */
    const uint16_t *kept;
    size_t B;
    unsigned beam, beams; /* this lane's first beam; the block's */
    bool pairs;

    /* Values of the lane's beams at step t; 0 for beams that there are not. */
    __device__ __forceinline__ float2 at(unsigned t) const
    {
        if (KEPT) return __half22float2(*reinterpret_cast<const __half2 *>(kept + t * BLOCK_BEAMS + beam));
        const __half *from = reinterpret_cast<const __half *>(in + t * B + beam);
        if (pairs && beam < beams) return __half22float2(*reinterpret_cast<const __half2 *>(from));
        return make_float2(beam < beams ? __half2float(from[0]) : 0,
                           beam + 1 < beams ? __half2float(from[1]) : 0);
    }
};

/* Copies the block's input into shared memory. */
__device__ __forceinline__ void keep(uint16_t *kept, const work &w, const uint16_t *in, unsigned beams)
{
    if (w.wide_in) {
        /* 8 threads copy the 128 bytes of a step. */
        for (unsigned i = threadIdx.x; i < w.T * 8; i += THREADS) {
            bool inside = i % 8 * 8 < beams;
            copy_async_16(kept + i * 8, inside ? in + i / 8 * w.B + i % 8 * 8 : w.in, inside);
        }
        copy_async_commit();
        copy_async_wait<0>();
    } else {
        for (unsigned i = threadIdx.x; i < w.T * BLOCK_BEAMS; i += THREADS) {
            unsigned t = i / BLOCK_BEAMS, b = i % BLOCK_BEAMS;
            kept[i] = b < beams ? in[t * w.B + b] : static_cast<uint16_t>(0);
        }
    }
}

/* sum and squares of this lane's beams' differences from `about` over all valid steps, the same in all warps.
 */
template <bool KEPT>
__device__ __forceinline__ void sum_up(shared &s, const work &w, const series<KEPT> &x, const uint8_t *valid,
                                       float2 about, float2 &sum, float2 &squares)
{
    unsigned warp = threadIdx.x / 32;
    sum = squares = make_float2(0, 0);
    for (unsigned start = warp; start < w.T; start += CLOSED * WARPS) {
        float2 part = make_float2(0, 0), part_squares = part;
        unsigned end = min(w.T, start + CLOSED * WARPS);
#pragma unroll 4
        for (unsigned t = start; t < end; t += WARPS) {
            /* Missing values are read too, for the loads not to wait for each other. */
            bool there = !valid || valid[t];
            float2 v = x.at(t);
            v.x = there ? v.x - about.x : 0;
            v.y = there ? v.y - about.y : 0;
            part.x += v.x;
            part.y += v.y;
            part_squares.x = fmaf(v.x, v.x, part_squares.x);
            part_squares.y = fmaf(v.y, v.y, part_squares.y);
        }
        sum.x += part.x;
        sum.y += part.y;
        squares.x += part_squares.x;
        squares.y += part_squares.y;
    }
    *reinterpret_cast<float2 *>(&s.sums[0][warp][x.beam]) = sum;
    *reinterpret_cast<float2 *>(&s.sums[1][warp][x.beam]) = squares;
    __syncthreads();
    sum = squares = make_float2(0, 0);
    for (int i = 0; i < WARPS; i++) {
        float2 a = *reinterpret_cast<float2 *>(&s.sums[0][i][x.beam]),
               b = *reinterpret_cast<float2 *>(&s.sums[1][i][x.beam]);
        sum.x += a.x;
        sum.y += a.y;
        squares.x += b.x;
        squares.y += b.y;
    }
    __syncthreads();
}

/* The code of one value in the low BITS bits; what is above them is not meant. */
template <int BITS>
__device__ __forceinline__ unsigned level(float x, float offset, float per_level, bool there,
                                          unsigned &clamped)
{
    constexpr float most = BITS == 8 ? 127 : 7;
    float v = (x - offset) * per_level;
    clamped += there && fabsf(v) >= most + 0.5f; /* a tie rounds to the even number, which is most + 1 */
    /* Adding 1.5 2^23 leaves an integer in the low bits, rounded half to even by the addition itself. */
    v = fmaxf(fminf(v, most), -most) + (12582912.0f + (BITS == 8 ? 128 : 0));
    return there ? __float_as_uint(v) : BITS == 8 ? 0 : 8;
}

/* The levels of this lane's beams from step `first` on, as many as 16 bytes hold:
 *   piece  simd: t1 t0 (4 bits: t2 t1 t0)  register: the next two */
template <int BITS, bool KEPT>
__device__ __forceinline__ void make_piece(uint4 (&piece)[2], const work &w, const series<KEPT> &x,
                                           const uint8_t *valid, unsigned first, float2 offset,
                                           float2 per_level, unsigned &clamped)
{
    piece[0] = piece[1] = make_uint4(0, 0, 0, 0);
    if (first >= w.T) return;
    constexpr unsigned PER_WORD = 32 / BITS, MASK = (1u << BITS) - 1;
    unsigned word[2][4];
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        word[0][i] = word[1][i] = 0;
#pragma unroll
        for (unsigned k = 0; k < PER_WORD; k++) {
            unsigned t = first + i * PER_WORD + k, last = min(t, w.T - 1);
            bool there = t < w.T && (!valid || valid[last]);
            float2 v = x.at(last);
            word[0][i] |= (level<BITS>(v.x, offset.x, per_level.x, there, clamped) & MASK) << k * BITS;
            word[1][i] |= (level<BITS>(v.y, offset.y, per_level.y, there, clamped) & MASK) << k * BITS;
        }
    }
    for (int beam = 0; beam < 2; beam++)
        piece[beam] = make_uint4(word[beam][0], word[beam][1], word[beam][2], word[beam][3]);
}

/* The largest valid values of this lane's beams, the same in all warps. */
template <bool KEPT>
__device__ __forceinline__ float2 find_most(shared &s, const work &w, const series<KEPT> &x,
                                            const uint8_t *valid)
{
    unsigned warp = threadIdx.x / 32;
    float2 most = make_float2(-65504, -65504);
    for (unsigned t = warp; t < w.T; t += WARPS) {
        if (valid && !valid[t]) continue;
        const float2 v = x.at(t);
        most = make_float2(fmaxf(most.x, v.x), fmaxf(most.y, v.y));
    }
    *reinterpret_cast<float2 *>(&s.sums[0][warp][x.beam]) = most;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) {
        const float2 other = *reinterpret_cast<float2 *>(&s.sums[0][i][x.beam]);
        most = make_float2(fmaxf(most.x, other.x), fmaxf(most.y, other.y));
    }
    __syncthreads();
    return most;
}

/* Offset and scale of a block by what earlier blocks say, `before`, in place of its own; which then knows
 * of it too, where `writes`. most: its largest value, for 4 bits. */
template <int BITS>
__device__ __forceinline__ void go_slowly(float &offset, float &scale, float variance, float most,
                                          float levels_rms, br_follow before, br_follow *at,
                                          const br_follow_step &step, bool writes)
{
    const float mean = offset;
    if (before.variance > 0) {
        offset = before.expected;
        scale = sqrtf(before.variance) / levels_rms;
    }
    if (BITS == 4 && scale > 0 && most - offset > 7 * scale) scale = (most - offset) / 7;
    br_follow_block(&before, &step, mean, fmaxf(variance, 0));
    if (writes) *at = before;
}

/* 1 / scale; 1 for a constant series, where all differences are 0. */
__device__ __forceinline__ float reciprocal(float scale)
{
    return scale > 0 ? 1 / scale : 1.0f;
}

template <int BITS, bool KEPT, bool SLOW> __global__ void __launch_bounds__(THREADS, 4) any(const work w)
{
    extern __shared__ uint4 memory[];
    shared &s = *reinterpret_cast<shared *>(memory);
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned tile = blockIdx.x % w.beam_tiles;
    size_t f = blockIdx.x / w.beam_tiles, first_beam = static_cast<size_t>(tile) * BLOCK_BEAMS;
    unsigned beams = w.B - first_beam < BLOCK_BEAMS ? static_cast<unsigned>(w.B - first_beam) : BLOCK_BEAMS;

    /* in: shape (F, stride, B), contiguous; after: shape (T, beams), strides (B, 1)
     * out: shape (B, F, row), contiguous; after: shape (beams, row), strides (F row, 1); side likewise
     * valid: shape (F, T), contiguous; after: shape (T), contiguous */
    const uint16_t *in = w.in + f * w.stride * w.B + first_beam;
    uint8_t *out = w.out + (first_beam * w.F + f) * w.row;
    float2 *side = w.side + first_beam * w.F + f;
    const uint8_t *valid = w.valid ? w.valid + f * w.T : nullptr;

    if (threadIdx.x == 0) s.first = w.valid ? w.T : 0, s.count = w.valid ? 0 : w.T;
    __syncthreads();
    if (valid) {
        unsigned least = w.T, count = 0;
        for (unsigned t = threadIdx.x; t < w.T; t += THREADS)
            if (valid[t]) least = min(least, t), count++;
        atomicMin(&s.first, least);
        atomicAdd(&s.count, count);
    }
    if (KEPT) keep(s.kept, w, in, beams);
    __syncthreads();

    const series<KEPT> x = {in, s.kept, w.B, LANE_BEAMS * lane, beams, w.pairs};
    float2 offset = make_float2(0, 0), scale = offset;
    unsigned clamped = 0;
    if (s.count > 0) {
        br_follow *state[2] = {}, before[2] = {};
        const bool here[2] = {x.beam < beams, x.beam + 1 < beams};
        for (int i = 0; SLOW && i < 2; i++)
            if (here[i]) {
                state[i] = state_at(w.slow, f, w.B, first_beam + x.beam + static_cast<unsigned>(i));
                before[i] = *state[i]; /* before any warp writes it */
            }
        float n = static_cast<float>(s.count);
        float2 sum, squares, first = x.at(s.first);
        sum_up(s, w, x, valid, first, sum, squares);
        float2 mean = make_float2(sum.x / n, sum.y / n);
        float2 variance = make_float2(squares.x / n - mean.x * mean.x, squares.y / n - mean.y * mean.y);
        offset = make_float2(first.x + mean.x, first.y + mean.y);
        /* All warps have the same numbers here, and so decide alike. */
        bool far = mean.x * mean.x > FAR * variance.x || mean.y * mean.y > FAR * variance.y;
        if (__any_sync(WHOLE_WARP, far)) {
            sum_up(s, w, x, valid, offset, sum, squares);
            mean = make_float2(sum.x / n, sum.y / n);
            variance = make_float2(squares.x / n - mean.x * mean.x, squares.y / n - mean.y * mean.y);
            offset = make_float2(offset.x + mean.x, offset.y + mean.y);
        }
        scale.x = sqrtf(fmaxf(variance.x, 0)) / w.levels_rms;
        scale.y = sqrtf(fmaxf(variance.y, 0)) / w.levels_rms;
        if (SLOW) {
            const float2 most = BITS == 4 ? find_most(s, w, x, valid) : make_float2(0, 0);
            go_slowly<BITS>(offset.x, scale.x, variance.x, most.x, w.levels_rms, before[0], state[0],
                            w.slow.steps[f], warp == 0 && here[0]);
            go_slowly<BITS>(offset.y, scale.y, variance.y, most.y, w.levels_rms, before[1], state[1],
                            w.slow.steps[f], warp == 0 && here[1]);
        }
    }
    /* One value per (beam, channel): too little to be written in whole cache lines. */
    if (warp == 0 && x.beam < beams) side[x.beam * w.F] = make_float2(scale.x, offset.x);
    if (warp == 0 && x.beam + 1 < beams) side[(x.beam + 1) * w.F] = make_float2(scale.y, offset.y);
    float2 per_level = make_float2(reciprocal(scale.x), reciprocal(scale.y));

    for (unsigned line = 0; line < w.row; line += LINE) {
        uint4 piece[2];
        make_piece<BITS>(piece, w, x, valid, (line + warp * 16) * 8 / BITS, offset, per_level, clamped);
        s.lines[x.beam][place(x.beam, warp)] = piece[0];
        s.lines[x.beam + 1][place(x.beam + 1, warp)] = piece[1];
        __syncthreads();
        /* 8 threads write the 128 bytes of a beam. */
        for (unsigned i = threadIdx.x; i < beams * PIECES; i += THREADS) {
            unsigned beam = i / PIECES, start = line + i % PIECES * 16;
            const uint4 v = s.lines[beam][place(beam, i % PIECES)];
            uint8_t *to = out + beam * w.F * w.row + start;
            if (start >= w.row) continue;
            if (w.wide_out) {
                *reinterpret_cast<uint4 *>(to) = v;
            } else {
                const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (unsigned k = 0; k < 16; k++)
                    if (start + k < w.row) to[k] = static_cast<uint8_t>(words[k / 4] >> k % 4 * 8);
            }
        }
        __syncthreads();
    }
    clamped = __reduce_add_sync(WHOLE_WARP, clamped);
    if (lane == 0 && clamped > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(clamped));
}

} // namespace quantize

} // namespace beamring

#endif
