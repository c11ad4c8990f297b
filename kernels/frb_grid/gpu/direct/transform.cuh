/* transform.cuh - one sample of FRB stage 1 in the registers of one warp: grid, transform along both axes,
 * square.
 *
 * The field is made where the tensor cores want the right factor of the first transform, its result is where
 * they want the left factor of the second one, and intensities are added up from the latter's sums: nothing
 * goes through memory. Of |Y[p][+-q]|^2 = |C +- i S|^2 a lane adds up half the sum and a quarter of the
 * difference, which are simpler. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_TRANSFORM_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_TRANSFORM_CUH

#include "kernels/frb_grid/gpu/direct/layout.h"
#include "kernels/frb_grid/gpu/fft.cuh"

namespace beamring
{

/* x of one sample: x_re, x_im[NT][MT], see frb_grid_cell_m. */
template <int MT, int NT> struct field {
    unsigned re[NT][MT], im[NT][MT];

    /* e: the sample's bytes in shared memory. dishes[pair]: those of this lane's two cells (simd: m0),
     * times one byte; cells without a dish have some dish's number, and weight 0. weights: this lane's
     * first of this channel and polarisation. */
    __device__ __forceinline__ void fill(const uint8_t *e, const unsigned (&dishes)[MT * NT],
                                         const uint2 *weights, unsigned lane)
    {
        const __half2 offset = as_half2(0x64086408u), sixteenth = as_half2(0x2c002c00u),
                      offset_16 = as_half2(0xd480d480u);
        uint2 w[(MT * NT + 1) / 2 * 2]; /* simd: b <-> m0  (re, im)  [pair] */
#pragma unroll
        for (int i = 0; i < MT * NT; i += 2) {
            const uint4 two = __ldg(reinterpret_cast<const uint4 *>(weights + frb_grid_weight(i, 0)));
            w[i] = make_uint2(two.x, two.y);
            w[i + 1] = make_uint2(two.z, two.w);
        }
#pragma unroll
        for (int nt = 0; nt < NT; nt++)
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                const int i = frb_grid_pair(MT, mt, nt);
                const unsigned both = __byte_perm(e[dishes[i] & 0xffff], e[dishes[i] >> 16], 0x5410);
                /* Offset binary in the last bits of 1024 and, 16 times, of 1024. */
                const __half2 r = __hsub2_rn(as_half2((both & 0x000f000fu) ^ 0x64086408u), offset);
                const __half2 s = __hfma2(as_half2((both & 0x00f000f0u) ^ 0x64806480u), sixteenth, offset_16);
                const __half2 w_re = as_half2(w[i].x), w_im = as_half2(w[i].y);
                re[nt][mt] = as_bits(__hfma2(__hneg2(w_im), s, __hmul2_rn(w_re, r)));
                im[nt][mt] = as_bits(__hfma2(w_im, r, __hmul2_rn(w_re, s)));
            }
        if (NT > 1) sums_and_differences(re, lane), sums_and_differences(im, lane);
    }

  private:
    /* Sums and differences of mirror images along n, of which the second transform takes the cosines and the
     * sines: the phase pi q n / N counted from the middle of the grid makes no difference to |Y|^2, and so C
     * is even in n and S is odd, which halves the products. */
    static __device__ __forceinline__ void sums_and_differences(unsigned (&x)[NT][MT], unsigned lane)
    {
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
#pragma unroll
            for (int k = 0; k < NT / 2; k++) {
                constexpr int OTHER = NT == 4 ? 2 : 1;
                const __half2 a = as_half2(x[k][mt]), b = as_half2(x[(k + OTHER) % NT][mt]);
                x[k][mt] = as_bits(__hadd2_rn(a, b));
                x[(k + OTHER) % NT][mt] = as_bits(__hsub2_rn(a, b));
            }
            if (NT == 3) {
                const __half2 sign = as_half2(lane < 16 ? 0x3c003c00u : 0xbc00bc00u);
                const unsigned other = __shfl_xor_sync(WHOLE_WARP, x[NT - 1][mt], 16);
                x[NT - 1][mt] = as_bits(__hfma2(as_half2(x[NT - 1][mt]), sign, as_half2(other)));
            }
        }
    }
};

/* The tables that a warp keeps in registers, see frb_grid_wave: m[PT][MT][C, S], n[NT][KT][C, S]. */
template <int MT, int NT, int PT> struct waves {
    static constexpr int KT = (NT + 1) / 2; /* frb_grid_sum_tiles */
    unsigned m[PT][MT][2], n[NT][KT][2];

    /* p_tile: the first of PT */
    __device__ __forceinline__ void load(const uint2 *along_m, const uint2 *along_n, unsigned p_tile,
                                         unsigned lane)
    {
#pragma unroll
        for (int p = 0; p < PT; p++)
#pragma unroll
            for (int k = 0; k < MT; k++) {
                const uint2 v = along_m[frb_grid_wave(MT, p_tile + p, k, lane)];
                m[p][k][0] = v.x, m[p][k][1] = v.y;
            }
#pragma unroll
        for (int q = 0; q < NT; q++)
#pragma unroll
            for (int k = 0; k < KT; k++) {
                const uint2 v = along_n[frb_grid_wave(KT, q, k, lane)];
                n[q][k][0] = v.x, n[q][k][1] = v.y;
            }
    }
};

/* Sums over samples of this lane's directions, see frb_grid_sum_p: even, odd[PT][NT][4].
 * |Y[q]|^2 = even + 2 odd, |Y[-q]|^2 = even - 2 odd; M for -0 of p; of q = 0, |Y[0]|^2 = even - odd, |Y[N]|^2
 * = odd. */
template <int MT, int NT, int PT> struct power {
    static constexpr int KT = (NT + 1) / 2; /* frb_grid_sum_tiles */
    float even[PT][NT][4], odd[PT][NT][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int p = 0; p < PT; p++)
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) even[p][t][i] = odd[p][t][i] = 0;
    }

    __device__ __forceinline__ void add(const field<MT, NT> &x, const waves<MT, NT, PT> &waves, bool lone_p,
                                        bool lone_q, unsigned zero)
    {
#pragma unroll
        for (int p = 0; p < PT; p++) {
            /* y: simd: b <-> n0  register: r <-> minus  thread: t4..t0 <-> p2 p1 p0 n2 n1  [NT]: n3 and up */
            unsigned y_re[NT][2], y_im[NT][2];
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                if (p == 0)
                    transform<MT>(y_re[nt], y_im[nt], waves.m[p], x.re[nt], x.im[nt], lone_p);
                else
                    transform<MT>(y_re[nt], y_im[nt], waves.m[p], x.re[nt], x.im[nt]);
            }
            /* Fragments of sums and of differences: [KT] instead of [NT]. */
            unsigned sum_re[KT][2], sum_im[KT][2], difference_re[KT][2], difference_im[KT][2];
#pragma unroll
            for (int k = 0; k < KT; k++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int a = frb_grid_sum_tile(NT, 0, k), b = frb_grid_sum_tile(NT, 1, k);
                    sum_re[k][r] = y_re[a][r], sum_im[k][r] = y_im[a][r];
                    difference_re[k][r] = y_re[b][r], difference_im[k][r] = y_im[b][r];
                    if (a == b) difference_re[k][r] ^= zero, difference_im[k][r] ^= zero; /* a copy */
                }
#pragma unroll
            for (int t = 0; t < NT; t++) {
                unsigned cosine[KT], sine[KT];
#pragma unroll
                for (int k = 0; k < KT; k++) cosine[k] = waves.n[t][k][0], sine[k] = waves.n[t][k][1];
                float c_re[4], c_im[4], s_re[4], s_im[4]; /* as even and odd */
                multiply<KT>(c_re, sum_re, cosine);
                multiply<KT>(c_im, sum_im, cosine);
                multiply<KT>(s_re, difference_re, sine);
                multiply<KT>(s_im, difference_im, sine);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float &sum = even[p][t][i], &difference = odd[p][t][i];
                    sum = fmaf(c_re[i], c_re[i], sum);
                    sum = fmaf(c_im[i], c_im[i], sum);
                    sum = fmaf(s_re[i], s_re[i], sum);
                    sum = fmaf(s_im[i], s_im[i], sum);
                    if (t == 0 && i % 2 == 0) { /* where q = 0 may be: |C|^2, |S|^2 */
                        difference = fmaf(lone_q ? s_re[i] : c_im[i], s_re[i], difference);
                        difference = fmaf(lone_q ? s_im[i] : -c_re[i], s_im[i], difference);
                    } else {
                        difference = fmaf(c_im[i], s_re[i], difference);
                        difference = fmaf(-c_re[i], s_im[i], difference);
                    }
                }
            }
        }
    }

    /* Sums in memory, see frb_grid_sum. */
    __device__ __forceinline__ void store(float4 *to, unsigned lane) const
    {
#pragma unroll
        for (int p = 0; p < PT; p++)
#pragma unroll
            for (int t = 0; t < NT; t++) {
                const float *a = even[p][t], *b = odd[p][t];
                to[frb_grid_sum(NT, p, t, 0, lane)] = make_float4(a[0], a[1], a[2], a[3]);
                to[frb_grid_sum(NT, p, t, 1, lane)] = make_float4(b[0], b[1], b[2], b[3]);
            }
    }

    __device__ __forceinline__ void add(const float4 *from, unsigned lane)
    {
#pragma unroll
        for (int p = 0; p < PT; p++)
#pragma unroll
            for (int t = 0; t < NT; t++) {
                float *x = even[p][t], *y = odd[p][t];
                const float4 a = from[frb_grid_sum(NT, p, t, 0, lane)],
                             b = from[frb_grid_sum(NT, p, t, 1, lane)];
                x[0] += a.x, x[1] += a.y, x[2] += a.z, x[3] += a.w;
                y[0] += b.x, y[1] += b.y, y[2] += b.z, y[3] += b.w;
            }
    }

    /* image: [2M][2N]; p_tile: the first of PT */
    __device__ __forceinline__ void write(__half *image, unsigned M, unsigned N, float factor,
                                          unsigned p_tile, unsigned lane) const
    {
        const float twice = 2 * factor;
#pragma unroll
        for (int p = 0; p < PT; p++)
#pragma unroll
            for (int minus = 0; minus < 2; minus++) {
                const unsigned down = frb_grid_sum_p(p_tile + p, lane);
                if (down >= M) continue;
                __half *row = image + frb_grid_direction(M, down, minus) * 2 * N;
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    const unsigned across = frb_grid_sum_q(t, lane, 0); /* and the next one */
                    if (across >= N) continue;
                    const float *a = even[p][t] + 2 * minus, *b = odd[p][t] + 2 * minus;
                    const bool lone = t == 0 && across == 0;
                    const float a0 = a[0] * factor, a1 = a[1] * factor;
                    const unsigned ups = intensities(fmaf(lone ? -factor : twice, b[0], a0),
                                                     fmaf(twice, b[1], a1)),
                                   downs = intensities(lone ? factor * b[0] : fmaf(-twice, b[0], a0),
                                                       fmaf(-twice, b[1], a1));
                    *reinterpret_cast<unsigned *>(row + across) = ups;
                    row[frb_grid_direction(N, across, 1)] = __low2half(as_half2(downs));
                    row[2 * N - across - 1] = __high2half(as_half2(downs));
                }
            }
    }

  private:
    /* Two of them as float16. Rounding may have left less than nothing. */
    static __device__ __forceinline__ unsigned intensities(float low, float high)
    {
        unsigned pair;
        asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
        return as_bits(__hmin2(as_half2(pair), as_half2(0x7bff7bffu)));
    }
};

} // namespace beamring

#endif
