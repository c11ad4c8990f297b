/* powers_avx2.h - sums of |E|^2 and |E|^4 of 32 neighbours at a time. To be called in code for AVX2 only, and
 * included where BR_X86_64 is 1. */
#ifndef BEAMRING_KERNELS_COMMON_POWERS_AVX2_H
#define BEAMRING_KERNELS_COMMON_POWERS_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define BR_POWERS_AVX2 __attribute__((target("avx2"))) static inline

/* |E|^2 of 32 samples whose nibbles are these, at most 128: a byte each. */
BR_POWERS_AVX2 __m256i br_powers_of_nibbles(__m256i low, __m256i high)
{
    const __m256i square =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 9, 16, 25, 36, 49, 64, 49, 36, 25, 16, 9, 4, 1));
    return _mm256_add_epi8(_mm256_shuffle_epi8(square, low), _mm256_shuffle_epi8(square, high));
}

/* Two samples of 32 neighbours, p and q: adjacent in 16 bits each, so that one multiply-add makes p + q or
 * p^2 + q^2. */
BR_POWERS_AVX2 void br_powers_add(__m256i p, __m256i q, __m256i first[4], __m256i second[4])
{
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi16(1);
    __m256i low = _mm256_unpacklo_epi8(p, q), high = _mm256_unpackhi_epi8(p, q);
    __m256i pair[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                       _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
    for (int k = 0; k < 4; k++) {
        first[k] = _mm256_add_epi32(first[k], _mm256_madd_epi16(pair[k], one));
        second[k] = _mm256_add_epi32(second[k], _mm256_madd_epi16(pair[k], pair[k]));
    }
}

/* Adds sums of 32 neighbours to those in memory. Unpacking works in halves of a vector, so vector k has
 * neighbours 4k to 4k + 3 and 16 + 4k to 16 + 4k + 3. */
BR_POWERS_AVX2 void br_powers_store(uint32_t *sum, const __m256i part[4])
{
    for (int k = 0; k < 4; k++) {
        __m128i *low = (__m128i *)(void *)(sum + 4 * k), *high = (__m128i *)(void *)(sum + 16 + 4 * k);
        _mm_storeu_si128(low, _mm_add_epi32(_mm_loadu_si128(low), _mm256_castsi256_si128(part[k])));
        _mm_storeu_si128(high, _mm_add_epi32(_mm_loadu_si128(high), _mm256_extracti128_si256(part[k], 1)));
    }
}

#endif
