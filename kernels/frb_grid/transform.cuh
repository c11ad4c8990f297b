/* transform.cuh - one sample of FRB stage 1 in the registers of one warp: grid, transform along both axes, square.
 *
 * The field is made where the tensor cores want the right factor of the first transform, its result is where they want the
 * left factor of the second one, and intensities are added up from the latter's sums: nothing goes through memory. Of
 * |Y[p][+-q]|^2 = |C +- i S|^2 a lane adds up half the sum and a quarter of the difference, which are simpler. */
#ifndef BEAMRING_KERNELS_FRB_GRID_TRANSFORM_CUH
#define BEAMRING_KERNELS_FRB_GRID_TRANSFORM_CUH

#include "kernels/frb_grid/fft.cuh"
#include "kernels/frb_grid/layout.h"

namespace beamring
{

/* x of one sample: x_re, x_im[NT][MT], see frb_grid_cell_m. */
template <int MT, int NT> struct field {
    unsigned re[NT][MT], im[NT][MT];

    /* e: the sample's bytes in shared memory. dishes[pair]: those of this lane's two cells (simd: m0), times one byte; cells
     * without a dish have some dish's number, and weight 0. weights: this lane's first of this channel and polarisation. */
    __device__ __forceinline__ void fill(const uint8_t *e, const unsigned (&dishes)[MT * NT], const uint2 *weights)
    {
        const __half2 offset = as_half2(0x64086408u), sixteenth = as_half2(0x2c002c00u), offset_16 = as_half2(0xd480d480u);
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
    }
};

/* The tables that a warp keeps in registers, see frb_grid_wave: m[PT][MT][C, S], n[NT][NT][C, S]. */
template <int MT, int NT, int PT> struct waves {
    unsigned m[PT][MT][2], n[NT][NT][2];

    /* p_tile: the first of PT */
    __device__ __forceinline__ void load(const uint2 *along_m, const uint2 *along_n, unsigned p_tile, unsigned lane)
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
            for (int k = 0; k < NT; k++) {
                const uint2 v = along_n[frb_grid_wave(NT, q, k, lane)];
                n[q][k][0] = v.x, n[q][k][1] = v.y;
            }
    }
};

/* Sums over samples of this lane's directions, see frb_grid_sum_p: even, odd[PT][NT][4].
 * |Y[q]|^2 = even + 2 odd, |Y[-q]|^2 = even - 2 odd (N for -0); M for -0 of p. */
template <int MT, int NT, int PT> struct power {
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

    __device__ __forceinline__ void add(const field<MT, NT> &x, const waves<MT, NT, PT> &waves, bool lone_p, bool lone_q)
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
#pragma unroll
            for (int t = 0; t < NT; t++) {
                unsigned cosine[NT], sine[NT];
#pragma unroll
                for (int k = 0; k < NT; k++) cosine[k] = waves.n[t][k][0], sine[k] = waves.n[t][k][1];
                float c_re[4], c_im[4], s_re[4], s_im[4]; /* as even and odd */
                multiply<NT>(c_re, y_re, cosine);
                multiply<NT>(c_im, y_im, cosine);
                multiply<NT>(s_re, y_re, sine);
                multiply<NT>(s_im, y_im, sine);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float &sum = even[p][t][i], &difference = odd[p][t][i];
                    sum = fmaf(c_re[i], c_re[i], sum);
                    sum = fmaf(c_im[i], c_im[i], sum);
                    sum = fmaf(s_re[i], s_re[i], sum);
                    sum = fmaf(s_im[i], s_im[i], sum);
                    if (t == 0 && i % 2 == 0) { /* where q = 0 may be: |C +- S|^2 */
                        difference = fmaf(lone_q ? c_re[i] : c_im[i], s_re[i], difference);
                        difference = fmaf(lone_q ? c_im[i] : -c_re[i], s_im[i], difference);
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
                const float4 a = from[frb_grid_sum(NT, p, t, 0, lane)], b = from[frb_grid_sum(NT, p, t, 1, lane)];
                x[0] += a.x, x[1] += a.y, x[2] += a.z, x[3] += a.w;
                y[0] += b.x, y[1] += b.y, y[2] += b.z, y[3] += b.w;
            }
    }

    /* image: [2M][2N]; p_tile: the first of PT */
    __device__ __forceinline__ void write(__half *image, unsigned M, unsigned N, float factor, unsigned p_tile,
                                          unsigned lane) const
    {
#pragma unroll
        for (int p = 0; p < PT; p++)
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const unsigned down = frb_grid_sum_p(p_tile + p, lane), across = frb_grid_sum_q(t, lane, i);
                    if (down >= M || across >= N) continue;
                    __half *row = image + frb_grid_direction(M, down, i / 2) * 2 * N;
                    /* Rounding may leave less than nothing. */
                    const float a = fmaf(2, odd[p][t][i], even[p][t][i]), b = fmaf(-2, odd[p][t][i], even[p][t][i]);
                    row[across] = __float2half_rn(fminf(fmaxf(a * factor, 0), 65504.0f));
                    row[frb_grid_direction(N, across, 1)] = __float2half_rn(fminf(fmaxf(b * factor, 0), 65504.0f));
                }
    }
};

} // namespace beamring

#endif
