/* The inner loop of the flagger, 32 inputs at a time. */
#include "kernels/common/cpu.h"
#include "kernels/flag/plan.h"

#if BR_X86_64
#include "kernels/common/powers_avx2.h"

__attribute__((target("avx2"))) void br_flag_rows_avx2(const uint8_t *e, size_t stride, const uint8_t *valid,
                                                       size_t valid_stride, size_t count, const uint8_t *keep,
                                                       uint8_t *out, size_t ninputs, uint32_t *s1,
                                                       uint32_t *s2)
{
    const __m256i low4 = _mm256_set1_epi8(15);
    __m256i there[FLAG_ROWS_AT_ONCE + 1];
    size_t n = 0;
    for (size_t t = 0; t <= count; t++)
        there[t] = _mm256_set1_epi8(t < count && (!valid || valid[t * valid_stride]) ? -1 : 0);
    for (; n + 32 <= ninputs; n += 32) {
        const __m256i mask = _mm256_loadu_si256((const __m256i *)(const void *)(keep + n));
        __m256i first[4], second[4];
        for (int k = 0; k < 4; k++) first[k] = second[k] = _mm256_setzero_si256();
        for (size_t t = 0; t < count; t += 2) {
            __m256i power[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
            for (size_t i = 0; i < 2 && t + i < count; i++) {
                __m256i byte = _mm256_loadu_si256((const __m256i *)(const void *)(e + (t + i) * stride + n));
                _mm256_storeu_si256((__m256i *)(void *)(out + (t + i) * stride + n),
                                    _mm256_and_si256(byte, mask));
                byte = _mm256_and_si256(byte, there[t + i]);
                power[i] = br_powers_of_nibbles(_mm256_and_si256(byte, low4),
                                                _mm256_and_si256(_mm256_srli_epi16(byte, 4), low4));
            }
            br_powers_add(power[0], power[1], first, second);
        }
        br_powers_store(s1 + n, first);
        br_powers_store(s2 + n, second);
    }
    if (n < ninputs)
        br_flag_rows_generic(e + n, stride, valid, valid_stride, count, keep + n, out + n, ninputs - n,
                             s1 + n, s2 + n);
}
#endif
