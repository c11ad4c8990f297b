/* The steps of FRB stage 2's kernels, each in a kernel of its own. */
#include "tests/kernels/frb_beams/beam_steps.h"

#include "kernels/frb_beams/gpu/wgmma/arbitrary.cuh"

#include <cuda_runtime.h>

using namespace beamring;

namespace
{

int finished()
{
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0 : -1;
}

__device__ two_floats split(double x)
{
    const float high = static_cast<float>(x);
    return {high, static_cast<float>(x - static_cast<double>(high))};
}

/* A block for each beam, a thread for each q. */
__global__ void __launch_bounds__(256)
    find_weights(const double *theta2, const double *mhz, unsigned n, float *u)
{
    const unsigned beam = blockIdx.x;
    const int period = static_cast<int>(2 * n);
    const phase_params s = find_phase(split(theta2[beam]), split(mhz[beam]), n);
    for (int q = static_cast<int>(threadIdx.x); q < period; q += 256) {
        const int m = twiddle_index(s, q, period);
        const float angle = static_cast<float>(m) / static_cast<float>(period);
        u[beam * 2 * n + static_cast<unsigned>(q)] =
            weight(s, m, make_float2(cospif(angle), sinpif(angle))) / WEIGHT_SCALE;
    }
}

__global__ void __launch_bounds__(256)
    find_phases(const double *theta2, unsigned count, unsigned n, phase_params *phases)
{
    const unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < count) phases[i] = find_phase(split(theta2[i]), split(1), n);
}

/* By the threads of a whole block, of which the first 128 are the group. */
template <int NQ, int MB>
__global__ void __launch_bounds__(wgmma_arbitrary::THREADS)
    make_operand(const wgmma_arbitrary::work w, uint32_t *a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using namespace wgmma_arbitrary;
    constexpr int PS = iteration_of<NQ>::PS, K_STEPS = 4 * iteration_of<NQ>::BOXES;
    extern __shared__ __align__(1024) uint8_t memory[];
    float2 *twiddle_n = reinterpret_cast<float2 *>(memory), *twiddle_m = twiddle_n + NQ;
    uint8_t *all_p = reinterpret_cast<uint8_t *>(twiddle_m + w.np);
    const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    make_twiddles<NQ>(twiddle_n, w.np);
    __syncthreads();
    if (threadIdx.x >= GROUP) return;
    uint8_t *p_warp = all_p + warp * (w.iterations * PS * 2 * 16 * MB);
    unsigned u_q[MB][NQ / 8][2];
    make_weights<NQ, MB>(u_q, p_warp, w, 0, 0, twiddle_n, twiddle_m, warp, lane / 4, lane % 4);
#pragma unroll 1
    for (unsigned iteration = 0; iteration < w.iterations; iteration++) {
        unsigned u_p[MB][2][PS / 2];
        load_u_p<MB, PS>(u_p, p_warp, iteration, lane / 4);
#pragma unroll
        for (int k_step = 0; k_step < K_STEPS; k_step += CHAIN) {
            unsigned both[MB][CHAIN][4];
            outer_products<NQ, MB>(both, u_p, u_q, k_step);
#pragma unroll
            for (int i = 0; i < MB * CHAIN * 4; i++) {
                const int mb = i / 4 / CHAIN, k = i / 4 % CHAIN, r = i % 4;
                a[(((iteration * K_STEPS + k_step + k) * MB + mb) * GROUP + threadIdx.x) * 4 + r] =
                    both[mb][k][r];
            }
        }
    }
#endif
}

template <int NQ, int MB> int run_operand(wgmma_arbitrary::work w, uint32_t *a)
{
    using namespace wgmma_arbitrary;
    constexpr unsigned PS = iteration_of<NQ>::PS;
    w.iterations = (w.np + PS - 1) / PS;
    const unsigned bytes = (NQ + w.np) * static_cast<unsigned>(sizeof(float2)) +
                           p_bytes(w.iterations, PS, MB); /* of both groups: more than is used */
    if (cudaFuncSetAttribute(make_operand<NQ, MB>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)) != cudaSuccess)
        return -1;
    make_operand<NQ, MB><<<1, THREADS, bytes>>>(w, a);
    return finished();
}

} // namespace

extern "C" int beam_weights(unsigned count, const double *theta2, const double *mhz, unsigned n, float *u)
{
    find_weights<<<count, 256>>>(theta2, mhz, n, u);
    return finished();
}

extern "C" unsigned beam_operand_steps(unsigned nq)
{
    return nq == 32 ? 8 : 12;
}

extern "C" int beam_operand(unsigned nq, unsigned mb, unsigned np, const double *theta2_m,
                            const double *theta2_n, uint32_t *a)
{
    int device = 0, major = 0, minor = 0, status = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (major != 9 || minor != 0) return 1;
    const unsigned B = 64 * mb;
    phase_params *phases = nullptr;
    if (cudaMalloc(&phases, 2 * B * sizeof *phases) != cudaSuccess) return -1;
    find_phases<<<(B + 255) / 256, 256>>>(theta2_m, B, np / 2, phases);
    find_phases<<<(B + 255) / 256, 256>>>(theta2_n, B, nq / 2, phases + B);
    wgmma_arbitrary::work w = {};
    w.phases_m = phases, w.phases_n = phases + B;
    w.B = B, w.F = 1, w.np = np;
    if (nq == 24)
        status = mb == 2 ? run_operand<24, 2>(w, a) : run_operand<24, 3>(w, a);
    else if (nq == 32)
        status = mb == 2 ? run_operand<32, 2>(w, a) : run_operand<32, 3>(w, a);
    else
        status = mb == 2 ? run_operand<48, 2>(w, a) : run_operand<48, 3>(w, a);
    cudaFree(phases);
    return status;
}
