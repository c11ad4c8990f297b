/* cublaslt.h - cuBLASLt, NVIDIA's library of matrix products, looked for when it is first needed: whoever has
 * no use for it does not have to have it. Types come from its header, addresses from the library. Only for
 * files that are compiled where BR_HAS_CUBLASLT_HEADER is 1. */
#ifndef BEAMRING_KERNELS_COMMON_CUBLASLT_H
#define BEAMRING_KERNELS_COMMON_CUBLASLT_H

#include "kernels/common/kernel.h"

#if BR_WITH_CUDA && defined __has_include
#if __has_include(<cublasLt.h>)
#define BR_HAS_CUBLASLT_HEADER 1
#endif
#endif
#ifndef BR_HAS_CUBLASLT_HEADER
#define BR_HAS_CUBLASLT_HEADER 0
#endif

#if BR_HAS_CUBLASLT_HEADER
#include <cublasLt.h>

#define BR_CUBLASLT_FUNCTIONS(f)                                                                             \
    f(cublasLtCreate) f(cublasLtDestroy) f(cublasLtMatmulDescCreate) f(cublasLtMatmulDescDestroy)            \
        f(cublasLtMatmulDescSetAttribute) f(cublasLtMatrixLayoutCreate) f(cublasLtMatrixLayoutDestroy)       \
            f(cublasLtMatrixLayoutSetAttribute) f(cublasLtMatmulPreferenceCreate)                            \
                f(cublasLtMatmulPreferenceDestroy) f(cublasLtMatmulPreferenceSetAttribute)                   \
                    f(cublasLtMatmulAlgoGetHeuristic) f(cublasLtMatmul)

struct br_cublaslt {
#define BR_CUBLASLT_MEMBER(name) __typeof__(&name) name;
    BR_CUBLASLT_FUNCTIONS(BR_CUBLASLT_MEMBER)
#undef BR_CUBLASLT_MEMBER
};

/* The library's functions, or NULL with `why`: it is not there, or too old. It stays loaded. Any thread. */
const struct br_cublaslt *br_cublaslt(struct br_why *why);
#endif

#endif
