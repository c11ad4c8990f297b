/* fft_store.cuh - the filterbank in float32 on a GPU, last part: from the exchange to the output. pfb.cuh
 * says how the work is divided. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_FP32_FFT_STORE_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_FP32_FFT_STORE_CUH

#include "kernels/upchannelize/gpu/fp32/load_taps.cuh"

namespace
{

/* Transforms over b: row q N + c + LAST b becomes row q N + c + LAST d. */
template <int U> __device__ __forceinline__ void transform_middle(float4 *exchange, const float2 *later)
{
    using s = shape<U>;
    constexpr int TIMES = 8 / s::MIDDLE;
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        int unit = i * s::THREADS + static_cast<int>(threadIdx.x), pair = unit % s::PAIRS,
            rest = unit / s::PAIRS;
        int c = rest % s::LAST, q_and_step = rest / s::LAST; /* STEPS U rows are STEPS K groups of N */
        float4 *rows = exchange + (q_and_step * s::N + c) * s::PAIRS + pair;
        /* a, b [MIDDLE]: the two samples of a pair   register: b, then d   thread: pair, then c, q, step */
        float2 a[s::MIDDLE], b[s::MIDDLE];
#pragma unroll
        for (int k = 0; k < s::MIDDLE; k++) {
            float4 both = rows[k * s::LAST * s::PAIRS];
            a[k] = make_float2(both.x, both.y);
            b[k] = make_float2(both.z, both.w);
        }
        transform<s::MIDDLE>(a);
        transform<s::MIDDLE>(b);
#pragma unroll
        for (int d = 0; d < s::MIDDLE; d++) {
            if (d > 0) {
                float2 twiddle = later[c * s::MIDDLE + d];
                a[d] = times(a[d], twiddle);
                b[d] = times(b[d], twiddle);
            }
            rows[d * s::LAST * s::PAIRS] = make_float4(a[d].x, a[d].y, b[d].x, b[d].y);
        }
    }
}

/* 1.5 2^23 + 0x6600: added to a number it rounds it to an integer n, half to even, and the lower 16 bits
 * become those of the float16 1536 + n. So they do, in order, at least for |n| < 5000. */
constexpr float ROUND = 12582912.0f + 26112.0f;
constexpr float FITS = 5000.0f;
constexpr unsigned LOWEST = 0x65f965f9u, HIGHEST = 0x66076607u; /* 1536 - 7, 1536 + 7 */

/* Two components to 1536 + level, clamped; adds to `clamped` (two float16). simd: re, im */
__device__ __forceinline__ unsigned quantize(float2 z, float gain, unsigned &clamped)
{
    unsigned x =
        __byte_perm(__float_as_uint(fmaf(z.x, gain, ROUND)), __float_as_uint(fmaf(z.y, gain, ROUND)), 0x5410);
    unsigned kept, beyond;
    asm("max.f16x2 %0, %1, %2;\n" : "=r"(kept) : "r"(x), "r"(LOWEST));
    asm("min.f16x2 %0, %1, %2;\n" : "=r"(kept) : "r"(kept), "r"(HIGHEST));
    asm("set.ne.f16x2.f16x2 %0, %1, %2;\n" : "=r"(beyond) : "r"(kept), "r"(x));
    asm("add.f16x2 %0, %1, %2;\n" : "=r"(clamped) : "r"(clamped), "r"(beyond));
    return kept;
}

__device__ __forceinline__ unsigned count_of(unsigned halves)
{
    float low, high;
    asm("{.reg .f16 a, b;\n mov.b32 {a, b}, %2;\n cvt.f32.f16 %0, a;\n cvt.f32.f16 %1, b;}\n"
        : "=f"(low), "=f"(high)
        : "r"(halves));
    return static_cast<unsigned>(low + high);
}

/* Four samples as quantize() leaves them to the bytes of a word. */
__device__ __forceinline__ unsigned pack(const unsigned (&levels)[4])
{
    unsigned first = __byte_perm(levels[0], levels[1], 0x6420),
             second = __byte_perm(levels[2], levels[3], 0x6420);
    unsigned re = __byte_perm(first, second, 0x6420), im = __byte_perm(first, second, 0x7531);
    return (re & 0x0f0f0f0fu) | (im << 4 & 0xf0f0f0f0u);
}

/* Bytes of several channels, or not aligned: one by one. */
template <int U>
__device__ __forceinline__ void store_bytes(const work &w, int at, int block, int u, unsigned word,
                                            unsigned wanted)
{
#pragma unroll 1
    for (int i = 0; i < 4 && at + i < w.width; i++) {
        int X = static_cast<int>(w.X), f = (at + i) / X, x = (at + i) - f * X;
        w.out[((static_cast<size_t>(block) * w.F + f) * U + u) * w.X + x] =
            static_cast<uint8_t>(wanted >> i & 1 ? word >> 8 * i : beamring::MISSING_INT4);
    }
}

/* Bit i: sample i of the word exists and is not missing. */
__device__ __forceinline__ unsigned wanted_bytes(const work &w, int at, int block)
{
    unsigned wanted = 0;
#pragma unroll 1
    for (int i = 0; i < 4 && at + i < w.width; i++)
        if (w.missing == nullptr ||
            !w.missing[static_cast<size_t>(block - w.first) * w.F + (at + i) / static_cast<int>(w.X)])
            wanted |= 1u << i;
    return wanted;
}

/* Where a thread's words of an iteration go: all at one place of the row. */
struct target {
    int at;
    uint8_t *out;           /* the word of channel f's u = 0 in the first block of the iteration */
    const uint8_t *missing; /* of channel f in that block, or NULL */
};

template <int U> __device__ __forceinline__ target first_target(const work &w, int block)
{
    using s = shape<U>;
    target to;
    to.at = static_cast<int>(blockIdx.x * s::SPAN + threadIdx.x % s::W * 4);
    size_t f = static_cast<size_t>(to.at) / w.X;
    /* out: shape (T/U, F, U, X), contiguous
     * after the block's and the thread's offset: shape (blocks, U, 4), strides (F U X, X, 1)
     * missing: shape (blocks, F), contiguous -> shape (blocks), stride F */
    to.out = w.out + (static_cast<size_t>(block) * w.F + f) * U * w.X + (to.at - f * w.X);
    to.missing = w.missing == nullptr ? nullptr : w.missing + static_cast<size_t>(block - w.first) * w.F + f;
    return to;
}

/* Returns the number of components clamped. */
template <int U>
__device__ __forceinline__ unsigned transform_last(const float4 *exchange, const work &w, const float2 *gains,
                                                   const target &to, int block, int end)
{
    using s = shape<U>;
    int word = static_cast<int>(threadIdx.x) % s::W;
    unsigned total = 0;
#pragma unroll
    for (int i = 0; i < s::UNITS; i++) {
        int rest = i * (s::THREADS / s::W) + static_cast<int>(threadIdx.x) / s::W;
        int d = rest % s::MIDDLE, q = rest / s::MIDDLE % s::K, step = rest / (s::MIDDLE * s::K);
        if (block + step >= end || to.at >= w.width) continue;
        const float4 *rows = exchange + (step * U + q * s::N + d * s::LAST) * s::PAIRS;
        unsigned wanted = 15;
        if (!w.wide_out)
            wanted = wanted_bytes(w, to.at, block + step);
        else if (to.missing != nullptr && to.missing[step * w.F])
            wanted = 0;

        /* levels [LAST][4]   simd: re, im   register: c, then g; sample   thread: word, then d, q, step */
        unsigned levels[s::LAST][4], clamped = 0;
#pragma unroll
        for (int second = 0; second < 2; second++) {
            float2 z[2][s::LAST];
#pragma unroll
            for (int c = 0; c < s::LAST; c++) {
                float4 both = rows[c * s::PAIRS + place<U>(word, second)];
                z[0][c] = make_float2(both.x, both.y);
                z[1][c] = make_float2(both.z, both.w);
            }
#pragma unroll
            for (int v = 0; v < 2; v++) transform<s::LAST>(z[v]);
            if (w.strong || !w.wide_out) {
                /* bounded, and 0 for unwanted values, so that they do not count as clamped */
#pragma unroll
                for (int v = 0; v < 2; v++)
#pragma unroll
                    for (int g = 0; g < s::LAST; g++) {
                        bool is_wanted = wanted >> (second * 2 + v) & 1;
                        float bound = is_wanted ? gains[q + s::K * (d + s::MIDDLE * g)].y : 0;
                        z[v][g] = make_float2(fminf(fmaxf(z[v][g].x, -bound), bound),
                                              fminf(fmaxf(z[v][g].y, -bound), bound));
                    }
            }
#pragma unroll
            for (int g = 0; g < s::LAST; g++) {
                float gain = gains[q + s::K * (d + s::MIDDLE * g)].x;
#pragma unroll
                for (int v = 0; v < 2; v++) levels[g][second * 2 + v] = quantize(z[v][g], gain, clamped);
            }
        }
        if (wanted) total += count_of(clamped);
        /* after the unit's offset: shape (LAST, 4), strides (K MIDDLE X, 1) */
        uint8_t *out = to.out + (static_cast<size_t>(step) * w.width * U + (q + s::K * d) * w.X);
        size_t stride = s::K * s::MIDDLE * w.X;
        unsigned bytes[s::LAST];
#pragma unroll
        for (int g = 0; g < s::LAST; g++) bytes[g] = pack(levels[g]);
        if (w.wide_out) {
#pragma unroll
            for (int g = 0; g < s::LAST; g++, out += stride)
                *reinterpret_cast<unsigned *>(out) = wanted ? bytes[g] : beamring::MISSING_INT4 * 0x01010101u;
        } else {
#pragma unroll
            for (int g = 0; g < s::LAST; g++)
                store_bytes<U>(w, to.at, block + step, q + s::K * (d + s::MIDDLE * g), bytes[g], wanted);
        }
    }
    return total;
}

} // namespace

#endif
