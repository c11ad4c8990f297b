/* smem_io.cuh - what the filterbank's kernels for Hopper share: input and output through shared memory,
 * products, levels.
 *
 * A warpgroup has 64 samples of the row, of which each warp has 16, and loops along time. Samples are rows of
 * its products, times their inner dimension. The field's bytes go to shared memory as they are, in rows of 64
 * samples of one time; ldmatrix, which takes two bytes for a number, transposes them so that a register has
 * two times of two neighbouring samples: after unpacking, what wgmma takes. Levels go the other way: a
 * register has two fine channels of two samples, stmatrix transposes them to rows of 64 samples of a fine
 * channel, and these are stored.
 *
 * Rows come and go 16 bytes a thread; from U = 32 on, where all is aligned, by the tensor memory accelerator
 * (mapped_work), which spares the warps addresses, loads and stores. For smaller U, where memory is what they
 * wait for, it is slower. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_SMEM_IO_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_SMEM_IO_CUH

#include "kernels/common/wgmma.cuh"
#include "kernels/upchannelize/gpu/convert.cuh"

namespace
{

/* ---- products ---- */

/* c (64 by N, float16) += a b, as wgmma_f16 (which has float32 sums); begin: c = a b.
 *   c [N / 4]   simd: column0   register: column7 6 5 4 3, row3   thread: row5 4 2 1 0, column2 1
 *   a [4]       simd: k0        register: k3, row3                thread: row5 4 2 1 0, k2 1 */
template <int N> struct product;
#define BR_PRODUCT(N, COUNT, a0, a1, a2, a3, descriptor)                                                     \
    template <> struct product<N> {                                                                          \
        static __device__ __forceinline__ void multiply(unsigned (&c)[COUNT], const unsigned (&a)[4],        \
                                                        uint64_t b)                                          \
        {                                                                                                    \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f16.f16.f16 {" BR_LIST_##COUNT          \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #descriptor ", 1, 1, 1, 0;\n"      \
                         : BR_OUT_##COUNT(c, 0)                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
        }                                                                                                    \
        static __device__ __forceinline__ void begin(unsigned (&c)[COUNT], const unsigned (&a)[4],           \
                                                     uint64_t b)                                             \
        {                                                                                                    \
            asm volatile("{.reg .pred p;\n setp.ne.u32 p, 0, 0;\n"                                           \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f16.f16.f16 {" BR_LIST_##COUNT          \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #descriptor ", p, 1, 1, 0;}\n"     \
                         : BR_NEW_##COUNT(c, 0)                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
        }                                                                                                    \
    };
#define BR_LIST_8  "%0, %1, %2, %3, %4, %5, %6, %7"
#define BR_LIST_12 BR_LIST_8 ", %8, %9, %10, %11"
#define BR_LIST_16 BR_LIST_12 ", %12, %13, %14, %15"
#define BR_LIST_32                                                                                           \
    BR_LIST_16                                                                                               \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BR_OUT_4(c, i)  "+r"((c)[i]), "+r"((c)[(i) + 1]), "+r"((c)[(i) + 2]), "+r"((c)[(i) + 3])
#define BR_OUT_8(c, i)  BR_OUT_4(c, i), BR_OUT_4(c, (i) + 4)
#define BR_OUT_12(c, i) BR_OUT_8(c, i), BR_OUT_4(c, (i) + 8)
#define BR_OUT_16(c, i) BR_OUT_8(c, i), BR_OUT_8(c, (i) + 8)
#define BR_OUT_32(c, i) BR_OUT_16(c, i), BR_OUT_16(c, (i) + 16)
#define BR_NEW_4(c, i)  "=r"((c)[i]), "=r"((c)[(i) + 1]), "=r"((c)[(i) + 2]), "=r"((c)[(i) + 3])
#define BR_NEW_8(c, i)  BR_NEW_4(c, i), BR_NEW_4(c, (i) + 4)
#define BR_NEW_12(c, i) BR_NEW_8(c, i), BR_NEW_4(c, (i) + 8)
#define BR_NEW_16(c, i) BR_NEW_8(c, i), BR_NEW_8(c, (i) + 8)
#define BR_NEW_32(c, i) BR_NEW_16(c, i), BR_NEW_16(c, (i) + 16)
BR_PRODUCT(64, 16, 16, 17, 18, 19, 20)
BR_PRODUCT(128, 32, 32, 33, 34, 35, 36)
#undef BR_PRODUCT
#undef BR_LIST_8
#undef BR_LIST_12
#undef BR_LIST_16
#undef BR_LIST_32
#undef BR_OUT_4
#undef BR_OUT_8
#undef BR_OUT_12
#undef BR_OUT_16
#undef BR_OUT_32
#undef BR_NEW_4
#undef BR_NEW_8
#undef BR_NEW_12
#undef BR_NEW_16
#undef BR_NEW_32
#undef BR_OUT_4

/* ---- input ---- */

/* 16 bytes to shared memory, asynchronously. The line's other half is brought to the second cache too:
 * another block wants it soon. */
__device__ __forceinline__ void stage_16(unsigned to, const uint8_t *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}

/* The same 16 bytes from anywhere, by plain loads and stores. */
__device__ __forceinline__ void stage_16_bytes(unsigned to, const uint8_t *from)
{
#pragma unroll 1
    for (unsigned k = 0; k < 4; k++)
        asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to + 4 * k), "r"(load_bytes(from + 4 * k)) : "memory");
}

/* Bytes of two times of two samples, of 8 times (rows of lanes 0 to 7) or two or four times 8.
 *   a to d: simd: time 0, sample 0   thread: sample 3 2 1, time 2 1 */
__device__ __forceinline__ void load_transposed(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                                unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(unsigned &a, unsigned &b, unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(a), "=r"(b)
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(unsigned &a, unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];\n"
                 : "=r"(a)
                 : "r"(from)
                 : "memory");
}

/* re and im of both samples of a word   field [sample][re, im]   simd: time 0 */
__device__ __forceinline__ void unpack_pairs(unsigned (&field)[2][2], unsigned word)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        unsigned bytes = i ? word >> 8 : word;
        asm("lop3.b32 %0, %1, 0x000f000f, %2, 0x6a;\n" : "=r"(field[i][0]) : "r"(bytes), "r"(0x00080008u));
        asm("lop3.b32 %0, %1, 0x00f000f0, %2, 0x6a;\n" : "=r"(field[i][1]) : "r"(bytes), "r"(0x00800080u));
    }
}

/* remember(), 16 bytes at a time. */
__device__ __forceinline__ void remember_wide(const tensor_work &w, int column, int columns)
{
    int chunks = min(columns, w.width - column) / 16;
    if (w.spare == nullptr) return;
    if (!w.wide_in) {
        remember(w, column, columns);
        return;
    }
    constexpr int MOST = 6; /* pieces that a thread reads before it writes any */
    const int count = w.kept * chunks, step = static_cast<int>(blockDim.x);
#pragma unroll 1
    for (int from = static_cast<int>(threadIdx.x); from < count; from += MOST * step) {
        uint4 v[MOST];
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            int i = min(from + k * step, count - 1);
            v[k] = __ldg(reinterpret_cast<const uint4 *>(field_row(w, w.steps - w.kept + i / chunks) +
                                                         column + i % chunks * 16));
        }
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            int i = from + k * step;
            if (i < count)
                *reinterpret_cast<uint4 *>(w.spare + static_cast<size_t>(i / chunks) * w.width + column +
                                           i % chunks * 16) = v[k];
        }
    }
}

/* ---- levels ---- */

__device__ __forceinline__ uint4 load_shared(unsigned from)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}

__device__ __forceinline__ unsigned load_shared_4(unsigned from)
{
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(v) : "r"(from) : "memory");
    return v;
}

__device__ __forceinline__ uint2 load_shared_8(unsigned from)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
    return v;
}

/* The other way: words of two fine channels of two samples to four times 8 rows. */
__device__ __forceinline__ void store_transposed(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/* Makes levels of four of such bytes (7 - level in both nibbles) by XOR: 7 - n as a nibble is n with its
 * lower three bits inverted. */
constexpr unsigned TO_INT4 = 0x77777777u;

/* The new values of such bytes: the field's, or, if they are not kept, those of missing samples. By one AND
 * and one XOR, which are one instruction. */
struct field_bytes {
    unsigned keep, flip;

    __device__ __forceinline__ explicit field_bytes(bool kept)
        : keep(kept ? ~0u : 0), flip(kept ? TO_INT4 : beamring::MISSING_INT4 * 0x01010101u)
    {
    }
    __device__ __forceinline__ unsigned operator()(unsigned v) const { return (v & keep) ^ flip; }
    __device__ __forceinline__ uint4 operator()(uint4 v) const
    {
        return make_uint4((*this)(v.x), (*this)(v.y), (*this)(v.z), (*this)(v.w));
    }
};

/* w.missing[at], 0 where there is none. Without a branch, over which ptxas would schedule nothing; asked for
 * early, it comes while products are made. */
__device__ __forceinline__ bool read_missing(const tensor_work &w, size_t at, bool inside)
{
    unsigned missing;
    asm volatile("{.reg .pred p;\n setp.ne.b32 p, %2, 0;\n mov.u32 %0, 0;\n @p ld.global.nc.u8 %0, [%1];}\n"
                 : "=r"(missing)
                 : "l"(w.missing + at), "r"(static_cast<int>(inside && w.missing != nullptr)));
    return missing != 0;
}

/* 16 bytes, wherever they are to go. */
__device__ __forceinline__ void store_16(const tensor_work &w, uint8_t *to, uint4 v)
{
    if (w.wide_out) {
        *reinterpret_cast<uint4 *>(to) = v;
    } else {
        store_bytes(to, v.x);
        store_bytes(to + 4, v.y);
        store_bytes(to + 8, v.z);
        store_bytes(to + 12, v.w);
    }
}

/* X of two fine channels   simd: the channel   [sample] */
struct spectrum {
    unsigned re[2], im[2];
};

/* The outputs of fine channels u and U - 1 - u, from the sums of cos and sin; c_im and s_im are 16 times as
 * large. */
__device__ __forceinline__ void join_sums(spectrum &low, spectrum &high, const unsigned *c_re,
                                          const unsigned *s_re, const unsigned *c_im, const unsigned *s_im)
{
    constexpr unsigned SIXTEENTH = 0x2c002c00u, MINUS_SIXTEENTH = 0xac00ac00u;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        low.re[i] = fma2(s_im[i], MINUS_SIXTEENTH, c_re[i]);
        low.im[i] = fma2(c_im[i], SIXTEENTH, s_re[i]);
        high.re[i] = fma2(s_im[i], SIXTEENTH, c_re[i]);
        high.im[i] = fms2(c_im[i], SIXTEENTH, s_re[i]);
    }
}

/* 0xffff where a and b differ, else 0 */
__device__ __forceinline__ unsigned differ_mask2(unsigned a, unsigned b)
{
    unsigned c;
    asm("set.ne.u32.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

/* re and im of a sample to a byte, in both halves. scale: -1 level in units of X, of each half. masks: to
 * which one for each clamped value is added. */
__device__ __forceinline__ unsigned quantize_sample(unsigned x_re, unsigned x_im, unsigned scale,
                                                    unsigned &masks)
{
    unsigned re = fma2(x_re, scale, 0x00070007u), im = fma2(x_im, scale, 0x00070007u),
             within_re = __vimin_s16x2_relu(re, 0x000e000eu), within_im = __vimin_s16x2_relu(im, 0x000e000eu);
    masks += differ_mask2(re, within_re) + differ_mask2(im, within_im);
    return within_im * 16 + within_re;
}

/* To the bytes of both samples, next to each other   simd: the channel, sample 0 */
__device__ __forceinline__ unsigned quantize_pair(const spectrum &x, unsigned scale, unsigned &masks)
{
    unsigned byte[2];
#pragma unroll
    for (int i = 0; i < 2; i++) byte[i] = quantize_sample(x.re[i], x.im[i], scale, masks);
    return byte[1] * 256 + byte[0];
}

/* How many of the masks that were added up to `sum` had their lower and their upper half set (fewer than
 * 65536 each): a mask is 65535 in its lower and -65536 in its upper half. */
struct mask_counts {
    unsigned lower, upper;
};

__device__ __forceinline__ mask_counts count_masks(unsigned sum)
{
    unsigned lower = -sum & 0xffffu;
    return {lower, (lower - ((sum + lower) >> 16)) & 0xffffu};
}

/* By whole warps. */
__device__ __forceinline__ void add_clamped(const tensor_work &w, unsigned count)
{
    count = __reduce_add_sync(beamring::WHOLE_WARP, count);
    if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(count));
}

__device__ __forceinline__ void add_masks(const tensor_work &w, unsigned &sum)
{
    mask_counts counts = count_masks(sum);
    add_clamped(w, counts.lower + counts.upper);
    sum = 0;
}

} // namespace

#endif
