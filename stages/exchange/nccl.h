/* nccl.h - NCCL, looked for at run time. */
#ifndef BEAMRING_STAGES_EXCHANGE_NCCL_H
#define BEAMRING_STAGES_EXCHANGE_NCCL_H

#if BR_WITH_CUDA && defined __has_include
#if __has_include(<nccl.h>)
#define BR_HAS_NCCL_HEADER 1
#endif
#endif
#ifndef BR_HAS_NCCL_HEADER
#define BR_HAS_NCCL_HEADER 0
#endif

#include <stdbool.h>
#include <stddef.h>

/* Whether data can go from GPU to GPU; if not says why, and what to install. */
bool nccl_is_there(char *why, size_t size);

#endif
