/* wgmma.cuh - the warpgroup's matrix products of sm_90a: c += a b, where c has 64 rows and N columns.
 *
 * All 128 threads of a warpgroup call these functions together, in code for sm_90a only. A product runs
 * asynchronously to the code behind it. Fence between the last write to a register of c or a and the first
 * product. Commit behind the last product. Wait before you touch c or a again. fragments.h says which element
 * is in which register.
 *
 *   wgmma_hold(c);           (and the registers of a, so that writes to them come before the fence)
 *   wgmma_fence();
 *   wgmma_s8<96>::multiply(c, a, b, true);
 *   wgmma_commit();
 *   wgmma_wait<0>();
 *   wgmma_hold(c); */
#ifndef BEAMRING_KERNELS_COMMON_WGMMA_CUH
#define BEAMRING_KERNELS_COMMON_WGMMA_CUH

#include "kernels/common/fragments.h"

#include <stdint.h>

namespace beamring
{

/* Orders earlier accesses to registers, and those of earlier products to shared memory, before the next
 * product. */
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

/* Closes a group of products. */
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Waits until at most LEFT groups are under way. */
template <int LEFT> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}

/* Keeps the compiler from moving accesses to these registers over this place. */
template <int COUNT> __device__ __forceinline__ void wgmma_hold(int (&c)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(c[i])::"memory");
}

template <int COUNT> __device__ __forceinline__ void wgmma_hold(unsigned (&c)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(c[i])::"memory");
}

template <int COUNT> __device__ __forceinline__ void wgmma_hold(float (&c)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(c[i])::"memory");
}

/* int8 with int32 sums: N columns, k of 32.
 *   multiply(c, a, b, adds)  c[N / 2] and a[4] in registers, b by the descriptor of a K-major matrix; without
 *                            `adds` c = a b
 * The list below has the values of N. */
template <int N> struct wgmma_s8;
/* The same for float16 with float32 sums, k of 16. */
template <int N> struct wgmma_f16;
/* The same for float16 with float16 sums, two in a register: c[N / 4]; k of 16. */
template <int N> struct wgmma_f16_sums;

/* Operands %0 to %(count - 1). */
#define BR_LIST_4  "%0, %1, %2, %3"
#define BR_LIST_8  BR_LIST_4 ", %4, %5, %6, %7"
#define BR_LIST_10 BR_LIST_8 ", %8, %9"
#define BR_LIST_12 BR_LIST_10 ", %10, %11"
#define BR_LIST_16 BR_LIST_12 ", %12, %13, %14, %15"
#define BR_LIST_24 BR_LIST_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define BR_LIST_32 BR_LIST_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define BR_LIST_48                                                                                           \
    BR_LIST_32                                                                                               \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define BR_LIST_64                                                                                           \
    BR_LIST_48                                                                                               \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BR_LIST_96                                                                                           \
    BR_LIST_64                                                                                               \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                       \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define BR_OUT_4(kind, c, i)  kind((c)[i]), kind((c)[(i) + 1]), kind((c)[(i) + 2]), kind((c)[(i) + 3])
#define BR_OUT_8(kind, c, i)  BR_OUT_4(kind, c, i), BR_OUT_4(kind, c, (i) + 4)
#define BR_OUT_10(kind, c, i) BR_OUT_8(kind, c, i), kind((c)[(i) + 8]), kind((c)[(i) + 9])
#define BR_OUT_12(kind, c, i) BR_OUT_8(kind, c, i), BR_OUT_4(kind, c, (i) + 8)
#define BR_OUT_16(kind, c, i) BR_OUT_8(kind, c, i), BR_OUT_8(kind, c, (i) + 8)
#define BR_OUT_24(kind, c, i) BR_OUT_16(kind, c, i), BR_OUT_8(kind, c, (i) + 16)
#define BR_OUT_32(kind, c, i) BR_OUT_24(kind, c, i), BR_OUT_8(kind, c, (i) + 24)
#define BR_OUT_48(kind, c, i) BR_OUT_32(kind, c, i), BR_OUT_16(kind, c, (i) + 32)
#define BR_OUT_64(kind, c, i) BR_OUT_48(kind, c, i), BR_OUT_16(kind, c, (i) + 48)
#define BR_OUT_96(kind, c, i) BR_OUT_64(kind, c, i), BR_OUT_32(kind, c, (i) + 64)
#define BR_INT(x)             "+r"(x)
#define BR_FLOAT(x)           "+f"(x)

/* One struct. COUNT registers of type VALUE and constraint KIND hold c. SHAPE is the instruction's name from
 * k on, TAIL its operands behind the predicate. p1 to p6 are the numbers of the operands behind c in asm. */
#define BR_WGMMA(NAME, N, COUNT, VALUE, KIND, SHAPE, TAIL, p1, p2, p3, p4, p5, p6)                           \
    template <> struct NAME<N> {                                                                             \
        static __device__ __forceinline__ void multiply(VALUE (&c)[COUNT], const unsigned (&a)[4],           \
                                                        uint64_t b, bool adds)                               \
        {                                                                                                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p6 ", 0;\n"                                   \
                         "wgmma.mma_async.sync.aligned.m64n" #N SHAPE " {" BR_LIST_##COUNT                   \
                         "}, "                                                                               \
                         "{%" #p1 ", %" #p2 ", %" #p3 ", %" #p4 "}, %" #p5 ", p" TAIL ";\n}\n"               \
                         : BR_OUT_##COUNT(KIND, c, 0)                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds))); \
        }                                                                                                    \
    };
/* For floating point: the signs of a and b (1: unchanged), then whether each descriptor is MN-major (0:
 * no). */
#define BR_NO_TAIL
#define BR_F16_TAIL ", 1, 1, 0"
#define BR_WGMMA_S8(N, COUNT, ...)                                                                           \
    BR_WGMMA(wgmma_s8, N, COUNT, int, BR_INT, "k32.s32.s8.s8", BR_NO_TAIL, __VA_ARGS__)
#define BR_WGMMA_F16(N, COUNT, ...)                                                                          \
    BR_WGMMA(wgmma_f16, N, COUNT, float, BR_FLOAT, "k16.f32.f16.f16", BR_F16_TAIL, __VA_ARGS__)
#define BR_WGMMA_F16_SUMS(N, COUNT, ...)                                                                     \
    BR_WGMMA(wgmma_f16_sums, N, COUNT, unsigned, BR_INT, "k16.f16.f16.f16", BR_F16_TAIL, __VA_ARGS__)

BR_WGMMA_S8(32, 16, 16, 17, 18, 19, 20, 21)
BR_WGMMA_S8(48, 24, 24, 25, 26, 27, 28, 29)
BR_WGMMA_S8(64, 32, 32, 33, 34, 35, 36, 37)
BR_WGMMA_S8(128, 64, 64, 65, 66, 67, 68, 69)
BR_WGMMA_S8(192, 96, 96, 97, 98, 99, 100, 101)
BR_WGMMA_F16(64, 32, 32, 33, 34, 35, 36, 37)
BR_WGMMA_F16_SUMS(32, 8, 8, 9, 10, 11, 12, 13)
BR_WGMMA_F16_SUMS(40, 10, 10, 11, 12, 13, 14, 15)
BR_WGMMA_F16_SUMS(48, 12, 12, 13, 14, 15, 16, 17)

#undef BR_WGMMA_S8
#undef BR_WGMMA_F16
#undef BR_WGMMA_F16_SUMS
#undef BR_WGMMA
#undef BR_F16_TAIL
#undef BR_NO_TAIL
#undef BR_INT
#undef BR_FLOAT
#undef BR_LIST_4
#undef BR_OUT_4
#undef BR_LIST_8
#undef BR_OUT_8
#undef BR_LIST_10
#undef BR_LIST_12
#undef BR_LIST_16
#undef BR_OUT_10
#undef BR_OUT_12
#undef BR_OUT_16
#undef BR_LIST_24
#undef BR_OUT_24
#undef BR_LIST_32
#undef BR_OUT_32
#undef BR_LIST_48
#undef BR_OUT_48
#undef BR_LIST_64
#undef BR_OUT_64
#undef BR_LIST_96
#undef BR_OUT_96

} // namespace beamring

#endif
