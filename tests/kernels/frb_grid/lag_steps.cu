/* The steps of frb_grid's 1-d autocorrelation, each in a kernel of one warp or warpgroup. The tables are made
 * here, from the words of layout.h. */
#include "tests/kernels/frb_grid/lag_steps.h"

#include "buffers/half.h"
#include "kernels/common/fragments.h"
#include "kernels/frb_grid/gpu/autocorr_1d/fft_wgmma.cuh"

#include <cuda_runtime.h>
#include <math.h>

using namespace beamring;

namespace
{

int finished()
{
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0 : -1;
}

uint16_t half_of(double x)
{
    return br_half_from_float(static_cast<float>(x));
}

/* Two halves of memory, or 0 for a cell that does not exist. */
__device__ unsigned pair_at(const uint16_t *from, unsigned first, bool has_first, unsigned second,
                            bool has_second)
{
    return (has_first ? from[first] : 0u) | (has_second ? from[second] : 0u) << 16;
}

template <int NT, int DIRECTIONS>
__global__ void __launch_bounds__(128)
    transform_by_a_warpgroup(unsigned N, const uint8_t *e, const uint16_t *weights, const uint4 *table,
                             uint16_t *y)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, m = frb_autocorr_1d_group_m(lane);
    uint4 *shared = reinterpret_cast<uint4 *>(autocorr_1d_shared());
    for (unsigned i = threadIdx.x; i < frb_autocorr_1d_table_bytes(NT, DIRECTIONS) / 16; i += 128)
        shared[i] = table[i];
    publish_shared();
    __syncthreads();
    unsigned both[NT][2];
    uint2 weight[NT];
#pragma unroll
    for (unsigned k = 0; k < NT; k++) {
        const unsigned n = frb_autocorr_1d_cell_n(N, k, lane, 0),
                       next = frb_autocorr_1d_cell_n(N, k, lane, 1);
        for (unsigned high = 0; high < 2; high++) {
            const uint8_t *row = e + ((warp + 4 * high) * LAG_ROWS + m) * N;
            both[k][high] = (n < N ? row[n] : 0u) | (next < N ? row[next] : 0u) << 16;
        }
        const unsigned at = (m * N + n) * 2, other = (m * N + next) * 2;
        weight[k] = make_uint2(pair_at(weights, at, n < N, other, next < N),
                               pair_at(weights, at + 1, n < N, other + 1, next < N));
    }
    const autocorr_1d_constants constants = {0x64086408u, 0x64806480u, 0};
    unsigned a[NT][4], real[DIRECTIONS / 4], imaginary[DIRECTIONS / 4];
    make_left_factors<NT>(a, both, weight, constants);
    const uint64_t first =
        br_wgmma_descriptor(shared_address(autocorr_1d_shared()), 128, 256, BR_WGMMA_PLAIN);
    start_products<NT, DIRECTIONS>(real, imaginary, a, first,
                                   first + frb_autocorr_1d_table(DIRECTIONS, 1, 0, 0) / 16);
    wgmma_wait<0>();
    wgmma_hold(real);
    wgmma_hold(imaginary);
    /* c[directions / 8][2]  simd: direction0  register: r0 <-> sample2
     *                       thread: t6..t0 <-> sample1 sample0 m2 m1 m0 direction2 direction1 */
#pragma unroll
    for (unsigned i = 0; i < DIRECTIONS / 4; i++)
        for (unsigned half = 0; half < 2; half++) {
            const unsigned direction = i / 2 * 8 + lane % 4 * 2 + half, sample = warp + i % 2 * 4;
            uint16_t *to = y + ((direction * LAG_ROWS + m) * LAG_SAMPLES + sample) * 2;
            if (direction >= 2 * N) continue;
            to[0] = static_cast<uint16_t>(real[i] >> 16 * half);
            to[1] = static_cast<uint16_t>(imaginary[i] >> 16 * half);
        }
#endif
}

template <int NT>
__global__ void __launch_bounds__(32)
    transform_by_a_warp(unsigned N, const uint16_t *x, const uint4 *table, uint16_t *cosines, uint16_t *sines)
{
    const unsigned lane = threadIdx.x, sample = lane / 4;
    half_transform<NT> waves;
    waves.load(table, lane);
    __half2 cells[NT];
    unsigned c[NT], s[NT];
#pragma unroll
    for (unsigned k = 0; k < NT; k++) {
        const unsigned n = frb_autocorr_1d_cell_n(N, k, lane, 0),
                       next = frb_autocorr_1d_cell_n(N, k, lane, 1);
        cells[k] = as_half2(pair_at(x + sample * N, n, n < N, next, next < N));
    }
    waves.transform(c, s, cells);
    /* simd: b <-> sample0   thread: t4..t0 <-> q2 q1 q0 sample2 sample1   [NT]: q3 and up */
#pragma unroll
    for (unsigned k = 0; k < NT; k++)
        for (unsigned half = 0; half < 2; half++) {
            const unsigned q = 8 * k + lane / 4, at = q * LAG_SAMPLES + lane % 4 * 2 + half;
            if (q >= N) continue;
            cosines[at] = static_cast<uint16_t>(c[k] >> 16 * half);
            sines[at] = static_cast<uint16_t>(s[k] >> 16 * half);
        }
}

/* Where real and imaginary parts of one value of y stand, in bytes; they are `part` apart. */
template <int MT> __device__ unsigned y_place(unsigned direction, unsigned m, unsigned sample, unsigned part)
{
    return IN_GROUPS ? frb_autocorr_1d_group_y(MT, direction, m / 8, part, sample) + m % 8 * 2
                     : frb_autocorr_1d_y(MT, direction, m, sample / 2) + part * 4 + sample % 2 * 2;
}

template <int MT>
__global__ void __launch_bounds__(32) correlate(unsigned zero, const uint16_t *y, uint16_t *lags)
{
    constexpr int QW = 4, CW = 1;
    const unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < QW * 8 * MT * LAG_SAMPLES * 2; i += 32) {
        const unsigned part = i % 2, sample = i / 2 % LAG_SAMPLES, m = i / 2 / LAG_SAMPLES % (8 * MT),
                       direction = i / 2 / LAG_SAMPLES / (8 * MT);
        *reinterpret_cast<uint16_t *>(autocorr_1d_shared() + y_place<MT>(direction, m, sample, part)) = y[i];
    }
    __syncwarp();
    lag_products<MT, QW> sums;
    sums.clear();
    const unsigned first = frb_autocorr_1d_mine(CW, 0, 0), behind = QW * frb_autocorr_1d_y_pitch(MT);
    sums.template add<CW>(IN_GROUPS ? frb_autocorr_1d_group_load(MT, first, lane)
                                    : frb_autocorr_1d_y(MT, first, lane / 4, lane % 4),
                          zero);
    sums.template store<CW>(behind, 0, lane);
    __syncwarp();
    for (unsigned i = lane; i < QW * 8 * MT * 2; i += 32)
        lags[i] = *reinterpret_cast<const uint16_t *>(
            autocorr_1d_shared() + behind + frb_autocorr_1d_lag(MT, i / 2 / (8 * MT), i / 2 % (8 * MT)) +
            i % 2 * 2);
}

constexpr unsigned MOST_WORDS = 48 * 96 / 2; /* of a table */

/* Memory of the device with a copy of `from`. */
uint16_t *on_device(const uint16_t (&from)[MOST_WORDS])
{
    uint16_t *memory = nullptr;
    if (cudaMalloc(&memory, sizeof from) != cudaSuccess) return nullptr;
    if (cudaMemcpy(memory, from, sizeof from, cudaMemcpyHostToDevice) == cudaSuccess) return memory;
    cudaFree(memory);
    return nullptr;
}

/* Right factors of wgmma: see frb_autocorr_1d_group_wave. */
void make_wgmma_factors(uint16_t (&table)[MOST_WORDS], unsigned N, unsigned directions)
{
    for (unsigned third = 0; third < (N + 7) / 8 - 1; third++)
        for (unsigned column = 0; column < directions << third; column++)
            for (unsigned k = 0; k < 16; k++) {
                const unsigned q = column % directions;
                unsigned j;
                const unsigned what = frb_autocorr_1d_group_wave(third, column / directions, k, &j);
                if (q >= 2 * N || j >= N / 2) continue;
                const double angle = M_PI * q * (j + 0.5) / N;
                table[frb_autocorr_1d_table(directions, third, column, k) / 2] =
                    half_of(what == FRB_AUTOCORR_1D_COSINE       ? cos(angle)
                            : what == FRB_AUTOCORR_1D_SINE       ? sin(angle)
                            : what == FRB_AUTOCORR_1D_MINUS_SINE ? -sin(angle)
                                                                 : 0);
            }
}

/* Left factors of mma.sync: see frb_autocorr_1d_wave. */
void make_mma_factors(uint16_t (&table)[MOST_WORDS], unsigned N)
{
    const unsigned NT = (N + 7) / 8;
    for (unsigned i = 0; i < frb_autocorr_1d_waves(NT) * 32 * 4 * 2; i++) {
        const struct br_cell at = br_mma_f16_a(i / 2 % 4, i % 2, i / 8 % 32);
        unsigned q, sine, j;
        if (!frb_autocorr_1d_wave(NT, i / 256, at.row, at.column, &q, &sine, &j) || q >= N || j >= N / 2)
            continue;
        const double angle = M_PI * (sine && q == 0 ? N : q) * (j + 0.5) / N;
        table[i] = half_of(sine ? sin(angle) : cos(angle));
    }
}

} // namespace

extern "C" int lag_transform_wgmma(unsigned N, const uint8_t *e, const uint16_t *weights, uint16_t *y)
{
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (major != 9 || minor != 0) return 1;
    const unsigned directions = N <= 16 ? 32 : N == 20 ? 40 : 48;
    uint16_t factors[MOST_WORDS] = {0};
    make_wgmma_factors(factors, N, directions);
    uint16_t *table = on_device(factors);
    if (!table) return -1;
    const uint4 *b = reinterpret_cast<const uint4 *>(table);
    const unsigned bytes = frb_autocorr_1d_table_bytes((N + 7) / 8, directions);
    if (N <= 16)
        transform_by_a_warpgroup<2, 32><<<1, 128, bytes>>>(N, e, weights, b, y);
    else if (N == 20)
        transform_by_a_warpgroup<3, 40><<<1, 128, bytes>>>(N, e, weights, b, y);
    else
        transform_by_a_warpgroup<3, 48><<<1, 128, bytes>>>(N, e, weights, b, y);
    const int status = finished();
    cudaFree(table);
    return status;
}

extern "C" int lag_transform_mma(unsigned N, const uint16_t *x, uint16_t *cosines, uint16_t *sines)
{
    uint16_t factors[MOST_WORDS] = {0};
    make_mma_factors(factors, N);
    uint16_t *table = on_device(factors);
    if (!table) return -1;
    const uint4 *a = reinterpret_cast<const uint4 *>(table);
    if (N <= 16)
        transform_by_a_warp<2><<<1, 32>>>(N, x, a, cosines, sines);
    else
        transform_by_a_warp<3><<<1, 32>>>(N, x, a, cosines, sines);
    const int status = finished();
    cudaFree(table);
    return status;
}

extern "C" int lag_correlate(unsigned tiles, const uint16_t *y, uint16_t *lags)
{
    const unsigned bytes = 4 * frb_autocorr_1d_y_pitch(tiles) + frb_autocorr_1d_lag(tiles, 4, 0);
    if (tiles == 2)
        correlate<2><<<1, 32, bytes>>>(0, y, lags);
    else
        correlate<3><<<1, 32, bytes>>>(0, y, lags);
    return finished();
}
