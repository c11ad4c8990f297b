#include "stages/packetize/level_sums.h"
#include "kernels/common/cpu.h"

#if BR_X86_64
#include <immintrin.h>
#endif

static struct level_sums add_up(const uint8_t *packed, size_t bytes)
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
/* A table of 16 bytes for each of the codes 0 to 15, in both halves of a register. */
#define TABLE(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

__attribute__((target("avx2"))) static int total(__m256i fours)
{
    __m128i two = _mm_add_epi64(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    return (int)(_mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1));
}

/* 32 bytes at a time: the sums of two nibbles fit into a byte, and are added up at once. */
__attribute__((target("avx2"))) static struct level_sums add_up_avx2(const uint8_t *packed, size_t bytes)
{
    const __m256i there = TABLE(1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1),
                  plus_8 = TABLE(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7),
                  square = TABLE(0, 1, 4, 9, 16, 25, 36, 49, 0, 49, 36, 25, 16, 9, 4, 1),
                  low = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    __m256i count = zero, sum = zero, squares = zero;
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)(packed + i));
        __m256i even = _mm256_and_si256(both, low), odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        __m256i n = _mm256_add_epi8(_mm256_shuffle_epi8(there, even), _mm256_shuffle_epi8(there, odd)),
                s = _mm256_add_epi8(_mm256_shuffle_epi8(plus_8, even), _mm256_shuffle_epi8(plus_8, odd)),
                q = _mm256_add_epi8(_mm256_shuffle_epi8(square, even), _mm256_shuffle_epi8(square, odd));
        count = _mm256_add_epi64(count, _mm256_sad_epu8(n, zero));
        sum = _mm256_add_epi64(sum, _mm256_sad_epu8(s, zero));
        squares = _mm256_add_epi64(squares, _mm256_sad_epu8(q, zero));
    }
    struct level_sums rest = add_up(packed + i, bytes - i);
    int n = total(count);
    rest.count += n;
    rest.sum += total(sum) - 8 * n;
    rest.squares += total(squares);
    return rest;
}
#endif

struct level_sums level_sums(const uint8_t *packed, size_t bytes)
{
#if BR_X86_64
    if (br_cpu_has_avx2()) return add_up_avx2(packed, bytes);
#endif
    return add_up(packed, bytes);
}
