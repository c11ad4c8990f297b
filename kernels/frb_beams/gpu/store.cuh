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

} // namespace beamring

#endif
