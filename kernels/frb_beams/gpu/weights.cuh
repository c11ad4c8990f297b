/* weights.cuh - the weights of FRB stage 2, Eqs. (7), (8) of the FRB note, on a GPU.
 *
 * With 2 theta = r + phi, r an integer and |phi| <= 1/2, and m = r - q (mod 2N),
 *
 *   U_q = (-1)^m sin(pi phi) / 2N cot(pi (m + phi) / 2N),   U_q = 1 for m = phi = 0,
 *
 * so that one sine and one angle a beam give all its U_q: sine and cosine of pi m / 2N come from a table, and
 * no sum of angles cancels. The phase parameters hold them for one axis of a beam in a channel; steering
 * rewrites the phase parameters and nothing else. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_WEIGHTS_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_WEIGHTS_CUH

#include "kernels/common/device.cuh"

#include <cuda_fp16.h>
#include <stddef.h>
#include <stdint.h>

namespace beamring
{

/* Weights are at most 1: so scaled, they are normal float16 numbers down to 2^-21, and products of two of
 * them down to 2^-28. */
constexpr float WEIGHT_SCALE = 128;

/* x      2^7 sin(pi phi) / 2N
 * y, z   sine and cosine of pi phi / 2N
 * w      the integer r mod 2N (as bits)
 *
 * Where phi = 0: x = 2^7 pi / 2N and y = pi / 2N, times 2^-60 each: U_q = 1 at m = 0, 0 elsewhere. */
using phase_params = float4;

/* Numbers of twice float's precision. */
struct two_floats {
    float high, low;
};

/* Those of a beam along an axis of n cells, at the frequency mhz. theta2: 2 theta at 1 MHz. */
__device__ __forceinline__ phase_params find_phase(const two_floats &theta2, const two_floats &mhz,
                                                   unsigned n)
{
    float product = theta2.high * mhz.high;
    float rest = fmaf(theta2.high, mhz.high, -product) + (theta2.high * mhz.low + theta2.low * mhz.high);
    float r = rintf(product), phi = (product - r) + rest;
    float size = static_cast<float>(2 * n);
    /* 2 theta is far below 2^24, so that r is an exact integer. */
    int period = static_cast<int>(2 * n), whole = static_cast<int>(r) % period;
    if (whole < 0) whole += period;
    phase_params s;
    s.x = WEIGHT_SCALE * sinpif(phi) / size;
    s.y = sinpif(phi / size);
    s.z = cospif(phi / size);
    s.w = __int_as_float(whole);
    if (fabsf(phi) < 1e-12f) {
        s.x = WEIGHT_SCALE * 0x1p-60f / size * 3.14159265f;
        s.y = 0x1p-60f / size * 3.14159265f;
    }
    return s;
}

/* The integer m of U_q, 0 <= m < 2N = period: which twiddle factor it takes. */
__device__ __forceinline__ int twiddle_index(const phase_params &s, int q, int period)
{
    int m = __float_as_int(s.w) - q;
    return m + (m >> 31 & period);
}

/* 2^7 U_q. twiddle: cosine and sine of pi m / 2N. */
__device__ __forceinline__ float weight(const phase_params &s, int m, const float2 &twiddle)
{
    float cosine = twiddle.x * s.z - twiddle.y * s.y, sine = twiddle.y * s.z + twiddle.x * s.y;
    float x = __int_as_float(__float_as_int(s.x) ^ m << 31);
    return __fdividef(x * cosine, sine);
}

/* 2^7 U_q and 2^7 U_(q + 1) as float16, from a table of twiddle factors. */
__device__ __forceinline__ unsigned weights(const phase_params &s, const float2 *twiddle, int q, int period)
{
    int m = twiddle_index(s, q, period), next = twiddle_index(s, q + 1, period);
    __half2 both = __floats2half2_rn(weight(s, m, twiddle[m]), weight(s, next, twiddle[next]));
    return *reinterpret_cast<unsigned *>(&both);
}

} // namespace beamring

#endif
