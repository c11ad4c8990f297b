/* convert.cuh - what the filterbank's tensor-core kernels share: samples to float16, sums to 4-bit levels,
 * and what a launch works on.
 *
 * Fine channels u and U-1-u have conjugate phases: with C and S the sums of cos and sin of the phase times
 * the field, X[u] = C + i S and X[U-1-u] = C - i S. So matrices hold cos and sin only, the field's parts
 * have columns of their own, and there are half as many products as in a complex transform. All sums are
 * float16.
 *
 * Integers become float16 without a conversion: n in the last bits is n 2^-24, a subnormal, with which
 * tensor cores and multiplications are as fast as with any other number. A nibble with its sign bit
 * inverted is therefore 8 + re, and, left in the upper half of its byte, 16 (8 + im): imaginary parts are 16
 * times as large until C and S meet. The accumulators begin with minus 8 times all coefficients. The other
 * way, the product of a sum with `ratio` is so small that it is rounded to an integer. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_CONVERT_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_CONVERT_CUH

#include "kernels/common/device.cuh"
#include "kernels/upchannelize/gpu/layout.h"

#include <cuda.h> /* CUtensorMap; no function of the driver's is called from here */
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace
{

/* The arguments of a launch. Steps and blocks (of U steps) are numbered from the start of the call; those
 * before are in the history. */
struct tensor_work {
    const uint8_t *e;       /* [steps][row] */
    const uint8_t *history; /* [kept][width] */
    uint8_t *spare;         /* the next history, to be written; NULL: not by this launch */
    const uint8_t *missing; /* [last - first][F] or NULL */
    uint8_t *out;           /* [steps / U][F][U][X] */
    const uint4 *matrices;  /* fragments of 32 lanes */
    const uint2 *rules;     /* [U]: ratio, bound */
    const uint4 *taps;      /* mma/pfb_u32up.cuh: [U/4], u32up_taps */
    const uint4 *starts;    /* mma/pfb_u16.cuh: [8]: C_re, S_re, C_im, S_im of a row */
    unsigned long long *clamped;
    unsigned zero; /* 0, which only the host knows */
    size_t row, F, X;
    int U, M, width, kept;
    int steps, first, last, each; /* blocks first to last - 1; units (chunks or blocks) of a thread block */
    int phase;                    /* U <= 16: blocks of the first chunk that belong to earlier calls */
    bool wide_in, wide_out;       /* loads and stores are aligned */
};

/* With what the tensor memory accelerator is to copy: the field as [steps / U][sets][U / sets][width] (the
 * second axis: times modulo the number of sets), and the levels as [steps / U][F][U][X]. */
struct mapped_work {
    tensor_work w;
    CUtensorMap field, levels;
};

/* A launch that does not depend on the one before it may start before that has ended; it ends after it. */
__device__ __forceinline__ void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

__device__ __forceinline__ void end_after_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/* ---- float16, two at a time ---- */

__device__ __forceinline__ unsigned fma2(unsigned a, unsigned b, unsigned c)
{
    unsigned d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* a b - c */
__device__ __forceinline__ unsigned fms2(unsigned a, unsigned b, unsigned c)
{
    unsigned d;
    asm("{.reg .b32 n;\n neg.f16x2 n, %3;\n fma.rn.f16x2 %0, %1, %2, n;}\n"
        : "=r"(d)
        : "r"(a), "r"(b), "r"(c));
    return d;
}

/* 1 where |a| >= b, else 0 */
__device__ __forceinline__ unsigned beyond2(unsigned a, unsigned b)
{
    unsigned c;
    asm("{.reg .b32 size;\n abs.f16x2 size, %1;\n set.ge.f16x2.f16x2 %0, size, %2;}\n"
        : "=r"(c)
        : "r"(a), "r"(b));
    return c;
}

__device__ __forceinline__ unsigned mul2(unsigned a, unsigned b)
{
    unsigned c;
    asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

__device__ __forceinline__ unsigned add2(unsigned a, unsigned b)
{
    unsigned c;
    asm("add.rn.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

__device__ __forceinline__ unsigned sub2(unsigned a, unsigned b)
{
    unsigned c;
    asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

/* Tensor cores, float16 sums: d = a b + c. c[2] and d[2]: simd: column0, register: row3 */
__device__ __forceinline__ void multiply(unsigned &d0, unsigned &d1, const uint4 &a, unsigned b0, unsigned b1,
                                         unsigned c0, unsigned c1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};\n"
        : "=r"(d0), "=r"(d1)
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(c0), "r"(c1));
}

/* The same with the first or the last 8 of k: one register of b each, where two would have to be brought
 * together. */
__device__ __forceinline__ void multiply_8(unsigned &d0, unsigned &d1, unsigned a0, unsigned a1, unsigned b,
                                           unsigned c0, unsigned c1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%5, %6};\n"
        : "=r"(d0), "=r"(d1)
        : "r"(a0), "r"(a1), "r"(b), "r"(c0), "r"(c1));
}

/* ---- samples ---- */

/* 8 + re and 16 (8 + im) of byte `i` of two words (two times of one sample of the row), times 2^-24.    simd:
 * b0 <-> time */
__device__ __forceinline__ void unpack(unsigned &re, unsigned &im, unsigned early, unsigned late, int i)
{
    unsigned bytes = __byte_perm(early, late, 0x0400u + 0x1111u * static_cast<unsigned>(i));
    asm("lop3.b32 %0, %1, 0x000f000f, %2, 0x6a;\n" : "=r"(re) : "r"(bytes), "r"(0x00080008u));
    asm("lop3.b32 %0, %1, 0x00f000f0, %2, 0x6a;\n" : "=r"(im) : "r"(bytes), "r"(0x00800080u));
}

/* ---- levels ---- */

/* For an output row, of both float16 halves: x = ratio, what the sum is multiplied with to be levels times
 * 2^-24 (matrices have the larger gain of a pair of fine channels); y = bound, the size of a sum from which
 * on it is clamped. */
struct pair_rules {
    uint2 low, high; /* u, U-1-u */
};

/* A sum to level + 7, clamped to 0 to 14: rounded half to even to a subnormal, whose bits are an integer
 * (less than 0: their sign). */
__device__ __forceinline__ unsigned round_level(unsigned sum, unsigned ratio)
{
    return __vimin_s16x2_relu(fma2(sum, ratio, 0x00070007u), 0x000e000eu);
}

/* One tile's sums of a pair of fine channels, of two samples each: their bytes (level + 7 in both nibbles) in
 * the low byte of each half. counts: c of an mma with the clamped ones as `a` and ones as b: each row's
 * number, in every column. */
__device__ __forceinline__ void quantize_tile(unsigned &low, unsigned &high, unsigned c_re, unsigned s_re,
                                              unsigned c_im, unsigned s_im, const pair_rules &rules,
                                              float (&counts)[4])
{
    constexpr unsigned SIXTEENTH = 0x2c002c00u, MINUS_SIXTEENTH = 0xac00ac00u;
    unsigned low_re = fma2(s_im, MINUS_SIXTEENTH, c_re), low_im = fma2(c_im, SIXTEENTH, s_re);
    unsigned high_re = fma2(s_im, SIXTEENTH, c_re), high_im = fms2(c_im, SIXTEENTH, s_re);
    const unsigned clamped[4] = {beyond2(low_re, rules.low.y), beyond2(high_re, rules.high.y),
                                 beyond2(low_im, rules.low.y), beyond2(high_im, rules.high.y)},
                   ones[2] = {0x3c003c00u, 0x3c003c00u};
    beamring::mma_f16(counts, clamped, ones);
    low = round_level(low_im, rules.low.x) * 16 + round_level(low_re, rules.low.x);
    high = round_level(high_im, rules.high.x) * 16 + round_level(high_re, rules.high.x);
}

/* Four tiles' bytes to the bytes of two words: of the first sample of each tile, and of the second. */
__device__ __forceinline__ uint2 to_bytes(const unsigned (&tile)[4])
{
    unsigned a = tile[1] * 256 + tile[0], b = tile[3] * 256 + tile[2];
    uint2 words = make_uint2(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
    words.x = (words.x + 0x11111111u) ^ 0x88888888u; /* level + 8, then two's complement */
    words.y = (words.y + 0x11111111u) ^ 0x88888888u;
    return words;
}

/* The warp's sum of its counts. */
__device__ __forceinline__ void add_counts(const float (&counts)[4], unsigned long long *total)
{
    unsigned mine =
        threadIdx.x % 4 == 0 ? static_cast<unsigned>(counts[0]) + static_cast<unsigned>(counts[2]) : 0;
    mine = __reduce_add_sync(beamring::WHOLE_WARP, mine);
    if (threadIdx.x % 32 == 0 && mine > 0) atomicAdd(total, static_cast<unsigned long long>(mine));
}

/* ---- input and history ---- */

/* Row of the field at step t of the call: the last `kept` before it are in the history.
 * e: shape (steps, row), history: shape (kept, width), contiguous -> shape (width) */
__device__ __forceinline__ const uint8_t *field_row(const tensor_work &w, int t)
{
    return t < 0 ? w.history + static_cast<size_t>(w.kept + t) * w.width
                 : w.e + static_cast<size_t>(t) * w.row;
}

/* 4 bytes from any address. */
__device__ __forceinline__ unsigned load_bytes(const uint8_t *from)
{
    return static_cast<unsigned>(__ldg(from)) | static_cast<unsigned>(__ldg(from + 1)) << 8 |
           static_cast<unsigned>(__ldg(from + 2)) << 16 | static_cast<unsigned>(__ldg(from + 3)) << 24;
}

__device__ __forceinline__ void store_bytes(uint8_t *to, unsigned word)
{
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = static_cast<uint8_t>(word >> 8 * i);
}

/* By one block, `columns` (a multiple of 4) bytes of the row from `column`: the rows before the next call. */
__device__ __forceinline__ void remember(const tensor_work &w, int column, int columns)
{
    if (w.spare == nullptr) return;
    int quads = min(columns, w.width - column) / 4;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < w.kept * quads; i += static_cast<int>(blockDim.x)) {
        int r = i / quads, at = column + i % quads * 4, t = w.steps - w.kept + r;
        const uint8_t *from = field_row(w, t) + at;
        unsigned word = w.wide_in ? __ldg(reinterpret_cast<const unsigned *>(from)) : load_bytes(from);
        *reinterpret_cast<unsigned *>(w.spare + static_cast<size_t>(r) * w.width + at) = word;
    }
}

} // namespace

#endif
