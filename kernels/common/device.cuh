/* device.cuh - small device functions that several kernels share: int4+4 values, copies to shared memory,
 * tensor cores.
 *
 * A byte of the electric field is int4+4: real part in the low nibble, imaginary part in the high one,
 * both two's complement. Register assignments in comments are written physical <-> logical: simd (byte or
 * half of a register), register, thread (lane), warp. */
#ifndef BEAMRING_KERNELS_COMMON_DEVICE_CUH
#define BEAMRING_KERNELS_COMMON_DEVICE_CUH

#include <stdint.h>

namespace beamring
{

constexpr unsigned WHOLE_WARP = 0xffffffffu;

/* The lane's number, asked for again: what is made of it is then not kept in registers from one
 * iteration of a loop to the next. */
__device__ __forceinline__ unsigned lane_again()
{
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
    return lane;
}

/* The byte of a missing sample: (-8, -8), which no quantizer writes. */
constexpr unsigned MISSING_INT4 = 0x88u;

/* ---- int4+4 ---- */

/* One byte; what is above it in the word does not matter. */
__device__ __forceinline__ int int4_re(unsigned byte)
{
    return static_cast<int>(byte << 28) >> 28;
}

__device__ __forceinline__ int int4_im(unsigned byte)
{
    return static_cast<int>(byte << 24) >> 28;
}

/* Components must lie in [-8, 7]. */
__device__ __forceinline__ unsigned pack_int4(int re, int im)
{
    return (static_cast<unsigned>(re) & 15u) | (static_cast<unsigned>(im) & 15u) << 4;
}

/* Four values at once, as int8 times 16: a nibble moved to the top of its byte needs no sign extension.
 *   simd: b1 b0 <-> the same in and out */
__device__ __forceinline__ unsigned int4x4_re16(unsigned word)
{
    return (word << 4) & 0xf0f0f0f0u;
}

__device__ __forceinline__ unsigned int4x4_im16(unsigned word)
{
    return word & 0xf0f0f0f0u;
}

/* 16 * (-im - 1), the complement: -im itself would not fit for im = -8. */
__device__ __forceinline__ unsigned int4x4_not_im16(unsigned word)
{
    return ~word & 0xf0f0f0f0u;
}

/* ---- asynchronous copies from global to shared memory ---- */

/* 16 bytes, both addresses multiples of 16. Where not `inside`, zeros are written and `from` is not read
 * (it must still be some address in device memory). */
__device__ __forceinline__ void copy_async_16(void *shared, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
}

/* The same for 4 bytes. */
__device__ __forceinline__ void copy_async_4(void *shared, const void *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 4 : 0)
                 : "memory");
}

/* 4, 8 or 16 bytes, both addresses multiples of that. The rest of their 128 bytes is wanted soon. */
template <int BYTES> __device__ __forceinline__ void copy_async_line(void *shared, const void *from)
{
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(from)), "n"(BYTES)
                 : "memory");
}

/* Closes a group of this thread's copies. */
__device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits until at most `LEFT` groups of this thread are under way; other threads see their bytes after a
 * barrier. */
template <int LEFT> __device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* ---- tensor cores ---- */

/* c += a b for one warp, a 16 rows by 32, b 32 by 8 columns, int8 with exact 32-bit sums (modulo 2^32).
 *   a[4]  simd: b1 b0 <-> k1 k0   register: r1 r0 <-> k4 row3    thread: t4..t0 <-> row2 row1 row0 k3 k2
 *   b[2]  simd: b1 b0 <-> k1 k0   register: r0    <-> k4         thread: t4..t0 <-> col2 col1 col0 k3 k2
 *   c[4]                          register: r1 r0 <-> row3 col0
 *                                 thread: t4..t0 <-> row2 row1 row0 col2 col1 */
__device__ __forceinline__ void mma_s8(int (&c)[4], const uint4 &a, const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b[0]), "r"(b[1]));
}

/* c += a b for one warp, a 16 rows by 16, b 16 by 8 columns, float16 with float32 sums.
 *   a[4]  simd: b0 <-> k0  register: r1 r0 <-> k3 row3    thread: t4..t0 <-> row2 row1 row0 k2 k1
 *   b[2]  simd: b0 <-> k0  register: r0    <-> k3         thread: t4..t0 <-> col2 col1 col0 k2 k1
 *   c[4]                   register: r1 r0 <-> row3 col0  thread: t4..t0 <-> row2 row1 row0 col2 col1 */
__device__ __forceinline__ void mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same, a 16 rows by 8, b 8 by 8 columns.
 *   a[2]  simd: b0 <-> k0  register: r0 <-> row3  thread: t4..t0 <-> row2 row1 row0 k2 k1
 *   b     simd: b0 <-> k0                         thread: t4..t0 <-> col2 col1 col0 k2 k1
 *   c[4]  as above */
__device__ __forceinline__ void mma_f16_k8(float (&c)[4], const unsigned (&a)[2], unsigned b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* Address in shared memory, as load_matrices wants it. */
__device__ __forceinline__ unsigned shared_address(const void *shared)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/* Four matrices of 8 rows of 16 bytes from shared memory; lane 8 m + i gives the address of row i of
 * matrix m.
 *   to[4]  of 16 bits  simd: b0 <-> k0  register: r1 r0 <-> m1 m0  thread: t4..t0 <-> row2 row1 row0 k2 k1 */
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

} // namespace beamring

#endif
