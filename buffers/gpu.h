/* gpu.h - what queues and the runtime need of a GPU: memory, streams, events, copies. A thin layer over
 * the CUDA runtime that makes messages from status codes; a build without CUDA has no devices and
 * nothing else is ever called.
 *
 * Every function that can fail returns BR_OK or BR_E_DEVICE (BR_E_NO_MEMORY for memory) and names the call
 * in the message. */
#ifndef BEAMRING_BUFFERS_GPU_H
#define BEAMRING_BUFFERS_GPU_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *br_gpu_event; /* cudaEvent_t */

/* A stream of one device. Plain data: handed around by pointer, owned by who created it. */
struct br_gpu_stream {
    int device;
    void *handle; /* cudaStream_t */
};

/* Number of devices that can be used; when 0, `why` says why not. */
int br_gpu_devices(struct br_error *why);

/* Name of a device ("NVIDIA H200"), for people. */
void br_gpu_name(int device, char *text, size_t size);

/* Makes a device current for the calling thread: every thread that works with a stream calls it first. */
int br_gpu_use(int device, struct br_error *error);

/* The stream does not wait for the default stream, nor the other way round. */
int br_gpu_stream_create(struct br_gpu_stream *stream, int device, struct br_error *error);
void br_gpu_stream_destroy(struct br_gpu_stream *stream);

/* The host waits until all that is enqueued is done. */
int br_gpu_stream_wait(const struct br_gpu_stream *stream, struct br_error *error);

/* 1 when all that is enqueued is done, 0 when it is not. BR_E_DEVICE when it failed. */
int br_gpu_stream_query(const struct br_gpu_stream *stream, struct br_error *error);

/* Device memory; the message says what was asked and what is free. */
int br_gpu_alloc(void **memory, int device, size_t bytes, struct br_error *error);
void br_gpu_free(void *memory, int device);

/* Locks host memory in place so that copies to and from devices need no detour and wait for nobody. */
int br_gpu_pin(void *memory, size_t bytes, struct br_error *error);
void br_gpu_unpin(void *memory);

/* Events: ordering only, or with time stamps. A host thread that waits for one sleeps. */
int br_gpu_event_create(br_gpu_event *event, int device, bool timed, struct br_error *error);
void br_gpu_event_destroy(br_gpu_event event);
int br_gpu_event_record(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error);
int br_gpu_event_order(br_gpu_event event, const struct br_gpu_stream *stream,
                       struct br_error *error); /* stream after event */

/* 1 when the event has happened, 0 when it has not. BR_E_DEVICE. */
int br_gpu_event_query(br_gpu_event event, struct br_error *error);

bool br_gpu_event_done(br_gpu_event event);
double br_gpu_event_ms(br_gpu_event from, br_gpu_event to); /* both timed and done; negative on failure */

/* Copies in order with the stream, between any two spaces (peer copies too). */
int br_gpu_copy(void *to, const void *from, size_t bytes, const struct br_gpu_stream *stream,
                struct br_error *error);

/* Within the stream's device: rows of `width` bytes, pitches apart, that do not overlap. */
int br_gpu_move_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                     size_t rows, const struct br_gpu_stream *stream, struct br_error *error);
int br_gpu_set_rows(void *to, size_t pitch, int byte, size_t width, size_t rows,
                    const struct br_gpu_stream *stream, struct br_error *error);

/* The failure of an earlier launch or of enqueued work, if the runtime knows of one by now. */
int br_gpu_last_error(struct br_error *error);

/* Marks what the calling thread does, for NVIDIA's profilers; costs nothing without one. */
void br_gpu_range_push(const char *name);
void br_gpu_range_pop(void);

#ifdef __cplusplus
}
#endif
#endif
