/* tensor_map.cuh - the driver's function that describes tensors to the tensor memory accelerator, found at
 * run time: nothing is linked against the driver. */
#ifndef BEAMRING_KERNELS_COMMON_TENSOR_MAP_CUH
#define BEAMRING_KERNELS_COMMON_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>

namespace beamring
{

using tensor_map_encoder = decltype(&cuTensorMapEncodeTiled);

/* NULL where the driver lacks it. */
inline tensor_map_encoder find_tensor_map_encoder()
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                          cudaEnableDefault, &result);
#else
    cudaError_t status =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    if (status == cudaSuccess && result == cudaDriverEntryPointSuccess)
        return reinterpret_cast<tensor_map_encoder>(function);
    (void)cudaGetLastError();
    return nullptr;
}

} // namespace beamring

#endif
