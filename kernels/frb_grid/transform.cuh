/* transform.cuh - one sample of FRB stage 1 on the tensor cores of a GPU: grid, transform, square.
 *
 * With C[p][m] = cos(pi m p / M) and S[p][m] = sin(pi m p / M), 0 < p < M, a transform along m gives for two
 * directions at once Y[+-p] = sum_m e^(+-i pi m p / M) X[m] = (C Re X -+ S Im X) + i (C Im X +- S Re X) from
 * four real products, of which two have the same left factor. The directions 0 and M, which have no partner,
 * share the place p = 0: there S[0][m] is cos(pi m), the row of Y[M]. The transform along n is the same with
 * q and N. So a complex transform of 2M rows costs as much as two real ones.
 *
 * A warp makes 8 pairs +-p for all q. The 16 rows of its left factor are 8 rows of C and 8 of S; a thread so
 * has cosine and sine sum of the same place, and their combinations are, rounded to float16, already where
 * the tensor cores want the left factor of the second product: between the two nothing goes to memory. Of
 * |Y[p][+-q]|^2 the thread adds up the half sum and a quarter of the difference, which are simpler. */
#ifndef BEAMRING_KERNELS_FRB_GRID_TRANSFORM_CUH
#define BEAMRING_KERNELS_FRB_GRID_TRANSFORM_CUH

#include "kernels/common/device.cuh"

#include <cuda_fp16.h>

namespace beamring
{

__device__ __forceinline__ unsigned half_pair(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<unsigned *>(&pair);
}

/* A component of int4+4 as float, from the low nibble of `bits`: 2^23 has room for it. */
__device__ __forceinline__ float int4_float(unsigned bits)
{
    return __uint_as_float((bits & 15u) ^ 0x4b000008u) - 8388616.0f;
}

/* X of one sample, as right factor, in shared memory: [NT][MT][lane] of (re, im)
 *   simd: m0  thread: t4..t0 <-> n2 n1 n0 m2 m1  [NT]: n3 and up  [MT]: m3 and up
 * Warp i makes m-tile i of all n. */
template <int MT, int NT> struct field {
    uint2 pair[NT][MT][32];

    /* e: the sample's D bytes in shared memory. dishes: for each n-tile those of this thread's two cells
     * (simd: m0); cells without a dish have some dish's number, and weight 0. weights: [NT][threads] of (re,
     * im) of both cells. */
    __device__ __forceinline__ void fill(const uint8_t *e, const unsigned (&dishes)[NT],
                                         const float4 *weights, unsigned warp, unsigned lane)
    {
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            unsigned first = e[dishes[nt] & 0xffff], second = e[dishes[nt] >> 16];
            float4 w = __ldg(weights + nt * 32 * MT);
            float re0 = int4_float(first), im0 = int4_float(first >> 4);
            float re1 = int4_float(second), im1 = int4_float(second >> 4);
            /* Spelled out, so that every copy of this code rounds alike. */
            unsigned re =
                half_pair(fmaf(w.x, re0, -__fmul_rn(w.y, im0)), fmaf(w.z, re1, -__fmul_rn(w.w, im1)));
            unsigned im = half_pair(fmaf(w.x, im0, __fmul_rn(w.y, re0)), fmaf(w.z, im1, __fmul_rn(w.w, re1)));
            pair[nt][warp][lane] = make_uint2(re, im);
        }
    }
};

/* The factors that a warp keeps in registers.
 *   m[MT][C, S]      simd: m0  thread: t4..t0 <-> p2 p1 p0 m2 m1  [MT]: m3 and up  warp: p3 and up
 *   n[NT][NT][C, S]  simd: n0  thread: t4..t0 <-> q2 q1 q0 n2 n1  [NT]: q3 and up  [NT]: n3 and up */
template <int MT, int NT> struct waves {
    unsigned m[MT][2], n[NT][NT][2];

    /* along_m: [MT p-tiles][MT][lane] of (C, S), along_n: [NT][NT][lane] */
    __device__ __forceinline__ void load(const uint2 *along_m, const uint2 *along_n, unsigned warp,
                                         unsigned lane)
    {
#pragma unroll
        for (int k = 0; k < MT; k++) {
            uint2 v = along_m[(warp * MT + k) * 32 + lane];
            m[k][0] = v.x, m[k][1] = v.y;
        }
#pragma unroll
        for (int q = 0; q < NT; q++)
#pragma unroll
            for (int k = 0; k < NT; k++) {
                uint2 v = along_n[(q * NT + k) * 32 + lane];
                n[q][k][0] = v.x, n[q][k][1] = v.y;
            }
    }
};

/* c += a b over K steps of 8; a[K][2], b[K]. */
template <int K>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[K][2], const unsigned (&b)[K])
{
#pragma unroll
    for (int k = 0; k + 1 < K; k += 2) {
        const unsigned both_a[4] = {a[k][0], a[k][1], a[k + 1][0], a[k + 1][1]}, both_b[2] = {b[k], b[k + 1]};
        mma_f16(c, both_a, both_b);
    }
    if (K % 2) mma_f16_k8(c, a[K - 1], b[K - 1]);
}

/* Sums over samples, of this thread's directions:
 *   even, odd [NT][4]  register: r1 r0 <-> sign of p, q0   thread: t4..t0 <-> p2 p1 p0 q2 q1
 *                      [NT]: q3 and up   warp: p3 and up
 * |Y[q]|^2 = even + 2 odd, |Y[-q]|^2 = even - 2 odd (N for -0); M for -0 of p. */
template <int MT, int NT> struct power {
    float even[NT][4], odd[NT][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) even[t][i] = odd[t][i] = 0;
    }

    __device__ __forceinline__ void add(const field<MT, NT> &x, const waves<MT, NT> &waves, unsigned warp,
                                        unsigned lane)
    {
        const bool lone_p = warp == 0 && lane / 4 == 0, lone_q = lane % 4 == 0;
        /* g: simd: n0  register: r0 <-> sign of p  thread: t4..t0 <-> p2 p1 p0 n2 n1  [NT]: n3 and up */
        unsigned g_re[NT][2], g_im[NT][2];
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            unsigned x_re[MT], x_im[MT];
#pragma unroll
            for (int k = 0; k < MT; k++) {
                uint2 v = x.pair[nt][k][lane];
                x_re[k] = v.x, x_im[k] = v.y;
            }
            /* re, im: register: r1 r0 <-> (C, S) n0  thread: t4..t0 <-> p2 p1 p0 n2 n1 */
            float re[4] = {0, 0, 0, 0}, im[4] = {0, 0, 0, 0};
            multiply<MT>(re, waves.m, x_re);
            multiply<MT>(im, waves.m, x_im);
            float plus_re[2], plus_im[2], minus_re[2], minus_im[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                plus_re[i] = lone_p ? re[i] : re[i] - im[i + 2];
                plus_im[i] = lone_p ? im[i] : im[i] + re[i + 2];
                minus_re[i] = lone_p ? re[i + 2] : re[i] + im[i + 2];
                minus_im[i] = lone_p ? im[i + 2] : im[i] - re[i + 2];
            }
            g_re[nt][0] = half_pair(plus_re[0], plus_re[1]);
            g_re[nt][1] = half_pair(minus_re[0], minus_re[1]);
            g_im[nt][0] = half_pair(plus_im[0], plus_im[1]);
            g_im[nt][1] = half_pair(minus_im[0], minus_im[1]);
        }
#pragma unroll
        for (int t = 0; t < NT; t++) {
            unsigned cosine[NT], sine[NT];
#pragma unroll
            for (int k = 0; k < NT; k++) cosine[k] = waves.n[t][k][0], sine[k] = waves.n[t][k][1];
            /* all: as even and odd */
            float c_re[4] = {0, 0, 0, 0}, c_im[4] = {0, 0, 0, 0}, s_re[4] = {0, 0, 0, 0},
                  s_im[4] = {0, 0, 0, 0};
            multiply<NT>(c_re, g_re, cosine);
            multiply<NT>(c_im, g_im, cosine);
            multiply<NT>(s_re, g_re, sine);
            multiply<NT>(s_im, g_im, sine);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (t == 0 && i % 2 == 0) { /* where q = 0 may be */
                    float c = fmaf(c_re[i], c_re[i], __fmul_rn(c_im[i], c_im[i]));
                    float s = fmaf(s_re[i], s_re[i], __fmul_rn(s_im[i], s_im[i]));
                    even[t][i] += lone_q ? 0.5f * (c + s) : c + s;
                    odd[t][i] +=
                        lone_q ? 0.25f * (c - s) : fmaf(c_im[i], s_re[i], -__fmul_rn(c_re[i], s_im[i]));
                } else {
                    even[t][i] = fmaf(c_re[i], c_re[i], even[t][i]);
                    even[t][i] = fmaf(c_im[i], c_im[i], even[t][i]);
                    even[t][i] = fmaf(s_re[i], s_re[i], even[t][i]);
                    even[t][i] = fmaf(s_im[i], s_im[i], even[t][i]);
                    odd[t][i] = fmaf(c_im[i], s_re[i], odd[t][i]);
                    odd[t][i] = fmaf(-c_re[i], s_im[i], odd[t][i]);
                }
            }
        }
    }

    /* Sums in memory: [2 NT][threads] of float4, threads of a block being 32 MT; `to` and `from` are this
     * thread's first. */
    __device__ __forceinline__ void store(float4 *to) const
    {
#pragma unroll
        for (int t = 0; t < NT; t++) {
            to[2 * t * 32 * MT] = make_float4(even[t][0], even[t][1], even[t][2], even[t][3]);
            to[(2 * t + 1) * 32 * MT] = make_float4(odd[t][0], odd[t][1], odd[t][2], odd[t][3]);
        }
    }

    __device__ __forceinline__ void load(const float4 *from)
    {
#pragma unroll
        for (int t = 0; t < NT; t++) {
            float4 a = from[2 * t * 32 * MT], b = from[(2 * t + 1) * 32 * MT];
            even[t][0] = a.x, even[t][1] = a.y, even[t][2] = a.z, even[t][3] = a.w;
            odd[t][0] = b.x, odd[t][1] = b.y, odd[t][2] = b.z, odd[t][3] = b.w;
        }
    }

    __device__ __forceinline__ void add(const float4 *from)
    {
#pragma unroll
        for (int t = 0; t < NT; t++) {
            float4 a = from[2 * t * 32 * MT], b = from[(2 * t + 1) * 32 * MT];
            even[t][0] += a.x, even[t][1] += a.y, even[t][2] += a.z, even[t][3] += a.w;
            odd[t][0] += b.x, odd[t][1] += b.y, odd[t][2] += b.z, odd[t][3] += b.w;
        }
    }

    /* image: [2M][2N] */
    __device__ __forceinline__ void write(__half *image, int M, int N, float factor, unsigned warp,
                                          unsigned lane) const
    {
        const int p = static_cast<int>(8 * warp + lane / 4);
        if (p >= M) return;
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int q = 8 * t + 2 * static_cast<int>(lane % 4) + i % 2;
                int row = i / 2 == 0 ? p : p == 0 ? M : 2 * M - p, other = q == 0 ? N : 2 * N - q;
                if (q >= N) continue;
                /* Rounding may leave less than nothing. */
                float plus = fminf(fmaxf(fmaf(2, odd[t][i], even[t][i]) * factor, 0), 65504.0f);
                float minus = fminf(fmaxf(fmaf(-2, odd[t][i], even[t][i]) * factor, 0), 65504.0f);
                image[row * 2 * N + q] = __float2half_rn(plus);
                image[row * 2 * N + other] = __float2half_rn(minus);
            }
    }
};

} // namespace beamring

#endif
