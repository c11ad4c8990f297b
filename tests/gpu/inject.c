/* inject.c - for tests: makes one call of the CUDA runtime fail. Preloaded;
 * BEAMRING_INJECT="cudaMemcpyAsync:20" fails the 20th call of cudaMemcpyAsync and every later one, as a
 * broken device would; with BEAMRING_INJECT_WHILE=FILE
 * only while there is this file, with BEAMRING_INJECT_THREAD=NAME only calls of the thread of this name.
 * A query that fails says that nothing has happened yet, as
 * where a kernel never ends. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNKNOWN_ERROR = 999, OUT_OF_MEMORY = 2, NOT_READY = 600 };

static int fails(const char *call, atomic_uint *count)
{
    const char *wanted = getenv("BEAMRING_INJECT");
    size_t length = strlen(call);
    const char *while_there = getenv("BEAMRING_INJECT_WHILE");
    if (wanted == NULL || strncmp(wanted, call, length) != 0 || wanted[length] != ':') return 0;
    const char *thread = getenv("BEAMRING_INJECT_THREAD");
    char name[16] = "";
    if (while_there != NULL && access(while_there, F_OK) != 0) return 0;
    if (thread != NULL &&
        (pthread_getname_np(pthread_self(), name, sizeof name) != 0 || strcmp(name, thread) != 0))
        return 0;
    return atomic_fetch_add(count, 1) + 1 >= (unsigned)atoi(wanted + length + 1);
}

#define REPLACE(name, parameters, arguments, code)                                                           \
    int name parameters;                                                                                     \
    __attribute__((visibility("default"))) int name parameters                                               \
    {                                                                                                        \
        static atomic_uint count;                                                                            \
        static int(*real) parameters;                                                                        \
        if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name);                                         \
        return fails(#name, &count) ? code : real arguments;                                                 \
    }

struct dim3 {
    unsigned x, y, z;
};

REPLACE(cudaMalloc, (void **memory, size_t bytes), (memory, bytes), OUT_OF_MEMORY)
REPLACE(cudaMallocHost, (void **memory, size_t bytes), (memory, bytes), OUT_OF_MEMORY)
REPLACE(cudaStreamCreateWithFlags, (void **stream, unsigned flags), (stream, flags), UNKNOWN_ERROR)
REPLACE(cudaHostRegister, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags), OUT_OF_MEMORY)
REPLACE(cudaEventCreateWithFlags, (void **event, unsigned flags), (event, flags), UNKNOWN_ERROR)
REPLACE(cudaMallocAsync, (void **memory, size_t bytes, void *stream), (memory, bytes, stream), OUT_OF_MEMORY)
REPLACE(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream),
        (to, from, bytes, kind, stream), UNKNOWN_ERROR)
REPLACE(cudaEventRecord, (void *event, void *stream), (event, stream), UNKNOWN_ERROR)
REPLACE(cudaStreamWaitEvent, (void *stream, void *event, unsigned flags), (stream, event, flags),
        UNKNOWN_ERROR)
REPLACE(cudaEventQuery, (void *event), (event), NOT_READY)
REPLACE(cudaEventSynchronize, (void *event), (event), UNKNOWN_ERROR)

/* A launch has no return value that its caller sees: it leaves its failure for cudaGetLastError. */
static _Thread_local int last_error;

int __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **arguments,
                       size_t shared, void *stream);
__attribute__((visibility("default"))) int __cudaLaunchKernel(const void *kernel, struct dim3 grid,
                                                              struct dim3 block, void **arguments,
                                                              size_t shared, void *stream)
{
    static atomic_uint count;
    static int (*real)(const void *, struct dim3, struct dim3, void **, size_t, void *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "__cudaLaunchKernel");
    if (!fails("__cudaLaunchKernel", &count)) return real(kernel, grid, block, arguments, shared, stream);
    return last_error = UNKNOWN_ERROR;
}

int cudaGetLastError(void);
__attribute__((visibility("default"))) int cudaGetLastError(void)
{
    static int (*real)(void);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "cudaGetLastError");
    int status = last_error != 0 ? last_error : real();
    last_error = 0;
    return status;
}
