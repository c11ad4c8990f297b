/* Inner loops of the correlator with AVX2. */
#include "kernels/common/cpu.h"
#include "kernels/correlate/plan.h"

#if BR_X86_64
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* 16 x 16 bytes, rows to columns: four rounds of interleaving row k with row k + 8. */
AVX2 static inline void transpose(__m128i r[16])
{
    __m128i s[16];
    for (int round = 0; round < 4; round++) {
        for (int k = 0; k < 8; k++) {
            s[2 * k] = _mm_unpacklo_epi8(r[k], r[k + 8]);
            s[2 * k + 1] = _mm_unpackhi_epi8(r[k], r[k + 8]);
        }
        for (int k = 0; k < 16; k++) r[k] = s[k];
    }
}

AVX2 static inline void put(void *to, __m128i value)
{
    _mm_store_si128(to, value);
}

AVX2 void br_correlate_spread_avx2(const uint8_t *const *row, int8_t *x, int8_t *y, uint8_t *u, size_t half)
{
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    __m128i r[16];
    for (int t = 0; t < 16; t++) r[t] = _mm_loadu_si128((const __m128i *)row[t]);
    transpose(r);
    for (size_t n = 0; n < 16; n++, x += CORRELATE_ROW, y += CORRELATE_ROW, u += CORRELATE_ROW) {
        /* values plus 8 */
        __m128i real = _mm_xor_si128(_mm_and_si128(r[n], low), eight);
        __m128i imag = _mm_xor_si128(_mm_and_si128(_mm_srli_epi16(r[n], 4), low), eight);
        put(u, real), put(u + half, imag);
        put(x, _mm_sub_epi8(real, eight)), put(x + half, _mm_sub_epi8(imag, eight));
        put(y, _mm_sub_epi8(imag, eight)), put(y + half, _mm_sub_epi8(eight, real));
    }
}

AVX2 static inline int32_t total(__m256i sums16)
{
    __m256i s = _mm256_madd_epi16(sums16, _mm256_set1_epi16(1));
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return _mm_cvtsi128_si32(h);
}

/* Two by two inputs: 8 sums, two operands u, one of x and y and a product fit into the sixteen registers. A
 * sum's 16 bits take 128 products of at most 2 x 15 x 8. */
AVX2 void br_correlate_block_avx2(const int8_t *x, const int8_t *y, const uint8_t *u, size_t bytes,
                                  int32_t out[CORRELATE_I][CORRELATE_J][2])
{
    const int8_t *s[4] = {x, y, x + CORRELATE_ROW, y + CORRELATE_ROW};
    __m256i sum[4][2];
    for (int i = 0; i < 4; i++) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (size_t k = 0; k < bytes; k += 32) {
        __m256i u0 = _mm256_load_si256((const __m256i *)(u + k));
        __m256i u1 = _mm256_load_si256((const __m256i *)(u + CORRELATE_ROW + k));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m256i v = _mm256_load_si256((const __m256i *)(s[i] + k));
            sum[i][0] = _mm256_add_epi16(sum[i][0], _mm256_maddubs_epi16(u0, v));
            sum[i][1] = _mm256_add_epi16(sum[i][1], _mm256_maddubs_epi16(u1, v));
        }
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) out[i / 2][j][i % 2] = total(sum[i][j]);
}

#endif
