/* baseband_gpu.h - plans of the baseband beamformer and their data on a GPU. For the C files that include it
 * after cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_BASEBAND_BASEBAND_GPU_H
#define BEAMRING_TESTS_KERNELS_BASEBAND_BASEBAND_GPU_H

#include "tests/kernels/baseband/shape.h"
#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/gpu.h"

static inline void fill(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)dump_random(&seed);
}

static inline void *on_device(const void *host, size_t bytes)
{
    struct br_why why;
    void *memory = br_cuda_table(gpu, host, bytes, &why);
    if (!memory) fail_msg("%s", why.text);
    return memory;
}

static inline struct br_baseband *plan_of(enum br_backend backend, enum br_baseband_gpu which, struct shape n,
                                          const int8_t *w, const int32_t *shift)
{
    struct br_baseband_params params = params_of(n, w, shift);
    params.cuda = gpu;
    params.gpu = which;
    struct br_baseband *plan;
    struct br_why why;
    if (br_baseband_create(&plan, backend, &params, &why) != 0) fail_msg("%s", why.text);
    return plan;
}

#endif
