/* store.cuh - float16 to and from the registers of FRB stage 2's matrix products. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_STORE_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_STORE_CUH

#include "kernels/common/device.cuh"

#include <cuda_fp16.h>
#include <stddef.h>
#include <stdint.h>

namespace beamring
{

__device__ __forceinline__ unsigned pack_halves(float low, float high)
{
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<unsigned *>(&both);
}

/* Clamped to what is finite in float16. */
__device__ __forceinline__ unsigned pack_clamped(float low, float high)
{
    unsigned both;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* b[0] = low half of u_p times u_q, b[1] = its high half times u_q. */
__device__ __forceinline__ void outer_product(unsigned (&b)[2], unsigned u_p, unsigned u_q)
{
    __half2 p = *reinterpret_cast<__half2 *>(&u_p), q = *reinterpret_cast<__half2 *>(&u_q);
    __half2 low = __hmul2(__low2half2(p), q), high = __hmul2(__high2half2(p), q);
    b[0] = *reinterpret_cast<unsigned *>(&low);
    b[1] = *reinterpret_cast<unsigned *>(&high);
}

/* Starts to copy 8 values at in[offset], of which only the first `count` (an even number) exist: the others
 * become 0. `in` itself must be an address in device memory. */
__device__ __forceinline__ void copy_piece(uint4 *shared, const uint16_t *in, size_t offset, unsigned count,
                                           bool wide)
{
    if (wide) {
        copy_async_16(shared, count > 0 ? in + offset : in, count > 0);
    } else {
        unsigned *words = reinterpret_cast<unsigned *>(shared);
#pragma unroll
        for (unsigned i = 0; i < 4; i++)
            copy_async_4(words + i, 2 * i < count ? in + offset + 2 * i : in, 2 * i < count);
    }
}

/* Writes 8 consecutive values, of which only the first `count` exist: values 2n, 2n + 1 are sum[n][2 half],
 * sum[n][2 half + 1] times `scale`, clamped to what is finite in float16. */
__device__ __forceinline__ void store_octet(uint16_t *out, const float (&sum)[4][4], int half, float scale,
                                            unsigned count, bool wide)
{
    unsigned word[4]; /* simd: i0  register: i2 i1 */
#pragma unroll
    for (int n = 0; n < 4; n++)
        word[n] = pack_clamped(sum[n][2 * half] * scale, sum[n][2 * half + 1] * scale);
    if (wide) {
        *reinterpret_cast<uint4 *>(out) = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
#pragma unroll
        for (unsigned i = 0; i < 8; i++)
            if (i < count) out[i] = static_cast<uint16_t>(word[i / 2] >> i % 2 * 16);
    }
}

/* The eight halves from number `at`, 0 to 7, on of sixteen. */
__device__ __forceinline__ uint4 eight_from(uint4 low, uint4 high, unsigned at)
{
    unsigned word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}, bits = at % 2 * 16;
#pragma unroll
    for (int i = 0; i < 6; i++) word[i] = at & 4 ? word[i + 2] : word[i];
#pragma unroll
    for (int i = 0; i < 5; i++) word[i] = at & 2 ? word[i + 1] : word[i];
    return make_uint4(__funnelshift_r(word[0], word[1], bits), __funnelshift_r(word[1], word[2], bits),
                      __funnelshift_r(word[2], word[3], bits), __funnelshift_r(word[3], word[4], bits));
}

/* Copies n halves to any address, by `threads` threads, of which there are at least 8: in pieces of 16 bytes
 * where n is a multiple of 8 and `from` one of 16 bytes. */
__device__ __forceinline__ void copy_row(uint16_t *to, const uint16_t *from, unsigned n, unsigned thread,
                                         unsigned threads)
{
    if (n % 8 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
        for (unsigned i = thread; i < n; i += threads) to[i] = from[i];
        return;
    }
    const unsigned head = (8 - static_cast<unsigned>(reinterpret_cast<uintptr_t>(to) / 2 % 8)) % 8,
                   pieces = n / 8 - (head > 0 ? 1 : 0);
    const uint4 *piece = reinterpret_cast<const uint4 *>(from);
    uint4 *aligned = reinterpret_cast<uint4 *>(to + head);
#pragma unroll 4
    for (unsigned i = thread; i < pieces; i += threads)
        aligned[i] = eight_from(piece[i], piece[head > 0 ? i + 1 : i], head);
    if (head == 0 || thread >= 8) return;
    const unsigned end = thread < head ? thread : n - 8 + thread; /* of the first ones, or of the last ones */
    to[end] = from[end];
}

} // namespace beamring

#endif
