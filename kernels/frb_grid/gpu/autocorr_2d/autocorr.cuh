/* autocorr.cuh - FRB stage 1 for grids of 8 x L cells, L = 8 or 12, in the registers of one warp.
 *
 * The intensities of a field x[m][g] that is zero-padded by 2 are the transform of its autocorrelation,
 *
 *   |Y[p][q]|^2 = sum_{lag, d} B[lag][d] exp(i pi (p lag / L + q d / 8)),
 *   B[lag][d] = sum_{m, g} x[m + lag][g] conj(x[m][g - d]),
 *
 * and both are linear in it: only the autocorrelation has to be summed over samples, which is what tensor
 * cores do best, and the transform is made once for each block of time. The sums of products of rows m + lag
 * by columns m over samples are
 *
 *   V[lag][g][h] = sum_m x[m + lag][g] conj(x[m][h]),   lag >= 0.
 *
 * With x = R + i I, Re V = R R' + I I' and Im V = I R' - R I' are the two halves of one product, whose left
 * factor has the rows (R, I) and (I, -R) and whose right one the columns (R', I'). Intensities are
 *
 *   I[p][q] = Re sum_lag c exp(i pi p lag / L) G[lag][q],   c = 1 for lag 0, else 2,
 *   G[lag][q] = sum_{g, h} V[lag][g][h] exp(i pi q (g - h) / 8):
 *
 * G is the transform across of the diagonals' sums, a product of K = 64. With its cosine and sine sums of Re
 * V and Im V, 0 <= q <= 8,
 *
 *   I[p][+-q] = sum_lag c (cos Re_cos - sin Im_cos) -+ sum_lag c (cos Im_sin + sin Re_sin),
 *
 * cos and sin being those of pi p lag / L. Both transforms run on the tensor cores (float16, float32
 * sums). */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_AUTOCORR_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_AUTOCORR_CUH

#include "kernels/frb_grid/gpu/autocorr_2d/layout.h"
#include "kernels/frb_grid/gpu/fft.cuh"

namespace beamring
{

/* 0x08080808 and 0, as parameters of the kernel so that the compiler does not know them: it keeps the first
 * one in a register, and one operation masks and inverts. */
struct autocorr_2d_constants {
    unsigned eights;
    unsigned zero; /* x ^ zero is a copy that the compiler does not undo */
};

/* For four cells of a lane: weights (re, im), and the correction of the nibbles' offset, see weigh(). */
struct autocorr_2d_weights {
    uint4 weight, offset;
};

/* Loads them at each use: the compiler would keep them in registers, of which there are too few. from: see
 * frb_autocorr_2d_weight. */
__device__ __forceinline__ autocorr_2d_weights load_weights(const uint4 *from)
{
    autocorr_2d_weights w;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(w.weight.x), "=r"(w.weight.y), "=r"(w.weight.z), "=r"(w.weight.w)
                 : "l"(from));
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(w.offset.x), "=r"(w.offset.y), "=r"(w.offset.z), "=r"(w.offset.w)
                 : "l"(from + frb_autocorr_2d_offset() / 4));
    return w;
}

/* Nibbles of four cells, plus 8, a byte each. */
__device__ __forceinline__ unsigned nibbles(unsigned bytes, const autocorr_2d_constants &constants)
{
    return (bytes & 0x0f0f0f0fu) ^ constants.eights;
}

/* Byte k of a and byte k of b with zeros above them: two times of one cell. No byte has its highest bit. */
__device__ __forceinline__ unsigned two_times(unsigned a, unsigned b, unsigned k)
{
    unsigned pair;
    asm("prmt.b32 %0, %1, %2, %3;\n"
        : "=r"(pair)
        : "r"(a), "r"(b), "r"(0xc480u + 0x1111u * k)); /* 8: the highest bit, 8 times */
    return pair;
}

/* Two times of one cell:
 *   r, s   its real and imaginary part plus 8, as the integers that subnormal float16 are
 *   w      (re, im) of its weight
 *   k      -8 times (re - im, re + im) of it, which are float16 (frb_autocorr_2d_offset): 0 comes out as 0 */
__device__ __forceinline__ void weigh(unsigned &re, unsigned &im, unsigned r, unsigned s, unsigned w,
                                      unsigned k)
{
    const __half2 w_re = __low2half2(as_half2(w)), w_im = __high2half2(as_half2(w)),
                  k_re = __low2half2(as_half2(k)), k_im = __high2half2(as_half2(k));
    re = as_bits(__hfma2(w_re, as_half2(r), __hfma2(__hneg2(w_im), as_half2(s), k_re)));
    im = as_bits(__hfma2(w_im, as_half2(r), __hfma2(w_re, as_half2(s), k_im)));
}

/* re, im[L], see frb_autocorr_2d_cell. */
template <int L> struct autocorr_2d_field {
    unsigned re[L], im[L];

    __device__ __forceinline__ void weigh_four(int i, const unsigned (&r)[4], const unsigned (&s)[4],
                                               const autocorr_2d_weights &w)
    {
        const unsigned weight[4] = {w.weight.x, w.weight.y, w.weight.z, w.weight.w},
                       offset[4] = {w.offset.x, w.offset.y, w.offset.z, w.offset.w};
#pragma unroll
        for (int k = 0; k < 4; k++) weigh(re[i + k], im[i + k], r[k], s[k], weight[k], offset[k]);
    }

    /* a, b: bytes of this lane's cells at its two times. weights(i): of cells i to i + 3, of this lane's
     * polarisation. */
    template <class WEIGHTS>
    __device__ __forceinline__ void fill(const unsigned (&a)[L / 4], const unsigned (&b)[L / 4],
                                         const WEIGHTS &weights, const autocorr_2d_constants &constants)
    {
#pragma unroll
        for (int i = 0; i < L; i += 4) {
            const unsigned low_a = nibbles(a[i / 4], constants), low_b = nibbles(b[i / 4], constants),
                           high_a = nibbles(a[i / 4] >> 4, constants),
                           high_b = nibbles(b[i / 4] >> 4, constants);
            unsigned r[4], s[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                r[k] = two_times(low_a, low_b, k), s[k] = two_times(high_a, high_b, k);
            weigh_four(i, r, s, weights(i));
        }
    }

    /* The same in shared memory: e is a multiple of 4, the first cell's bit is `shift` behind it; the second
     * time is `later` bytes behind. */
    __device__ __forceinline__ void fill(const uint8_t *e, unsigned later, unsigned shift,
                                         const uint4 *weights, const autocorr_2d_constants &constants)
    {
        unsigned bytes[2][L / 4];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const unsigned *word = reinterpret_cast<const unsigned *>(e + (k ? later : 0));
            unsigned low = word[0];
#pragma unroll
            for (int i = 0; i < L / 4; i++) {
                const unsigned high = word[i + 1];
                bytes[k][i] = __funnelshift_r(low, high, shift);
                low = high;
            }
        }
        fill(
            bytes[0], bytes[1],
            [&](int i) { return load_weights(weights + frb_autocorr_2d_weight(L, 0, i, 0) / 4); }, constants);
    }

    /* The same of dishes anywhere; e: bytes of this lane's first time, the other one is `later` bytes behind;
     * dish has a byte for each cell. */
    __device__ __forceinline__ void gather(const uint8_t *e, unsigned later, const unsigned (&dish)[L / 4],
                                           const uint4 *weights)
    {
#pragma unroll
        for (int i = 0; i < L; i += 4) {
            unsigned r[4], s[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint8_t *at = e + __byte_perm(dish[i / 4], 0, 0x4440 + k);
                const unsigned both = __byte_perm(at[0], at[later], 0x5410);
                r[k] = (both & 0x000f000fu) ^ 0x00080008u, s[k] = (both >> 4 & 0x000f000fu) ^ 0x00080008u;
            }
            weigh_four(i, r, s, load_weights(weights + frb_autocorr_2d_weight(L, 0, i, 0) / 4));
        }
    }
};

/* Four matrices of 8 rows of 16 bytes to shared memory, as load_matrices reads them. */
__device__ __forceinline__ void store_matrices(unsigned row, const unsigned (&from)[4])
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned m = 0; m < 4; m++) {
        const unsigned at = __shfl_sync(WHOLE_WARP, row, 8 * m + lane / 4) + lane % 4 * 4;
        asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(at), "r"(from[m]) : "memory");
    }
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
#endif
}

__device__ __forceinline__ unsigned half_pair(float x, float y)
{
    return as_bits(__floats2half2_rn(x, y));
}

/* V of this lane, see frb_autocorr_2d_lag. */
template <int L> struct autocorrelation {
    static constexpr int LAG_TILES = (L + 7) / 8;
    float v[L][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < L * 4; i++) v[i / 4][i % 4] = 0;
    }

    template <bool FIRST = false>
    __device__ __forceinline__ void add(const autocorr_2d_field<L> &x, unsigned zero)
    {
        unsigned left[L][4]; /* the first two are right factors, too */
#pragma unroll
        for (int m = 0; m < L; m++) {
            left[m][0] = x.re[m], left[m][1] = x.im[m];
            left[m][2] = x.im[m] ^ zero;
            left[m][3] = as_bits(__hsub2_rn(as_half2(0x80008000u), as_half2(x.re[m]))); /* -0 - re */
        }
#pragma unroll
        for (int j = 0; j < L; j++)
#pragma unroll
            for (int lag = 0; lag <= j; lag++) {
                const unsigned right[2] = {left[j - lag][0], left[j - lag][1]};
                if (FIRST && lag == j)
                    for (int i = 0; i < 4; i++) v[lag][i] = 0;
                mma_f16(v[lag], left[j], right);
            }
    }

    /* V to shared memory; row: of this lane, frb_autocorr_2d_store_row. */
    __device__ __forceinline__ void store(unsigned row) const
    {
#pragma unroll
        for (int lag = 0; lag < L; lag += 2) {
            /* register: r1 r0 <-> part lag0 */
            const unsigned pairs[4] = {
                half_pair(v[lag][0], v[lag][1]), half_pair(v[lag + 1][0], v[lag + 1][1]),
                half_pair(v[lag][2], v[lag][3]), half_pair(v[lag + 1][2], v[lag + 1][3])};
            store_matrices(row + frb_autocorr_2d_store(L, lag / 2), pairs);
        }
    }

    /* Intensities of V in shared memory, see frb_autocorr_2d_image_across; row: of this lane, see
     * frb_autocorr_2d_load_row; waves: this lane's. */
    static __device__ __forceinline__ void
    transform(float (&image)[L / 4][4], const unsigned (&row)[LAG_TILES], const uint4 *waves, unsigned lane)
    {
        const bool lone = lane < 4; /* q is 0, and 8 */
        /* rows: what G[q] and G[-q] have in common, half their difference; columns: p */
        float sums[L / 4][4];
#pragma unroll
        for (int t = 0; t < L / 4; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[t][i] = 0;
#pragma unroll
        for (int tile = 0; tile < LAG_TILES; tile++) {
            float re[4] = {}, im[4] = {}; /* of V; rows: frb_autocorr_2d_row_across, columns: lags */
#pragma unroll
            for (int step = 0; step < 4; step++) {
                const uint4 table = __ldg(waves + frb_autocorr_2d_wave_across(step, 0));
                const unsigned across[4] = {table.x, table.y, table.z, table.w};
                unsigned products[4];
                load_matrices(products, row[tile] + frb_autocorr_2d_load(L, step));
                const unsigned of_re[2] = {products[0], products[1]}, of_im[2] = {products[2], products[3]};
                mma_f16(re, across, of_re);
                mma_f16(im, across, of_im);
            }
            /* As mma.sync's a: k are lags, of what goes with cosines, then of what goes with sines. */
            const unsigned sine_re = half_pair(re[2], re[3]), sine_im = half_pair(im[2], im[3]);
            const unsigned g[4] = {half_pair(re[0], re[1]), lone ? sine_re : sine_im, half_pair(im[0], im[1]),
                                   lone ? sine_im : sine_re ^ 0x80008000u};
#pragma unroll
            for (int t = 0; t < L / 4; t += 2) {
                const uint4 along = __ldg(waves + frb_autocorr_2d_wave_along(L, tile, t / 2, 0));
                const unsigned b[2][2] = {{along.x, along.y}, {along.z, along.w}};
                mma_f16(sums[t], g, b[0]);
                if (t + 1 < L / 4) mma_f16(sums[t + 1], g, b[1]);
            }
        }
        const float minus = lone ? 0.0f : -1.0f, plus = lone ? 0.0f : 1.0f;
#pragma unroll
        for (int t = 0; t < L / 4; t++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                image[t][i] = fmaf(sums[t][i + 2], minus, sums[t][i]);
                image[t][i + 2] = fmaf(sums[t][i], plus, sums[t][i + 2]);
            }
    }
};

} // namespace beamring

#endif
