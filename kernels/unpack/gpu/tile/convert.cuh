/* convert.cuh - the samples of a thread's positions: powers, and the order of their bytes.
 *
 *   V   a thread's positions                                   how it reads them
 *   8   8 inputs that are neighbours in packet and E           8 bytes a sample
 *   4   4 of them                                              4 bytes a sample
 *   2   any 4 inputs of packets that end in [time][2 inputs]   8 bytes: four samples of 2 inputs, one its own
 *   1   any 4 inputs                                           byte by byte */
#ifndef BEAMRING_KERNELS_UNPACK_GPU_TILE_CONVERT_CUH
#define BEAMRING_KERNELS_UNPACK_GPU_TILE_CONVERT_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace beamring
{
namespace unpack
{

constexpr unsigned TIMES = 4; /* samples taken together: a quad */

/* Up to 4 samples that a thread takes together: of one packet, if their number divides the packet's; of 4
 * packets with one sample each, or of 2 with two. Behind the last packet `left` is 0: nothing has come. */
struct quad {
    unsigned samples, packets;
    unsigned at[TIMES];   /* bytes in a tile from the first sample */
    unsigned left[TIMES]; /* 31 - the packet, counted from the first one; 0: none */
};

__device__ __forceinline__ __half2 as_halves(unsigned bits)
{
    return *reinterpret_cast<const __half2 *>(&bits);
}

__device__ __forceinline__ unsigned as_bits(__half2 halves)
{
    return *reinterpret_cast<const unsigned *>(&halves);
}

/* |E|^2 of bytes 0 and 2, in bytes 0 and 2; components are offset binary. As the last bits of a half they are
 * subnormal numbers, component x 2^-24, and 2^-8 + |E|^2 x 2^-18 has |E|^2 as its last bits. */
__device__ __forceinline__ unsigned powers_of_two(unsigned nibbles)
{
    const __half2 minus8 = __float2half2_rn(-0x1p-6f);
    __half2 low = __hfma2(as_halves(nibbles & 0x000f000fu), __float2half2_rn(0x1p15f), minus8);
    __half2 high = __hfma2(as_halves(nibbles & 0x00f000f0u), __float2half2_rn(0x1p11f), minus8);
    return as_bits(__hfma2(high, high, __hfma2(low, low, __float2half2_rn(0x1p-8f))));
}

/* Rows of 4 bytes to columns. */
__device__ __forceinline__ void transpose(unsigned (&x)[4])
{
    unsigned a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[2], x[3], 0x5140),
             c = __byte_perm(x[0], x[1], 0x7362), d = __byte_perm(x[2], x[3], 0x7362);
    x[0] = __byte_perm(a, b, 0x5410);
    x[1] = __byte_perm(a, b, 0x7632);
    x[2] = __byte_perm(c, d, 0x5410);
    x[3] = __byte_perm(c, d, 0x7632);
}

/* Two's complement to offset binary. (In C++ the compiler would move it behind the shifts: more work.) */
__device__ __forceinline__ unsigned flip_signs(unsigned bytes)
{
    unsigned flipped;
    asm("xor.b32 %0, %1, 0x88888888;" : "=r"(flipped) : "r"(bytes));
    return flipped;
}

/* Powers of four samples of one position, a byte each, added. */
__device__ __forceinline__ void add_powers(unsigned powers, unsigned &s1, unsigned &s2)
{
    s1 = __dp4a(powers, 0x01010101u, s1);
    s2 = __dp4a(powers, powers, s2);
}

/* x[time], a position a byte */
__device__ __forceinline__ void add_by_position(const unsigned (&x)[4], unsigned *s1, unsigned *s2)
{
#pragma unroll
    for (unsigned odd = 0; odd < 2; odd++) {
        unsigned p[4];
#pragma unroll
        for (unsigned k = 0; k < 4; k++) p[k] = powers_of_two(flip_signs(x[k]) >> 8 * odd);
        unsigned a = __byte_perm(p[0], p[1], 0x6240), b = __byte_perm(p[2], p[3], 0x6240);
        add_powers(__byte_perm(a, b, 0x5410), s1[odd], s2[odd]);
        add_powers(__byte_perm(a, b, 0x7632), s1[odd + 2], s2[odd + 2]);
    }
}

/* x[position], a time a byte */
__device__ __forceinline__ void add_by_time(const unsigned (&x)[4], unsigned *s1, unsigned *s2)
{
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned nibbles = flip_signs(x[i]);
        add_powers(__byte_perm(powers_of_two(nibbles), powers_of_two(nibbles >> 8), 0x6240), s1[i], s2[i]);
    }
}

/* Bits 0 to 3 of each byte are those of bytes >> 4, the others those of bytes << 4: one instruction. */
__device__ __forceinline__ unsigned swap_nibbles(unsigned bytes)
{
    unsigned swapped;
    asm("lop3.b32 %0, %1, %2, 0x0f0f0f0f, 0xe4;" : "=r"(swapped) : "r"(bytes >> 4), "r"(bytes << 4));
    return swapped;
}

/* All ones where the packet came: bit 31 - left of `came`, whose bit 31 is 0. */
__device__ __forceinline__ unsigned all_or_none(unsigned came, unsigned left)
{
    return static_cast<unsigned>(static_cast<int>(came << left) >> 31);
}

} // namespace unpack
} // namespace beamring

#endif
