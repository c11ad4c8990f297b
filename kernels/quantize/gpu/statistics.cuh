/* statistics.cuh - 8 beams of a channel, all steps of the block in a warp's registers: their statistics.
 *
 * Differences from a pivot are summed, so that little cancels. The pivot is the mean of those of the first 16
 * steps that are valid, as float16; missing values become the pivot. Where the mean lies far from the pivot,
 * a second pass sums differences from the mean (as float16: a constant block is then exactly constant). The
 * sums are float32, as on the CPU, by way of the tensor cores: pairs of float16 times the unit matrix, minus
 * the pivot, are differences in float32; values times 1/32 are summed, 32 at a time (tensor cores cut bits
 * off a longer sum). Each beam decides by its own sums, so that its bits depend on nothing else. */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_STATISTICS_CUH
#define BEAMRING_KERNELS_QUANTIZE_GPU_STATISTICS_CUH

#include "kernels/common/device.cuh"
#include "kernels/quantize/follow.h"

#include <cuda_fp16.h>

namespace beamring
{

namespace quantize
{

constexpr float FAR = 36; /* variances: from there on a mean costs its square's precision */
/* From so many levels on float32 has not enough digits for mean and level at once. */
constexpr float FAR_LEVELS = 512;

/* The levels of one beam, the same in the 4 lanes that hold it. The level before rounding, plus 2^(BITS - 1),
 * times 2^-24, is (value - near) * slope + shift. */
struct statistics {
    float scale, offset;
    float near, slope, shift;
};

/* A beam's sums of differences from the pivot. */
struct sums {
    float pivot, sum, squares;
};

/* A beam's mean = high + low, where high is a float16 number. */
struct moments {
    float high, low, variance;
    bool far;
};

/* Values that all levels of a launch share. */
struct rule {
    float levels_rms;
    float per_n; /* 1 / (valid steps); 0 without any */
};

__device__ __forceinline__ rule make_rule(float levels_rms, unsigned valid_steps)
{
    return rule{levels_rms, valid_steps > 0 ? 1 / static_cast<float>(valid_steps) : 0};
}

__device__ __forceinline__ float2 both(unsigned pair)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}

__device__ __forceinline__ unsigned pack(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&pair);
}

/* ---- statistics ---- */

/* This lane's part of the 8 x 8 unit matrix as operand b of mma_f16_k8. */
__device__ __forceinline__ unsigned unit_matrix(unsigned lane)
{
    return lane / 8 == lane % 4 ? (lane / 4 % 2 ? 0x3c000000u : 0x00003c00u) : 0;
}

/* A matrix of 1 / 16: sums over two registers become means. A constant below 0 must not be operand b: ptxas
 * (seen with CUDA 13.0) moves a sign from its upper half into the instruction, where it negates both. */
constexpr unsigned SIXTEENTHS = 0x2c002c00u;

/* c[4] = a b + start: 8 steps of 8 beams twice, of what is in the registers low and high. */
__device__ __forceinline__ void product(float (&c)[4], unsigned low, unsigned high, unsigned b,
                                        const float (&start)[4])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, "
        "%10};\n"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(low), "r"(high), "r"(b), "f"(start[0]), "f"(start[1]), "f"(start[2]), "f"(start[3]));
}

/* c[4] = start + 16 steps of 8 beams, twice, times what is in b: registers 0 and 2, 1 and 3. */
__device__ __forceinline__ void add_products(float (&c)[4], const unsigned *x, unsigned b,
                                             const float (&start)[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %8}, "
        "{%9, %10, %11, %12};\n"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(b), "f"(start[0]), "f"(start[1]), "f"(start[2]),
          "f"(start[3]));
}

/* Means of differences from the pivot, of as many steps as go into one sum: 32, or 16 in the shortest blocks.
 */
template <unsigned REGISTERS> struct means {
    static constexpr unsigned STEPS = REGISTERS < 8 ? 16 : 32, PARTS = STEPS < 32 ? 0x2c002c00u : 0x28002800u;

    /* of the registers from x on */
    static __device__ __forceinline__ void find(float (&c)[4], const unsigned *x, const float (&start)[4])
    {
        add_products(c, x, PARTS, start);
        if (STEPS == 32) add_products(c, x + 4, PARTS, c);
    }
};

/* start[4] = minus the pivot of the first 16 steps, `times` their mean. All four are the same number, but
 * made from different ones of equal columns, which the compiler does not know to be equal: it would keep one
 * number and copy it to four registers for each product that begins with them. */
__device__ __forceinline__ void minus_pivot(float (&start)[4], unsigned low, unsigned high, float times)
{
    const float zero[4] = {0, 0, 0, 0};
    float c[4];
    product(c, low, high, SIXTEENTHS, zero);
    const float minus = times * (-c[0] - c[2]), equal = times * (-c[1] - c[3]);
    const float2 one = both(pack(minus, equal)), other = both(pack(equal, minus));
    start[0] = one.x, start[1] = one.y, start[2] = other.x, start[3] = other.y;
}

/* Adds in the 4 lanes that have a beam. */
__device__ __forceinline__ float over_lanes(float v)
{
    v += __shfl_xor_sync(WHOLE_WARP, v, 2);
    return v + __shfl_xor_sync(WHOLE_WARP, v, 1);
}

/* Of 8 beams, whose differences are from -start; missing values must be -start in x. */
template <int REGISTERS>
__device__ __forceinline__ sums add_up(const unsigned *x, unsigned lane, const float (&start)[4])
{
    const unsigned unit = unit_matrix(lane);
    float c[4], d[4];
    using m = means<REGISTERS>;
    float sum[2] = {}, squares[4] = {};
#pragma unroll
    for (int r = 0; r < REGISTERS; r += 2) {
        product(c, x[r], x[r + 1], unit, start);
#pragma unroll
        for (int i = 0; i < 4; i++) squares[i] = fmaf(c[i], c[i], squares[i]);
        if (r % (m::STEPS / 4)) continue;
        m::find(d, x + r, start);
        sum[0] = r == 0 ? d[0] : sum[0] + d[0];
        sum[1] = r == 0 ? d[2] : sum[1] + d[2];
    }
    return sums{-start[0], m::STEPS * (sum[0] + sum[1]),
                over_lanes((squares[0] + squares[1]) + (squares[2] + squares[3]))};
}

__device__ __forceinline__ moments find_moments(const sums &s, const rule &rule)
{
    moments m;
    m.high = s.pivot;
    m.low = __fmul_rn(s.sum, rule.per_n);
    m.variance = fmaf(s.squares, rule.per_n, -__fmul_rn(m.low, m.low));
    m.far = !(__fmul_rn(m.low, m.low) <= FAR * m.variance);
    return m;
}

/* Sum and sum of squares of the differences from `about`, of REGISTERS registers from x on, the same in the 4
 * lanes of a beam. `keep(r)`: 0xffff for each half of x[r] that is valid. */
template <int REGISTERS, class Keep>
__device__ __forceinline__ float2 add_up_again(const unsigned *x, float about, const Keep &keep)
{
    float sums[2] = {0, 0}, squares[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < REGISTERS; r++) {
        float2 v = both(x[r]);
        unsigned kept = keep(r);
        v.x = kept & 0xffffu ? v.x - about : 0;
        v.y = kept >> 16 ? v.y - about : 0;
        sums[0] += v.x;
        sums[1] += v.y;
        squares[0] = fmaf(v.x, v.x, squares[0]);
        squares[1] = fmaf(v.y, v.y, squares[1]);
        if (r % 4 == 3)
            __syncwarp(); /* what `keep` reads is not asked for all at once, for lack of registers */
    }
    float2 all = make_float2(sums[0] + sums[1], squares[0] + squares[1]);
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
        all.x += __shfl_xor_sync(WHOLE_WARP, all.x, other);
        all.y += __shfl_xor_sync(WHOLE_WARP, all.y, other);
    }
    return all;
}

/* The pivot of the second pass. */
__device__ __forceinline__ float about_mean(const moments &m)
{
    return __half2float(__float2half_rn(m.high + m.low));
}

/* The moments from the sums of the second pass. */
__device__ __forceinline__ moments correct(const moments &m, float about, float2 again, const rule &rule)
{
    moments c = m;
    c.high = about;
    c.low = __fmul_rn(again.x, rule.per_n);
    c.variance = fmaf(again.y, rule.per_n, -__fmul_rn(c.low, c.low));
    return c;
}

/* The levels for an offset = high + low, where high is a float16 number. */
template <int BITS>
__device__ __forceinline__ statistics make_statistics(float high, float low, float scale, float per_level)
{
    constexpr float UNIT = 1.0f / (1 << 24), HALF_RANGE = BITS == 8 ? 128 : 8;
    statistics s;
    s.offset = high + low;
    s.scale = scale;
    bool far = fabsf(s.offset) * per_level > FAR_LEVELS;
    s.near = far ? high : 0;
    s.slope = per_level * UNIT;
    s.shift = fmaf(far ? -low : -s.offset, s.slope, HALF_RANGE * UNIT);
    return s;
}

template <int BITS> __device__ __forceinline__ statistics find_statistics(const moments &m, const rule &rule)
{
    float variance = fmaxf(m.variance, 0), deviation, per_deviation, per_rms;
    /* Within 2^-22; a variance of float16 numbers is never subnormal. */
    asm("sqrt.approx.ftz.f32 %0, %1;\n" : "=f"(deviation) : "f"(variance));
    asm("rsqrt.approx.ftz.f32 %0, %1;\n" : "=f"(per_deviation) : "f"(variance));
    /* volatile: made where it is needed, since kept for all beams it would cost a register */
    asm volatile("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(per_rms) : "f"(rule.levels_rms));
    /* 1: a constant series, where all differences are 0 */
    return make_statistics<BITS>(m.high, m.low, deviation * per_rms,
                                 deviation > 0 ? rule.levels_rms * per_deviation : 1);
}

/* The largest of the values of a beam in REGISTERS registers of a lane. */
template <int REGISTERS> __device__ __forceinline__ float most_of(const unsigned *x)
{
    __half2 most = *reinterpret_cast<const __half2 *>(x);
#pragma unroll
    for (int r = 1; r < REGISTERS; r++) most = __hmax2(most, *reinterpret_cast<const __half2 *>(x + r));
    return fmaxf(__low2float(most), __high2float(most));
}

/* The state of a beam and of its channel, loaded before it is needed: each of the 4 lanes that hold the
 * beam loads a part, into 5 registers where the whole takes 14. */
struct asked {
    float state, away, step[3];
};

/* q: which of the 4 lanes. */
__device__ __forceinline__ asked ask(const br_follow *state, const br_follow_step *step, unsigned q)
{
    static_assert(sizeof *state == 20 && sizeof *step == 36, "4 + 1 and 4 + 4 + 1 numbers");
    const float *of_beam = reinterpret_cast<const float *>(state),
                *of_channel = reinterpret_cast<const float *>(step);
    return {of_beam[q], of_beam[4], {of_channel[q], of_channel[4 + q], of_channel[8]}};
}

__device__ __forceinline__ float of_lane(float v, int q)
{
    return __shfl_sync(WHOLE_WARP, v, q, 4);
}

__device__ __forceinline__ void answer(const asked &a, br_follow *state, br_follow_step *step)
{
    *state = {of_lane(a.state, 0), of_lane(a.state, 1), of_lane(a.state, 2), of_lane(a.state, 3), a.away};
    *step = {of_lane(a.step[0], 0), of_lane(a.step[0], 1), of_lane(a.step[0], 2),
             of_lane(a.step[0], 3), of_lane(a.step[1], 0), of_lane(a.step[1], 1),
             of_lane(a.step[1], 2), of_lane(a.step[1], 3), a.step[2]};
}

/* Writes a state that all 4 lanes know, in two stores. */
__device__ __forceinline__ void remember(br_follow *at, const br_follow &state, unsigned q)
{
    float *to = reinterpret_cast<float *>(at);
    to[q] = q == 0 ? state.expected : q == 1 ? state.mean : q == 2 ? state.trend : state.variance;
    if (q == 0) to[4] = state.away;
}

/* The levels of a block from the state of earlier blocks. Adds the block, with its own moments `own` and its
 * largest value `most`, to the state. */
template <int BITS>
__device__ __forceinline__ statistics slow_statistics(const moments &own, float most, const rule &rule,
                                                      br_follow &state, const br_follow_step &step)
{
    moments m = own;
    if (state.variance > 0 && rule.per_n > 0) {
        const float high = fmaxf(fminf(state.expected, 65504.0f), -65504.0f);
        m.high = __half2float(__float2half_rn(high));
        m.low = state.expected - m.high;
        m.variance = state.variance;
    }
    statistics s = find_statistics<BITS>(m, rule);
    if (BITS == 4) {
        const float above = most - s.offset;
        if (s.scale > 0 && above > 7 * s.scale)
            s = make_statistics<BITS>(m.high, m.low, above * (1.0f / 7), 7 / above);
    }
    br_follow_block(&state, &step, own.high + own.low, fmaxf(own.variance, 0));
    return s;
}

} // namespace quantize

} // namespace beamring

#endif
