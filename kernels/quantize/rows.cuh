/* rows.cuh - 8 beams of a channel, all steps of the block in a warp's registers: statistics and levels.
 *
 * The tensor cores add up: with a beam's values both as rows of one operand and as columns of the other, the
 * diagonal of the product is the sum of squares; rows of ones beside them give the sum. Products are exact,
 * and 16 steps at a time are added by them (they cut bits off a sum that goes on). Mean and variance follow
 * where the mean is not large beside the deviation; where it is, sums of differences from the mean (as
 * float16: a constant block is then exactly constant) give them again, in float32 as on the CPU. Each beam
 * decides by its own numbers, so that its bits depend on nothing else. */
#ifndef BEAMRING_KERNELS_QUANTIZE_ROWS_CUH
#define BEAMRING_KERNELS_QUANTIZE_ROWS_CUH

#include "kernels/common/device.cuh"
#include "kernels/quantize/layout.h"

#include <cuda_fp16.h>

namespace beamring
{

namespace quantize
{

constexpr float FAR = 36; /* variances: from there on a mean costs its square's precision */

/* Of one beam, the same in the 4 lanes that have it. The level before rounding is (value - near) * slope +
 * shift. */
struct statistics {
    float scale, offset;
    float near, slope, shift;
};

/* What the levels of a launch have in common. */
struct rule {
    float levels_rms;
    float n, per_n; /* valid steps, and 1 / n; 0 without any */
};

__device__ __forceinline__ rule make_rule(float levels_rms, unsigned valid_steps)
{
    float n = static_cast<float>(valid_steps);
    return rule{levels_rms, n, valid_steps > 0 ? 1 / n : 0};
}

__device__ __forceinline__ float2 both(unsigned pair)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}

/* Missing values must be 0 in x, their number is known from rule. `keep(r)`: 0xffff for each half of x[r]
 * that is valid. */
template <int BITS, int STEPS, class Keep>
__device__ __forceinline__ statistics find_statistics(const unsigned (&x)[STEPS / 8], const rule &rule,
                                                      unsigned lane, const Keep &keep)
{
    constexpr int PRODUCTS = STEPS / 16;
    constexpr float HALF_RANGE = BITS == 8 ? 128 : 8;
    const unsigned ones = 0x3c003c00u;
    unsigned g = lane / 4;
    float squares = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++) {
        /* c[4]  register: r1 r0 <-> (sum of squares or of values), col0  thread: t4..t0 <-> row2 row1 row0
         * col2 col1 */
        float c[4] = {0, 0, 0, 0};
        const unsigned a[4] = {x[2 * i], ones, x[2 * i + 1], ones}, b[2] = {x[2 * i], x[2 * i + 1]};
        mma_f16(c, a, b);
        squares += g % 2 ? c[1] : c[0];
        sum += g % 2 ? c[3] : c[2];
    }
    /* Beam g's numbers are in column g, which lane 4 g + g / 2 has. */
    squares = __shfl_sync(WHOLE_WARP, squares, static_cast<int>(g * 4 + g / 2));
    sum = __shfl_sync(WHOLE_WARP, sum, static_cast<int>(g * 4 + g / 2));

    statistics s;
    float mean = sum * rule.per_n, variance = squares * rule.per_n - mean * mean;
    bool far = !(mean * mean <= FAR * variance);
    float near = 0, beyond = mean; /* mean = near + beyond */
    if (__any_sync(WHOLE_WARP, far)) {
        float about = __half2float(__float2half_rn(mean));
        float sums[2] = {0, 0}, squares_of[2] = {0, 0};
#pragma unroll
        for (int r = 0; r < STEPS / 8; r++) {
            float2 v = both(x[r]);
            unsigned kept = keep(r);
            v.x = kept & 0xffffu ? v.x - about : 0;
            v.y = kept >> 16 ? v.y - about : 0;
            sums[0] += v.x;
            sums[1] += v.y;
            squares_of[0] = fmaf(v.x, v.x, squares_of[0]);
            squares_of[1] = fmaf(v.y, v.y, squares_of[1]);
        }
        float error = sums[0] + sums[1], second = squares_of[0] + squares_of[1];
#pragma unroll
        for (int other = 1; other < 4; other *= 2) {
            error += __shfl_xor_sync(WHOLE_WARP, error, other);
            second += __shfl_xor_sync(WHOLE_WARP, second, other);
        }
        error *= rule.per_n;
        if (far) {
            variance = second * rule.per_n - error * error;
            near = about, beyond = error;
        }
    }
    s.offset = near + beyond;
    s.scale = sqrtf(fmaxf(variance, 0)) / rule.levels_rms;
    float per_level = s.scale > 0 ? 1 / s.scale : 1; /* 1: a constant series, where all differences are 0 */
    s.near = near;
    s.slope = per_level / (2 * HALF_RANGE);
    s.shift =
        fmaf(-beyond, s.slope, 0.5f); /* not from the offset, which may have been rounded by many levels */
    return s;
}

/* A level plus 2^(BITS - 1), in the low bits of the result: 0 to 2^BITS, of which both ends stand for all
 * that lies beyond. The multiplication saturates to [0, 1]; adding 1.5 2^23 leaves an integer, rounded half
 * to even by the addition itself. */
template <int BITS> __device__ __forceinline__ unsigned raw_level(float value, const statistics &s)
{
    return __float_as_uint(
        fmaf(__saturatef(fmaf(value, s.slope, s.shift)), static_cast<float>(1 << BITS), 12582912.0f));
}

/* Brings 0 and 256 of two raw levels, in halves of a word, into range and counts them where `keep` has bit 8
 * of the half. */
__device__ __forceinline__ unsigned clamp_bytes(unsigned raw, unsigned keep, unsigned &clamped)
{
    constexpr unsigned TOP = 0x01000100u, REST = 0x00ff00ffu;
    unsigned high = (raw & keep & TOP) >> 8, low = (~(raw + REST) & keep & TOP) >> 8;
    clamped += high + low;
    return raw - high + low;
}

/* Two's complement nibbles of raw levels 0 to 16, those of even steps in the bytes of `even`, of odd ones in
 * those of `odd`. Both 0 and 16 leave 0 in the low four bits: they become 1 or 15 (levels -7 and 7), and are
 * counted, per nibble, where `keep` has it. */
__device__ __forceinline__ unsigned clamp_nibbles(unsigned even, unsigned odd, unsigned keep,
                                                  unsigned &clamped)
{
    constexpr unsigned LOW = 0x0f0f0f0fu;
    unsigned raw = (even & LOW) | (odd << 4 & ~LOW), high = (even >> 4 & LOW) | (odd & ~LOW);
    unsigned zero = (~((raw & 0x77777777u) + 0x77777777u | raw) & keep & 0x88888888u) >> 3;
    clamped += zero;
    return (raw + 14 * high + zero) ^ 0x88888888u;
}

/* The levels of 32 / BITS steps as they are stored, from the registers that have them. With MISSING, valid[i]
 * is 0xff where step i of these is valid, else 0. NEAR: some beam of the warp needs `near`. */
template <int BITS, bool MISSING, bool NEAR>
__device__ __forceinline__ unsigned make_word(const unsigned *x, const statistics &s, const unsigned *valid,
                                              unsigned &clamped)
{
    constexpr int PAIRS = 16 / BITS;
    unsigned even[PAIRS], odd[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float2 v = both(x[i]);
        if (NEAR) v.x -= s.near, v.y -= s.near;
        even[i] = raw_level<BITS>(v.x, s);
        odd[i] = raw_level<BITS>(v.y, s);
    }
    if (BITS == 8) {
        /* fields of 16 bits: steps 0 and 2, 1 and 3 */
        unsigned keep = MISSING ? valid[0] : 0xffffffffu;
        unsigned a = clamp_bytes(__byte_perm(even[0], even[1], 0x5410), MISSING ? keep << 8 : keep, clamped);
        unsigned b = clamp_bytes(__byte_perm(odd[0], odd[1], 0x5410), keep, clamped);
        return __byte_perm(a, b, 0x6240) & keep; /* 1 to 255, but where it is not kept */
    }
    /* fields of 8 bits: steps 0, 2, 4, 6, and 1, 3, 5, 7 */
    unsigned a = __byte_perm(__byte_perm(even[0], even[1], 0x0040),
                             __byte_perm(even[PAIRS - 2], even[PAIRS - 1], 0x0040), 0x5410);
    unsigned b = __byte_perm(__byte_perm(odd[0], odd[1], 0x0040),
                             __byte_perm(odd[PAIRS - 2], odd[PAIRS - 1], 0x0040), 0x5410);
    unsigned keep = 0xffffffffu;
    if (MISSING) {
        unsigned of_even = __byte_perm(valid[0], valid[1], 0x6420),
                 of_odd = __byte_perm(valid[0], valid[1], 0x7531);
        keep = (of_even & 0x0f0f0f0fu) | (of_odd & 0xf0f0f0f0u);
    }
    unsigned word = clamp_nibbles(a, b, keep, clamped);
    return MISSING ? (word & keep) | (0x88888888u & ~keep) : word;
}

/* Sum of the fields that were counted in: halves, or nibbles. */
template <int BITS> __device__ __forceinline__ unsigned sum_fields(unsigned clamped)
{
    if (BITS == 8) return (clamped & 0xffffu) + (clamped >> 16);
    return static_cast<unsigned>(
        __dp4a((clamped & 0x0f0f0f0fu) + (clamped >> 4 & 0x0f0f0f0fu), 0x01010101u, 0u));
}

/* Writes the rows of 8 beams: `out` is this lane's beam's. valid: [STEPS] in shared memory, 0xff or 0, as
 * words. */
template <int BITS, int STEPS, bool MISSING, bool NEAR>
__device__ __forceinline__ void write_levels(uint8_t *out, const unsigned (&x)[STEPS / 8],
                                             const statistics &s, const uint8_t *valid, unsigned q,
                                             bool inside, unsigned &clamped)
{
    constexpr unsigned PIECE_STEPS =
        128 / BITS < STEPS / 4 ? 128 / BITS : STEPS / 4; /* br_quantize_piece_steps */
    constexpr unsigned PAIRS = PIECE_STEPS / 2, WORDS = PIECE_STEPS * BITS / 32, PER_WORD = 32 / BITS;
#pragma unroll
    for (unsigned piece = 0; piece < STEPS / 8 / PAIRS; piece++) {
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (unsigned i = 0; i < WORDS; i++) {
            unsigned there[2] = {0, 0};
            unsigned first = br_quantize_step(BITS, STEPS, piece * PAIRS + i * PER_WORD / 2, q, 0);
            if (MISSING) {
                const unsigned *words = reinterpret_cast<const unsigned *>(valid + first);
                there[0] = words[0];
                if (BITS == 4) there[1] = words[1];
            }
            word[i] = make_word<BITS, MISSING, NEAR>(x + piece * PAIRS + i * PER_WORD / 2, s, there, clamped);
        }
        /* out: shape (row bytes), contiguous: four lanes write 4 pieces of 16 (or 8) bytes side by side */
        uint8_t *to = out + (piece * 4 + q) * (WORDS * 4);
        if (!inside) continue;
        if (WORDS == 4)
            *reinterpret_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
        else
            *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
    }
}

/* The whole of it for a warp. x is 0 where a value is missing. `out` and `side` are where this lane's beam
 * (lane / 4) has its row and its pair of numbers; not `inside`: there is no such beam. */
template <int BITS, int STEPS, bool MISSING>
__device__ __forceinline__ void quantize_rows(const unsigned (&x)[STEPS / 8], const rule &rule,
                                              const uint8_t *valid, uint8_t *out, float2 *side, bool inside,
                                              unsigned &clamped)
{
    unsigned lane = threadIdx.x % 32, q = lane % 4;
    auto keep = [&](int r) {
        if (!MISSING) return 0xffffffffu;
        unsigned pair = *reinterpret_cast<const uint16_t *>(
            valid + br_quantize_step(BITS, STEPS, static_cast<unsigned>(r), q, 0));
        return __byte_perm(pair, 0, 0x1100);
    };
    const statistics s = find_statistics<BITS, STEPS>(x, rule, lane, keep);
    /* One pair of numbers per (beam, channel): too little to be written in whole cache lines. */
    if (q == 0 && inside) *side = make_float2(s.scale, s.offset);
    unsigned fields = 0;
    if (__any_sync(WHOLE_WARP, s.near != 0))
        write_levels<BITS, STEPS, MISSING, true>(out, x, s, valid, q, inside, fields);
    else
        write_levels<BITS, STEPS, MISSING, false>(out, x, s, valid, q, inside, fields);
    if (inside) clamped += sum_fields<BITS>(fields);
}

} // namespace quantize

} // namespace beamring

#endif
