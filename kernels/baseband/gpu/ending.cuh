/* ending.cuh - what a beamformer's kernel makes of its sums, for both of them. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_ENDING_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_ENDING_CUH

namespace beamring::baseband
{

enum class ending {
    NIBBLES, /* int4x2 */
    BYTES,   /* int8x2 */
    POWERS   /* float32, for power.h: [F P][T][B], or sums of groups of samples, [F P][T / 16][B] */
};

constexpr int GROUP = 16; /* samples */

/* |re + i im|^2: each step rounds as on the host. */
__device__ __forceinline__ float power_of(int re, int im)
{
    float x = __int2float_rn(re), y = __int2float_rn(im);
    return __fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y));
}

/* The tree of power.h over N = 2, 4, 8 or 16 neighbours; leaves its own sums in `value`. */
template <int N> __device__ __forceinline__ float add_tree(float *value)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) value[i] = __fadd_rn(value[2 * i], value[2 * i + 1]);
    if constexpr (N > 2)
        return add_tree<N / 2>(value);
    else
        return value[0];
}

} // namespace beamring::baseband

#endif
