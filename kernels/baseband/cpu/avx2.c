/* The octet of beams in AVX2 registers: 8 beams x 3 times x (re, im) at once. */
#include "kernels/baseband/plan.h"
#include "kernels/common/cpu.h"

#include <string.h>

#if BR_X86_64
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 void br_baseband_unpack_avx2(uint8_t *field, const uint8_t *e, size_t ndishes)
{
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8((char)0x88);
    size_t d = 0;
    for (; d + 16 <= ndishes; d += 16) {
        __m128i byte = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(e + d)), eight);
        __m128i re = _mm_and_si128(byte, low), im = _mm_and_si128(_mm_srli_epi16(byte, 4), low);
        _mm_storeu_si128((__m128i *)(void *)(field + 2 * d), _mm_unpacklo_epi8(re, im));
        _mm_storeu_si128((__m128i *)(void *)(field + 2 * d + 16), _mm_unpackhi_epi8(re, im));
    }
    for (; d < ndishes; d++) {
        unsigned byte = e[d] ^ 0x88u;
        field[2 * d] = (uint8_t)(byte & 15);
        field[2 * d + 1] = (uint8_t)(byte >> 4);
    }
}

/* Four bytes (two dishes) of the field to every beam. */
AVX2 static inline __m256i dishes(const uint8_t *e)
{
    int32_t four;
    memcpy(&four, e, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Adds the pair products of one dish pair at three times: 16 bits are enough for CHUNK / 2 of them. */
AVX2 static inline __attribute__((always_inline)) void
add_pair(__m256i sum[6], const int8_t *w, const uint8_t *e0, const uint8_t *e1, const uint8_t *e2, int first)
{
    const __m256i *weights = (const __m256i *)(const void *)w;
    __m256i re = _mm256_load_si256(weights), im = _mm256_load_si256(weights + 1), e, product[6];
    e = dishes(e0);
    product[0] = _mm256_maddubs_epi16(e, re);
    product[1] = _mm256_maddubs_epi16(e, im);
    e = dishes(e1);
    product[2] = _mm256_maddubs_epi16(e, re);
    product[3] = _mm256_maddubs_epi16(e, im);
    e = dishes(e2);
    product[4] = _mm256_maddubs_epi16(e, re);
    product[5] = _mm256_maddubs_epi16(e, im);
    for (int i = 0; i < 6; i++) {
        sum[i] = first ? product[i] : _mm256_add_epi16(sum[i], product[i]);
        /* Compilers like to form all products of a chunk first and then add them in another order, which
         * spills. */
        __asm__("" : "+x"(sum[i]));
    }
}

/* sum[time][re, im] over all dishes, eight beams per register. */
AVX2 static inline __attribute__((always_inline)) void
three_times(__m256i total[6], const struct octet_job *job, const uint8_t *e)
{
    const __m256i one = _mm256_set1_epi16(1);
    size_t row = job->chunks * CHUNK * 2;
    const uint8_t *e0 = e, *e1 = e + row, *e2 = e + 2 * row;
    const int8_t *w = job->weights;
    __m256i offset_re = _mm256_load_si256((const __m256i *)(const void *)job->offset);
    __m256i offset_im = _mm256_load_si256((const __m256i *)(const void *)(job->offset + OCTET));
    for (int i = 0; i < 6; i++) total[i] = i % 2 ? offset_im : offset_re;
    for (size_t chunk = 0; chunk < job->chunks; chunk++) {
        __m256i sum[6];
        add_pair(sum, w, e0, e1, e2, 1);
        for (int pair = 1; pair < CHUNK / 2; pair++)
            add_pair(sum, w + 64 * pair, e0 + 4 * pair, e1 + 4 * pair, e2 + 4 * pair, 0);
        for (int i = 0; i < 6; i++) total[i] = _mm256_add_epi32(total[i], _mm256_madd_epi16(sum[i], one));
        w += 64 * (CHUNK / 2);
        e0 += 2 * CHUNK;
        e1 += 2 * CHUNK;
        e2 += 2 * CHUNK;
    }
}

/* bytes[8 times][8 beams] -> row[b] = the 8 times of beam b. */
AVX2 static inline void transpose_8x8(uint64_t row[8], const uint8_t *bytes)
{
    const __m128i *in = (const __m128i *)(const void *)bytes;
    /* each register holds times 2i and 2i+1: pair the bytes of times t and t+1, then of 4, then of 8 */
    __m128i a[4], b[4];
    for (int i = 0; i < 4; i++) {
        a[i] = _mm_loadu_si128(in + i);
        b[i] = _mm_unpacklo_epi8(a[i], _mm_srli_si128(a[i], 8));
    }
    __m128i low01 = _mm_unpacklo_epi16(b[0], b[1]), high01 = _mm_unpackhi_epi16(b[0], b[1]);
    __m128i low23 = _mm_unpacklo_epi16(b[2], b[3]), high23 = _mm_unpackhi_epi16(b[2], b[3]);
    __m128i *out = (__m128i *)(void *)row;
    _mm_storeu_si128(out, _mm_unpacklo_epi32(low01, low23));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi32(low01, low23));
    _mm_storeu_si128(out + 2, _mm_unpacklo_epi32(high01, high23));
    _mm_storeu_si128(out + 3, _mm_unpackhi_epi32(high01, high23));
}

AVX2 void br_baseband_octet_avx2(const struct octet_job *job)
{
    const __m256i seven = _mm256_set1_epi32(7), minus_seven = _mm256_set1_epi32(-7),
                  nibble = _mm256_set1_epi32(15);
    const __m256i gather = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4,
                                            8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i shift = _mm256_load_si256((const __m256i *)(const void *)job->shift);
    size_t row = job->chunks * CHUNK * 2;
    __m256i within = _mm256_setzero_si256(); /* counts down the components that were not clamped */
    size_t counted = 0;
    for (size_t t = 0; t < job->times; t += 3) {
        __m256i total[6];
        three_times(total, job, job->field + t * row);
        for (size_t i = 0; i < 3 && t + i < job->times; i++) {
            uint8_t *bytes = job->bytes + (t + i) * OCTET;
            if (job->valid && !job->valid[t + i]) {
                memset(bytes, 0x88, OCTET);
                continue;
            }
            __m256i re = _mm256_srav_epi32(total[2 * i], shift),
                    im = _mm256_srav_epi32(total[2 * i + 1], shift);
            __m256i re7 = _mm256_max_epi32(_mm256_min_epi32(re, seven), minus_seven);
            __m256i im7 = _mm256_max_epi32(_mm256_min_epi32(im, seven), minus_seven);
            within = _mm256_add_epi32(within, _mm256_cmpeq_epi32(re, re7));
            within = _mm256_add_epi32(within, _mm256_cmpeq_epi32(im, im7));
            counted += 2;
            __m256i both = _mm256_or_si256(_mm256_and_si256(re7, nibble),
                                           _mm256_slli_epi32(_mm256_and_si256(im7, nibble), 4));
            both = _mm256_shuffle_epi8(both, gather);
            __m128i eight =
                _mm_unpacklo_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
            _mm_storel_epi64((__m128i *)(void *)bytes, eight);
        }
    }
    int32_t not_clamped[OCTET];
    _mm256_storeu_si256((__m256i *)(void *)not_clamped, within);
    for (size_t b = 0; b < job->beams; b++) job->clamped[b] += counted - (uint64_t) - (int64_t)not_clamped[b];

    for (size_t t = 0; t < job->times; t += 8) {
        size_t times = job->times - t < 8 ? job->times - t : 8;
        uint64_t rows[OCTET];
        transpose_8x8(rows, job->bytes + t * OCTET);
        if (times == 8)
            for (size_t b = 0; b < job->beams; b++) memcpy(job->out + b * job->out_stride + t, &rows[b], 8);
        else
            for (size_t b = 0; b < job->beams; b++)
                memcpy(job->out + b * job->out_stride + t, &rows[b], times);
    }
}

/* The same with samples of int8 + int8. */
AVX2 void br_baseband_octet8_avx2(const struct octet_job *job)
{
    const __m256i most = _mm256_set1_epi32(127), least = _mm256_set1_epi32(-127),
                  byte = _mm256_set1_epi32(255);
    const __m256i shift = _mm256_load_si256((const __m256i *)(const void *)job->shift);
    size_t row = job->chunks * CHUNK * 2;
    __m256i within = _mm256_setzero_si256(); /* counts down the components that were not clamped */
    size_t counted = 0;
    for (size_t t = 0; t < job->times; t += 3) {
        __m256i total[6];
        three_times(total, job, job->field + t * row);
        for (size_t i = 0; i < 3 && t + i < job->times; i++) {
            uint8_t *sample = job->out + 2 * (t + i);
            if (job->valid && !job->valid[t + i]) {
                for (size_t b = 0; b < job->beams; b++) memset(sample + b * job->out_stride, 0x80, 2);
                continue;
            }
            __m256i re = _mm256_srav_epi32(total[2 * i], shift),
                    im = _mm256_srav_epi32(total[2 * i + 1], shift);
            __m256i re127 = _mm256_max_epi32(_mm256_min_epi32(re, most), least);
            __m256i im127 = _mm256_max_epi32(_mm256_min_epi32(im, most), least);
            within = _mm256_add_epi32(within, _mm256_cmpeq_epi32(re, re127));
            within = _mm256_add_epi32(within, _mm256_cmpeq_epi32(im, im127));
            counted += 2;
            uint32_t both[OCTET];
            _mm256_storeu_si256((__m256i *)(void *)both,
                                _mm256_or_si256(_mm256_and_si256(re127, byte),
                                                _mm256_slli_epi32(_mm256_and_si256(im127, byte), 8)));
            for (size_t b = 0; b < job->beams; b++) memcpy(sample + b * job->out_stride, &both[b], 2);
        }
    }
    int32_t not_clamped[OCTET];
    _mm256_storeu_si256((__m256i *)(void *)not_clamped, within);
    for (size_t b = 0; b < job->beams; b++) job->clamped[b] += counted - (uint64_t) - (int64_t)not_clamped[b];
}

AVX2 void br_baseband_powers_avx2(const struct octet_job *job)
{
    size_t row = job->chunks * CHUNK * 2;
    for (size_t t = 0; t < job->times; t += 3) {
        __m256i total[6];
        three_times(total, job, job->field + t * row);
        for (size_t i = 0; i < 3 && t + i < job->times; i++) {
            __m256 re = _mm256_cvtepi32_ps(total[2 * i]), im = _mm256_cvtepi32_ps(total[2 * i + 1]);
            __m256 power = _mm256_add_ps(_mm256_mul_ps(re, re), _mm256_mul_ps(im, im));
            if (job->valid && !job->valid[t + i]) power = _mm256_setzero_ps();
            _mm256_storeu_ps(job->power + (t + i) * OCTET, power);
        }
    }
}
#endif
