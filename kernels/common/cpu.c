#include "kernels/common/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { KNOWN = 1, AVX2 = 2, FMA = 4, F16C = 8 };

static int features(void)
{
    /* Two threads may both find out; they find the same. */
    static int cached;
    int have = __atomic_load_n(&cached, __ATOMIC_RELAXED);
    if (have) return have;
    have = KNOWN;
#if BR_X86_64
    const char *limit = getenv("BEAMRING_CPU");
    if (!limit || strcmp(limit, "generic") != 0) {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2")) have |= AVX2;
        if (__builtin_cpu_supports("fma")) have |= FMA;
        /* Not every compiler we support knows "f16c" here; every processor with AVX2 has it. */
        if (__builtin_cpu_supports("avx2")) have |= F16C;
    }
#endif
    __atomic_store_n(&cached, have, __ATOMIC_RELAXED);
    return have;
}

int br_cpu_has_avx2(void)
{
    return (features() & AVX2) != 0;
}

int br_cpu_has_fma(void)
{
    return (features() & FMA) != 0;
}

int br_cpu_has_f16c(void)
{
    return (features() & F16C) != 0;
}
