/* small.cuh - FRB stage 1 for grids of 8 x L cells, L = 8 or 12, in the registers of one warp.
 *
 * The intensities of a field x[m][g] that is zero-padded by 2 are the transform of its autocorrelation,
 *
 *   |Y[p][q]|^2 = sum_{lag, d} B[lag][d] exp(i pi (p lag / L + q d / 8)),   B[lag][d] = sum_{m, g} x[m +
 * lag][g] conj(x[m][g - d]),
 *
 * and both are linear in it: only the autocorrelation has to be summed over samples, which is what tensor
 * cores do best, and the transform is made once for each block of time. V[lag][g][h] = sum_m x[m + lag][g]
 * conj(x[m][h]), lag >= 0, are the sums of products of rows m + lag by columns m over samples; with x = R + i
 * I and three products instead of four,
 *
 *   Re V = (R + I) R' - I (R' - I'),   Im V = (R + I) R' - R (R' + I').
 *
 * B is then the sum over diagonals g - h = d, and I = Re sum_lag c exp(i pi p lag / L) G[lag][q], c = 1 for
 * lag 0 and else 2, with G[lag][q] = sum_d B[lag][d] exp(i pi q d / 8). Both transforms run on the tensor
 * cores (float16, float32 sums), the first one of sums and differences of B[d] and B[-d]. */
#ifndef BEAMRING_KERNELS_FRB_GRID_SMALL_CUH
#define BEAMRING_KERNELS_FRB_GRID_SMALL_CUH

#include "kernels/frb_grid/fft.cuh"
#include "kernels/frb_grid/small_layout.h"

namespace beamring
{

/* 0x64086408, 0x64806480 and 0, given to the kernel so that the compiler does not know them: it has a
 * register for each, and an operation less for each use. */
struct small_constants {
    unsigned offset, offset_16;
    unsigned zero; /* the same for copies, which would else be undone and made again for each use */
};

/* Weights, at each use again: the compiler would keep them in registers that are needed. */
__device__ __forceinline__ uint4 load_weights(const uint4 *from)
{
    uint4 w;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "l"(from));
    return w;
}

/* This lane, read again: places that are made of it are then not kept in registers from one block to the
 * next. */
__device__ __forceinline__ unsigned lane_again()
{
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
    return lane;
}

/* Two times of one cell: bytes 0 and 2 of `both`; w: (re, im) of its weight. */
__device__ __forceinline__ void weigh(unsigned &re, unsigned &im, unsigned both, unsigned w,
                                      const small_constants &constants)
{
    /* Offset binary in the last bits of 1024 and, 16 times, of 1024. */
    const __half2 r = __hsub2_rn(as_half2((both & 0x000f000fu) ^ constants.offset), as_half2(0x64086408u)),
                  s = __hfma2(as_half2((both & 0x00f000f0u) ^ constants.offset_16), as_half2(0x2c002c00u),
                              as_half2(0xd480d480u)),
                  w_re = __low2half2(as_half2(w)), w_im = __high2half2(as_half2(w));
    re = as_bits(__hfma2(__hneg2(w_im), s, __hmul2_rn(w_re, r)));
    im = as_bits(__hfma2(w_im, r, __hmul2_rn(w_re, s)));
}

/* re, im, sum (of both)[L], see frb_small_cell. */
template <int L> struct small_field {
    unsigned re[L], im[L], sum[L];

    /* e: bytes of this lane's first time, the other one is `later` bytes behind; WORDS: dishes of this lane's
     * cells are consecutive, from a multiple of 4 on, e being that of the first; else dish has a byte for
     * each cell. weights: of this lane's polarisation. */
    template <bool WORDS>
    __device__ __forceinline__ void fill(const uint8_t *e, unsigned later, const unsigned (&dish)[L / 4],
                                         const uint4 *weights, const small_constants &constants)
    {
#pragma unroll
        for (int i = 0; i < L; i += 4) {
            const uint4 four = load_weights(weights + i * 2); /* frb_small_weight */
            const unsigned w[4] = {four.x, four.y, four.z, four.w};
            unsigned both[4];
            if (WORDS) {
                const unsigned a = *reinterpret_cast<const unsigned *>(e + i),
                               b = *reinterpret_cast<const unsigned *>(e + i + later);
                both[0] = __byte_perm(a, b, 0x5410), both[2] = __byte_perm(a, b, 0x7632);
                both[1] = both[0] >> 8, both[3] = both[2] >> 8;
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const uint8_t *at = e + __byte_perm(dish[i / 4], 0, 0x4440 + k);
                    both[k] = __byte_perm(at[0], at[later], 0x5410);
                }
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                weigh(re[i + k], im[i + k], both[k], w[k], constants);
                sum[i + k] = as_bits(__hadd2_rn(as_half2(re[i + k]), as_half2(im[i + k])));
            }
        }
    }
};

__device__ __forceinline__ float2 load_pair(unsigned shared)
{
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(pair.x), "=f"(pair.y) : "r"(shared) : "memory");
    return pair;
}

__device__ __forceinline__ unsigned half_pair(float x, float y)
{
    return as_bits(__floats2half2_rn(x, y));
}

/* Sums of products of this lane, see frb_small_lag: (R + I) R', R (R' + I'), I (R' - I'). */
template <int L> struct autocorrelation {
    static constexpr int TILES = L / 2, LAG_TILES = (L + 7) / 8;
    float a[TILES][4], b[TILES][4], c[TILES][4];

    /* c += products of cells m + lag of x by cells m of y, see frb_small_factor: left factors, of which the
     * first halves can be right factors. */
    static __device__ __forceinline__ void multiply(float (&c)[TILES][4], const unsigned (&x)[L],
                                                    const unsigned (&y)[L], unsigned zero)
    {
        unsigned left[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            left[i][0] = x[2 * i], left[i][1] = x[2 * i + 1];
            left[i][2] = x[2 * i + 1] ^ zero;
            left[i][3] = 2 * i + 2 < L ? x[(2 * i + 2) % L] ^ zero : 0;
        }
#pragma unroll
        for (int m = 0; m < L; m += 2)
#pragma unroll
            for (int t = 0; 2 * t + m < L; t++) {
                const unsigned right[2] = {y[m], y[m + 1]};
                mma_f16(c[t], left[m / 2 + t], right);
            }
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) a[i / 4][i % 4] = b[i / 4][i % 4] = c[i / 4][i % 4] = 0;
    }

    __device__ __forceinline__ void add(const small_field<L> &x, unsigned zero)
    {
        unsigned difference[L];
        multiply(a, x.sum, x.re, zero);
        multiply(b, x.re, x.sum, zero);
#pragma unroll
        for (int m = 0; m < L; m++) difference[m] = as_bits(__hsub2_rn(as_half2(x.re[m]), as_half2(x.im[m])));
        multiply(c, x.im, difference, zero);
    }

    /* V to shared memory, see frb_small_product. */
    __device__ __forceinline__ void store(unsigned v, unsigned lane) const
    {
        const unsigned g = frb_small_cell(lane), h = frb_small_h(lane, 0);
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(
                                 frb_small_product(v, frb_small_lag(t, i), g, h)),
                             "f"(a[t][i] - c[t][i]), "f"(a[t][i] - b[t][i]), "f"(a[t][i + 1] - c[t][i + 1]),
                             "f"(a[t][i + 1] - b[t][i + 1])
                             : "memory");
    }

    /* Intensities of V in shared memory, see frb_small_image_across. */
    static __device__ __forceinline__ void transform(float (&image)[L / 4][4], unsigned v, const uint4 *waves,
                                                     unsigned lane)
    {
        const uint4 table = __ldg(waves + frb_small_wave_across(lane));
        const unsigned across[4] = {table.x, table.y, table.z, table.w};
#pragma unroll
        for (int t = 0; t < L / 4; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) image[t][i] = 0;
#pragma unroll
        for (int tile = 0; tile < LAG_TILES; tile++) {
            const unsigned lag = frb_small_diagonal_lag(tile, lane);
            float2 up[2], down[2]; /* B[d], B[d - 8], see frb_small_difference */
            up[0] = up[1] = down[0] = down[1] = make_float2(0, 0);
            const unsigned d = frb_small_difference(lane, 0);
#pragma unroll
            for (unsigned g = 0; g < 8; g++) {
                const unsigned place = frb_small_product(v, lag, g, (g - d) % 8);
                float2 one[2] = {make_float2(0, 0), make_float2(0, 0)};
                if (8 * tile + 8 <= L || lag < L) {
                    one[0] = load_pair(place);
                    one[1] = load_pair(place ^ 32); /* h + 4 */
                }
                const bool over = g % 4 < d; /* known for one of the two: differences 0 to 3 and 4 to 7 */
                float2 &first = g < 4 ? down[0] : down[1], &second = g < 4 ? up[0] : up[1];
                float2 &sure = g < 4 ? down[1] : up[0];
                const float2 known = g < 4 ? one[1] : one[0], open = g < 4 ? one[0] : one[1];
                sure.x += known.x, sure.y += known.y;
                if (over)
                    first.x += open.x, first.y += open.y;
                else
                    second.x += open.x, second.y += open.y;
            }
            /* Factors [2]: register <-> (of the cosine, of the sine)   simd: b <-> d2 */
            float e_re[2], e_im[2], o_re[2], o_im[2];
            const unsigned opposite = frb_small_opposite_lane(lane);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const bool swapped = lane % 4 != 0; /* frb_small_opposite */
                const float re = swapped ? down[1 - r].x : down[r].x,
                            im = swapped ? down[1 - r].y : down[r].y;
                const float other_re = __shfl_sync(WHOLE_WARP, re, opposite),
                            other_im = __shfl_sync(WHOLE_WARP, im, opposite);
                e_re[r] = up[r].x + other_re, e_im[r] = up[r].y + other_im;
                o_re[r] = up[r].x - other_re, o_im[r] = other_im - up[r].y;
            }
            const unsigned re[2] = {half_pair(e_re[0], e_re[1]), half_pair(o_im[0], o_im[1])},
                           im[2] = {half_pair(e_im[0], e_im[1]), half_pair(o_re[0], o_re[1])};
            float g_re[4] = {}, g_im[4] = {}; /* rows: directions across, columns: lags */
            mma_f16(g_re, across, re);
            mma_f16(g_im, across, im);
            /* As mma.sync's a: k are lags, of the real part, then of the imaginary part. */
            const unsigned g[4] = {half_pair(g_re[0], g_re[1]), half_pair(g_re[2], g_re[3]),
                                   half_pair(g_im[0], g_im[1]), half_pair(g_im[2], g_im[3])};
#pragma unroll
            for (int t = 0; t < L / 4; t++) {
                const uint2 along =
                    __ldg(reinterpret_cast<const uint2 *>(waves) + frb_small_wave_along(L, tile, t, lane));
                const unsigned b[2] = {along.x, along.y};
                mma_f16(image[t], g, b);
            }
        }
    }
};

} // namespace beamring

#endif
