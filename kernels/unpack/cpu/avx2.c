/* The inner loops of the unpacker, 32 positions at a time. */
#include "kernels/common/cpu.h"
#include "kernels/unpack/plan.h"

#include <string.h>

#if BR_X86_64
#include "kernels/common/powers_avx2.h"

#define AVX2 __attribute__((target("avx2")))

/* 32 samples to int4x2; *power gets |E|^2, at most 128, a byte each. */
AVX2 static inline __m256i convert(__m256i byte, bool swap, __m256i *power)
{
    const __m256i low4 = _mm256_set1_epi8(15);
    __m256i low = _mm256_and_si256(byte, low4), high = _mm256_and_si256(_mm256_srli_epi16(byte, 4), low4);
    *power = br_powers_of_nibbles(low, high);
    return swap ? _mm256_or_si256(_mm256_slli_epi16(low, 4), high) : byte;
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
            if (s1) br_powers_add(p, q, first, second);
        }
        if (!s1) continue;
        br_powers_store(s1 + n, first);
        br_powers_store(s2 + n, second);
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
