/* t_gpu_kernels.h - the kernels of the test stage. Streams are cudaStream_t. */
#ifndef BEAMRING_TESTS_GPU_KERNELS_H
#define BEAMRING_TESTS_GPU_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void t_gpu_enqueue_copy(void *stream, void *to, const void *from, size_t bytes);
void t_gpu_enqueue_delay(void *stream, unsigned microseconds);

/* Nothing that comes behind it on the stream ever begins. */
void t_gpu_enqueue_hang(void *stream);

/* Later work on the stream waits until the gate is open (at most ten seconds). */
void t_gpu_enqueue_gate(void *stream);
__attribute__((visibility("default"))) void t_gpu_set_gate(int open);

#ifdef __cplusplus
}
#endif
#endif
