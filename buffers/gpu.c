/* gpu.c - see gpu.h. */
#include "buffers/gpu.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

/* BR_OK, or the failure of `call` in words. */
static int check(cudaError_t status, const char *call, struct br_error *error)
{
    if (status == cudaSuccess) return BR_OK;
    return br_fail(error, BR_E_DEVICE, "%s failed: %s (%s)", call, cudaGetErrorString(status),
                   cudaGetErrorName(status));
}

int br_gpu_devices(struct br_error *why)
{
    int n = 0;
    /* By default a device has 8 hardware queues, and streams that share one wait for each other; a
     * pipeline has more streams. Read by the driver when it starts, which is here. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    cudaError_t status = cudaGetDeviceCount(&n);
    if (status == cudaSuccess && n > 0) return n;
    (void)cudaGetLastError();
    int driver = 0; /* stays 0 without a driver */
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    br_fail(why, BR_E_DEVICE, "no GPU can be used: %s",
            driver == 0             ? "this machine has no NVIDIA driver"
            : status == cudaSuccess ? "the driver sees none"
                                    : cudaGetErrorString(status));
    return 0;
}

void br_gpu_name(int device, char *text, size_t size)
{
    struct cudaDeviceProp properties;
    bool known = cudaGetDeviceProperties(&properties, device) == cudaSuccess;
    snprintf(text, size, "%s", known ? properties.name : "unknown GPU");
}

int br_gpu_use(int device, struct br_error *error)
{
    return check(cudaSetDevice(device), "cudaSetDevice", error);
}

int br_gpu_stream_create(struct br_gpu_stream *stream, int device, struct br_error *error)
{
    stream->device = device;
    stream->handle = NULL;
    int status = br_gpu_use(device, error);
    if (status != BR_OK) return status;
    return check(cudaStreamCreateWithFlags((cudaStream_t *)&stream->handle, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags", error);
}

void br_gpu_stream_destroy(struct br_gpu_stream *stream)
{
    if (stream->handle == NULL) return;
    cudaSetDevice(stream->device);
    cudaStreamDestroy(stream->handle);
    stream->handle = NULL;
}

int br_gpu_stream_wait(const struct br_gpu_stream *stream, struct br_error *error)
{
    return check(cudaStreamSynchronize(stream->handle), "cudaStreamSynchronize", error);
}

int br_gpu_stream_query(const struct br_gpu_stream *stream, struct br_error *error)
{
    cudaError_t status = cudaStreamQuery(stream->handle);
    if (status == cudaErrorNotReady) return 0;
    return status == cudaSuccess ? 1 : check(status, "cudaStreamQuery", error);
}

int br_gpu_alloc(void **memory, int device, size_t bytes, struct br_error *error)
{
    *memory = NULL;
    int status = br_gpu_use(device, error);
    if (status != BR_OK) return status;
    cudaError_t result = cudaMalloc(memory, bytes);
    if (result == cudaSuccess) return BR_OK;
    size_t available = 0, total = 0;
    (void)cudaGetLastError();
    cudaMemGetInfo(&available, &total);
    return br_fail(error, BR_E_NO_MEMORY,
                   "%.1f MiB on GPU %d, of which %.1f of %.1f MiB are free: cudaMalloc failed: %s",
                   (double)bytes / 1048576, device, (double)available / 1048576, (double)total / 1048576,
                   cudaGetErrorString(result));
}

void br_gpu_free(void *memory, int device)
{
    if (memory == NULL) return;
    cudaSetDevice(device);
    cudaFree(memory);
}

int br_gpu_pin(void *memory, size_t bytes, struct br_error *error)
{
    cudaError_t result = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (result == cudaSuccess) return BR_OK;
    (void)cudaGetLastError();
    return br_fail(error, BR_E_NO_MEMORY,
                   "%.1f MiB of host memory cannot be locked: cudaHostRegister failed: %s",
                   (double)bytes / 1048576, cudaGetErrorString(result));
}

void br_gpu_unpin(void *memory)
{
    if (memory != NULL) cudaHostUnregister(memory);
}

int br_gpu_event_create(br_gpu_event *event, int device, bool timed, struct br_error *error)
{
    *event = NULL;
    int status = br_gpu_use(device, error);
    if (status != BR_OK) return status;
    unsigned flags = timed ? cudaEventDefault
                           : cudaEventDisableTiming; /* not cudaEventBlockingSync: see br_gpu_event_wait */
    return check(cudaEventCreateWithFlags((cudaEvent_t *)event, flags), "cudaEventCreateWithFlags", error);
}

void br_gpu_event_destroy(br_gpu_event event)
{
    if (event != NULL) cudaEventDestroy(event);
}

int br_gpu_event_record(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error)
{
    return check(cudaEventRecord(event, stream->handle), "cudaEventRecord", error);
}

int br_gpu_event_order(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error)
{
    return check(cudaStreamWaitEvent(stream->handle, event, 0), "cudaStreamWaitEvent", error);
}

int br_gpu_event_query(br_gpu_event event, struct br_error *error)
{
    cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return 0;
    return status == cudaSuccess ? 1 : check(status, "cudaEventQuery", error);
}

bool br_gpu_event_done(br_gpu_event event)
{
    return cudaEventQuery(event) != cudaErrorNotReady;
}

double br_gpu_event_ms(br_gpu_event from, br_gpu_event to)
{
    float ms = 0;
    return cudaEventElapsedTime(&ms, from, to) == cudaSuccess ? (double)ms : -1;
}

int br_gpu_copy(void *to, const void *from, size_t bytes, const struct br_gpu_stream *stream,
                struct br_error *error)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->handle), "cudaMemcpyAsync",
                 error);
}

int br_gpu_set_rows(void *to, size_t pitch, int byte, size_t width, size_t rows,
                    const struct br_gpu_stream *stream, struct br_error *error)
{
    if (width == 0 || rows == 0) return BR_OK;
    return check(cudaMemset2DAsync(to, pitch, byte, width, rows, stream->handle), "cudaMemset2DAsync", error);
}

int br_gpu_last_error(struct br_error *error)
{
    return check(cudaGetLastError(), "a kernel launch", error);
}

void br_gpu_range_push(const char *name)
{
    nvtxRangePushA(name);
}

void br_gpu_range_pop(void)
{
    nvtxRangePop();
}
