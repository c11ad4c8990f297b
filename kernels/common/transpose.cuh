/* transpose.cuh - moving index bits of what a warp holds: between the values of a register, its registers,
 * and its lanes; int4 values to float16.
 *
 * Two registers x0, x1 hold values numbered by a register bit and, within a register, by simd bits. A
 * local transpose exchanges the register bit with one of the simd bits, a warp transpose exchanges it with
 * one of the lane's bits:
 *   before   simd: .. b ..  register: r0   thread: .. t ..   <->   .. B ..   R   .. T ..
 *   local    simd: .. b ..  register: r0   thread: .. t ..   <->   .. R ..   B   .. T ..
 *   warp     simd: .. b ..  register: r0   thread: .. t ..   <->   .. B ..   T   .. R ..
 * Each is its own inverse. Their index arithmetic: br_transpose_source in fragments.h. */
#ifndef BEAMRING_KERNELS_COMMON_TRANSPOSE_CUH
#define BEAMRING_KERNELS_COMMON_TRANSPOSE_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/fragments.h"

#include <cuda_fp16.h>

namespace beamring
{

/* Exchanges the register bit with bit SIMD of the byte's number: 0 (bytes of a pair) or 1 (halves: also
 * for values of 16 bits). Two instructions. */
template <unsigned SIMD> __device__ __forceinline__ void transpose_bytes(unsigned &x0, unsigned &x1)
{
    static_assert(SIMD < 2, "a register has four bytes");
    unsigned low = __byte_perm(x0, x1, br_transpose_selector(SIMD, 0));
    x1 = __byte_perm(x0, x1, br_transpose_selector(SIMD, 1));
    x0 = low;
}

/* Exchanges the register bit with bit 0 of the nibble's number: low nibbles of all bytes to x0, high ones
 * to x1. Two shifts and two three-way operations. */
__device__ __forceinline__ void transpose_nibbles(unsigned &x0, unsigned &x1)
{
    unsigned low = (x0 & 0x0f0f0f0fu) | (x1 << 4 & 0xf0f0f0f0u);
    x1 = (x0 >> 4 & 0x0f0f0f0fu) | (x1 & 0xf0f0f0f0u);
    x0 = low;
}

/* Exchanges the register bit with bit BIT of the lane. One shuffle; the whole warp takes part. */
template <unsigned BIT> __device__ __forceinline__ void transpose_lanes(unsigned &x0, unsigned &x1)
{
    static_assert(BIT < 5, "a warp has 32 lanes");
    bool upper = threadIdx.x >> BIT & 1;
    unsigned given = upper ? x0 : x1;
    unsigned taken = __shfl_xor_sync(WHOLE_WARP, given, 1u << BIT);
    x0 = upper ? taken : x0;
    x1 = upper ? x1 : taken;
}

/* Nibble PLACE (0 to 3) of either half of the word, as float16, exactly: with PLACE 0 and a word of two
 * int4+4 values 16 bits apart their real parts, with PLACE 1 their imaginary ones. A nibble with its sign
 * bit inverted is the value + 8; put under the bits of 1024 (bits 0 to 3) or 1024 + 16 times it (bits 4
 * to 7) it is a float16. */
template <int PLACE> __device__ __forceinline__ __half2 int4_halves(unsigned word)
{
    static_assert(PLACE >= 0 && PLACE < 4, "16 bits have four nibbles");
    constexpr unsigned MASK = PLACE % 2 ? 0x00f000f0u : 0x000f000fu,
                       FLIP = PLACE % 2 ? 0x64806480u : 0x64086408u;
    unsigned bits = ((PLACE < 2 ? word : word >> 8) & MASK) ^ FLIP;
    __half2 biased = *reinterpret_cast<__half2 *>(&bits);
    if (PLACE % 2) return __hfma2(biased, __float2half2_rn(0.0625f), __float2half2_rn(-72.0f));
    return __hsub2(biased, __float2half2_rn(1032.0f));
}

} // namespace beamring

#endif
