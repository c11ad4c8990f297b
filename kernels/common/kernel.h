/* kernel.h - what all kernels share: backends and error messages.
 *
 * A kernel is used as plan -> execute. Creating a plan checks the parameters, allocates everything and
 * precomputes tables; execute allocates nothing. A plan that carries state from call to call says so, and
 * is used by one thread at a time. Kernels know nothing of stages, queues or YAML. */
#ifndef BEAMRING_KERNELS_COMMON_KERNEL_H
#define BEAMRING_KERNELS_COMMON_KERNEL_H

#ifdef __cplusplus
extern "C" {
#endif

enum br_backend {
    BR_REFERENCE, /* the equation in float64 or int64, as plain as the page; slow */
    BR_CPU,       /* the fast implementation for one CPU thread */
    BR_CUDA       /* a GPU: see kernels/common/cuda.h for what is different */
};

/* A message for the user, filled when a function returns non-zero. */
struct br_why {
    char text[256];
};

/* Formats the message and returns -1. `why` may be NULL. */
int br_because(struct br_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
