/* upload.cu - copies small tables from locked host memory to the device, by its multiprocessors. A copy
 * engine would first finish the whole frames that it has in its queue, milliseconds each, and the kernel that
 * needs the table would wait. */
#include "kernels/common/upload.h"

#include <cuda_runtime.h>

static __global__ __launch_bounds__(256) void upload(uint4 *to, const uint4 *from, size_t count)
{
    for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += gridDim.x * size_t{256})
        to[i] = from[i];
}

extern "C" void br_cuda_launch_upload(void *to, const void *from, size_t bytes, void *stream)
{
    const size_t count = (bytes + 15) / 16, blocks = (count + 255) / 256;
    upload<<<static_cast<unsigned>(blocks < 32 ? blocks : 32), 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<uint4 *>(to), static_cast<const uint4 *>(from), count);
}

extern "C" int br_cuda_code_of(int *machine, int *ptx)
{
    cudaFuncAttributes of = {};
    cudaError_t status = cudaFuncGetAttributes(&of, reinterpret_cast<const void *>(upload));
    *machine = of.binaryVersion;
    *ptx = of.ptxVersion;
    return status;
}
