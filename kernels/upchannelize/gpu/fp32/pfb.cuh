/* pfb.cuh - the filterbank on a GPU for every shape, number of taps and gain, in float32: taps and first
 * butterfly, exchange through shared memory, the rest of the transform.
 *
 * cpu/transform.h says what is computed and why the signs and 1/sqrt(2) can be in the taps. Here a thread
 * block loops along time with SPAN samples of the row (channels and spectators are one row: the filter treats
 * them alike), two output steps in each iteration, in these parts:
 *
 * load_taps.cuh  A thread has K = 4 (U = 2: 2) input steps j' + k U/K of each block, and 8/K samples of the
 *                row. A sample is unpacked once: what it contributes to this and the next three outputs is
 *                added to running sums (more than four taps: it is read again for each tap). Then the
 *                butterfly over k, and the twiddle factor e^{-2 i pi j' (q + 1/2)/U}.
 * fft_store.cuh  U >= 32 only: transforms of length MIDDLE, in place in shared memory. Then transforms of
 *                length LAST; gain, rounding, clamping; four samples are stored as one word.
 *
 * With N = U/K, j' = c + LAST b and r = d + MIDDLE g, fine channel u = K r + q comes from rows q N + c + LAST
 * d of the exchange. The order of all sums is fixed: neither the length of a call nor the division of the
 * work changes a result by a bit. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_FP32_PFB_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_FP32_PFB_CUH

#include "kernels/upchannelize/gpu/fp32/fft_store.cuh"
#include "kernels/upchannelize/plan.h"

#include <math.h>

namespace
{

template <int U, class FILTER>
__global__ void __launch_bounds__(shape<U>::THREADS, shape<U>::BLOCKS)
    upchannelize(const __grid_constant__ work w)
{
    using s = shape<U>;
    extern __shared__ float4 exchange[]; /* [STEPS][U][PAIRS]: two samples, re and im */
    __shared__ float2 later[s::LAST * s::MIDDLE];
    __shared__ float4 taps[U], twiddles[U / 2];
    __shared__ __align__(16) float bias[U];
    __shared__ float2 gains[U];
    __shared__ unsigned long long sum;

    int sample = static_cast<int>(threadIdx.x) * s::V % s::SPAN; /* of the block's */
    position p = {static_cast<int>(threadIdx.x) * s::V / s::SPAN,
                  static_cast<int>(blockIdx.x) * s::SPAN + sample};
    if (p.at >= w.width) p.at = (w.width - 1) / s::V * s::V;
    int block = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, block + w.each);
    unsigned clamped = 0;
    target to = first_target<U>(w, block);

    for (int i = static_cast<int>(threadIdx.x); i < s::LAST * s::MIDDLE; i += s::THREADS)
        later[i] = w.later[i];
    for (int i = static_cast<int>(threadIdx.x); i < U; i += s::THREADS) gains[i] = w.gain[i];
    if (threadIdx.x == 0) sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < U / 2; i += s::THREADS) twiddles[i] = w.twiddles[i];
    unsigned words[STEPS][s::K];         /* of this iteration; loaded while the one before is transformed */
    rows next = rows_of<U>(w, p, block); /* at the end it is not advanced */
#pragma unroll
    for (int t = 0; t < STEPS; t++) {
        load<U>(words[t], w, p, next);
        if (block + t + 1 < end) next.first += U * w.row;
    }
    FILTER filter;
    filter.start(taps, bias, w, p);
    __syncthreads();
    filter.warm_up(w, p, block);

    for (; block < end; block += STEPS) {
#pragma unroll
        for (int t = 0; t < STEPS; t++) {
            /* z [V][K]   register: v, k, then q   thread: at, then step */
            float2 z[s::V][s::K];
            /* Tables are read again for each step: kept, they would take 28 registers. */
            asm volatile("" ::: "memory");
            filter.filter(z, words[t], w, p, block + t);
            store_butterflies<U>(exchange + t * U * s::PAIRS, z, twiddles + p.step * (s::K / 2), p.step,
                                 sample);
        }
#pragma unroll
        for (int t = 0; t < STEPS; t++) {
            load<U>(words[t], w, p, next);
            if (block + STEPS + t + 1 < end) next.first += U * w.row;
        }
        __syncthreads();
        if constexpr (s::MIDDLE > 1) {
            transform_middle<U>(exchange, later);
            __syncthreads();
        }
        clamped += transform_last<U>(exchange, w, gains, to, block, end);
        __syncthreads();
        to.out += static_cast<size_t>(w.width) * (STEPS * U);
        if (to.missing != nullptr) to.missing += STEPS * w.F;
    }
    clamped = __reduce_add_sync(beamring::WHOLE_WARP, clamped);
    if (threadIdx.x % 32 == 0 && clamped > 0) atomicAdd(&sum, static_cast<unsigned long long>(clamped));
    __syncthreads();
    if (threadIdx.x == 0 && sum > 0) atomicAdd(w.clamped, sum);
}

struct variant {
    void (*kernel)(work);
    int threads, span;
    size_t shared;
};

template <int U> variant variant_of(bool few)
{
    return {few ? upchannelize<U, few_taps<U>> : upchannelize<U, many_taps<U>>, shape<U>::THREADS,
            shape<U>::SPAN, shape<U>::SHARED};
}

variant variant_for(unsigned factor, bool few)
{
    switch (factor) {
    case 2:
        return variant_of<2>(few);
    case 4:
        return variant_of<4>(few);
    case 8:
        return variant_of<8>(few);
    case 16:
        return variant_of<16>(few);
    case 32:
        return variant_of<32>(few);
    case 64:
        return variant_of<64>(few);
    default:
        return variant_of<128>(few);
    }
}

/* The tables of a plan, one after another in one piece of memory, counted in floats. */
struct tables {
    size_t taps, bias, twiddles, later, gain, floats;
};

/* Taps scaled to 1, so that no window is too small or too large for float32, with the signs of the phases;
 * few are filled up to RING with zeros for the oldest. */
void fill(float *table, const tables &at, const struct br_upchannelize *plan, int padded)
{
    constexpr double PI = 3.14159265358979323846;
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), K = U == 2 ? 2 : 4, N = U / K;
    int last = N >= 4 ? 4 : N, transform_middle = N / last;
    double largest = 0;
    for (int s = 0; s < M * U; s++) largest = fmax(largest, fabs(plan->window[s]));
    if (largest == 0) largest = 1;
    for (int j = 0; j < N; j++)
        for (int k = 0; k < K; k++) {
            double sum = 0;
            for (int m = 0; m < M; m++) {
                int step = j + k * N;
                double tap = plan->window[m * U + step] / largest * ((m + step) % 2 ? -1 : 1) *
                             (K == 4 && k % 2 ? sqrt(0.5) : 1);
                float rounded = static_cast<float>(tap);
                table[at.taps + (j * padded + padded - M + m) * K + k] = rounded;
                sum += static_cast<double>(rounded);
            }
            table[at.bias + j * K + k] = static_cast<float>(-24 * sum);
            double phase = -2 * PI * j * (k + 0.5) / U;
            table[at.twiddles + 2 * (j * K + k)] = static_cast<float>(cos(phase));
            table[at.twiddles + 2 * (j * K + k) + 1] = static_cast<float>(sin(phase));
        }
    for (int c = 0; c < last; c++)
        for (int d = 0; d < transform_middle; d++) {
            double phase = -2 * PI * c * d / N;
            table[at.later + 2 * (c * transform_middle + d)] = static_cast<float>(cos(phase));
            table[at.later + 2 * (c * transform_middle + d) + 1] = static_cast<float>(sin(phase));
        }
    for (int u = 0; u < U; u++) {
        double gain = plan->gain[u] * largest;
        table[at.gain + 2 * u] = static_cast<float>(gain);
        table[at.gain + 2 * u + 1] = static_cast<float>(fmin(static_cast<double>(FITS) / fabs(gain), 1e30));
    }
}

bool is_strong(const struct br_upchannelize *plan)
{
    double sum = 0, gain = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) sum += fabs(plan->window[s]);
    for (unsigned u = 0; u < plan->U; u++) gain = fmax(gain, fabs(plan->gain[u]));
    return sum * gain * 16 > static_cast<double>(FITS);
}

} // namespace

#endif
