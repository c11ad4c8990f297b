// t_gpu_kernels.cu - see t_gpu_kernels.h.
#include "tests/gpu/t_gpu_kernels.h"

#include <cuda_runtime.h>

static volatile int *gate; // host memory that kernels see

static __device__ unsigned long long device_ns()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __global__ __launch_bounds__(256) void copy_kernel(unsigned char *to, const unsigned char *from,
                                                          size_t bytes)
{
    for (size_t i = blockIdx.x * 256 + threadIdx.x; i < bytes; i += (size_t)gridDim.x * 256) to[i] = from[i];
}

static __global__ __launch_bounds__(32) void delay_kernel(unsigned long long ns)
{
    for (unsigned long long begin = device_ns(); device_ns() - begin < ns;) __nanosleep(1000);
}

static __global__ __launch_bounds__(32) void gate_kernel(const volatile int *open)
{
    for (unsigned long long begin = device_ns(); *open == 0 && device_ns() - begin < 10000000000ull;)
        __nanosleep(1000);
}

static __global__ __launch_bounds__(32) void hang_kernel(const volatile int *never)
{
    while (*never == 0) __nanosleep(1000);
}

static const volatile int *the_gate()
{
    if (gate == nullptr) cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocPortable);
    return gate;
}

void t_gpu_set_gate(int open)
{
    the_gate();
    *gate = open;
}

void t_gpu_enqueue_copy(void *stream, void *to, const void *from, size_t bytes)
{
    copy_kernel<<<8, 256, 0, (cudaStream_t)stream>>>((unsigned char *)to, (const unsigned char *)from, bytes);
}

void t_gpu_enqueue_delay(void *stream, unsigned microseconds)
{
    delay_kernel<<<1, 32, 0, (cudaStream_t)stream>>>(1000ull * microseconds);
}

void t_gpu_enqueue_gate(void *stream)
{
    gate_kernel<<<1, 32, 0, (cudaStream_t)stream>>>(the_gate());
}

void t_gpu_enqueue_hang(void *stream)
{
    static volatile int *never; // host memory that kernels see, and nobody sets
    if (never == nullptr) cudaHostAlloc((void **)&never, sizeof *never, cudaHostAllocPortable);
    hang_kernel<<<1, 32, 0, (cudaStream_t)stream>>>(never);
}
