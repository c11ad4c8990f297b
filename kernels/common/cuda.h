/* cuda.h - where the work of a BR_CUDA plan goes: one device, one stream.
 *
 * With BR_CUDA the data pointers of an execute (e, in, out, side) are device memory. Execute enqueues its
 * work on the stream of the br_cuda in the plan's parameters and returns without waiting. Validity stays
 * in host memory: what a kernel makes valid follows from what came in valid and from nothing else, so that
 * the host reads and writes these bytes before execute returns, by the same code as on the CPU; kernels
 * get what they need of it with br_cuda_upload. Numbers that only the device knows (how many values were
 * clamped) are added to counters there; execute returns 0 for them.
 *
 * A br_cuda and the plans made with it are used by one thread at a time. */
#ifndef BEAMRING_KERNELS_COMMON_CUDA_H
#define BEAMRING_KERNELS_COMMON_CUDA_H

#include "kernels/common/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_cuda;

/* `stream` is a cudaStream_t that stays the caller's, or NULL: then it makes one of its own.
 * `upload_bytes` is the most that the uploads of one execute need together. Makes the device current for
 * the calling thread. -1 with `why` on failure. */
int br_cuda_create(struct br_cuda **cuda, int device, void *stream, size_t upload_bytes, struct br_why *why);

/* For plans that are never executed: their tables are made while others run, and are exchanged with theirs.
 * On the device of `of`, which may go first, with a stream that is kept for all that is made aside of it, a
 * MiB of locked memory likewise, and memory from a pool, which goes back there: cudaMalloc, cudaFree, locked
 * memory and streams that come and go may hold up all that the device does. No uploads. Frees what came from
 * another br_cuda, too. Several threads may call it at a time. -1 with `why` on failure. */
int br_cuda_create_aside(struct br_cuda **cuda, const struct br_cuda *of, struct br_why *why);

/* Whether it was made so: its plans can do without what only execution needs. */
bool br_cuda_is_aside(const struct br_cuda *cuda);

/* Locked host memory, and as much of the device, that br_cuda_create takes for such uploads: several executes
 * may be enqueued ahead of the device. */
enum { BR_CUDA_ROUNDS = 32, BR_CUDA_ALIGN = 256 };
static inline size_t br_cuda_room(size_t upload_bytes)
{
    return upload_bytes > 0 ? (upload_bytes + 16 * BR_CUDA_ALIGN) / BR_CUDA_ALIGN * BR_CUDA_ALIGN : 0;
}

/* Bytes that are held through it now: of the device, and of locked host memory. */
size_t br_cuda_held_device(const struct br_cuda *cuda);
size_t br_cuda_held_locked(const struct br_cuda *cuda);

/* Waits for its stream first. Plans made with it go before it. NULL is allowed. */
void br_cuda_destroy(struct br_cuda *cuda);

int br_cuda_device(const struct br_cuda *cuda);

/* Names the machine code that the current device runs: "sm_89", or "sm_110, by the driver from compute_100".
 * False: this build has none for it. */
bool br_cuda_code(char *name, size_t size);

/* Whether a device runs what is compiled for sm_90a: it is of compute capability 9.0, and this build has that
 * code. False where it cannot be asked. */
bool br_cuda_runs_sm_90a(int device);

/* Whether kernels of Hopper's own are to be taken: the same, but false where the environment has
 * BEAMRING_GPU_CODE=sm_80, so that the portable kernels can be tested and timed on any device. */
bool br_cuda_is_hopper(int device);

void *br_cuda_stream(const struct br_cuda *cuda); /* cudaStream_t */

/* Copies host bytes to the device, in order with the stream. The result is 256-byte aligned device memory,
 * good for work that is enqueued before the next br_cuda_begin. NULL after a failure (see br_cuda_check). */
const void *br_cuda_upload(struct br_cuda *cuda, const void *host, size_t bytes);

/* Starts a round of uploads. Waits only when the device is more than a few rounds with uploads behind.
 * Each execute calls it once, before its uploads. */
void br_cuda_begin(struct br_cuda *cuda);

/* Waits for what is enqueued on a cudaStream_t so far; any thread. */
void br_cuda_wait(void *stream);

/* Device memory, zeroed, in order with the stream. NULL with `why` when there is none: says what was asked
 * and what is free. */
void *br_cuda_alloc(struct br_cuda *cuda, size_t bytes, struct br_why *why);
void br_cuda_free(struct br_cuda *cuda, void *memory); /* waits for the stream; NULL is allowed */

/* Copies a table to fresh device memory and waits for it; for plan creation. */
void *br_cuda_table(struct br_cuda *cuda, const void *host, size_t bytes, struct br_why *why);

/* A counter on the device to which kernels add with atomicAdd(unsigned long long *). */
unsigned long long *br_cuda_counter(struct br_cuda *cuda);

/* Value of the counter once all that is enqueued so far is done: waits for the stream. */
uint64_t br_cuda_count(struct br_cuda *cuda);

/* Records the failure of a call, with its name, and keeps the first. `status` is a cudaError_t; true when
 * it is cudaSuccess. */
bool br_cuda_ok(struct br_cuda *cuda, int status, const char *call);

/* 0, or -1 with the first failure of a launch or call made through this br_cuda (cudaGetLastError is
 * looked at too). */
int br_cuda_check(struct br_cuda *cuda, struct br_why *why);

#ifdef __cplusplus
}
#endif
#endif
