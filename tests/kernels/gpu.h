/* gpu.h - for tests of kernels on a GPU: the device, memory on it, and times. For the C files that include it
 * after cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_GPU_H
#define BEAMRING_TESTS_KERNELS_GPU_H

#include "kernels/common/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static struct br_cuda *gpu; /* NULL: none here */

/* Group setup and teardown. */
static inline int gpu_open(void **state)
{
    (void)state;
    struct br_why why;
    if (br_cuda_devices(&why) == 0) {
        printf("no GPU: skipped (%s)\n", why.text);
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

/* Memory of which every byte is `poison` by the time this returns: not all that tests do to it is in order with the stream. */
static inline void *gpu_poisoned(size_t bytes, int poison)
{
    struct br_why why;
    void *memory = br_cuda_alloc(gpu, bytes, &why);
    if (!memory) fail_msg("%s", why.text);
    gpu_ok(cudaMemsetAsync(memory, poison, bytes, br_cuda_stream(gpu)));
    gpu_ok(cudaStreamSynchronize(br_cuda_stream(gpu)));
    return memory;
}

/* Waits for what was enqueued, which must have succeeded. */
static inline void gpu_fetch(void *host, const void *memory, size_t bytes)
{
    struct br_why why;
    gpu_ok(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, br_cuda_stream(gpu)));
    gpu_ok(cudaStreamSynchronize(br_cuda_stream(gpu)));
    if (br_cuda_check(gpu, &why) != 0) fail_msg("%s", why.text);
}

enum { GPU_SETS = 4, GPU_RUNS = 21 };

/* Data sets of a kernel, used in turn, so that none is in the cache. */
struct gpu_timed {
    void (*run)(void *self, void *in, void *out);
    void *self, *in[GPU_SETS], *out[GPU_SETS];
};

static inline int gpu_by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds of the kernel, or, where `copied` is not 0, of copies of so many bytes between the
 * inputs. */
static inline double gpu_median_ms(const struct gpu_timed *t, size_t copied)
{
    cudaStream_t stream = br_cuda_stream(gpu);
    cudaEvent_t start, stop;
    float ms[GPU_RUNS];
    gpu_ok(cudaEventCreate(&start));
    gpu_ok(cudaEventCreate(&stop));
    for (int i = -GPU_SETS; i < GPU_RUNS; i++) {
        int set = (i + GPU_SETS) % GPU_SETS, other = (set + 2) % GPU_SETS; /* not the next source */
        gpu_ok(cudaEventRecord(start, stream));
        if (copied)
            gpu_ok(cudaMemcpyAsync(t->in[other], t->in[set], copied, cudaMemcpyDeviceToDevice, stream));
        else
            t->run(t->self, t->in[set], t->out[set]);
        gpu_ok(cudaEventRecord(stop, stream));
        gpu_ok(cudaEventSynchronize(stop));
        if (i >= 0) gpu_ok(cudaEventElapsedTime(&ms[i], start, stop));
    }
    gpu_ok(cudaEventDestroy(start));
    gpu_ok(cudaEventDestroy(stop));
    qsort(ms, GPU_RUNS, sizeof *ms, gpu_by_value);
    return (double)ms[GPU_RUNS / 2];
}

/* Fills and times data sets of `in` and `out` bytes; in is made of copies of `piece`. Prints "NAME: ms, share
 * of a copy". */
static inline double gpu_time(const char *name, void (*run)(void *self, void *in, void *out), void *self,
                              const void *piece, size_t piece_bytes, size_t in, size_t out)
{
    struct gpu_timed t = {.run = run, .self = self};
    for (int set = 0; set < GPU_SETS; set++) {
        t.in[set] = gpu_poisoned(in, 0);
        t.out[set] = gpu_poisoned(out, 0xee);
        for (size_t at = 0; at < in; at += piece_bytes)
            gpu_ok(cudaMemcpyAsync((char *)t.in[set] + at, piece,
                                   in - at < piece_bytes ? in - at : piece_bytes, cudaMemcpyHostToDevice,
                                   br_cuda_stream(gpu)));
    }
    double ms = gpu_median_ms(&t, 0), copy = gpu_median_ms(&t, (in + out) / 2 < in ? (in + out) / 2 : in);
    printf("%-28s %8.3f ms, %6.1f MB, %.2f of a device copy of as many bytes (%.3f ms)", name, ms,
           (double)(in + out) * 1e-6, copy / ms, copy);
    for (int set = 0; set < GPU_SETS; set++) {
        br_cuda_free(gpu, t.in[set]);
        br_cuda_free(gpu, t.out[set]);
    }
    return ms;
}

#endif
