/* cublaslt.c - finds cuBLASLt. */
#include "kernels/common/cublaslt.h"

#if BR_HAS_CUBLASLT_HEADER
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

static struct br_cublaslt functions;
static const char *lacks;
static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
#define LOOK_UP(name)                                                                                        \
    if ((*(void **)(void *)&functions.name = dlsym(library, #name)) == NULL) lacks = #name;
    BR_CUBLASLT_FUNCTIONS(LOOK_UP)
}

const struct br_cublaslt *br_cublaslt(struct br_why *why)
{
    pthread_once(&once, load);
    if (library == NULL)
        br_because(why, "cuBLASLt is not there: install libcublas of the CUDA toolkit 12 or 13, or put "
                        "libcublasLt.so.13 where the loader finds it (LD_LIBRARY_PATH)");
    else if (lacks != NULL)
        br_because(why, "cuBLASLt lacks %s: it is too old", lacks);
    else
        return &functions;
    return NULL;
}

#endif
