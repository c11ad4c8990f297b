/* gpu.h - the functions of a GPU that queues and the runtime need: memory, streams, events, copies. A thin
 * layer over the CUDA runtime that makes messages from status codes. In a build without CUDA br_gpu_devices
 * returns 0, and no other function is called.
 *
 * Every function that can fail returns BR_OK or BR_E_DEVICE (BR_E_NO_MEMORY for memory) and names the CUDA
 * call in the message. Functions without a status cannot fail, or ignore a failure. */
#ifndef BEAMRING_BUFFERS_GPU_H
#define BEAMRING_BUFFERS_GPU_H

#include "buffers/error.h"
#include "buffers/rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *br_gpu_event; /* cudaEvent_t */

/* A stream of one device. Plain data, passed by pointer; the creator owns it and destroys it. */
struct br_gpu_stream {
    int device;
    void *handle; /* cudaStream_t */
};

/* Number of usable devices; if it is 0, `why` receives the reason. */
int br_gpu_devices(struct br_error *why);

/* Writes the name of a device ("NVIDIA H200") into `text` [size]. */
void br_gpu_name(int device, char *text, size_t size);

/* Makes a device current for the calling thread. Every thread that works with a stream calls it first. */
int br_gpu_use(int device, struct br_error *error);

/* Creates a stream that does not synchronize with the default stream. */
int br_gpu_stream_create(struct br_gpu_stream *stream, int device, struct br_error *error);
void br_gpu_stream_destroy(struct br_gpu_stream *stream);

/* Blocks the calling thread until all enqueued work is done. */
int br_gpu_stream_wait(const struct br_gpu_stream *stream, struct br_error *error);

/* 1 if all enqueued work is done, 0 if not, BR_E_DEVICE if it failed. Does not wait. */
int br_gpu_stream_query(const struct br_gpu_stream *stream, struct br_error *error);

/* Allocates device memory. The message of a failure has the requested and the free number of bytes.
 * br_gpu_free frees it; NULL is allowed. */
int br_gpu_alloc(void **memory, int device, size_t bytes, struct br_error *error);
void br_gpu_free(void *memory, int device);

/* Locks host memory, so that copies to and from devices are direct and asynchronous. */
int br_gpu_pin(void *memory, size_t bytes, struct br_error *error);
void br_gpu_unpin(void *memory);

/* Events: for ordering only, or with time stamps (`timed`). br_gpu_event_record records the event behind the
 * work enqueued on `stream`. br_gpu_event_order makes later work on `stream` wait for the event; the host
 * does not wait. For a host thread that waits, see gpu_wait.h. */
int br_gpu_event_create(br_gpu_event *event, int device, bool timed, struct br_error *error);
void br_gpu_event_destroy(br_gpu_event event);
int br_gpu_event_record(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error);
int br_gpu_event_order(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error);

/* 1 if the event has occurred, 0 if not, BR_E_DEVICE if work before it failed. Does not wait. */
int br_gpu_event_query(br_gpu_event event, struct br_error *error);

/* True if the event has occurred, or cannot occur any more because the GPU has failed. */
bool br_gpu_event_done(br_gpu_event event);

/* Milliseconds between two timed events that have occurred; negative on failure. */
double br_gpu_event_ms(br_gpu_event from, br_gpu_event to);

/* Enqueues a copy on the stream, between any two memory spaces, also from one GPU to another. */
int br_gpu_copy(void *to, const void *from, size_t bytes, const struct br_gpu_stream *stream,
                struct br_error *error);

/* Enqueue copies `rows` [n], or a fill with `byte` of `rows` rows of `width` bytes, within the stream's
 * device. Rows are a pitch (in bytes) apart and must not overlap. No copy reads what another writes.
 * `beside`: slower, on a part of the GPU, so that a concurrent transfer between GPUs makes progress. */
int br_gpu_move_rows(const struct br_rows *rows, unsigned n, bool beside, const struct br_gpu_stream *stream,
                     struct br_error *error);
int br_gpu_set_rows(void *to, size_t pitch, int byte, size_t width, size_t rows,
                    const struct br_gpu_stream *stream, struct br_error *error);

/* Returns the failure of an earlier launch or of enqueued work, if CUDA has reported one; else BR_OK. */
int br_gpu_last_error(struct br_error *error);

/* Begins and ends a named range of the calling thread, for NVIDIA's profilers; free without a profiler. */
void br_gpu_range_push(const char *name);
void br_gpu_range_pop(void);

#ifdef __cplusplus
}
#endif
#endif
