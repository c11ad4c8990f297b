/* rows.cuh - 8 beams of a channel, all steps of the block in a warp's registers: levels from their
 * statistics.
 *
 * Levels are rounded by the conversion to float16: where they are multiples of its smallest number, their
 * bits are integers. */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_ROWS_CUH
#define BEAMRING_KERNELS_QUANTIZE_GPU_ROWS_CUH

#include "kernels/common/device.cuh"
#include "kernels/quantize/gpu/layout.h"
#include "kernels/quantize/gpu/statistics.cuh"

#include <cuda_fp16.h>

namespace beamring
{

namespace quantize
{

/* ---- levels ---- */

/* Levels plus 2^(BITS - 1), 0 to 2^BITS, of two values of a beam, in halves; both ends stand for all that
 * lies beyond. NEAR: some beam of the warp needs `near`. */
template <int BITS, bool NEAR>
__device__ __forceinline__ unsigned raw_levels(float low, float high, const statistics &s)
{
    unsigned raw;
    if (NEAR) low -= s.near, high -= s.near;
    low = fmaf(low, s.slope, s.shift), high = fmaf(high, s.slope, s.shift);
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;\n" : "=r"(raw) : "f"(high), "f"(low));
    return __vminu2(raw, 0x00010001u << BITS);
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

/* Bits of a where `mask` has ones, of b elsewhere, by one operation. */
__device__ __forceinline__ unsigned choose(unsigned mask, unsigned a, unsigned b)
{
    unsigned chosen;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;\n" : "=r"(chosen) : "r"(mask), "r"(a), "r"(b));
    return chosen;
}

/* Two's complement nibbles of raw levels 0 to 16, those of even steps in the bytes of `even`, of odd ones in
 * those of `odd`. Both 0 and 16 leave 0 in the low four bits: they become 1 or 15 (levels -7 and 7), and are
 * counted, per nibble, where `keep` has it. */
__device__ __forceinline__ unsigned clamp_nibbles(unsigned even, unsigned odd, unsigned keep,
                                                  unsigned &clamped)
{
    constexpr unsigned LOW = 0x0f0f0f0fu;
    /* the low nibbles of both words; which of them were 16 */
    unsigned raw = choose(LOW, even, odd << 4), high = choose(LOW, even >> 4, odd);
    unsigned zero = (~((raw & 0x77777777u) + 0x77777777u | raw) & keep & 0x88888888u) >> 3;
    clamped += zero;
    return (raw + 14 * high + zero) ^ 0x88888888u;
}

/* The levels of 32 / BITS steps as they are stored, from the raw levels of the registers that have them. With
 * MISSING, valid[i] is 0xff where step i of these is valid, else 0. */
template <int BITS, bool MISSING>
__device__ __forceinline__ unsigned make_word(const unsigned (&raw)[16 / BITS], const unsigned *valid,
                                              unsigned &clamped)
{
    if (BITS == 8) {
        /* fields of 16 bits: steps 0 and 2, 1 and 3 */
        unsigned keep = MISSING ? valid[0] : 0xffffffffu;
        unsigned a = clamp_bytes(raw[0], MISSING ? keep << 8 : keep, clamped);
        unsigned b = clamp_bytes(raw[1], keep, clamped);
        return __byte_perm(a, b, 0x6240) & keep; /* 1 to 255, but where it is not kept */
    }
    /* fields of 8 bits: steps 0, 2, 4, 6, and 1, 3, 5, 7 */
    unsigned even = raw[0] + (raw[1] << 8), odd = raw[16 / BITS - 2] + (raw[16 / BITS - 1] << 8);
    unsigned keep = 0xffffffffu;
    if (MISSING) {
        unsigned of_even = __byte_perm(valid[0], valid[1], 0x6420),
                 of_odd = __byte_perm(valid[0], valid[1], 0x7531);
        keep = (of_even & 0x0f0f0f0fu) | (of_odd & 0xf0f0f0f0u);
    }
    unsigned word = clamp_nibbles(even, odd, keep, clamped);
    return MISSING ? (word & keep) | (0x88888888u & ~keep) : word;
}

/* Sum of the fields that were counted in: halves, or nibbles. */
template <int BITS> __device__ __forceinline__ unsigned sum_fields(unsigned clamped)
{
    if (BITS == 8) return (clamped & 0xffffu) + (clamped >> 16);
    return static_cast<unsigned>(
        __dp4a((clamped & 0x0f0f0f0fu) + (clamped >> 4 & 0x0f0f0f0fu), 0x01010101u, 0u));
}

/* How a lane's registers make up what it writes. */
template <int BITS, int STEPS> struct pieces {
    /* br_quantize_piece_steps */
    static constexpr unsigned STEPS_EACH = 128 / BITS < STEPS / 4 ? 128 / BITS : STEPS / 4;
    static constexpr unsigned REGISTERS = STEPS_EACH / 2, WORDS = STEPS_EACH * BITS / 32;
    static constexpr unsigned PER_WORD = 16 / BITS; /* registers in a word */
};

/* Which steps of a word are valid: bytes of 0xff or 0. first: the word's first register; valid: [STEPS] in
 * shared memory, likewise. */
template <int BITS, int STEPS>
__device__ __forceinline__ void load_valid(unsigned (&there)[2], const uint8_t *valid, unsigned first,
                                           unsigned q)
{
    const unsigned *words =
        reinterpret_cast<const unsigned *>(valid + br_quantize_step(BITS, STEPS, first, q, 0));
    there[0] = words[0];
    if (BITS == 4) there[1] = words[1];
}

/* Writes a lane's piece: four lanes write 4 consecutive pieces of 16 (or 8) bytes. */
template <int WORDS> __device__ __forceinline__ void write_piece(uint8_t *to, const unsigned (&word)[4])
{
    if (WORDS == 4)
        *reinterpret_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    else
        *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
}

/* Writes rows of 8 beams: `out` is this lane's beam's. */
template <int BITS, int STEPS, bool MISSING, bool NEAR>
__device__ __forceinline__ void write_levels(uint8_t *out, const unsigned (&x)[STEPS / 8],
                                             const statistics &s, const uint8_t *valid, unsigned lane,
                                             unsigned &clamped)
{
    using p = pieces<BITS, STEPS>;
    const unsigned q = lane % 4, unit = unit_matrix(lane);
    const float zero[4] = {0, 0, 0, 0};
#pragma unroll
    for (unsigned piece = 0; piece < STEPS / 8 / p::REGISTERS; piece++) {
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (unsigned i = 0; i < p::WORDS; i++) {
            const unsigned first = piece * p::REGISTERS + i * p::PER_WORD;
            unsigned there[2] = {0, 0}, raw[p::PER_WORD];
            if (MISSING) load_valid<BITS, STEPS>(there, valid, first, q);
#pragma unroll
            for (unsigned r = 0; r < p::PER_WORD; r += 2) {
                /* v[4]  register: r1 r0 <-> register of x, half  thread: as in x */
                float v[4];
                product(v, x[first + r], x[first + r + 1], unit, zero);
                raw[r] = raw_levels<BITS, NEAR>(v[0], v[1], s);
                raw[r + 1] = raw_levels<BITS, NEAR>(v[2], v[3], s);
            }
            word[i] = make_word<BITS, MISSING>(raw, there, clamped);
        }
        /* out: shape (row bytes), contiguous */
        write_piece<p::WORDS>(out + (piece * 4 + q) * (p::WORDS * 4), word);
        if (BITS == 8) __syncwarp(); /* products of later pieces do not begin earlier: they would spill */
    }
}

/* Which halves of register r are valid: 0xffff each. */
template <int BITS, int STEPS>
__device__ __forceinline__ unsigned kept(const uint8_t *valid, unsigned r, unsigned q)
{
    return __byte_perm(valid[br_quantize_step(BITS, STEPS, r, q, 0)],
                       valid[br_quantize_step(BITS, STEPS, r, q, 1)], 0x4400);
}

/* Where the steps of registers 0 and 1 of all lanes are missing: what the mean of those that are there, and
 * of 0 in place of the others, is to be multiplied by to be a mean of the former; 0 if there is none. */
template <int BITS, int STEPS> __device__ __forceinline__ float valid_factor(const uint8_t *valid, unsigned q)
{
    int count = __popc(kept<BITS, STEPS>(valid, 0, q)) + __popc(kept<BITS, STEPS>(valid, 1, q));
    count += __shfl_xor_sync(WHOLE_WARP, count, 2);
    count += __shfl_xor_sync(WHOLE_WARP, count, 1); /* 16 for each step */
    return count > 0 ? 256 / static_cast<float>(count) : 0;
}

/* Missing values of 8 beams become -start, so that their differences are 0. */
template <int BITS, int STEPS>
__device__ __forceinline__ void fill_missing(unsigned (&x)[STEPS / 8], float start, const uint8_t *valid,
                                             unsigned q)
{
    const unsigned pivot = pack(-start, -start);
#pragma unroll
    for (unsigned first = 0; first < STEPS / 8; first += 16 / BITS) {
        unsigned there[2] = {0, 0};
        load_valid<BITS, STEPS>(there, valid, first, q);
#pragma unroll
        for (unsigned i = 0; i < 16 / BITS; i++) {
            /* bytes of the steps in both halves, see br_quantize_step */
            const unsigned low = BITS == 4 ? i % 2 * 2 + i / 2 : i, high = low + 8 / BITS * 2,
                           keep = __byte_perm(there[0], there[1], low * 0x11 + high * 0x1100);
            x[first + i] = choose(keep, x[first + i], pivot);
        }
        __syncwarp(); /* not all words at once: they would need too many registers */
    }
}

/* The whole of it for a warp that has all steps. x is 0 where a value is missing, until this begins.
 * `out`, `side` and, with SLOW, `state` are where this lane's beam (lane / 4) has its row, its pair of
 * numbers and its state; `step` is its channel's. */
template <int BITS, int STEPS, bool MISSING, bool SLOW>
__device__ __forceinline__ void quantize_rows(unsigned (&x)[STEPS / 8], const rule &rule,
                                              const uint8_t *valid, uint8_t *out, float2 *side,
                                              br_follow *state, const br_follow_step *step, unsigned &clamped)
{
    const unsigned lane = threadIdx.x % 32, q = lane % 4;
    float start[4];
    asked early = {};
    br_follow known = {};
    if (SLOW) early = ask(state, step, q);
    minus_pivot(start, x[0], x[1], MISSING ? valid_factor<BITS, STEPS>(valid, q) : 1);
    if (MISSING) fill_missing<BITS, STEPS>(x, start[0], valid, q);
    moments m = find_moments(add_up<STEPS / 8>(x, lane, start), rule);
    if (__any_sync(WHOLE_WARP, m.far)) {
        const float about = about_mean(m);
        const float2 again = add_up_again<STEPS / 8>(x, about, [&](int r) {
            return MISSING ? kept<BITS, STEPS>(valid, static_cast<unsigned>(r), q) : 0xffffffffu;
        });
        if (m.far) m = correct(m, about, again, rule);
    }
    statistics s;
    if (SLOW) {
        float most = 0;
        if (BITS == 4) {
            most = most_of<STEPS / 8>(x);
            most = fmaxf(most, __shfl_xor_sync(WHOLE_WARP, most, 2));
            most = fmaxf(most, __shfl_xor_sync(WHOLE_WARP, most, 1));
        }
        br_follow_step weights;
        answer(early, &known, &weights);
        s = slow_statistics<BITS>(m, most, rule, known, weights);
        remember(state, known, q);
    } else {
        s = find_statistics<BITS>(m, rule);
    }
    /* One pair of numbers per (beam, channel): too little to be written in whole cache lines. */
    if (q == 0) *side = make_float2(s.scale, s.offset);
    unsigned fields = 0;
    if (__any_sync(WHOLE_WARP, s.near != 0))
        write_levels<BITS, STEPS, MISSING, true>(out, x, s, valid, lane, fields);
    else
        write_levels<BITS, STEPS, MISSING, false>(out, x, s, valid, lane, fields);
    clamped += sum_fields<BITS>(fields);
}

} // namespace quantize

} // namespace beamring

#endif
