/* The inner loops of the unpacker, 32 positions at a time. */
#include "kernels/common/cpu.h"
#include "kernels/unpack/plan.h"

#include <string.h>

#if BR_X86_64
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* 32 samples to int4x2; *power gets |E|^2, at most 128, a byte each. */
AVX2 static inline __m256i convert(__m256i byte, bool swap, __m256i *power)
{
    const __m256i low4 = _mm256_set1_epi8(15);
    const __m256i square =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 9, 16, 25, 36, 49, 64, 49, 36, 25, 16, 9, 4, 1));
    __m256i low = _mm256_and_si256(byte, low4), high = _mm256_and_si256(_mm256_srli_epi16(byte, 4), low4);
    *power = _mm256_add_epi8(_mm256_shuffle_epi8(square, low), _mm256_shuffle_epi8(square, high));
    return swap ? _mm256_or_si256(_mm256_slli_epi16(low, 4), high) : byte;
}

/* Sums of 32 positions. Unpacking works in halves of a vector, so vector k has positions 4k to 4k + 3 and
 * 16 + 4k to 16 + 4k + 3. */
AVX2 static inline void add_to(uint32_t *sum, const __m256i part[4])
{
    for (int k = 0; k < 4; k++) {
        __m128i *low = (__m128i *)(void *)(sum + 4 * k), *high = (__m128i *)(void *)(sum + 16 + 4 * k);
        _mm_storeu_si128(low, _mm_add_epi32(_mm_loadu_si128(low), _mm256_castsi256_si128(part[k])));
        _mm_storeu_si128(high, _mm_add_epi32(_mm_loadu_si128(high), _mm256_extracti128_si256(part[k], 1)));
    }
}

/* Two samples of 32 positions, p and q: adjacent in 16 bits each, so that one multiply-add makes p + q or
 * p^2 + q^2. */
AVX2 static inline void add_pair(__m256i p, __m256i q, __m256i first[4], __m256i second[4])
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

AVX2 void br_unpack_convert_avx2(uint8_t *rows, size_t count, size_t width, uint8_t flip, bool swap,
                                 uint32_t *s1, uint32_t *s2)
{
    const __m256i offset = _mm256_set1_epi8((char)flip);
    for (size_t n = 0; n < width; n += 32) {
        __m256i first[4], second[4];
        for (int k = 0; k < 4; k++) first[k] = second[k] = _mm256_setzero_si256();
        for (size_t t = 0; t < count; t += 2) {
            __m256i *even = (__m256i *)(void *)(rows + t * width + n),
                    *odd = (__m256i *)(void *)(rows + (t + 1) * width + n);
            __m256i p, q;
            _mm256_store_si256(even, convert(_mm256_xor_si256(_mm256_load_si256(even), offset), swap, &p));
            _mm256_store_si256(odd, convert(_mm256_xor_si256(_mm256_load_si256(odd), offset), swap, &q));
            if (s1) add_pair(p, q, first, second);
        }
        if (!s1) continue;
        add_to(s1 + n, first);
        add_to(s2 + n, second);
    }
}

AVX2 void br_unpack_store_avx2(uint8_t *to, size_t stride, const uint8_t *rows, size_t count, size_t width,
                               size_t n)
{
    if (n % 32 != 0 || ((uintptr_t)to | stride) % 32 != 0) {
        for (size_t t = 0; t < count; t++) memcpy(to + t * stride, rows + t * width, n);
        return;
    }
    for (size_t t = 0; t < count; t++)
        for (size_t k = 0; k < n; k += 32)
            _mm256_stream_si256((__m256i *)(void *)(to + t * stride + k),
                                _mm256_load_si256((const __m256i *)(const void *)(rows + t * width + k)));
}
#endif
