/* cuda.c - see cuda.h. Host code only: compiled by the C compiler against the CUDA runtime. */
#include "kernels/common/cuda.h"

#include "kernels/common/upload.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rounds: so many executes with uploads may be enqueued ahead of the device, which is several frames of a
 * pipeline. */
enum { ROUNDS = BR_CUDA_ROUNDS, ALIGN = BR_CUDA_ALIGN, ROOM_ASIDE = 1 << 20 };

/* One round of uploads: what the device has yet to read stays in `pinned` until `done`. */
struct round {
    uint8_t *pinned, *device;
    cudaEvent_t done;
    bool used; /* `done` was recorded */
};

/* Device memory that was handed out: CUDA does not say how large it is when it comes back. */
struct held {
    struct held *next;
    void *memory;
    size_t bytes;
};

/* Tables that are made while plans run go through this. It is made once and kept: streams and locked
 * memory that come and go may hold up what the device does. Tables go to the device by kernels: a copy engine
 * serves streams in turn, and beside frames on their way there a MiB waits for 40 ms. */
struct beside {
    pthread_mutex_t mutex; /* of all below */
    unsigned users;
    cudaStream_t stream; /* NULL: nothing was made yet, and `room` is NULL too */
    uint8_t *room;       /* [ROOM_ASIDE], locked */
};

struct br_cuda {
    int device;
    cudaStream_t stream;
    bool own_stream;
    struct beside *beside; /* shared by one that executes and all that were made aside of it */
    bool is_aside;
    struct round round[ROUNDS];
    unsigned now;
    size_t room, filled;
    unsigned long long *counter;
    struct held *held;
    size_t held_device, held_locked;
    char failure[256]; /* of the first failing call; empty: none */
};

bool br_cuda_ok(struct br_cuda *cuda, int status, const char *call)
{
    if (status == cudaSuccess) return true;
    if (cuda->failure[0] == '\0')
        snprintf(cuda->failure, sizeof cuda->failure, "%s on device %d failed: %s (%s)", call, cuda->device,
                 cudaGetErrorString((cudaError_t)status), cudaGetErrorName((cudaError_t)status));
    return false;
}

int br_cuda_check(struct br_cuda *cuda, struct br_why *why)
{
    br_cuda_ok(cuda, (int)cudaGetLastError(), "a kernel launch");
    return cuda->failure[0] == '\0' ? 0 : br_because(why, "%s", cuda->failure);
}

/* The stream, the rounds of uploads, the counter. -1 with `why`; br_cuda_destroy takes back what was made. */
static int set_up(struct br_cuda *cuda, struct br_why *why)
{
    char code[64];
    int major = 0, minor = 0;
    bool ok = br_cuda_ok(cuda, cudaSetDevice(cuda->device), "cudaSetDevice");
    if (ok && !br_cuda_code(code, sizeof code)) {
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device);
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device);
        return br_because(why,
                          "device %d has compute capability %d.%d, for which this beamring has no code; "
                          "expected a build with -Dgpu_archs=sm_%d%d, and a GPU from 8.0 on",
                          cuda->device, major, minor, major, minor);
    }
    if (ok && cuda->stream == NULL) {
        ok = br_cuda_ok(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                        "cudaStreamCreateWithFlags");
        cuda->own_stream = ok;
    }
    for (unsigned i = 0; ok && i < ROUNDS && cuda->room > 0; i++) {
        struct round *r = &cuda->round[i];
        r->device = br_cuda_alloc(cuda, cuda->room, why);
        if (r->device == NULL) return -1;
        ok = br_cuda_ok(cuda, cudaMallocHost((void **)&r->pinned, cuda->room), "cudaMallocHost") &&
             br_cuda_ok(cuda,
                        cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming | cudaEventBlockingSync),
                        "cudaEventCreateWithFlags");
        if (ok) cuda->held_locked += cuda->room;
    }
    if (!ok) return br_because(why, "%s", cuda->failure);
    cuda->counter = br_cuda_alloc(cuda, sizeof *cuda->counter, why);
    return cuda->counter != NULL ? 0 : -1;
}

int br_cuda_create(struct br_cuda **result, int device, void *stream, size_t upload_bytes, struct br_why *why)
{
    struct br_cuda *cuda = *result = calloc(1, sizeof *cuda);
    if (cuda == NULL) return br_because(why, "no memory");
    cuda->device = device;
    cuda->stream = stream;
    cuda->room = br_cuda_room(upload_bytes);
    cuda->beside = calloc(1, sizeof *cuda->beside);
    if (cuda->beside == NULL) {
        br_because(why, "no memory");
    } else {
        pthread_mutex_init(&cuda->beside->mutex, NULL);
        cuda->beside->users = 1;
        if (set_up(cuda, why) == 0) return 0;
    }
    br_cuda_destroy(cuda);
    *result = NULL;
    return -1;
}

/* Memory that returns to the pool stays there for the next allocation. */
static bool keep_pool(struct br_cuda *cuda)
{
    cudaMemPool_t pool;
    uint64_t most = UINT64_MAX;
    return br_cuda_ok(cuda, cudaDeviceGetDefaultMemPool(&pool, cuda->device),
                      "cudaDeviceGetDefaultMemPool") &&
           br_cuda_ok(cuda, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most),
                      "cudaMemPoolSetAttribute");
}

/* With the first that is made aside. */
static bool open_beside(struct br_cuda *cuda, struct beside *beside)
{
    bool ok = true;
    pthread_mutex_lock(&beside->mutex);
    beside->users++;
    cuda->beside = beside;
    if (beside->room == NULL)
        ok = br_cuda_ok(cuda, cudaSetDevice(cuda->device), "cudaSetDevice") &&
             br_cuda_ok(cuda, cudaMallocHost((void **)&beside->room, ROOM_ASIDE), "cudaMallocHost");
    if (ok && beside->stream == NULL)
        ok = br_cuda_ok(cuda, cudaStreamCreateWithFlags(&beside->stream, cudaStreamNonBlocking),
                        "cudaStreamCreateWithFlags") &&
             keep_pool(cuda);
    cuda->stream = beside->stream;
    pthread_mutex_unlock(&beside->mutex);
    return ok;
}

static void leave_beside(struct beside *beside)
{
    if (beside == NULL) return;
    pthread_mutex_lock(&beside->mutex);
    bool last = --beside->users == 0;
    pthread_mutex_unlock(&beside->mutex);
    if (!last) return;
    if (beside->stream != NULL) cudaStreamDestroy(beside->stream);
    if (beside->room != NULL) cudaFreeHost(beside->room);
    pthread_mutex_destroy(&beside->mutex);
    free(beside);
}

int br_cuda_create_aside(struct br_cuda **result, const struct br_cuda *of, struct br_why *why)
{
    struct br_cuda *cuda = *result = calloc(1, sizeof *cuda);
    if (cuda == NULL) return br_because(why, "no memory");
    cuda->device = of->device;
    cuda->is_aside = true;
    if (!open_beside(cuda, of->beside))
        br_because(why, "%s", cuda->failure);
    else if (set_up(cuda, why) == 0)
        return 0;
    br_cuda_destroy(cuda);
    *result = NULL;
    return -1;
}

void br_cuda_destroy(struct br_cuda *cuda)
{
    if (cuda == NULL) return;
    cudaSetDevice(cuda->device);
    if (cuda->stream != NULL) cudaStreamSynchronize(cuda->stream);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (cuda->round[i].pinned != NULL) cudaFreeHost(cuda->round[i].pinned);
        if (cuda->round[i].device != NULL) cudaFree(cuda->round[i].device);
        if (cuda->round[i].done != NULL) cudaEventDestroy(cuda->round[i].done);
    }
    if (cuda->is_aside)
        br_cuda_free(cuda, cuda->counter);
    else
        cudaFree(cuda->counter);
    if (cuda->own_stream) cudaStreamDestroy(cuda->stream);
    leave_beside(cuda->beside);
    while (cuda->held != NULL) {
        struct held *h = cuda->held;
        cuda->held = h->next;
        free(h);
    }
    free(cuda);
}

size_t br_cuda_held_device(const struct br_cuda *cuda)
{
    return cuda->held_device;
}

size_t br_cuda_held_locked(const struct br_cuda *cuda)
{
    return cuda->held_locked;
}

/* Counts memory in; without a record of it (no memory for that) it is not counted out. */
static void hold(struct br_cuda *cuda, void *memory, size_t bytes)
{
    struct held *h = malloc(sizeof *h);
    cuda->held_device += bytes;
    if (h == NULL) return;
    *h = (struct held){cuda->held, memory, bytes};
    cuda->held = h;
}

/* False: it was not held. */
static bool let_go(struct br_cuda *cuda, const void *memory)
{
    for (struct held **at = &cuda->held; *at != NULL; at = &(*at)->next) {
        struct held *h = *at;
        if (h->memory != memory) continue;
        cuda->held_device -= h->bytes;
        *at = h->next;
        free(h);
        return true;
    }
    return false;
}

bool br_cuda_is_aside(const struct br_cuda *cuda)
{
    return cuda->is_aside;
}

int br_cuda_device(const struct br_cuda *cuda)
{
    return cuda->device;
}

bool br_cuda_is_hopper(int device)
{
    const char *code = getenv("BEAMRING_GPU_CODE");
    return (code == NULL || strcmp(code, "sm_80") != 0) && br_cuda_runs_sm_90a(device);
}

bool br_cuda_code(char *name, size_t size)
{
    int machine = 0, ptx = 0;
    if (br_cuda_code_of(&machine, &ptx) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    if (machine == ptx)
        snprintf(name, size, "sm_%d%s", machine, machine == 90 && BR_HAS_SM_90A ? "a" : "");
    else
        snprintf(name, size, "sm_%d, by the driver from compute_%d", machine, ptx);
    return true;
}

bool br_cuda_runs_sm_90a(int device)
{
    int major = 0, minor = 0;
    return BR_HAS_SM_90A &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
           major == 9 && minor == 0;
}

void *br_cuda_stream(const struct br_cuda *cuda)
{
    return cuda->stream;
}

/* A round ends when the next begins: its event then comes after all that uses it. */
void br_cuda_begin(struct br_cuda *cuda)
{
    if (cuda->room == 0 || cuda->filled == 0) return; /* nothing was uploaded in this round: it goes on */
    struct round *r = &cuda->round[cuda->now];
    r->used = br_cuda_ok(cuda, cudaEventRecord(r->done, cuda->stream), "cudaEventRecord");
    cuda->now = (cuda->now + 1) % ROUNDS;
    cuda->filled = 0;
    r = &cuda->round[cuda->now];
    if (r->used) br_cuda_ok(cuda, cudaEventSynchronize(r->done), "cudaEventSynchronize");
    r->used = false;
}

const void *br_cuda_upload(struct br_cuda *cuda, const void *host, size_t bytes)
{
    struct round *r = &cuda->round[cuda->now];
    if (bytes > cuda->room - cuda->filled) {
        br_cuda_ok(cuda, cudaErrorInvalidValue, "an upload larger than was announced");
        return NULL;
    }
    uint8_t *from = r->pinned + cuda->filled, *to = r->device + cuda->filled;
    memcpy(from, host, bytes);
    cuda->filled += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (cuda->filled > cuda->room) cuda->filled = cuda->room;
    br_cuda_launch_upload(to, from, bytes, cuda->stream);
    return to;
}

void *br_cuda_alloc(struct br_cuda *cuda, size_t bytes, struct br_why *why)
{
    void *memory = NULL;
    if (cuda->is_aside) bytes = (bytes + 15) / 16 * 16; /* for br_cuda_launch_upload */
    cudaError_t status =
        cuda->is_aside ? cudaMallocAsync(&memory, bytes, cuda->stream) : cudaMalloc(&memory, bytes);
    if (status == cudaSuccess) status = cudaMemsetAsync(memory, 0, bytes, cuda->stream);
    if (status == cudaSuccess) {
        hold(cuda, memory, bytes);
        return memory;
    }
    size_t available = 0, total = 0;
    (void)cudaGetLastError();
    cudaMemGetInfo(&available, &total);
    br_because(why, "%.1f MiB on device %d, of which %.1f of %.1f MiB are free: cudaMalloc failed: %s",
               (double)bytes / 1048576, cuda->device, (double)available / 1048576, (double)total / 1048576,
               cudaGetErrorString(status));
    cudaFree(memory);
    return NULL;
}

void br_cuda_free(struct br_cuda *cuda, void *memory)
{
    if (memory == NULL) return;
    cudaStreamSynchronize(cuda->stream);
    if (let_go(cuda, memory) && cuda->is_aside)
        cudaFreeAsync(memory, cuda->stream);
    else
        cudaFree(memory);
}

void br_cuda_wait(void *stream)
{
    cudaStreamSynchronize(stream);
}

/* A cudaError_t. */
static cudaError_t upload_aside(struct br_cuda *cuda, uint8_t *to, const uint8_t *from, size_t bytes)
{
    struct beside *beside = cuda->beside;
    cudaError_t status = cudaSuccess;
    pthread_mutex_lock(&beside->mutex);
    for (size_t at = 0, n; at < bytes && status == cudaSuccess; at += n) {
        n = bytes - at < ROOM_ASIDE ? bytes - at : ROOM_ASIDE;
        memcpy(beside->room, from + at, n);
        br_cuda_launch_upload(to + at, beside->room, n, cuda->stream);
        status = cudaGetLastError();
        if (status == cudaSuccess) status = cudaStreamSynchronize(cuda->stream);
    }
    pthread_mutex_unlock(&beside->mutex);
    return status;
}

void *br_cuda_table(struct br_cuda *cuda, const void *host, size_t bytes, struct br_why *why)
{
    void *memory = br_cuda_alloc(cuda, bytes, why);
    if (memory == NULL) return NULL;
    cudaError_t status = cudaSuccess;
    if (cuda->is_aside)
        status = upload_aside(cuda, memory, host, bytes);
    else
        status = cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, cuda->stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(cuda->stream);
    if (status == cudaSuccess) return memory;
    br_because(why, "copying a table of %zu bytes to device %d: %s", bytes, cuda->device,
               cudaGetErrorString(status));
    let_go(cuda, memory);
    cudaFree(memory);
    return NULL;
}

unsigned long long *br_cuda_counter(struct br_cuda *cuda)
{
    return cuda->counter;
}

uint64_t br_cuda_count(struct br_cuda *cuda)
{
    unsigned long long value = 0;
    bool ok =
        br_cuda_ok(cuda,
                   cudaMemcpyAsync(&value, cuda->counter, sizeof value, cudaMemcpyDeviceToHost, cuda->stream),
                   "cudaMemcpyAsync") &&
        br_cuda_ok(cuda, cudaStreamSynchronize(cuda->stream), "cudaStreamSynchronize");
    return ok ? value : 0;
}
