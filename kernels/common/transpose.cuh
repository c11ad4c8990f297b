/* transpose.cuh - moving index bits of the bytes that a thread holds between its registers and the bytes of a
 * register.
 *
 * Two registers x0, x1 hold values numbered by a register bit and, within a register, by simd bits. A
 * transpose exchanges the register bit with one of the simd bits:
 *   simd: .. b ..  register: r0   <->   .. B ..   R    becomes    .. R ..   B
 * It is its own inverse. Its index arithmetic: br_transpose_source in fragments.h. */
#ifndef BEAMRING_KERNELS_COMMON_TRANSPOSE_CUH
#define BEAMRING_KERNELS_COMMON_TRANSPOSE_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/fragments.h"

namespace beamring
{

/* Exchanges the register bit with bit SIMD of the byte's number: 0 (bytes of a pair) or 1 (halves: also for
 * values of 16 bits). Two instructions. */
template <unsigned SIMD> __device__ __forceinline__ void transpose_bytes(unsigned &x0, unsigned &x1)
{
    static_assert(SIMD < 2, "a register has four bytes");
    unsigned low = __byte_perm(x0, x1, br_transpose_selector(SIMD, 0));
    x1 = __byte_perm(x0, x1, br_transpose_selector(SIMD, 1));
    x0 = low;
}

} // namespace beamring

#endif
