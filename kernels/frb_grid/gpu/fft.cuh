/* fft.cuh - short Fourier transforms on the tensor cores, zero-padded by 2:
 *
 *   Y[p] = sum_{m < M} exp(+2 pi i m p / 2M) X[m],  0 <= p < 2M,  M = 8, 12, ... 32
 *
 * With C[p][m] = cos(pi m p / M) and S[p][m] = sin(pi m p / M), 0 < p < M, there are two directions at once
 * in Y[+-p] = C X +- i S X, four real products of which two have the same left factor. The directions 0 and
 * M, which have no partner, make up the pair p = 0: there C[0][m] is 1 at even m and S[0][m] is 1 at odd
 * ones, else 0, and Y[0], Y[M] = C X +- S X. So a complex transform of 2M rows costs as much as two real
 * ones.
 *
 * `tiles` are tiles of 8 along the transformed axis, cells behind its end being zero in the tables; columns
 * are spectators. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_FFT_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_FFT_CUH

#include "kernels/common/device.cuh"

#include <cuda_fp16.h>

namespace beamring
{

__device__ __forceinline__ __half2 as_half2(unsigned bits)
{
    return *reinterpret_cast<__half2 *>(&bits);
}

__device__ __forceinline__ unsigned as_bits(__half2 pair)
{
    return *reinterpret_cast<unsigned *>(&pair);
}

/* c += a b for one warp, a 16 rows by 16, b 16 by 8 columns, all float16, each sum rounded once.
 *   a[4], b[2]  as mma_f16
 *   c[2]        simd: col0  register: r0 <-> row3  thread: t4..t0 <-> row2 row1 row0 col2 col1 */
__device__ __forceinline__ void mma_half(unsigned (&c)[2], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_half_k8(unsigned (&c)[2], const unsigned (&a)[2], unsigned b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};\n"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* c = a b over K steps of 8; a[K][2], b[K]. */
template <int K>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[K][2], const unsigned (&b)[K])
{
    c[0] = c[1] = c[2] = c[3] = 0;
    if (K % 2) mma_f16_k8(c, a[K - 1], b[K - 1]);
#pragma unroll
    for (int k = 0; k + 1 < K; k += 2) {
        const unsigned both_a[4] = {a[k][0], a[k][1], a[k + 1][0], a[k + 1][1]}, both_b[2] = {b[k], b[k + 1]};
        mma_f16(c, both_a, both_b);
    }
}

template <int K>
__device__ __forceinline__ void multiply(unsigned (&c)[2], const unsigned (&a)[K][2], const unsigned (&b)[K])
{
    c[0] = c[1] = 0;
    if (K % 2) mma_half_k8(c, a[K - 1], b[K - 1]);
#pragma unroll
    for (int k = 0; k + 1 < K; k += 2) {
        const unsigned both_a[4] = {a[k][0], a[k][1], a[k + 1][0], a[k + 1][1]}, both_b[2] = {b[k], b[k + 1]};
        mma_half(c, both_a, both_b);
    }
}

/* Transforms 8 columns for 8 pairs of directions. The output is laid out as the left
 * factor of a second product along the columns.
 *   wave[tiles][C, S]  simd: b <-> m0   thread: t4..t0 <-> p2 p1 p0 m2 m1
 *   x_re, x_im[tiles]  simd: b <-> m0   thread: t4..t0 <-> n2 n1 n0 m2 m1
 *   y_re, y_im[2]      simd: b <-> n0   register: r <-> minus   thread: t4..t0 <-> p2 p1 p0 n2 n1
 *   lone               this lane's p is 0 */
template <int TILES>
__device__ __forceinline__ void transform(unsigned (&y_re)[2], unsigned (&y_im)[2],
                                          const unsigned (&wave)[TILES][2], const unsigned (&x_re)[TILES],
                                          const unsigned (&x_im)[TILES], bool lone)
{
    /* re, im: register: r <-> (C, S), else as y */
    unsigned re[2], im[2];
    multiply<TILES>(re, wave, x_re);
    multiply<TILES>(im, wave, x_im);
    const __half2 c_re = as_half2(re[0]), c_im = as_half2(im[0]), a = as_half2(lone ? re[1] : im[1]),
                  b = as_half2(lone ? im[1] : re[1]), sign = as_half2(lone ? 0x3c003c00u : 0xbc00bc00u);
    y_re[0] = as_bits(__hfma2(a, sign, c_re));
    y_re[1] = as_bits(__hfma2(a, __hneg2(sign), c_re));
    y_im[0] = as_bits(__hadd2_rn(c_im, b));
    y_im[1] = as_bits(__hsub2_rn(c_im, b));
}

/* The same where no lane's p is 0. */
template <int TILES>
__device__ __forceinline__ void transform(unsigned (&y_re)[2], unsigned (&y_im)[2],
                                          const unsigned (&wave)[TILES][2], const unsigned (&x_re)[TILES],
                                          const unsigned (&x_im)[TILES])
{
    unsigned re[2], im[2];
    multiply<TILES>(re, wave, x_re);
    multiply<TILES>(im, wave, x_im);
    const __half2 c_re = as_half2(re[0]), c_im = as_half2(im[0]), s_re = as_half2(re[1]),
                  s_im = as_half2(im[1]);
    y_re[0] = as_bits(__hsub2_rn(c_re, s_im));
    y_re[1] = as_bits(__hadd2_rn(c_re, s_im));
    y_im[0] = as_bits(__hadd2_rn(c_im, s_re));
    y_im[1] = as_bits(__hsub2_rn(c_im, s_re));
}

} // namespace beamring

#endif
