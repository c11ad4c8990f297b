/* The filterbank on a GPU, in float32: taps and first butterfly, exchange through shared memory, the rest of the transform.
 *
 * transform.h says what is computed and why the signs and 1/sqrt(2) can stand in the taps. Here a thread block walks along time
 * with SPAN samples of the row (channels and spectators are one row: the filter treats them alike), two output steps a turn:
 *
 *   gather   a thread has K = 4 (U = 2: 2) input steps j' + k U/K of each block, and 8/K samples of the row. A sample is unpacked
 *            once: what it contributes to this and the next three outputs is added to running sums (more than four taps: it is
 *            read again for each tap). Then the butterfly over k, and the turn by e^{-2 i pi j' (q + 1/2)/U}.
 *   middle   U >= 32 only: a transform of length MIDDLE, in place in shared memory.
 *   finish   a transform of length LAST; gain, rounding, clamping; four samples are stored as one word.
 *
 * With j' = c + LAST b and r = d + MIDDLE g, fine channel u = K r + q comes from row q N + c + LAST b of the exchange. */
#include "kernels/common/cuda.h"
#include "kernels/common/device.cuh"
#include "kernels/upchannelize/plan.h"

#include <cuda_runtime.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

constexpr int RING = 4; /* taps kept in running sums */
constexpr int TURN = 2; /* output steps between barriers */

/* For one U. Every thread has 8 samples of a block in gather, 16 of a turn elsewhere. */
template <int U> struct shape {
    static constexpr int K = U == 2 ? 2 : 4, N = U / K;
    static constexpr int LAST = N >= 4 ? 4 : N, MIDDLE = N / LAST;
    static constexpr int SPAN = U == 128 ? 32 : 2048 / U; /* at least a sector of 32 bytes */
    static constexpr int THREADS = U * SPAN / 8, BLOCKS = THREADS == 256 ? 2 : 1;
    static constexpr int V = 8 / K;                   /* samples of the row in gather */
    static constexpr int PAIRS = SPAN / 2, W = SPAN / 4; /* of samples, words of 4 samples */
    static constexpr int UNITS = 4 / LAST;            /* groups of LAST by 4 samples in finish */
    static constexpr size_t SHARED = sizeof(float4) * TURN * U * PAIRS;
};

/* What a launch works on. Blocks are numbered from the start of the call; those before it are in the history. */
struct work {
    const uint8_t *e;       /* [T][row] */
    const uint8_t *history; /* [(M-1) U][width] */
    const uint8_t *lost;    /* [last - first][F] or NULL */
    uint8_t *out;           /* [T/U][F][U][X] */
    const float *taps;      /* [N][M or RING][K] */
    const float *bias;      /* [N][K] */
    const float4 *turns;    /* [N][K/2], two in one */
    const float2 *later;    /* [LAST][MIDDLE] */
    const float *gain;      /* [U] */
    unsigned long long *clamped;
    size_t row, F, X;
    int width;               /* F X */
    int first, last, each;   /* blocks; as many for a thread block */
    int M;
    bool wide_in, wide_out; /* loads of V bytes, stores of 4 are aligned */
    bool strong;            /* outputs may not fit 16 bits before they are clamped */
};

/* 24 + component i of the samples in a word, without a conversion: in excess of 8 the component's bits become those of a float in
 * [16, 32). 24 times the taps is taken off beforehand (`bias`). */
__device__ __forceinline__ float plus_24(unsigned word, int i)
{
    int up = 19 - 4 * i;
    unsigned moved = up >= 0 ? word << (up & 31) : word >> (-up & 31);
    return __uint_as_float((moved & 0x00780000u) ^ 0x41c00000u);
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

/* sum_k e^{-2 i pi k (q + 1/2) / K} z[k], where for K = 4 odd k come divided by sqrt(2). */
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

/* Where in a row of the exchange a pair of samples stands, in units of 16 bytes: words' first pairs and then their second pairs.
 * In gather 8 threads in turn write pairs of 4 words, in finish they read first or second pairs of 8 words: both are 8 different
 * groups of 4 banks. */
template <int U> __device__ __forceinline__ int place(int word, int second)
{
    return second * shape<U>::W + (word ^ second << 2);
}

/* What a thread has of the input: rows j' + k N of a block, V samples from `at` of the row. */
struct position {
    int step;  /* j' */
    int at;
};

/* Of a block before `end`; else zeros.
 *   words [K]  simd: the V samples   register: k   thread: at, then step */
template <int U> __device__ __forceinline__ void load(unsigned (&words)[shape<U>::K], const work &w, position p, int block,
                                     int end)
{
    using s = shape<U>;
    /* e: shape (T, width), strides (row, 1); history: shape ((M-1) U, width), contiguous
     * after the block's, the row's and the thread's offset: shape (K, V), strides (N rows, 1) */
    const uint8_t *from = block < 0 ? w.history + static_cast<size_t>((w.M - 1 + block) * U + p.step) * static_cast<size_t>(w.width) + p.at
                                    : w.e + (static_cast<size_t>(block) * U + p.step) * w.row + p.at;
    size_t stride = (block < 0 ? static_cast<size_t>(w.width) : w.row) * s::N;
#pragma unroll
    for (int k = 0; k < s::K; k++) {
        words[k] = 0;
        if (block >= end) continue;
        if (w.wide_in) {
            if (p.at < w.width)
                words[k] = s::V == 2 ? __ldg(reinterpret_cast<const unsigned short *>(from + k * stride))
                                     : __ldg(reinterpret_cast<const unsigned *>(from + k * stride));
        } else {
#pragma unroll
            for (int i = 0; i < s::V; i++)
                if (p.at + i < w.width) words[k] |= static_cast<unsigned>(__ldg(from + k * stride + i)) << 8 * i;
        }
    }
}

/* The taps' part of gather with up to RING taps.
 *   sums [RING-1][K][V]  of the next outputs   register: output, k, v   thread: at, then step */
template <int U> struct few_taps {
    using s = shape<U>;
    float2 sums[RING - 1][s::K][s::V];
    const float4 *taps; /* [K], shared memory: RING taps each */
    const float *bias;  /* [K], shared memory */

    /* all_taps, all_bias: [N][K], shared memory, for this function to fill; a barrier comes before they are read. */
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
            if (m < w.M - 1) load<U>(words[m], w, p, block - (w.M - 1) + m, block);
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
                auto to = [&](float t, float2 sum) { return make_float2(fmaf(t, re, sum.x), fmaf(t, im, sum.y)); };
                z[v][k] = to(tap.w, sums[0][k][v]);
                sums[0][k][v] = to(tap.z, sums[1][k][v]);
                sums[1][k][v] = to(tap.y, sums[2][k][v]);
                sums[2][k][v] = to(tap.x, none);
            }
        }
    }

    __device__ __forceinline__ void filter(float2 (&z)[s::V][s::K], const unsigned (&words)[s::K], const work &, position, long long)
    {
        add(z, words);
    }
};

/* The same with any number: the words of earlier blocks are read again, mostly from a cache. */
template <int U> struct many_taps {
    using s = shape<U>;

    __device__ __forceinline__ void start(float4 *, float *, const work &, position) {}
    __device__ __forceinline__ void warm_up(const work &, position, long long) {}

    __device__ __forceinline__ void filter(float2 (&z)[s::V][s::K], const unsigned (&words)[s::K], const work &w, position p,
                                           int block)
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
            if (m < w.M - 1) load<U>(earlier, w, p, block - (w.M - 1) + m, block);
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

/* z [V][K] to the exchange of one output step, [U][PAIRS]. turns: [K/2], shared memory, two in one. */
template <int U>
__device__ __forceinline__ void spread(float4 *exchange, float2 (&z)[shape<U>::V][shape<U>::K],
                                       const float4 *turns, int step, int sample)
{
    using s = shape<U>;
#pragma unroll
    for (int v = 0; v < s::V; v++) butterfly(z[v]);
    if constexpr (s::N > 1) {
#pragma unroll
        for (int q = 0; q < s::K; q += 2) {
            float4 two = turns[q / 2];
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

/* Transforms over b: row q N + c + LAST b becomes row q N + c + LAST d. */
template <int U> __device__ __forceinline__ void middle(float4 *exchange, const float2 *later)
{
    using s = shape<U>;
    constexpr int TIMES = 8 / s::MIDDLE;
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        int unit = i * s::THREADS + static_cast<int>(threadIdx.x), pair = unit % s::PAIRS, rest = unit / s::PAIRS;
        int c = rest % s::LAST, q_and_turn = rest / s::LAST; /* TURN U rows are TURN K groups of N */
        float4 *rows = exchange + (q_and_turn * s::N + c) * s::PAIRS + pair;
        /* a, b [MIDDLE]: the two samples of a pair   register: b, then d   thread: pair, then c, q, turn */
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
                float2 turn = later[c * s::MIDDLE + d];
                a[d] = times(a[d], turn);
                b[d] = times(b[d], turn);
            }
            rows[d * s::LAST * s::PAIRS] = make_float4(a[d].x, a[d].y, b[d].x, b[d].y);
        }
    }
}

/* 1.5 2^23 + 0x6600: added to a number it rounds it to an integer n, half to even, and the lower 16 bits become those of the
 * float16 1536 + n. So they do, in order, at least for |n| < 5000. */
constexpr float ROUND = 12582912.0f + 26112.0f;
constexpr float FITS = 5000.0f;
constexpr unsigned LOWEST = 0x65f965f9u, HIGHEST = 0x66076607u; /* 1536 - 7, 1536 + 7 */

/* Two components to 1536 + level, clamped; adds to `clamped` (two float16). simd: re, im */
__device__ __forceinline__ unsigned quantize(float2 z, float gain, unsigned &clamped)
{
    unsigned x = __byte_perm(__float_as_uint(fmaf(z.x, gain, ROUND)), __float_as_uint(fmaf(z.y, gain, ROUND)), 0x5410);
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
    unsigned first = __byte_perm(levels[0], levels[1], 0x6420), second = __byte_perm(levels[2], levels[3], 0x6420);
    unsigned re = __byte_perm(first, second, 0x6420), im = __byte_perm(first, second, 0x7531);
    return (re & 0x0f0f0f0fu) | (im << 4 & 0xf0f0f0f0u);
}

/* Bytes of several channels, or not aligned: one by one. */
template <int U>
__device__ __forceinline__ void store_bytes(const work &w, int at, int block, int u, unsigned word, unsigned wanted)
{
#pragma unroll 1
    for (int i = 0; i < 4 && at + i < w.width; i++) {
        int X = static_cast<int>(w.X), f = (at + i) / X, x = (at + i) - f * X;
        w.out[((static_cast<size_t>(block) * w.F + f) * U + u) * w.X + x] =
            static_cast<uint8_t>(wanted >> i & 1 ? word >> 8 * i : MISSING_INT4);
    }
}

/* Bit i: sample i of the word exists and is not missing. */
__device__ __forceinline__ unsigned wanted_bytes(const work &w, int at, int block)
{
    unsigned wanted = 0;
#pragma unroll 1
    for (int i = 0; i < 4 && at + i < w.width; i++)
        if (w.lost == nullptr || !w.lost[static_cast<size_t>(block - w.first) * w.F + (at + i) / static_cast<int>(w.X)]) wanted |= 1u << i;
    return wanted;
}

/* Where a thread's words of a turn go: all at one place of the row. */
struct target {
    int at;
    uint8_t *out;        /* the word of channel f's u = 0 in the first block of the turn */
    const uint8_t *lost; /* of channel f in that block, or NULL */
};

template <int U> __device__ __forceinline__ target first_target(const work &w, int block)
{
    using s = shape<U>;
    target to;
    to.at = static_cast<int>(blockIdx.x * s::SPAN + threadIdx.x % s::W * 4);
    size_t f = static_cast<size_t>(to.at) / w.X;
    /* out: shape (T/U, F, U, X), contiguous
     * after the block's and the thread's offset: shape (blocks, U, 4), strides (F U X, X, 1)
     * lost: shape (blocks, F), contiguous -> shape (blocks), stride F */
    to.out = w.out + (static_cast<size_t>(block) * w.F + f) * U * w.X + (to.at - f * w.X);
    to.lost = w.lost == nullptr ? nullptr : w.lost + static_cast<size_t>(block - w.first) * w.F + f;
    return to;
}

/* Returns the number of components clamped. */
template <int U>
__device__ __forceinline__ unsigned finish(const float4 *exchange, const work &w, const float *gains, const target &to,
                                           int block, int end)
{
    using s = shape<U>;
    int word = static_cast<int>(threadIdx.x) % s::W;
    unsigned total = 0;
#pragma unroll
    for (int i = 0; i < s::UNITS; i++) {
        int rest = i * (s::THREADS / s::W) + static_cast<int>(threadIdx.x) / s::W;
        int d = rest % s::MIDDLE, q = rest / s::MIDDLE % s::K, turn = rest / (s::MIDDLE * s::K);
        if (block + turn >= end || to.at >= w.width) continue;
        const float4 *rows = exchange + (turn * U + q * s::N + d * s::LAST) * s::PAIRS;
        unsigned wanted = 15;
        if (!w.wide_out) wanted = wanted_bytes(w, to.at, block + turn);
        else if (to.lost != nullptr && to.lost[turn * w.F]) wanted = 0;

        /* levels [LAST][4]   simd: re, im   register: c, then g; sample   thread: word, then d, q, turn */
        unsigned levels[s::LAST][4];
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
            for (int v = 0; v < 2; v++) {
                unsigned clamped = 0;
                transform<s::LAST>(z[v]);
#pragma unroll
                for (int g = 0; g < s::LAST; g++) {
                    float gain = gains[q + s::K * (d + s::MIDDLE * g)];
                    if (w.strong) {
                        z[v][g] = make_float2(fminf(fmaxf(z[v][g].x * gain, -FITS), FITS), fminf(fmaxf(z[v][g].y * gain, -FITS), FITS));
                        gain = 1;
                    }
                    levels[g][second * 2 + v] = quantize(z[v][g], gain, clamped);
                }
                if (wanted >> (second * 2 + v) & 1) total += count_of(clamped);
            }
        }
        /* after the unit's offset: shape (LAST, 4), strides (K MIDDLE X, 1) */
        uint8_t *out = to.out + (static_cast<size_t>(turn) * w.width * U + (q + s::K * d) * w.X);
#pragma unroll
        for (int g = 0; g < s::LAST; g++) {
            unsigned bytes = pack(levels[g]);
            if (w.wide_out)
                *reinterpret_cast<unsigned *>(out + static_cast<size_t>(s::K * s::MIDDLE * g) * w.X) =
                    wanted ? bytes : MISSING_INT4 * 0x01010101u;
            else
                store_bytes<U>(w, to.at, block + turn, q + s::K * (d + s::MIDDLE * g), bytes, wanted);
        }
    }
    return total;
}

template <int U, class FILTER> __global__ void __launch_bounds__(shape<U>::THREADS, shape<U>::BLOCKS) upchannelize(const __grid_constant__ work w)
{
    using s = shape<U>;
    extern __shared__ float4 exchange[]; /* [TURN][U][PAIRS]: two samples, re and im */
    __shared__ float2 later[s::LAST * s::MIDDLE];
    __shared__ float4 taps[U], turns[U / 2];
    __shared__ __align__(16) float bias[U], gains[U];
    __shared__ unsigned long long sum;

    int sample = static_cast<int>(threadIdx.x) * s::V % s::SPAN; /* of the block's */
    position p = {static_cast<int>(threadIdx.x) * s::V / s::SPAN, static_cast<int>(blockIdx.x) * s::SPAN + sample};
    int block = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, block + w.each);
    unsigned clamped = 0;
    target to = first_target<U>(w, block);

    for (int i = static_cast<int>(threadIdx.x); i < s::LAST * s::MIDDLE; i += s::THREADS) later[i] = w.later[i];
    for (int i = static_cast<int>(threadIdx.x); i < U; i += s::THREADS) gains[i] = w.gain[i];
    if (threadIdx.x == 0) sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < U / 2; i += s::THREADS) turns[i] = w.turns[i];
    unsigned words[TURN][s::K]; /* of this turn; loaded while the one before is finished */
#pragma unroll
    for (int t = 0; t < TURN; t++) load<U>(words[t], w, p, block + t, end);
    FILTER filter;
    filter.start(taps, bias, w, p);
    __syncthreads();
    filter.warm_up(w, p, block);

    for (; block < w.last; block += TURN) {
#pragma unroll
        for (int t = 0; t < TURN; t++) {
            /* z [V][K]   register: v, k, then q   thread: at, then step */
            float2 z[s::V][s::K];
            asm volatile("" ::: "memory"); /* tables are read again for each step: kept, they would take 28 registers */
            filter.filter(z, words[t], w, p, block + t);
            spread<U>(exchange + t * U * s::PAIRS, z, turns + p.step * (s::K / 2), p.step, sample);
        }
#pragma unroll
        for (int t = 0; t < TURN; t++) load<U>(words[t], w, p, block + TURN + t, end);
        __syncthreads();
        if constexpr (s::MIDDLE > 1) {
            middle<U>(exchange, later);
            __syncthreads();
        }
        clamped += finish<U>(exchange, w, gains, to, block, end);
        to.out += static_cast<size_t>(w.width) * (TURN * U);
        if (to.lost != nullptr) to.lost += TURN * w.F;
        __syncthreads();
    }
    clamped = __reduce_add_sync(WHOLE_WARP, clamped);
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
    return {few ? upchannelize<U, few_taps<U>> : upchannelize<U, many_taps<U>>, shape<U>::THREADS, shape<U>::SPAN, shape<U>::SHARED};
}

variant variant_for(unsigned factor, bool few)
{
    switch (factor) {
    case 2: return variant_of<2>(few);
    case 4: return variant_of<4>(few);
    case 8: return variant_of<8>(few);
    case 16: return variant_of<16>(few);
    case 32: return variant_of<32>(few);
    case 64: return variant_of<64>(few);
    default: return variant_of<128>(few);
    }
}

/* The tables of a plan, one after another in one piece of memory, counted in floats. */
struct tables {
    size_t taps, bias, turns, later, gain, floats;
};

} // namespace

struct br_upchannelize_device {
    variant way;
    tables at;
    float *table;
    uint8_t *history, *spare; /* [(M-1) U][F X]: the rows before the next call; where its successor is put together */
    bool strong;
    size_t resident; /* thread blocks that run at once */
};

/* Taps scaled to 1, so that no window is too small or too large for float32, with the signs of the phases; few are filled up to
 * RING with zeros for the oldest. */
static void fill(float *table, const tables &at, const struct br_upchannelize *plan, int padded)
{
    constexpr double PI = 3.14159265358979323846;
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), K = U == 2 ? 2 : 4, N = U / K;
    int last = N >= 4 ? 4 : N, middle = N / last;
    double largest = 0;
    for (int s = 0; s < M * U; s++) largest = fmax(largest, fabs(plan->window[s]));
    if (largest == 0) largest = 1;
    for (int j = 0; j < N; j++)
        for (int k = 0; k < K; k++) {
            double sum = 0;
            for (int m = 0; m < M; m++) {
                int step = j + k * N;
                double tap = plan->window[m * U + step] / largest * ((m + step) % 2 ? -1 : 1) * (K == 4 && k % 2 ? sqrt(0.5) : 1);
                float rounded = static_cast<float>(tap);
                table[at.taps + (j * padded + padded - M + m) * K + k] = rounded;
                sum += static_cast<double>(rounded);
            }
            table[at.bias + j * K + k] = static_cast<float>(-24 * sum);
            double phase = -2 * PI * j * (k + 0.5) / U;
            table[at.turns + 2 * (j * K + k)] = static_cast<float>(cos(phase));
            table[at.turns + 2 * (j * K + k) + 1] = static_cast<float>(sin(phase));
        }
    for (int c = 0; c < last; c++)
        for (int d = 0; d < middle; d++) {
            double phase = -2 * PI * c * d / N;
            table[at.later + 2 * (c * middle + d)] = static_cast<float>(cos(phase));
            table[at.later + 2 * (c * middle + d) + 1] = static_cast<float>(sin(phase));
        }
    for (int u = 0; u < U; u++) table[at.gain + u] = static_cast<float>(plan->gain[u] * largest);
}

static bool is_strong(const struct br_upchannelize *plan)
{
    double sum = 0, gain = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) sum += fabs(plan->window[s]);
    for (unsigned u = 0; u < plan->U; u++) gain = fmax(gain, fabs(plan->gain[u]));
    return sum * gain * 16 > static_cast<double>(FITS);
}

static int choose(br_upchannelize_device *d, const struct br_upchannelize *plan, bool few, struct br_why *why)
{
    int device = br_cuda_device(plan->cuda), processors = 0, blocks = 0;
    d->way = variant_for(plan->U, few);
    const void *function = reinterpret_cast<const void *>(d->way.kernel);
    cudaError_t status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(d->way.shared));
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, d->way.threads, d->way.shared);
    if (status != cudaSuccess || blocks < 1)
        return br_because(why, "the filterbank with factor %u cannot run on device %d: %s", plan->U, device,
                          cudaGetErrorString(status));
    d->resident = static_cast<size_t>(blocks) * static_cast<size_t>(processors);
    return 0;
}

extern "C" int br_upchannelize_cuda_create(struct br_upchannelize *plan, struct br_why *why)
{
    br_upchannelize_device *d = static_cast<br_upchannelize_device *>(calloc(1, sizeof *d));
    if (d == nullptr) return br_because(why, "no memory for the filterbank");
    plan->device = d;
    if (plan->U == 1) return 0;
    if (plan->nchannels * plan->nspectators > INT_MAX / 2)
        return br_because(why, "%zu channels of %zu samples: rows of more than 1 GiB are too long for a GPU", plan->nchannels,
                          plan->nspectators);

    size_t U = plan->U, K = U == 2 ? 2 : 4, few = plan->M <= RING, padded = few ? RING : plan->M;
    if (choose(d, plan, few, why) != 0) return -1;
    d->strong = is_strong(plan);
    /* every table begins at a multiple of 4 floats */
    d->at.bias = U * padded;
    d->at.turns = d->at.bias + (U < 4 ? 4 : U);
    d->at.later = d->at.turns + (2 * U < 4 ? 4 : 2 * U);
    d->at.gain = d->at.later + (2 * U / K < 4 ? 4 : 2 * U / K);
    d->at.floats = d->at.gain + U;
    float *table = static_cast<float *>(calloc(d->at.floats, sizeof *table));
    if (table == nullptr) return br_because(why, "no memory for a filter with factor %u and %u taps", plan->U, plan->M);
    fill(table, d->at, plan, static_cast<int>(padded));
    d->table = static_cast<float *>(br_cuda_table(plan->cuda, table, d->at.floats * sizeof *table, why));
    free(table);
    if (d->table == nullptr) return -1;

    size_t bytes = (plan->M - 1) * U * plan->nchannels * plan->nspectators;
    if (bytes == 0) return 0;
    d->history = static_cast<uint8_t *>(br_cuda_alloc(plan->cuda, bytes, why));
    if (d->history == nullptr) return -1;
    d->spare = static_cast<uint8_t *>(br_cuda_alloc(plan->cuda, bytes, why));
    return d->spare == nullptr ? -1 : 0;
}

extern "C" void br_upchannelize_cuda_destroy(struct br_upchannelize *plan)
{
    if (plan->device == nullptr) return;
    br_cuda_free(plan->cuda, plan->device->table);
    br_cuda_free(plan->cuda, plan->device->history);
    br_cuda_free(plan->cuda, plan->device->spare);
    free(plan->device);
}

static void copy_rows(const struct br_upchannelize *plan, uint8_t *to, const uint8_t *from, size_t row, size_t count)
{
    size_t width = plan->nchannels * plan->nspectators;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    if (count == 0) return;
    cudaError_t status = row == width ? cudaMemcpyAsync(to, from, count * width, cudaMemcpyDeviceToDevice, stream)
                                      : cudaMemcpy2DAsync(to, width, from, row, width, count, cudaMemcpyDeviceToDevice, stream);
    br_cuda_ok(plan->cuda, status, "a copy of the filterbank's input");
}

extern "C" void br_upchannelize_cuda_copy(const struct br_upchannelize *plan, const uint8_t *e, size_t row, size_t nsteps, uint8_t *out)
{
    copy_rows(plan, out, e, row, nsteps);
}

extern "C" void br_upchannelize_cuda_remember(struct br_upchannelize *plan, const uint8_t *e, size_t row, size_t nsteps)
{
    br_upchannelize_device *d = plan->device;
    size_t width = plan->nchannels * plan->nspectators, wanted = static_cast<size_t>(plan->M - 1) * plan->U;
    size_t fresh = nsteps < wanted ? nsteps : wanted, old = wanted - fresh;
    if (fresh == 0) return;
    copy_rows(plan, d->spare, d->history + fresh * width, width, old);
    copy_rows(plan, d->spare + old * width, e + (nsteps - fresh) * row, row, fresh);
    uint8_t *history = d->spare;
    d->spare = d->history;
    d->history = history;
}

/* How many blocks a thread block walks through: few enough to keep all processors busy to the end, many enough that the M-1 blocks
 * before them, which it reads as well, weigh little. */
static size_t length_of_walk(size_t columns, size_t blocks, size_t resident, size_t before)
{
    size_t best = blocks, least = SIZE_MAX;
    for (size_t parts = 1; parts <= 64 && parts <= blocks; parts++) {
        size_t each = ((blocks + parts - 1) / parts + TURN - 1) / TURN * TURN, walks = (blocks + each - 1) / each;
        size_t cost = (columns * walks + resident - 1) / resident * (2 * each + before + 4); /* 4: what a start costs */
        if (cost >= least) continue;
        least = cost;
        best = each;
    }
    /* gridDim.y is at most 65535 */
    return best * 65535 < blocks ? (blocks + 65534) / 65535 : best;
}

extern "C" void br_upchannelize_cuda(struct br_upchannelize *plan, const struct upchannelize_job *job)
{
    const br_upchannelize_device *d = plan->device;
    work w = {};
    size_t width = plan->nchannels * plan->nspectators, lost_bytes = job->blocks * plan->nchannels, span = static_cast<size_t>(d->way.span), wide_in = plan->U == 2 ? 4 : 2;
    if (job->first + job->blocks > INT_MAX / 2) { /* more than a GiB of input for each sample of a row */
        br_cuda_ok(plan->cuda, cudaErrorInvalidValue, "a filterbank of so many steps at once");
        return;
    }
    if (memchr(job->missing, 1, lost_bytes) != nullptr) {
        w.lost = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, job->missing, lost_bytes));
        if (w.lost == nullptr) return; /* br_cuda_check says why */
    }
    w.e = job->e;
    w.history = d->history;
    w.out = job->out;
    w.taps = d->table + d->at.taps;
    w.bias = d->table + d->at.bias;
    w.turns = reinterpret_cast<const float4 *>(d->table + d->at.turns);
    w.later = reinterpret_cast<const float2 *>(d->table + d->at.later);
    w.gain = d->table + d->at.gain;
    w.clamped = br_cuda_counter(plan->cuda);
    w.row = job->row;
    w.F = plan->nchannels;
    w.X = plan->nspectators;
    w.width = static_cast<int>(width);
    w.M = static_cast<int>(plan->M);
    w.wide_in = reinterpret_cast<uintptr_t>(job->e) % wide_in == 0 && job->row % wide_in == 0 && width % wide_in == 0;
    w.wide_out = reinterpret_cast<uintptr_t>(job->out) % 4 == 0 && w.X % 4 == 0;
    w.strong = d->strong;

    size_t columns = (width + span - 1) / span, each = length_of_walk(columns, job->blocks, d->resident, plan->M - 1);
    w.first = static_cast<int>(job->first);
    w.last = w.first + static_cast<int>(job->blocks);
    w.each = static_cast<int>(each);
    dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>((job->blocks + each - 1) / each));
    d->way.kernel<<<grid, static_cast<unsigned>(d->way.threads), d->way.shared, static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the filterbank");
}
