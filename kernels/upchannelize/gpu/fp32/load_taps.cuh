/* load_taps.cuh - the filterbank in float32 on a GPU, first part: declarations that its kernels share, and
 * the way from the input to the exchange. pfb.cuh says how the work is divided. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_FP32_LOAD_TAPS_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_FP32_LOAD_TAPS_CUH

#include "kernels/common/device.cuh"

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace
{

constexpr int RING = 4;  /* the most taps for which few_taps keeps running sums */
constexpr int STEPS = 2; /* output steps of an iteration, between two barriers */

/* How the kernels divide a block, U time steps, for one U. U = K N = K MIDDLE LAST: the transform has a
 * radix-K butterfly in this part, then transforms of length MIDDLE and LAST. A thread has 8 samples of a
 * block (K steps by V samples of the row) in this part, and 16 of an iteration in fft_store.cuh. */
template <int U> struct shape {
    static constexpr int K = U == 2 ? 2 : 4, N = U / K;
    static constexpr int LAST = N >= 4 ? 4 : N, MIDDLE = N / LAST;
    static constexpr int SPAN =
        U == 128 ? 32 : 2048 / U; /* of the row, a thread block; a sector of 32 bytes or more */
    static constexpr int THREADS = U * SPAN / 8, BLOCKS = THREADS == 256 ? 2 : 1;
    static constexpr int V = 8 / K;                      /* samples of the row that a thread has */
    static constexpr int PAIRS = SPAN / 2, W = SPAN / 4; /* pairs of samples, words of 4 samples in SPAN */
    static constexpr int UNITS = 4 / LAST;               /* last transforms (of 4 samples each) of a thread */
    static constexpr size_t SHARED = sizeof(float4) * STEPS * U * PAIRS;
};

/* The arguments of a launch. Blocks (of U steps) are numbered from the start of the call; those before it,
 * with negative numbers, are in the history. */
struct work {
    const uint8_t *e;       /* [T][row] */
    const uint8_t *history; /* [(M-1) U][width] */
    const uint8_t *missing; /* [last - first][F] or NULL */
    uint8_t *out;           /* [T/U][F][U][X] */
    const float *taps;      /* [N][M or RING][K] */
    const float *bias;      /* [N][K] */
    const float4 *twiddles; /* [N][K/2], two factors in each */
    const float2 *later;    /* [LAST][MIDDLE]: the factors before the last transform */
    const float2 *gain;     /* [U]: the gain, and FITS / abs(gain) */
    unsigned long long *clamped;
    size_t row, F, X;
    int width;             /* F X */
    int first, last, each; /* blocks first to last - 1; `each` of them for a thread block */
    int M;
    bool wide_in, wide_out; /* loads of V bytes, or stores of 4, are aligned */
    bool strong;            /* before they are clamped, outputs may exceed 16 bits */
};

/* 24 + component i of the samples in a word, without a conversion: with its sign bit inverted the component
 * is 8 + n, and these bits in the mantissa of 16 make the float 16 + 8 + n. `bias` subtracts 24 times the
 * taps. */
__device__ __forceinline__ float plus_24(unsigned word, int i)
{
    int up = 19 - 4 * i;
    unsigned moved = up >= 0 ? word << (up & 31) : word >> (-up & 31), bits;
    /* (moved & 0x00780000) ^ 0x41c00000 in one instruction; the compiler would use two */
    asm("{.reg .b32 excess;\n mov.b32 excess, 0x41c00000;\n lop3.b32 %0, %1, 0x00780000, excess, 0x6a;}\n"
        : "=r"(bits)
        : "r"(moved));
    return __uint_as_float(bits);
}

__device__ __forceinline__ float2 operator+(float2 a, float2 b)
{
    return make_float2(a.x + b.x, a.y + b.y);
}

__device__ __forceinline__ float2 operator-(float2 a, float2 b)
{
    return make_float2(a.x - b.x, a.y - b.y);
}

__device__ __forceinline__ float2 times(float2 a, float2 b)
{
    return make_float2(fmaf(-a.y, b.y, a.x * b.x), fmaf(a.x, b.y, a.y * b.x));
}

/* a - i b, a + i b */
__device__ __forceinline__ float2 minus_i(float2 a, float2 b)
{
    return make_float2(a.x + b.y, a.y - b.x);
}

__device__ __forceinline__ float2 plus_i(float2 a, float2 b)
{
    return make_float2(a.x - b.y, a.y + b.x);
}

/* In place: z[q] = sum_k e^{-2 i pi k q / LENGTH} z[k]. */
template <int LENGTH> __device__ __forceinline__ void transform(float2 (&z)[LENGTH])
{
    static_assert(LENGTH == 1 || LENGTH == 2 || LENGTH == 4 || LENGTH == 8, "small powers of two");
    if constexpr (LENGTH == 2) {
        float2 a = z[0], b = z[1];
        z[0] = a + b;
        z[1] = a - b;
    } else if constexpr (LENGTH == 4) {
        float2 a = z[0] + z[2], b = z[0] - z[2], c = z[1] + z[3], d = z[1] - z[3];
        z[0] = a + c;
        z[1] = minus_i(b, d);
        z[2] = a - c;
        z[3] = plus_i(b, d);
    } else if constexpr (LENGTH == 8) {
        constexpr float HALF_ROOT = 0.70710678118654752f;
        float2 even[4] = {z[0], z[2], z[4], z[6]}, odd[4] = {z[1], z[3], z[5], z[7]};
        transform<4>(even);
        transform<4>(odd);
        odd[1] = make_float2(HALF_ROOT * (odd[1].x + odd[1].y), HALF_ROOT * (odd[1].y - odd[1].x));
        odd[3] = make_float2(HALF_ROOT * (odd[3].y - odd[3].x), -HALF_ROOT * (odd[3].x + odd[3].y));
        z[0] = even[0] + odd[0];
        z[4] = even[0] - odd[0];
        z[1] = even[1] + odd[1];
        z[5] = even[1] - odd[1];
        z[2] = minus_i(even[2], odd[2]);
        z[6] = plus_i(even[2], odd[2]);
        z[3] = even[3] + odd[3];
        z[7] = even[3] - odd[3];
    }
}

/* z[q] = sum_k e^{-2 i pi k (q + 1/2) / K} z[k]. For K = 4 the caller has divided z[1] and z[3] by
 * sqrt(2). */
__device__ __forceinline__ void butterfly(float2 (&z)[4])
{
    z[1] = make_float2(z[1].x + z[1].y, z[1].y - z[1].x);
    z[2] = make_float2(z[2].y, -z[2].x);
    z[3] = make_float2(z[3].y - z[3].x, -z[3].x - z[3].y);
    transform<4>(z);
}

__device__ __forceinline__ void butterfly(float2 (&z)[2])
{
    float2 a = z[0], b = z[1];
    z[0] = minus_i(a, b);
    z[1] = plus_i(a, b);
}

/* Place of a pair of samples in a row of the exchange, in units of 16 bytes: the first pairs of all words,
 * then their second pairs. There are no bank conflicts: 8 neighbouring threads write both pairs of 4 words
 * (store_butterflies), or read the first or the second pairs of 8 words (transform_last); either way they
 * access 8 different groups of 4 banks. */
template <int U> __device__ __forceinline__ int place(int word, int second)
{
    return second * shape<U>::W + (word ^ second << 2);
}

/* A thread's part of the input: rows step + k N of a block, V samples of each row from `at` on. Beyond the
 * end of the row a thread reads the last samples again; its results are not stored. */
struct position {
    int step;
    int at;
};

/* A thread's first row of a block, and the bytes from one of its K rows to the next. */
struct rows {
    const uint8_t *first;
    size_t stride;
};

/* e: shape (T, row), history: shape ((M-1) U, width), both contiguous
 * after the block's, the row's and the thread's offset: shape (K, V), strides (N rows, 1) */
template <int U> __device__ __forceinline__ rows rows_of(const work &w, position p, int block)
{
    size_t row = block < 0 ? static_cast<size_t>(w.width) : w.row,
           t = static_cast<size_t>(block < 0 ? w.M - 1 + block : block) * U + p.step;
    return {(block < 0 ? w.history : w.e) + t * row + p.at, row * shape<U>::N};
}

/* words [K]  simd: the V samples   register: k   thread: at, then step */
template <int U>
__device__ __forceinline__ void load(unsigned (&words)[shape<U>::K], const work &w, position p, rows from)
{
    using s = shape<U>;
    if (w.wide_in) {
#pragma unroll
        for (int k = 0; k < s::K; k++)
            words[k] = s::V == 2
                           ? __ldg(reinterpret_cast<const unsigned short *>(from.first + k * from.stride))
                           : __ldg(reinterpret_cast<const unsigned *>(from.first + k * from.stride));
    } else {
#pragma unroll
        for (int k = 0; k < s::K; k++) {
            words[k] = 0;
#pragma unroll
            for (int i = 0; i < s::V; i++)
                words[k] |=
                    static_cast<unsigned>(__ldg(from.first + k * from.stride + min(i, w.width - 1 - p.at)))
                    << 8 * i;
        }
    }
}

/* The filter with up to RING taps: running sums of the next outputs, so that each sample is read once.
 *   sums [RING-1][K][V]  of the next outputs   register: output, k, v   thread: at, then step */
template <int U> struct few_taps {
    using s = shape<U>;
    float2 sums[RING - 1][s::K][s::V];
    const float4 *taps; /* [K], shared memory: RING taps each */
    const float *bias;  /* [K], shared memory */

    /* Fills all_taps and all_bias, [N][K] in shared memory. The caller puts a barrier between this and the
     * first use. */
    __device__ __forceinline__ void start(float4 *all_taps, float *all_bias, const work &w, position p)
    {
        for (int i = static_cast<int>(threadIdx.x); i < U; i += s::THREADS) {
            const float *from = w.taps + i / s::K * RING * s::K + i % s::K; /* [RING], stride K */
            all_taps[i] = make_float4(from[0], from[s::K], from[2 * s::K], from[3 * s::K]);
            all_bias[i] = w.bias[i];
        }
        taps = all_taps + p.step * s::K;
        bias = all_bias + p.step * s::K;
    }

    __device__ __forceinline__ void warm_up(const work &w, position p, int block)
    {
#pragma unroll
        for (int k = 0; k < s::K; k++)
#pragma unroll
            for (int v = 0; v < s::V; v++)
#pragma unroll
                for (int m = 0; m < RING - 1; m++) sums[m][k][v] = make_float2(bias[k], bias[k]);
        unsigned words[RING - 1][s::K];
#pragma unroll
        for (int m = 0; m < RING - 1; m++)
            if (m < w.M - 1) load<U>(words[m], w, p, rows_of<U>(w, p, block - (w.M - 1) + m));
        float2 none[s::V][s::K];
#pragma unroll
        for (int m = 0; m < RING - 1; m++)
            if (m < w.M - 1) add(none, words[m]);
    }

    __device__ __forceinline__ void add(float2 (&z)[s::V][s::K], const unsigned (&words)[s::K])
    {
#pragma unroll
        for (int k = 0; k < s::K; k++) {
            float4 tap = taps[k];
            float2 none = make_float2(bias[k], bias[k]);
#pragma unroll
            for (int v = 0; v < s::V; v++) {
                float re = plus_24(words[k], 2 * v), im = plus_24(words[k], 2 * v + 1);
                auto to = [&](float t, float2 sum) {
                    return make_float2(fmaf(t, re, sum.x), fmaf(t, im, sum.y));
                };
                z[v][k] = to(tap.w, sums[0][k][v]);
                sums[0][k][v] = to(tap.z, sums[1][k][v]);
                sums[1][k][v] = to(tap.y, sums[2][k][v]);
                sums[2][k][v] = to(tap.x, none);
            }
        }
    }

    __device__ __forceinline__ void filter(float2 (&z)[s::V][s::K], const unsigned (&words)[s::K],
                                           const work &, position, int)
    {
        add(z, words);
    }
};

/* The filter with any number of taps: reads the words of earlier blocks again, mostly from a cache. */
template <int U> struct many_taps {
    using s = shape<U>;

    __device__ __forceinline__ void start(float4 *, float *, const work &, position) {}
    __device__ __forceinline__ void warm_up(const work &, position, int) {}

    __device__ __forceinline__ void filter(float2 (&z)[s::V][s::K], const unsigned (&words)[s::K],
                                           const work &w, position p, int block)
    {
        /* taps: shape (N, M, K), contiguous -> after the thread's offset: shape (M, K) */
        const float *taps = w.taps + static_cast<size_t>(p.step) * w.M * s::K;
#pragma unroll
        for (int k = 0; k < s::K; k++)
#pragma unroll
            for (int v = 0; v < s::V; v++) {
                float bias = __ldg(w.bias + p.step * s::K + k);
                z[v][k] = make_float2(bias, bias);
            }
#pragma unroll 2
        for (int m = 0; m < w.M; m++) {
            unsigned earlier[s::K];
            if (m < w.M - 1) load<U>(earlier, w, p, rows_of<U>(w, p, block - (w.M - 1) + m));
#pragma unroll
            for (int k = 0; k < s::K; k++) {
                unsigned word = m < w.M - 1 ? earlier[k] : words[k];
                float tap = __ldg(taps + m * s::K + k);
#pragma unroll
                for (int v = 0; v < s::V; v++)
                    z[v][k] = make_float2(fmaf(tap, plus_24(word, 2 * v), z[v][k].x),
                                          fmaf(tap, plus_24(word, 2 * v + 1), z[v][k].y));
            }
        }
    }
};

/* Butterflies of z [V][K], times twiddle factors, into the exchange of one output step, [U][PAIRS]. twiddles:
 * [K/2] in shared memory, two factors in each. `sample`: the thread's first one in SPAN. */
template <int U>
__device__ __forceinline__ void store_butterflies(float4 *exchange, float2 (&z)[shape<U>::V][shape<U>::K],
                                                  const float4 *twiddles, int step, int sample)
{
    using s = shape<U>;
#pragma unroll
    for (int v = 0; v < s::V; v++) butterfly(z[v]);
    if constexpr (s::N > 1) {
#pragma unroll
        for (int q = 0; q < s::K; q += 2) {
            float4 two = twiddles[q / 2];
#pragma unroll
            for (int v = 0; v < s::V; v++) {
                z[v][q] = times(z[v][q], make_float2(two.x, two.y));
                z[v][q + 1] = times(z[v][q + 1], make_float2(two.z, two.w));
            }
        }
    }
#pragma unroll
    for (int q = 0; q < s::K; q++)
#pragma unroll
        for (int v = 0; v < s::V; v += 2)
            exchange[(q * s::N + step) * s::PAIRS + place<U>(sample / 4, (sample + v) / 2 % 2)] =
                make_float4(z[v][q].x, z[v][q].y, z[v + 1][q].x, z[v + 1][q].y);
}

} // namespace

#endif
