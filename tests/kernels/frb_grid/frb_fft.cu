/* frb_fft.cu - runs the FFT of kernels/frb_grid/gpu/fft.cuh alone. The tables are made here, from the
 * words of that file. */
#include "buffers/half.h"
#include "kernels/frb_grid/gpu/direct/layout.h"
#include "kernels/frb_grid/gpu/fft.cuh"
#include "tests/kernels/frb_grid/frb_fft.h"

#include <cuda_runtime.h>
#include <math.h>

using namespace beamring;

namespace
{

/* One warp: tile after tile of 8 pairs of directions.
 *   wave [TILES][TILES][lane] of (C, C', S, S'); x [M][8][re, im]; y [2M][8][re, im] */
template <int TILES>
__global__ void __launch_bounds__(32) alone(unsigned M, const uint2 *wave, const __half *x, __half *y)
{
    const unsigned lane = threadIdx.x, column = lane / 4;
    unsigned x_re[TILES], x_im[TILES]; /* simd: b <-> m0  thread: t4..t0 <-> n2 n1 n0 m2 m1 */
    for (int tile = 0; tile < TILES; tile++) {
        __half value[2][2];
        for (unsigned k = 0; k < 2; k++)
            for (unsigned part = 0; part < 2; part++) {
                const unsigned m = frb_grid_cell_m(static_cast<unsigned>(tile), lane, k);
                value[part][k] = m < M ? x[(m * 8 + column) * 2 + part] : __half(0.0f);
            }
        x_re[tile] = as_bits(__halves2half2(value[0][0], value[0][1]));
        x_im[tile] = as_bits(__halves2half2(value[1][0], value[1][1]));
    }
    for (int p_tile = 0; p_tile < TILES; p_tile++) {
        unsigned table[TILES][2], y_re[2], y_im[2];
        for (int tile = 0; tile < TILES; tile++) {
            const uint2 v =
                wave[frb_grid_wave(TILES, static_cast<unsigned>(p_tile), static_cast<unsigned>(tile), lane)];
            table[tile][0] = v.x, table[tile][1] = v.y;
        }
        if (p_tile == 0)
            transform<TILES>(y_re, y_im, table, x_re, x_im, lane / 4 == 0);
        else
            transform<TILES>(y_re, y_im, table, x_re, x_im);
        const unsigned p = frb_grid_sum_p(static_cast<unsigned>(p_tile), lane);
        for (unsigned i = 0; p < M && i < 4; i++) { /* minus, n0 */
            const __half2 re = as_half2(y_re[i / 2]), im = as_half2(y_im[i / 2]);
            __half *to = y + (frb_grid_direction(M, p, i / 2) * 8 + 2 * (lane % 4) + i % 2) * 2;
            to[0] = i % 2 ? __high2half(re) : __low2half(re);
            to[1] = i % 2 ? __high2half(im) : __low2half(im);
        }
    }
}

unsigned pair(double low, double high)
{
    return br_half_from_float(static_cast<float>(low)) |
           static_cast<unsigned>(br_half_from_float(static_cast<float>(high))) << 16;
}

} // namespace

extern "C" int frb_fft(unsigned M, const uint16_t *x, uint16_t *y)
{
    const unsigned tiles = (M + 7) / 8;
    uint2 table[4 * 4 * 32], *wave = nullptr;
    __half *in = nullptr, *out = nullptr;
    for (unsigned i = 0; i < tiles * tiles * 32; i++) {
        const unsigned lane = i % 32, tile = i / 32 % tiles, p_tile = i / 32 / tiles,
                       p = frb_grid_wave_p(p_tile, lane);
        double c[2] = {0, 0}, s[2] = {0, 0};
        for (unsigned k = 0; k < 2; k++) {
            const unsigned m = frb_grid_wave_m(tile, lane, k);
            if (p >= M || m >= M) continue;
            c[k] = p == 0 ? m % 2 == 0 : cos(M_PI * p * m / M);
            s[k] = p == 0 ? m % 2 == 1 : sin(M_PI * p * m / M);
        }
        table[frb_grid_wave(tiles, p_tile, tile, lane)] = make_uint2(pair(c[0], c[1]), pair(s[0], s[1]));
    }
    const size_t bytes = static_cast<size_t>(M) * 8 * 2 * sizeof(__half);
    bool ok = cudaMalloc(&wave, sizeof table) == cudaSuccess && cudaMalloc(&in, bytes) == cudaSuccess &&
              cudaMalloc(&out, 2 * bytes) == cudaSuccess &&
              cudaMemcpy(wave, table, sizeof table, cudaMemcpyHostToDevice) == cudaSuccess &&
              cudaMemcpy(in, x, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
              cudaMemset(out, 0xff, 2 * bytes) == cudaSuccess;
    if (ok) {
        if (tiles == 1) alone<1><<<1, 32>>>(M, wave, in, out);
        if (tiles == 2) alone<2><<<1, 32>>>(M, wave, in, out);
        if (tiles == 3) alone<3><<<1, 32>>>(M, wave, in, out);
        if (tiles == 4) alone<4><<<1, 32>>>(M, wave, in, out);
        ok = cudaGetLastError() == cudaSuccess &&
             cudaMemcpy(y, out, 2 * bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    }
    cudaFree(wave);
    cudaFree(in);
    cudaFree(out);
    return ok ? 0 : -1;
}
