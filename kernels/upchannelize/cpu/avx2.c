/* The filterbank's kernels in AVX2 registers. */
#include "kernels/common/cpu.h"
#include "kernels/upchannelize/cpu/transform.h"
#include "kernels/upchannelize/plan.h"

#include <string.h>

#if BR_X86_64
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

/* rows [count][TILE], the first eight of each -> field [count][re, im][LANES] */
AVX2 void br_upchannelize_unpack_avx2(float *field, const uint8_t *rows, size_t count)
{
    for (size_t t = 0; t < count; t++, rows += TILE, field += 2 * LANES) {
        __m256i e = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)rows));
        _mm256_store_ps(field, _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(e, 28), 28)));
        _mm256_store_ps(field + LANES, _mm256_cvtepi32_ps(_mm256_srai_epi32(e, 4)));
    }
}

AVX2 void br_upchannelize_transform_avx2(const struct upchannelize_filter *filter, const float *field,
                                         float *spectrum)
{
    upchannelize_transform(filter, field, spectrum);
}

/* Two fine channels at a time. Packing leaves, in each half of a register, four bytes of re, im of the first
 * channel and re, im of the second, for lanes 0 to 3 and 4 to 7. */
AVX2 unsigned br_upchannelize_quantize_avx2(const struct upchannelize_filter *filter, const float *spectrum,
                                            const uint8_t *keep, uint8_t *packed)
{
    const __m256i seven = _mm256_set1_epi8(7), minus_seven = _mm256_set1_epi8(-7),
                  nibble = _mm256_set1_epi8(15);
    const __m256i halves = _mm256_setr_epi32(0, 4, 2, 6, 0, 4, 2, 6);
    int32_t keep_low, keep_high;
    memcpy(&keep_low, keep, 4);
    memcpy(&keep_high, keep + 4, 4);
    const __m256i wanted = _mm256_set_m128i(_mm_set1_epi32(keep_high), _mm_set1_epi32(keep_low));
    const __m256i missing = _mm256_andnot_si256(wanted, _mm256_set1_epi8((char)0x88));
    /* counts down the components that are not clamped: at most 64 a byte */
    __m256i within = _mm256_setzero_si256();
    for (unsigned u = 0; u < filter->U; u += 2) {
        const float *x = spectrum + (size_t)filter->position[u] * 2 * LANES;
        const float *y = spectrum + (size_t)filter->position[u + 1] * 2 * LANES;
        __m256 gain_x = _mm256_broadcast_ss(filter->gain + u),
               gain_y = _mm256_broadcast_ss(filter->gain + u + 1);
        __m256i x_re = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(x), gain_x));
        __m256i x_im = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(x + LANES), gain_x));
        __m256i y_re = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(y), gain_y));
        __m256i y_im = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(y + LANES), gain_y));
        __m256i level = _mm256_packs_epi16(_mm256_packs_epi32(x_re, x_im), _mm256_packs_epi32(y_re, y_im));
        __m256i clamped = _mm256_max_epi8(_mm256_min_epi8(level, seven), minus_seven);
        within = _mm256_add_epi8(within, _mm256_cmpeq_epi8(level, clamped));
        clamped = _mm256_and_si256(clamped, nibble);
        /* bits 4 to 7 of a byte of re come from the byte of im four further on */
        __m256i both = _mm256_or_si256(clamped, _mm256_srli_epi64(clamped, 28));
        both = _mm256_or_si256(_mm256_and_si256(both, wanted), missing);
        __m128i bytes = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(both, halves));
        _mm_storel_epi64((__m128i *)(void *)(packed + (size_t)u * TILE), bytes);
        _mm_storeh_pd((double *)(void *)(packed + (size_t)(u + 1) * TILE), _mm_castsi128_pd(bytes));
    }
    __m256i count = _mm256_add_epi8(_mm256_set1_epi8((char)(filter->U / 2)), within);
    count = _mm256_sad_epu8(_mm256_and_si256(count, wanted), _mm256_setzero_si256());
    __m128i sum = _mm_add_epi64(_mm256_castsi256_si128(count), _mm256_extracti128_si256(count, 1));
    return (unsigned)(_mm_cvtsi128_si32(sum) + _mm_extract_epi32(sum, 2));
}
#endif
