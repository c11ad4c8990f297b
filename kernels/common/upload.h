/* upload.h - see upload.cu. Internal to kernels/common/. */
#ifndef BEAMRING_KERNELS_COMMON_UPLOAD_H
#define BEAMRING_KERNELS_COMMON_UPLOAD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues the copy of `bytes`, rounded up to 16, from locked host memory to the device. Both are aligned
 * to 16 bytes and have room for the rounding. The launch's status is what cudaGetLastError says. */
void br_cuda_launch_upload(void *to, const void *from, size_t bytes, void *stream);

/* Compute capabilities (80: 8.0) of the machine code that the current device runs, and of the PTX that it was
 * made from. Returns a cudaError_t. */
int br_cuda_code_of(int *machine, int *ptx);

#ifdef __cplusplus
}
#endif

#endif
