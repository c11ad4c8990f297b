/* upload.h - small tables to the device (see upload.cu), and which code runs there. Internal to
 * kernels/common/. */
#ifndef BEAMRING_KERNELS_COMMON_UPLOAD_H
#define BEAMRING_KERNELS_COMMON_UPLOAD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues a copy of `bytes`, rounded up to a multiple of 16, from locked host memory to the device. Both
 * addresses are multiples of 16, and both arrays have room for the rounding. `stream` is a cudaStream_t. The
 * caller gets a failure of the launch from cudaGetLastError. */
void br_cuda_launch_upload(void *to, const void *from, size_t bytes, void *stream);

/* Compute capabilities (80: 8.0) of the machine code that the current device runs, and of the PTX from which
 * that code was compiled; 0 after a failure. Returns a cudaError_t. */
int br_cuda_code_of(int *machine, int *ptx);

#ifdef __cplusplus
}
#endif

#endif
