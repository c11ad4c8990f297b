/* hopper.cuh - what sm_90a has of its own: barriers in shared memory that count bytes, the tensor memory
 * accelerator, and (wgmma.cuh) the warpgroup's matrix products. To be called in code for sm_90a only.
 *
 * A load, by one thread:                          and by all who read what it brings:
 *   barrier_expect(full, bytes);                    barrier_wait(full, phase);  phase ^= 1 each time
 *   tensor_load(to, &map, full, x, y);
 *
 * Barriers begin in phase 0: a wait for phase 0 ends when the first phase is complete, a wait for phase 1
 * at once. */
#ifndef BEAMRING_KERNELS_COMMON_HOPPER_CUH
#define BEAMRING_KERNELS_COMMON_HOPPER_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/wgmma.cuh"

#include <cuda.h> /* CUtensorMap; no function of the driver's is called from here */
#include <stdint.h>

namespace beamring
{

/* ---- barriers ---- */

using barrier = uint64_t; /* in shared memory */

/* By one thread; then barrier_publish and a barrier of the block before anyone uses it. */
__device__ __forceinline__ void barrier_start(barrier *at, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(at)), "r"(arrivals)
                 : "memory");
}

/* Lets the accelerator see barriers that have just been started. */
__device__ __forceinline__ void barrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;\n" ::: "memory");
}

/* Arrives. */
__device__ __forceinline__ void barrier_arrive(barrier *at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(at)) : "memory");
}

/* Arrives, and the phase also waits for `bytes` from the accelerator. */
__device__ __forceinline__ void barrier_expect(barrier *at, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(at)),
                 "r"(bytes)
                 : "memory");
}

/* Whether the phase (0, 1, 0, ...) is complete, after a short wait. */
__device__ __forceinline__ bool barrier_try(barrier *at, unsigned phase)
{
    unsigned complete;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(complete)
        : "r"(shared_address(at)), "r"(phase)
        : "memory");
    return complete != 0;
}

__device__ __forceinline__ void barrier_wait(barrier *at, unsigned phase)
{
    while (!barrier_try(at, phase)) {
    }
}

/* Makes this thread's writes to shared memory visible to wgmma and to the accelerator (then a barrier). */
__device__ __forceinline__ void publish_shared()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/* ---- tensor memory accelerator ---- */

__device__ __forceinline__ void tensor_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/* A box at coordinates x (fastest), y, ... of the tensor, to shared memory (aligned to 128 bytes, swizzled
 * ones to their pattern). Elements outside of the tensor become zero, and count as bytes too; a box may
 * lie outside on any side, wholly or in part. x times the element's size must be a multiple of 16 bytes:
 * anything else is an illegal instruction. */
__device__ __forceinline__ void tensor_load(void *to, const CUtensorMap *map, barrier *full, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4}], [%2];\n" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(full)), "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void tensor_load(void *to, const CUtensorMap *map, barrier *full, int x, int y,
                                            int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5}], [%2];\n" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(full)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ __forceinline__ void tensor_load(void *to, const CUtensorMap *map, barrier *full, int x, int y,
                                            int z, int u)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5, %6}], [%2];\n" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(full)), "r"(x), "r"(y), "r"(z), "r"(u)
                 : "memory");
}

/* Consecutive bytes: addresses and number are multiples of 16. */
__device__ __forceinline__ void bulk_load(void *to, const void *from, unsigned bytes, barrier *full)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
            shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(full))
        : "memory");
}

/* A box from shared memory to the tensor; what lies beyond the tensor's ends is not written, but no
 * coordinate may be negative (an illegal instruction), and x is as in tensor_load. After publish_shared()
 * by the writers and a barrier, by one thread, which then commits. */
__device__ __forceinline__ void tensor_store(const CUtensorMap *map, const void *from, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n" ::"l"(map),
                 "r"(shared_address(from)), "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void tensor_store(const CUtensorMap *map, const void *from, int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n" ::"l"(map),
        "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

__device__ __forceinline__ void tensor_store(const CUtensorMap *map, const void *from, int x, int y, int z,
                                             int u)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n" ::"l"(map),
        "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(u)
        : "memory");
}

__device__ __forceinline__ void bulk_store(void *to, const void *from, unsigned bytes)
{
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(__cvta_generic_to_global(to)),
        "r"(shared_address(from)), "r"(bytes)
        : "memory");
}

/* Closes a group of this thread's stores. */
__device__ __forceinline__ void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/* Waits until at most LEFT of this thread's groups still read shared memory. */
template <int LEFT> __device__ __forceinline__ void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(LEFT) : "memory");
}

/* Waits until at most LEFT of this thread's groups are not yet written. */
template <int LEFT> __device__ __forceinline__ void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* ---- registers of a warpgroup ---- */

/* Gives registers back, or asks for more: all warps of a warpgroup, COUNT a multiple of 8 from 24 to 240. */
template <int COUNT> __device__ __forceinline__ void registers_fewer()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

} // namespace beamring

#endif
