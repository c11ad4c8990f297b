/* gpu.c - see gpu.h. */
#include "buffers/gpu.h"
#include "buffers/clock.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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
    br_fail(why, BR_E_DEVICE, "no GPU can be used: %s",
            status == cudaSuccess ? "the driver sees none" : cudaGetErrorString(status));
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

/* --- waiting for an event ---
 *
 * An event that the driver can wait for without spinning raises an interrupt when it happens, waited for
 * or not, and wakes a thread of the driver's: on an H200 in a virtual machine a wait cost 78 us of
 * processor time and came back 370 us late. Frames come at a regular pace, so that it is known quite well
 * how long to sleep: most of the shortest of the last waits at one go, then short naps, each a small part
 * of the time waited so far. */
enum { NAP_NS = 20000, LONGEST_NAP_NS = 1000000 };

static void nap(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

int br_gpu_event_wait(br_gpu_event event, struct br_gpu_waits *waits, struct br_error *error)
{
    uint64_t begin = br_clock_ns(), expected = UINT64_MAX;
    cudaError_t status = cudaEventQuery(event);
    for (int i = 0; i < BR_GPU_WAITS; i++)
        if (waits->ns[i] < expected) expected = waits->ns[i];
    if (status == cudaErrorNotReady && expected > 4 * NAP_NS) {
        nap(expected - expected / 16);
        status = cudaEventQuery(event);
    }
    while (status == cudaErrorNotReady) {
        uint64_t part = (br_clock_ns() - begin) / 32;
        nap(part < NAP_NS ? NAP_NS : part > LONGEST_NAP_NS ? LONGEST_NAP_NS : part);
        status = cudaEventQuery(event);
    }
    waits->ns[waits->next++ % BR_GPU_WAITS] = br_clock_ns() - begin;
    return check(status, "waiting for an event", error);
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
