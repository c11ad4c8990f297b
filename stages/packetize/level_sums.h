/* level_sums.h - sums over a row of 4-bit levels, two in a byte, -8 being none. In the header, so that
 * they become part of the loops over rows that use them. */
#ifndef BEAMRING_STAGES_PACKETIZE_LEVEL_SUMS_H
#define BEAMRING_STAGES_PACKETIZE_LEVEL_SUMS_H

#include "kernels/common/cpu.h"

#include <stddef.h>
#include <stdint.h>

#if BR_X86_64
#include <immintrin.h>
#endif

struct level_sums {
    int count, sum, squares; /* of the levels that are there, -7 to 7 */
};

/* `bytes` is at most 2^20. */
static inline struct level_sums level_sums_plain(const uint8_t *packed, size_t bytes)
{
    struct level_sums s = {0};
    for (size_t i = 0; i < 2 * bytes; i++) {
        int level = (int)((packed[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8;
        if (level == -8) continue;
        s.count++;
        s.sum += level;
        s.squares += level * level;
    }
    return s;
}

#if BR_X86_64
/* u = level + 8, 0 for none: the sums of the levels follow from those of u and u^2, and from how many are
 * none. Sums of up to LEVEL_SUMS_AT_ONCE times 32 bytes fit into bytes and halves. */
enum { LEVEL_SUMS_AT_ONCE = 8 };

__attribute__((target("avx2"))) static inline struct level_sums level_sums_avx2(const uint8_t *packed,
                                                                                size_t bytes)
{
    const __m256i flip = _mm256_set1_epi8((char)0x88), low = _mm256_set1_epi8(15),
                  zero = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);
    __m256i both = zero, squares = zero; /* sums of u, and in the upper halves counts of none */
    size_t i = 0;
    while (i + 32 <= bytes) {
        __m256i none = zero, sum = zero, square = zero;
        for (unsigned k = 0; k < LEVEL_SUMS_AT_ONCE && i + 32 <= bytes; k++, i += 32) {
            __m256i u =
                _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)(packed + i)), flip);
            __m256i even = _mm256_and_si256(u, low), odd = _mm256_and_si256(_mm256_srli_epi16(u, 4), low);
            none = _mm256_sub_epi8(none, _mm256_cmpeq_epi8(even, zero));
            none = _mm256_sub_epi8(none, _mm256_cmpeq_epi8(odd, zero));
            sum = _mm256_add_epi8(sum, _mm256_add_epi8(even, odd));
            square = _mm256_add_epi16(square, _mm256_maddubs_epi16(even, even));
            square = _mm256_add_epi16(square, _mm256_maddubs_epi16(odd, odd));
        }
        both = _mm256_add_epi64(both, _mm256_sad_epu8(sum, zero));
        both = _mm256_add_epi64(both, _mm256_slli_epi64(_mm256_sad_epu8(none, zero), 32));
        squares = _mm256_add_epi32(squares, _mm256_madd_epi16(square, ones));
    }
    __m128i two = _mm_add_epi64(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)),
            four = _mm_add_epi32(_mm256_castsi256_si128(squares), _mm256_extracti128_si256(squares, 1));
    four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    uint64_t sums = (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
    int of_u = (int)(uint32_t)sums, count = (int)(2 * i) - (int)(sums >> 32),
        of_squares = _mm_cvtsi128_si32(four) + _mm_extract_epi32(four, 1);
    struct level_sums s = level_sums_plain(packed + i, bytes - i);
    s.count += count;
    s.sum += of_u - 8 * count;
    s.squares += of_squares - 16 * of_u + 64 * count;
    return s;
}
#endif

/* By what the processor can do. */
static inline struct level_sums level_sums(const uint8_t *packed, size_t bytes)
{
#if BR_X86_64
    if (br_cpu_has_avx2()) return level_sums_avx2(packed, bytes);
#endif
    return level_sums_plain(packed, bytes);
}

#endif
