/* gpu.h - for tests of kernels on a GPU: the device and memory on it. For the C files that include it after
 * cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_GPU_H
#define BEAMRING_TESTS_KERNELS_COMMON_GPU_H

#include "buffers/gpu.h"
#include "kernels/common/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static struct br_cuda *gpu; /* NULL: none here */

/* Group setup and teardown. */
static inline int gpu_open(void **state)
{
    (void)state;
    struct br_error error = {0};
    struct br_why why;
    if (br_gpu_devices(&error) == 0) {
        printf("no GPU: skipped (%s)\n", error.text);
        return 0;
    }
    if (br_cuda_create(&gpu, 0, NULL, 1 << 20, &why) == 0) return 0;
    printf("%s\n", why.text);
    return -1;
}

static inline int gpu_close(void **state)
{
    (void)state;
    br_cuda_destroy(gpu);
    gpu = NULL;
    return 0;
}

#define NEEDS_GPU()                                                                                          \
    (void)state;                                                                                             \
    if (!gpu) skip()

static inline void gpu_ok(cudaError_t status)
{
    if (status != cudaSuccess) fail_msg("%s", cudaGetErrorString(status));
}

/* Memory of which every byte is `poison` by the time this returns: not all that tests do to it is in order
 * with the stream. */
static inline void *gpu_poisoned(size_t bytes, int poison)
{
    struct br_why why;
    void *memory = br_cuda_alloc(gpu, bytes, &why);
    if (!memory) fail_msg("%s", why.text);
    gpu_ok(cudaMemsetAsync(memory, poison, bytes, br_cuda_stream(gpu)));
    gpu_ok(cudaStreamSynchronize(br_cuda_stream(gpu)));
    return memory;
}

/* Memory that both sides see, every byte of which is `byte`. Free with cudaFree. */
static inline void *gpu_both_sides(size_t bytes, int byte)
{
    void *memory;
    gpu_ok(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal));
    memset(memory, byte, bytes);
    return memory;
}

/* The result of one step of a kernel alone: less than 0: CUDA failed; more: this GPU does not have it. */
static inline void gpu_done(int status)
{
    if (status < 0) fail_msg("%s", cudaGetErrorString(cudaGetLastError()));
    if (status > 0) skip();
}

/* Waits for what was enqueued, which must have succeeded. */
static inline void gpu_fetch(void *host, const void *memory, size_t bytes)
{
    struct br_why why;
    gpu_ok(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, br_cuda_stream(gpu)));
    gpu_ok(cudaStreamSynchronize(br_cuda_stream(gpu)));
    if (br_cuda_check(gpu, &why) != 0) fail_msg("%s", why.text);
}

#endif
