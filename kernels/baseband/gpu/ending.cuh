/* ending.cuh - what a beamformer's kernel makes of its sums, for both of them. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_ENDING_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_ENDING_CUH

namespace beamring::baseband
{

enum class ending {
    NIBBLES, /* int4x2 */
    BYTES,   /* int8x2 */
    POWERS   /* float32, for power.h: [F P][T][B], or sums of groups of samples, [F P][T / 16][B] */
};

constexpr int GROUP = 16; /* samples */

/* ---- to 4 bits: J + 8 = floor(sum / 2^s + 8.5), clamped to [0, 16] so that 0 and 16 are the values that a
 * nibble does not hold. Where float32 holds the sum exactly, that is two fused multiply-adds that round down:
 * one into [0, 1], which the hardware clamps to, one that moves 16 times that to the low bits. ---- */

constexpr unsigned ONES = 0x01010101u;

/* u + 15 in the low bits, u = clamp(floor(sum / 2^s + 8.5), 0, 16) where x scale + half = (sum / 2^s + 8.5) /
 * 16. Above them are the bits of 2^23 (+ `more`) as a float. */
__device__ __forceinline__ unsigned rounded(float x, float scale, float half, float more)
{
    float share, moved;
    asm("fma.rm.sat.f32 %0, %1, %2, %3;\n" : "=f"(share) : "f"(x), "f"(scale), "f"(half));
    asm("fma.rm.f32 %0, %1, %2, %3;\n" : "=f"(moved) : "f"(share), "f"(16.0f), "f"(8388608.0f + 15 + more));
    return __float_as_uint(moved);
}

/* Four sums, each u + 15 in a byte. The high bits of the first float's are taken away by what is added to
 * the last one. */
__device__ __forceinline__ unsigned round_four(const float (&x)[4], float scale01, float scale23, float half)
{
    return rounded(x[0], scale01, half, 0) + (rounded(x[1], scale01, half, 0) << 8) +
           (rounded(x[2], scale23, half, 0) << 16) + (rounded(x[3], scale23, half, 256 - 0x4b) << 24);
}

/* Four times u + 15 to four values: v = u clamped to [1, 15], in the high nibble of its byte. `whole`: 16 in
 * the byte of each value that was not clamped. */
__device__ __forceinline__ unsigned to_nibbles(unsigned bytes, unsigned &whole)
{
    /* low nibble 15: clamped, bit 4 not set: clamped from below */
    unsigned low = bytes & 0x0f * ONES, next = low + ONES, below = ~bytes & 0x10 * ONES;
    whole = ~next & 0x10 * ONES;
    return low * 16 + (whole - below * 14);
}

/* Four complex values of to_nibbles to int4x2 in two's complement: the top bit of each component changes. A
 * missing sample, where `keep` is 0 instead of 255, becomes (-8, -8). */
__device__ __forceinline__ unsigned to_int4(unsigned re, unsigned im, unsigned keep)
{
    return ((im ^ re >> 4) & keep) ^ 0x88 * ONES;
}

/* ---- to powers ---- */

/* |re + i im|^2: each step rounds as on the host. */
__device__ __forceinline__ float power_of(int re, int im)
{
    float x = __int2float_rn(re), y = __int2float_rn(im);
    return __fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y));
}

/* The tree of power.h over N = 2, 4, 8 or 16 neighbours; leaves its own sums in `value`. */
template <int N> __device__ __forceinline__ float add_tree(float *value)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) value[i] = __fadd_rn(value[2 * i], value[2 * i + 1]);
    if constexpr (N > 2)
        return add_tree<N / 2>(value);
    else
        return value[0];
}

} // namespace beamring::baseband

#endif
