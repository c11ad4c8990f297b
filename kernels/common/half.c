#include "buffers/half.h"

#include "kernels/common/cpu.h"

#if BR_X86_64
#include <immintrin.h>

__attribute__((target("avx,f16c"))) static size_t to_float_f16c(float *out, const uint16_t *in, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
    return i;
}

__attribute__((target("avx,f16c"))) static size_t from_float_f16c(uint16_t *out, const float *in,
                                                                  size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#endif

void br_half_to_float_array(float *out, const uint16_t *in, size_t count)
{
    size_t i = 0;
#if BR_X86_64
    if (br_cpu_has_f16c()) i = to_float_f16c(out, in, count);
#endif
    for (; i < count; i++) out[i] = br_half_to_float(in[i]);
}

void br_half_from_float_array(uint16_t *out, const float *in, size_t count)
{
    size_t i = 0;
#if BR_X86_64
    if (br_cpu_has_f16c()) i = from_float_f16c(out, in, count);
#endif
    for (; i < count; i++) out[i] = br_half_from_float(in[i]);
}
