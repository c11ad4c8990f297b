/* autocorr.cuh - FRB stage 1 for grids of 12 to 24 cells each way: a transform along one axis, and the
 * autocorrelation along the other one.
 *
 * A field x[m][n] is zero-padded by 2 and transformed along n only, for 2N directions q:
 *
 *   y[q][m] = sum_n exp(i pi q (n - (N - 1) / 2) / N) x[m][n]
 *
 * (this differs from the plain transform by a phase that is the same for all m). Along m, intensities are the
 * transform of the zero-padded autocorrelation,
 *
 *   sum_samples |sum_m exp(i pi p m / M) y[q][m]|^2 = R[0][q] + 2 Re sum_{0<L<M} exp(i pi p L / M) R[L][q],
 *   R[L][q] = sum_samples sum_m y[q][m + L] conj(y[q][m]),
 *
 * which is linear in R. So only R is summed over the samples of a block of time, by tensor cores with the
 * samples as k, and transformed once for each block. In the transform along n by mma.sync, cosines multiply
 * sums of mirror images, sines multiply differences, and y[+-q] = C +- i S. By wgmma one product with sums
 * and differences gives y (fft_wgmma.cuh). */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_AUTOCORR_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_AUTOCORR_CUH

#include "kernels/frb_grid/gpu/autocorr_1d/layout.h"
#include "kernels/frb_grid/gpu/fft.cuh"

namespace beamring
{

/* Whether warpgroups transform (fft_wgmma.cuh). */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool IN_GROUPS = true;
#else
constexpr bool IN_GROUPS = false;
#endif

/* 0x64086408, 0x64806480 and 0. They are parameters of the kernel so that the compiler cannot treat them as
 * constants: it keeps each in a register, which saves an instruction for each use. */
struct autocorr_1d_constants {
    unsigned offset, offset_16;
    unsigned zero; /* x ^ zero is a copy that the compiler does not undo */
};

/* The block's shared memory. It comes from a function so that the compiler knows its address space. Places in
 * shared memory are offsets from here, in bytes. */
__device__ __forceinline__ uint8_t *autocorr_1d_shared()
{
    extern __shared__ __align__(128) uint8_t memory[];
    return memory;
}

/* Bytes 0 and 2 of the result are the bytes at `from` plus the low and the high half of `places`. */
__device__ __forceinline__ unsigned load_bytes(unsigned places, unsigned from)
{
    return __byte_perm(autocorr_1d_shared()[(places & 0xffff) + from],
                       autocorr_1d_shared()[(places >> 16) + from], 0x5410);
}

__device__ __forceinline__ uint2 load_two(unsigned place)
{
    return *reinterpret_cast<const uint2 *>(autocorr_1d_shared() + place);
}

__device__ __forceinline__ void store_two(unsigned place, unsigned x, unsigned y)
{
    *reinterpret_cast<uint2 *>(autocorr_1d_shared() + place) = make_uint2(x, y);
}

/* ---- barriers in shared memory, by their address ---- */

/* A phase ends when `arrivals` threads have arrived. Each thread arrives itself, not one for its warp: that
 * orders everything that it did before, also for compute-sanitizer, and costs nothing. */
__device__ __forceinline__ void prepare(unsigned barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive_at(unsigned barrier)
{
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(barrier)
                 : "memory");
}

/* This thread arrives when all copies that it has begun are complete. */
__device__ __forceinline__ void arrive_when_copied(unsigned barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n" ::"r"(barrier) : "memory");
}

/* Waits until the phase of this parity is over. */
__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity)
{
    unsigned over;
    do {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
            : "=r"(over)
            : "r"(barrier), "r"(parity)
            : "memory");
#else
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
            : "=r"(over)
            : "r"(barrier), "r"(parity)
            : "memory");
#endif
    } while (!over);
}

/* ---- copies ---- */

/* Begin a copy of 16, 4 or 8 bytes to an address in shared memory; not `inside`: zeros. */
__device__ __forceinline__ void copy_async_to(unsigned shared, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_to_4(unsigned shared, const void *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 4 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_to_8(unsigned shared, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n" ::"r"(shared),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}

__device__ __forceinline__ void store_byte(unsigned shared, unsigned byte)
{
    asm volatile("st.shared.u8 [%0], %1;\n" ::"r"(shared), "r"(byte));
}

/* re + i im = weight x field, for two cells of one sample. The field is in bytes 0 and 2 of `both`; w has the
 * real parts of both weights, then the imaginary parts. */
__device__ __forceinline__ void weigh_two(__half2 &re, __half2 &im, unsigned both, uint2 w,
                                          const autocorr_1d_constants &constants)
{
    /* With its sign bit inverted a nibble is 8 + n: r from 1024 + (8 + n), s from 1024 + 16 (8 + n). */
    const __half2 r = __hsub2_rn(as_half2((both & 0x000f000fu) ^ constants.offset), as_half2(0x64086408u)),
                  s = __hfma2(as_half2((both & 0x00f000f0u) ^ constants.offset_16), as_half2(0x2c002c00u),
                              as_half2(0xd480d480u));
    re = __hfma2(__hneg2(as_half2(w.y)), s, __hmul2_rn(as_half2(w.x), r));
    im = __hfma2(as_half2(w.y), r, __hmul2_rn(as_half2(w.x), s));
}

/* condition ? x : y without a branch. */
__device__ __forceinline__ unsigned choose(bool condition, unsigned x, unsigned y)
{
    unsigned chosen;
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\nselp.b32 %0, %1, %2, p;\n}\n"
        : "=r"(chosen)
        : "r"(x), "r"(y), "r"(static_cast<unsigned>(condition)));
    return chosen;
}

__device__ __forceinline__ unsigned add_halves(unsigned x, unsigned y)
{
    return as_bits(__hadd2_rn(as_half2(x), as_half2(y)));
}

/* The sum of both halves (low) and their difference, low - high (high). */
__device__ __forceinline__ unsigned sum_difference(__half2 x)
{
    return as_bits(__hfma2(__high2half2(x), as_half2(0xbc003c00u), __low2half2(x)));
}

/* The transform along n of one row of cells, for eight samples.
 *   cosines, sines [NT]  simd: b <-> sample0   thread: t4..t0 <-> q2 q1 q0 sample2 sample1   [NT]: q3 and up
 */
template <int NT> struct half_transform {
    static constexpr int WAVES = NT == 2 ? 2 : 4; /* frb_autocorr_1d_waves */
    unsigned waves[WAVES][4];                     /* operands a of mma.sync, see frb_autocorr_1d_wave */

    __device__ __forceinline__ void load(const uint4 *table, unsigned lane)
    {
#pragma unroll
        for (int i = 0; i < WAVES; i++) {
            const uint4 w = __ldg(table + i * 32 + lane);
            waves[i][0] = w.x, waves[i][1] = w.y, waves[i][2] = w.z, waves[i][3] = w.w;
        }
    }

    /* x: the cells of this lane's sample, in the order of frb_autocorr_1d_cell_n. */
    __device__ __forceinline__ void transform(unsigned (&cosines)[NT], unsigned (&sines)[NT],
                                              const __half2 (&x)[NT]) const
    {
        const unsigned s0 = as_bits(__hadd2_rn(x[0], x[1])), d0 = as_bits(__hsub2_rn(x[0], x[1]));
        unsigned c[2] = {0, 0}, s[2] = {0, 0};
        if constexpr (NT == 2) {
            const unsigned a[2] = {waves[0][0], waves[0][1]}, b[2] = {waves[1][0], waves[1][1]};
            mma_half_k8(c, a, s0);
            mma_half_k8(s, b, d0);
        } else if constexpr (NT == 3) {
            const unsigned both = sum_difference(x[2]), sums[2] = {s0, both}, differences[2] = {d0, both};
            unsigned last[2] = {0, 0};
            const unsigned a[2] = {waves[3][0], waves[3][1]};
            mma_half(c, waves[0], sums);
            mma_half(s, waves[1], differences);
            mma_half_k8(last, a, d0);
            mma_half(last, waves[2], sums);
            cosines[2] = last[0], sines[2] = last[1];
        } else {
            const unsigned sums[2] = {s0, as_bits(__hadd2_rn(x[2], x[3]))},
                           differences[2] = {d0, as_bits(__hsub2_rn(x[2], x[3]))};
            unsigned cc[2] = {0, 0}, ss[2] = {0, 0};
            mma_half(c, waves[0], sums);
            mma_half(cc, waves[1], sums);
            mma_half(s, waves[2], differences);
            mma_half(ss, waves[3], differences);
            cosines[2] = cc[0], cosines[3 % NT] = cc[1], sines[2] = ss[0], sines[3 % NT] = ss[1];
        }
        cosines[0] = c[0], cosines[1] = c[1], sines[0] = s[0], sines[1] = s[1];
    }
};

__device__ __forceinline__ unsigned half_pair(float x, float y)
{
    return as_bits(__floats2half2_rn(x, y));
}

/* Real parts (x) and imaginary parts (y) of two samples, of a tile of m in one direction. from: this lane's
 * place (see frb_autocorr_1d_y, frb_autocorr_1d_group_load). */
__device__ __forceinline__ uint2 load_tile(unsigned from)
{
    if (!IN_GROUPS) return load_two(from);
    uint2 two;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(two.x), "=r"(two.y)
                 : "r"(shared_address(autocorr_1d_shared()) + from)
                 : "memory");
    return two;
}

/* The sums over samples of y[q][m + L] conj(y[q][m]), for the QW directions of a warp. */
template <int MT, int QW> struct lag_products {
    float sum[QW][MT][4]; /* see frb_autocorr_1d_mine, frb_autocorr_1d_residue */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < QW * MT * 4; i++) sum[i / 4 / MT][i / 4 % MT][i % 4] = 0;
    }

    /* Adds the products of a step. y: the place of this warp's first direction and this lane. zero: 0, see
     * autocorr_1d_constants. */
    template <int CW> __device__ __forceinline__ void add(unsigned y, unsigned zero)
    {
        const unsigned PITCH = IN_GROUPS ? frb_autocorr_1d_group_y_pitch(MT) : frb_autocorr_1d_y_pitch(MT);
        uint2 next[MT];
#pragma unroll
        for (int a = 0; a < MT; a++) next[a] = load_tile(y + a * 256);
#pragma unroll
        for (int i = 0; i < QW; i++) {
            uint2 now[MT]; /* re, im of samples 2 l and 2 l + 1 */
#pragma unroll
            for (int a = 0; a < MT; a++) now[a] = next[a];
            /* Loads run one direction ahead. Registers do not suffice for more, so an address depends on an
             * earlier product: the compiler cannot load earlier. */
            if (i + 1 < QW) {
                const unsigned waits = i == 0 ? 0 : __float_as_uint(sum[i - 1][MT - 1][0]) & zero; /* 0 */
#pragma unroll
                for (int a = 0; a < MT; a++) next[a] = load_tile(y + waits + (i + 1) * CW * PITCH + a * 256);
            }
#pragma unroll
            for (int k = 0; k < MT; k++) {
                const int a = IN_GROUPS ? MT - 1 - k : k; /* the order with the faster code */
                const unsigned left[4] = {now[a].x, now[a].y, now[a].y ^ zero,
                                          now[a].x ^ 0x80008000u}; /* rows: re, im */
#pragma unroll
                for (int h = 0; h <= a; h++) {
                    const int b = IN_GROUPS ? a - h : h;
                    const unsigned right[2] = {now[b].x, now[b].y};
                    mma_f16(sum[i][a - b], left, right);
                }
            }
        }
    }

    /* Sums the diagonals of the products and stores the lags, in float16, to shared memory. */
    template <int CW> __device__ __forceinline__ void store(unsigned to, unsigned warp, unsigned lane) const
    {
        static_assert(QW == 4, "lanes of the same lag");
        const unsigned g = lane / 4, partner = frb_autocorr_1d_partner(lane),
                       residue = frb_autocorr_1d_residue(lane);
        const bool odd = lane % 2, upper = lane & 2, first = g == 0, wrapped = odd && g < 2,
                   late = upper && ((g - 2 * odd) & 7) < 4;
        /* t: (re, im) of tile d, for four directions. A lag that wraps around within a tile of 8 belongs to
         * the tile before. */
        unsigned t[4][MT + 1], u[2][MT + 1];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            t[i][MT] = 0;
            unsigned odd_lags[MT];
#pragma unroll
            for (int d = 0; d < MT; d++) odd_lags[d] = half_pair(sum[i][d][1], sum[i][d][3]);
#pragma unroll
            for (int d = 0; d < MT; d++) {
                const unsigned next = d + 1 < MT ? odd_lags[(d + 1) % MT] : 0;
                t[i][d] = add_halves(half_pair(sum[i][d][0], sum[i][d][2]),
                                     __shfl_sync(WHOLE_WARP, choose(first, next, odd_lags[d]), lane + 4));
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u[i][MT] = 0;
#pragma unroll
            for (int d = 0; d < MT; d++) {
                const unsigned x = choose(wrapped, t[2 * i][d + 1], t[2 * i][d]),
                               y = choose(wrapped, t[2 * i + 1][d + 1], t[2 * i + 1][d]);
                u[i][d] = add_halves(choose(odd, y, x), __shfl_sync(WHOLE_WARP, choose(odd, x, y), partner));
            }
        }
        const unsigned place =
            to + frb_autocorr_1d_lag(MT, frb_autocorr_1d_mine(CW, warp, lane % 4), residue);
#pragma unroll
        for (int d = 0; d < MT; d++) {
            const unsigned x = choose(late, u[0][d + 1], u[0][d]), y = choose(late, u[1][d + 1], u[1][d]);
            const unsigned lag =
                add_halves(choose(upper, y, x), __shfl_xor_sync(WHOLE_WARP, choose(upper, x, y), 18));
            *reinterpret_cast<unsigned *>(autocorr_1d_shared() + place + d * 32) = lag;
        }
    }
};

/* c = the transform along p of the lags of eight directions q. lags: the place of this lane's first lag in
 * the first direction. table: the operands for this tile of p. */
template <int MT>
__device__ __forceinline__ void transform_lags(float (&c)[4], unsigned lags, const unsigned (&table)[MT][4])
{
#pragma unroll
    for (int step = 0; step < MT; step++) {
        const uint2 two = load_two(lags + step * 32);
        const unsigned b[2] = {two.x, two.y};
        if (step == 0) c[0] = c[1] = c[2] = c[3] = 0;
        mma_f16(c, table[step], b);
    }
}

} // namespace beamring

#endif
